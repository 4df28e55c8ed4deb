"""`load_team` and `load_job`: a team and its job, from a file or a dict."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import EMPTY, check_kind, freeze_json, known_call
from kairo_team.data.files import DEEPEST, Data, parts_of, plain_copy, read_data
from kairo_team.data.mistakes import sentences
from kairo_team.data.reading import MISSING, Reading, keys_in
from kairo_team.data.teams.hints import arguments_of
from kairo_team.data.teams.shapes import Argument, Built, Definitions, Plain, Schema
from kairo_team.errors import Misuse
from kairo_team.tasks import TaskGraph
from kairo_team.team import Team, TeamConfig, TeamExecutionRequest

if TYPE_CHECKING:
    Source = str | os.PathLike[str] | Mapping[str, Any]

_SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class TeamJob:
    """A team and the job in its data, as `load_job` returns them.

    >>> job = kt.load_job({"name": "desk", "members": [...], "request": {"goal": "Tides."}})  # doctest: +SKIP
    >>> result = kt.run_sync(job.team, job.request())  # doctest: +SKIP
    """

    team: Team
    goal: str | None = None
    """None if the data has no goal: the job then needs a plan, or a goal in `request`."""
    context: Mapping[str, Any] = EMPTY
    """JSON values every member can read."""
    plan: TaskGraph | None = None
    config: TeamConfig = TeamConfig()

    def __post_init__(self) -> None:
        check_kind("TeamJob.team", self.team, Team)
        check_kind("TeamJob.goal", self.goal, str, or_none=True)
        check_kind("TeamJob.plan", self.plan, TaskGraph, or_none=True)
        check_kind("TeamJob.config", self.config, TeamConfig)
        check_kind("TeamJob.context", self.context, Mapping)
        object.__setattr__(self, "context", freeze_json(self.context))

    def request(self, goal: str | None = None) -> TeamExecutionRequest:
        """Make a request with its own run id; `goal` replaces the data's.

        Raises `Misuse` without a goal and a plan.
        """
        goal = goal if goal is not None else self.goal
        if goal is None and self.plan is None:
            raise Misuse(f"team {self.team.name!r} has no goal: give one, or write request.goal or request.plan")
        goal = goal if goal is not None else f"Carry out the plan of {self.team.name}."
        return TeamExecutionRequest(goal, self.context, self.plan, self.config)


@known_call
def load_team(source: Source, *, trusted: bool = False) -> Team:
    """Make a team from data: a .yaml, .yml (extra `yaml`), .toml or .json file, or a dict with such a file's content.

    The keys are the arguments of `Team` and of the objects in it. Write a plug-in as its name, or as
    `{name: its arguments}`: `mini`, `{mini: {model: "local:smollm2", max_turns: 2}}`; `module:name` is your own code.
    Relative paths begin at the file, or for a dict at the working directory.

    Loading imports nothing but the built-in and installed plug-ins that the data names, and starts nothing. With
    `trusted` the data may do what a Python file may: name `module:name`, start an MCP server's program, read `${NAME}`
    from the environment, and name files outside its folder. Without it each of these is a mistake.

    Raises `ValueError` with one line for each mistake: the file, the line, and the allowed values; `OSError` for a
    file that cannot be opened, and `MissingExtra`.

    >>> member = {"role": "writer", "agent": {"mini": {"model": "local:smollm2", "max_turns": 2}}}
    >>> team = kt.load_team({"name": "desk", "members": [member]})
    >>> print(team.members[0].agent)
    MiniAgent('local:smollm2', max_turns=2)
    """
    return load_job(source, trusted=trusted).team


@known_call
def load_job(source: Source, *, trusted: bool = False) -> TeamJob:
    """Make a team from data as `load_team` does, with the goal, context, plan and config of its `request`."""
    name, data, folder = _data_of(source)
    reading = Reading(folder, trusted)
    reading.mistakes += keys_in(data.value)  # first, and reported even if nothing else is wrong
    secret = {one.path for one in reading.mistakes}
    with _importable(folder) if trusted and not isinstance(source, Mapping) else nullcontext():
        made = _DOCUMENT.read(data.value, (), reading)
    # A key is reported once: another mistake in the same place would show its value.
    mistakes = [one for n, one in enumerate(reading.mistakes) if n < len(secret) or one.path not in secret]
    if mistakes or made is MISSING:
        raise ValueError("\n".join(sentences(mistakes, name, data.line_of)))
    job: TeamJob = made
    return job


def _data_of(source: Source) -> tuple[str, Data, pathlib.Path]:
    """Return the data's name in messages, the data, and the folder at which its paths begin."""
    if isinstance(source, Mapping):
        plain = plain_copy(source, "the team")
        _check_depth(plain, 0)
        return "the team", Data(plain), pathlib.Path.cwd()
    if not isinstance(source, str | os.PathLike):
        raise ValueError(f"a team is loaded from the path of a file or from a dict, not from {source!r:.80}")
    file = pathlib.Path(source)
    if not file.exists():
        raise FileNotFoundError(f"there is no file {str(file)!r}: give the path of a team in .yaml, .toml or .json")
    return str(file), read_data(file), file.resolve().parent


def _check_depth(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"the team: the data is nested more than {DEEPEST} deep")
    for one in parts_of(value).values():
        _check_depth(one, depth + 1)


@contextmanager
def _importable(folder: pathlib.Path) -> Generator[None]:
    """Make modules in the file's folder importable while it is loaded."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        # The loaded code may have changed the path itself.
        if str(folder) in sys.path:
            sys.path.remove(str(folder))


def team_schema() -> dict[str, Any]:
    """Return the JSON Schema of a team as data, for editors; `kairo schema team` prints it.

    >>> from kairo_team.data.teams import team_schema
    >>> print(team_schema()["required"])
    ['name', 'members']
    """
    return deepcopy(_schema())  # the cached one must not change


@cache
def _schema() -> dict[str, Any]:
    definitions: Definitions = {}
    own: Schema = _DOCUMENT.own_schema(definitions)
    return {"$schema": _SCHEMA, "title": "A team of kairo-team", **own, "$defs": definitions}


def _make(request: Mapping[str, Any] | None = None, **team: Any) -> TeamJob:
    team.pop("$schema", None)  # for editors only
    return TeamJob(Team(**team), **(request or {}))


def _as_given(**given: Any) -> dict[str, Any]:  # not `dict`, which has no signature
    return given


def _request_arguments() -> Mapping[str, Argument]:
    found = arguments_of(TeamExecutionRequest)
    return {name: Argument(one.shape, required=False) for name, one in found.items()}


def _document_arguments() -> Mapping[str, Argument]:
    request = Built("TeamExecutionRequest", _as_given, _request_arguments)
    beside = {"request": Argument(request, required=False), "$schema": Argument(Plain(str), required=False)}
    return {**arguments_of(Team), **beside}


_DOCUMENT: Final = Built("Team", _make, _document_arguments)
