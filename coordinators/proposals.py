"""Tasks that a model proposes: their JSON schema, and how valid data become tasks of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kairo_team._util.reply_json import object_schema
from kairo_team.conditions import condition_schema
from kairo_team.engine.plan.preflight import plan_problems
from kairo_team.errors import PlanRefused
from kairo_team.prompts.quoting import cap
from kairo_team.tasks import Loop, Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.team import Team

ID_CHARACTERS: Final = 40
"""The longest id of a new task."""
_MOST_SENTENCES: Final = 20
"""How many problems of a reply are sent back: the first of a hundred similar ones are enough."""
_MOST_CHARACTERS: Final = 2000
"""Longest description in a reply held to the schema: a small model that never stops fills its reply. The longest
problem, too."""


class Growth(NamedTuple):
    """How far a proposed plan may grow while it runs."""

    max_items: int
    """The most items of a map."""
    max_rounds: int
    """The most rounds of a loop."""


class ProposedTask(BaseModel):
    """A task as a model writes it; may be a map, a branch or a loop where growth is allowed."""

    model_config = ConfigDict(extra="forbid")
    id: str
    description: Annotated[str, Field(min_length=1)]
    member: str | None = None
    depends_on: list[str] = []
    when: dict[str, Any] | None = None
    over: str | None = None
    body: list[ProposedTask] | None = None
    until: dict[str, Any] | None = None

    def as_task(self, growth: Growth | None = None) -> Task:
        """Make the task; `ValueError` for an invalid id, or a field that may not be proposed."""
        grows = {name: given for name in _GROWS if (given := getattr(self, name)) is not None}
        if grows and growth is None:
            raise ValueError(f"task {self.id!r}: {next(iter(grows))} is not allowed in this plan")
        if self.member is None and self.body is None:
            raise ValueError(f"task {self.id!r} has no member")
        if self.until is not None and self.body is None:
            raise ValueError(f"task {self.id!r}: until is for a loop, which has a body")
        fields: dict[str, Any] = {"member": self.member, "depends_on": self.depends_on, "when": self.when}
        if growth is not None and self.over is not None:
            fields |= {"over": self.over, "max_items": growth.max_items}
        if growth is not None and self.body is not None:
            body = [task.as_task(growth) for task in self.body]
            # A loop has no member, even if a model names one: its body has.
            fields |= {"member": None, "loop": Loop(body, until=self.until, max_rounds=growth.max_rounds)}
        return Task(self.id, self.description, **fields)


_GROWS: Final = ("when", "over", "body", "until")


def task_schema(
    members: Sequence[str],
    kept: Sequence[str],
    most: int,
    *,
    optional: Sequence[str] = (),
    growth: Growth | None = None,
) -> dict[str, Any]:
    """Return the JSON schema of one task: only these members can be named, and every length is limited.

    `kept` are the ids of existing tasks, which a new one may depend on; `most` is the number of new tasks allowed;
    `optional` are fields that may be left out. With `growth` the task may be a map, a branch or a loop.
    """
    fields: dict[str, Any] = {
        "id": _id_of(ID_CHARACTERS),
        "description": {"type": "string", "minLength": 1, "maxLength": _MOST_CHARACTERS},
        "member": {"enum": list(members)},
        "depends_on": {"type": "array", "items": _id_of(_longest_need(kept)), "maxItems": most + len(kept)},
    }
    required = [name for name in fields if name not in optional]
    if growth is not None:
        plain = object_schema(fields, required)
        fields |= {
            "when": condition_schema(),
            "over": _id_of(_longest_need(kept)),
            "body": {"type": "array", "items": plain, "minItems": 1, "maxItems": most},
            "until": condition_schema(),
        }
        required = [name for name in required if name != "member"]  # a loop has none
    return object_schema(fields, required)


def plan_with(
    proposed: Sequence[ProposedTask], kept: Sequence[Task], team: Team, growth: Growth | None = None
) -> TaskGraph:
    """Return the plan of the tasks that stay and the proposed ones; `PlanRefused` with all problems."""
    # First: an id of a megabyte must not reach another message.
    problems = _long_ids(proposed, [task.id for task in kept])
    new, graph = list[Task](), None
    try:
        if not problems:
            new += [task.as_task(growth) for task in proposed]
            graph = TaskGraph([*kept, *new])
    except ValidationError as error:
        problems += sentences(error)
    except ValueError as error:
        problems.append(str(error))
    problems += plan_problems(new, team)  # in addition, so that all problems are sent back at once
    if problems or graph is None:
        raise PlanRefused(_short(problems))
    return graph


def sentences(error: ValidationError) -> list[str]:
    """Return the problems with the shape of data, one sentence each."""
    found: list[str] = []
    for one in error.errors(include_url=False)[:_MOST_SENTENCES]:
        where = ".".join(str(part) for part in one["loc"])
        found.append(f"{where}: {one['msg']}" if where else one["msg"])
    return _short(found)


def _short(problems: Iterable[str]) -> list[str]:
    """Cut sentences that quote a long text of a model: prompts and errors contain them."""
    return [cap(one, _MOST_CHARACTERS) for one in problems]


def _longest_need(kept: Iterable[str]) -> int:
    """Return the longest id in `depends_on`: a task that stays may have a longer id than a new task."""
    return max(ID_CHARACTERS, *map(len, kept), 0)


def _long_ids(tasks: Sequence[ProposedTask], kept: Iterable[str]) -> list[str]:
    """Return a sentence for each id longer than the schema allows."""
    most = _longest_need(kept)
    tasks = list(_with_bodies(tasks))
    long = [(one.id, ID_CHARACTERS) for one in tasks if len(one.id) > ID_CHARACTERS]
    long += [(need, most) for one in tasks for need in one.depends_on if len(need) > most]
    return [
        f"the id {name[:ID_CHARACTERS]!r}... has {len(name)} characters, at most {limit} are allowed"
        for name, limit in long[:_MOST_SENTENCES]
    ]


def _with_bodies(tasks: Iterable[ProposedTask]) -> Iterator[ProposedTask]:
    for task in tasks:
        yield task
        yield from _with_bodies(task.body or ())


def _id_of(most: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^[A-Za-z0-9_.-]{{1,{most}}}$"}
