"""Digests of what shapes a run: a resumed run is compared with its beginning."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

from kairo_team._util.context_values import set_for
from kairo_team.budget import Budget
from kairo_team.errors import PlanMismatch
from kairo_team.output_types import schema_of
from kairo_team.plugins import make
from kairo_team.tasks import TaskGraph
from kairo_team.team import Member, Team, TeamConfig
from kairo_team.tools.tool import Tool

if TYPE_CHECKING:
    from kairo_team.contracts import TeamCoordinator
    from kairo_team.tools.permissions import ToolPermissions

_MEMBERS: Final = "set of members"
"""Compared by the members' names, not by a digest."""
_COORDINATOR: Final = "coordinator"
"""Compared by the coordinator's class and its digest, if it has one.

A run that began without one may resume with any, whose own `execute` may have begun it.
"""
_THE_USUAL: Final = "the usual one"
_OF_COORDINATOR: Final = frozenset({_COORDINATOR, "the coordinator's criteria", "planner"})
_USUAL: Final = frozenset({"ExpertTeamCoordinator", "TaskDispatchCoordinator", "RolePlanner"})
"""Classes that a run has where none is named, so that a run may be resumed with or without naming them."""
_TOOL: Final = "tool "
_LIST: Final = "list of parts"
"""Version of the list of parts.

Digests without a version name fewer parts, and no side effects of tools; version 2 names every planner and no
coordinator.
"""
_VERSION: Final = "3"
_INNER: Final = " of team "
"""Before the name of a team that is a member, in the names of its parts."""
_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+")
"""Where an object without a `repr` of its own is; a function too."""
_SHOWN: Final = 8
"""How many characters of a digest an error shows."""


_executed: Final[ContextVar[TeamCoordinator | None]] = ContextVar("kairo_team_coordinator", default=None)


def executing(coordinator: TeamCoordinator | None) -> AbstractContextManager[object]:
    """Inside the block, execute a run with this coordinator in place of the team's; None: with the team's."""
    return set_for(_executed, coordinator)


def executed() -> TeamCoordinator | None:
    """Return the coordinator that replaces the team's in the run that executes here; None if none does."""
    return _executed.get()


def digests_of(
    team: Team, templates: Mapping[str, str], coordinator: TeamCoordinator | None = None
) -> Mapping[str, str]:
    """Return the digests of everything known that shapes what a team is asked, by name.

    These parts have a digest: members with their roles, instructions and tools; schemas and side effects of the tools
    that are known before a member works; permissions of tools; rubrics and other criteria of evaluators; the team's
    coordinator, or the one that replaces it, with its evaluator and planner; output types; templates. A member that is
    a team adds the same parts, its plan, and its configuration without the budget. Parts that have no digest are left
    out.
    """
    members = ", ".join(f"{member.id} ({member.role.id})" for member in team.everyone)
    return {
        _MEMBERS: members,
        _LIST: _VERSION,
        **_hashed(_parts(team, templates)),
        **_hashed(_parts_of_coordinator(coordinator or team.coordinator)),
    }


def without_given(team: Team, digests: Mapping[str, str]) -> Mapping[str, str]:
    """Return digests with the team's own coordinator in place of the one that a run was given."""
    kept = {name: digest for name, digest in digests.items() if name not in _OF_COORDINATOR}
    return {**kept, **_hashed(_parts_of_coordinator(team.coordinator))}


def _hashed(parts: Iterable[tuple[str, object]]) -> dict[str, str]:
    return {name: str(part) if name == _COORDINATOR else _hash(_written(part)) for name, part in parts}


def _hash(written: str) -> str:
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()


def check_unchanged(
    run_id: str, was: Mapping[str, str], now: Mapping[str, str], allow_changes: Collection[str] = ()
) -> None:
    """Raise `PlanMismatch` for the first difference that is not allowed.

    The set of members is compared first; where it may change, so may everything that was added or removed with a
    member.
    """
    if _COORDINATOR in was:
        now = {_COORDINATOR: _THE_USUAL, **now}
    both = was.keys() & now.keys()
    others_may_come = any(name.startswith(_MEMBERS) for name in allow_changes)
    if _LIST not in was:
        names = {name for name in both if not name.startswith(_TOOL)}
    elif others_may_come:
        names = both
    else:
        new = was.keys() ^ now.keys()
        if was[_LIST] != _VERSION:
            new = {name for name in new if name.partition(_INNER)[0] not in _OF_COORDINATOR}
        names = both | (new if _COORDINATOR in was else new - _OF_COORDINATOR)
    names.discard(_LIST)
    for name in sorted(names - set(allow_changes), key=lambda one: (not one.startswith(_MEMBERS), one)):
        if was.get(name) != now.get(name):
            raise PlanMismatch(run_id, name, _show_digest(name, was), _show_digest(name, now))


def has_earlier_parts(digests: Mapping[str, str]) -> bool:
    """Return whether digests were made by an earlier version of this library, which listed other parts."""
    return digests.get(_LIST) != _VERSION


def criteria_digest(evaluator: Any) -> str | None:
    """Return the digest of an evaluator's criteria: its rubric's, or its own; None if it has none."""
    rubric = getattr(evaluator, "rubric", None)
    digest = getattr(evaluator if rubric is None else rubric, "digest", None)
    return digest if isinstance(digest, str) else None


def why_not_frozen(evaluator: Any) -> str:
    """Return why an evaluator's criteria have no digest, in a sentence; "" if they have one, or it has no criteria."""
    rubric = getattr(evaluator, "rubric", None)
    source = evaluator if rubric is None else rubric
    if not hasattr(source, "digest") or isinstance(source.digest, str):
        return ""
    return getattr(source, "no_digest", "") or "a rubric in it has no digest, so its criteria are not frozen"


def _show_digest(name: str, digests: Mapping[str, str]) -> str:
    found = digests.get(name, "nothing")
    return found if name in (_MEMBERS, _COORDINATOR) else found[:_SHOWN]


def _parts(team: Team, templates: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    for member in team.everyone:
        yield f"instructions of role {member.role.id!r}", member.role.instructions
        if member.role.allowed_tools is not None:
            yield f"allowed tools of role {member.role.id!r}", member.role.allowed_tools
        if member.role.thinking is not None:
            yield f"thinking of role {member.role.id!r}", member.role.thinking
        yield from _parts_of(member)
    for name, evaluator in team.evaluators.items():
        digest = criteria_digest(evaluator)
        if digest is not None:
            yield f"criteria of evaluator {name!r}", digest
    if team.permissions is not None:
        yield "permissions of tools", _decided_by(team.permissions)
    for name, kind in team.output_types.items():
        yield f"output type {name!r}", schema_of(kind)
    for name, text in templates.items():
        yield f"template {name!r}", text


def digest_of(*settings: object) -> str:
    """Return a digest of settings that is the same in every process."""
    return _hash(_written(settings))


def _parts_of_coordinator(coordinator: Any) -> Iterator[tuple[str, object]]:
    """Yield a coordinator, its known criteria and its planner."""
    if coordinator is not None:
        digest = getattr(coordinator, "digest", None)
        own = _class_of(coordinator) + (f" ({digest[:_SHOWN]})" if isinstance(digest, str) else "")
        yield _COORDINATOR, _THE_USUAL if type(coordinator).__name__ in _USUAL else own
    evaluator, planner = (getattr(coordinator, name, None) for name in ("evaluator", "planner"))
    criteria = f"the team's {evaluator!r}" if isinstance(evaluator, str) else criteria_digest(evaluator)
    if criteria is not None and not (type(coordinator).__name__ in _USUAL and criteria == _usual_criteria()):
        yield "the coordinator's criteria", criteria
    if planner is not None and type(planner).__name__ not in _USUAL:
        yield "planner", (_class_of(planner), getattr(planner, "digest", None))


@cache
def _usual_criteria() -> str | None:
    return criteria_digest(make("coordinator", "expert").evaluator)


def _decided_by(permissions: ToolPermissions) -> object:
    """Return what is known of the decisions about tool calls: a guard's own digest, or its rules."""
    guard: Any = permissions.guard
    rules = getattr(guard, "digest", None) or (getattr(guard, "rules", None), getattr(guard, "default", None))
    known = None if guard is None else (_class_of(guard), rules)
    return (permissions.plan_mode, permissions.mcp if is_dataclass(permissions.mcp) else None, known)


def _class_of(plug_in: object) -> str:
    return f"{type(plug_in).__module__}.{type(plug_in).__qualname__}"


def _parts_of(member: Member) -> Iterator[tuple[str, object]]:
    """Yield what is known of a member's agent: its tools, or the team that it is."""
    agent: Any = member.agent
    tools: Any = getattr(agent, "tools", None)
    for tool in cast("Sequence[object]", tools) if isinstance(tools, tuple | list) else ():
        if isinstance(tool, Tool):
            about = (tool.description, tool.parameters, tool.side_effect, tool.idempotent)
            yield f"{_TOOL}{tool.name!r} of member {member.id!r}", about
    team, plan, config = (getattr(agent, name, None) for name in ("team", "plan", "config"))
    if isinstance(team, Team):
        own = (*_parts(team, {}), *_parts_of_coordinator(team.coordinator))
        for name, part in ((_MEMBERS, digests_of(team, {})[_MEMBERS]), *own):
            yield f"{name}{_INNER}{team.name!r}", part
        if isinstance(plan, TaskGraph):
            yield f"plan of member {member.id!r}", plan
        if isinstance(config, TeamConfig):
            yield f"configuration of member {member.id!r}", replace(config, budget=Budget())


def _written(part: object) -> str:
    """Write a value the same way in every process: sets in order, objects without their addresses."""
    if isinstance(part, TaskGraph):
        return "\n".join(map(_written, part.tasks))
    if isinstance(part, set | frozenset):
        return repr(sorted(map(_written, cast("frozenset[object]", part))))
    if _is_json(part):  # a tuple too: so the first version wrote what a task depends on
        return repr(part)
    if type(part) in (list, tuple):
        return repr([*map(_written, cast("Sequence[object]", part))])
    if isinstance(part, dict):
        return repr([*map(_written, cast("dict[object, object]", part).items())])
    if is_dataclass(part) and not isinstance(part, type):
        held = [(one.name, getattr(part, one.name)) for one in fields(part)]
        # Without files a task is written as before it could have any.
        return repr([(name, _written(value)) for name, value in held if name != "files" or value])
    return _ADDRESS.sub("", repr(part))


def _is_json(part: object) -> bool:
    """Return whether `repr` writes a value as every process does."""
    try:
        json.dumps(part)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
