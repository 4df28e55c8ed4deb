"""Members and the rules they work under: `Role`, `Member`, `Team`, `TeamConfig`, `TeamExecutionRequest`."""

from __future__ import annotations

import inspect
import math
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from kairo_team._util.drawn import drawing
from kairo_team._util.frozen import EMPTY, check_kind, checked, freeze, freeze_json, known_arguments, trusted
from kairo_team._util.guesses import answers_guesses
from kairo_team._util.late_pydantic import AfterValidator, AsTuple, Number, PlainSerializer, omit_empty
from kairo_team._util.plugin_shapes import as_list, check_agent, check_plug_in
from kairo_team.budget import Budget, BudgetPolicy
from kairo_team.contracts import (
    AgentLike,
    EvaluationStrategy,
    GuardrailPolicy,
    ResourceConstraint,
    TeamCoordinator,
    check_constraints,
    check_guardrails,
)
from kairo_team.errors import known, repeated
from kairo_team.files import File
from kairo_team.plugins import resolve
from kairo_team.tasks import Names, Task, TaskGraph, check_id, is_id, name_of_type

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.tools.permissions import ToolPermissions

OptionalNames = Annotated[
    AbstractSet[str] | Sequence[str] | None,
    AfterValidator(lambda names: None if names is None else frozenset(names)),
    PlainSerializer(lambda names: None if names is None else sorted(names), return_type=list[str] | None),
]
"""Names, or None."""
Values = Annotated[Mapping[str, Any], AfterValidator(freeze_json)]
"""JSON values by name, copied read-only."""


class RiskProfile(StrEnum):
    """Whether an unreviewed or rejected artifact is accepted: with a warning at LOW, never at MEDIUM and HIGH."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class PlannerFailureMode(StrEnum):
    """What a run does when its planner fails."""

    FAIL_FAST = "fail_fast"
    """The run fails."""
    SINGLE_TASK_FALLBACK = "single_task_fallback"
    """One task with the goal as its description replaces the plan; any free member does it."""


Thinking = Literal["minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model thinks, in pydantic-ai's words."""


def check_positive(field_name: str, number: float | None) -> None:
    """Raise `ValueError` unless `number` is None or finite and > 0."""
    if number is not None and (isinstance(number, bool) or not math.isfinite(number) or number <= 0):
        raise ValueError(f"{field_name} must be > 0 and finite, or None for no limit, not {number!r}")


@checked
@dataclass(frozen=True)
class Role:
    """A kind of work on the team: its instructions, what its members can do, and the tools they may use.

    Tasks name it by `id`. `allowed_tools=None` allows every tool of the member's agent, an empty set allows none.
    Raises `ValueError` for an id that contains characters other than letters, digits, `_`, `.` and `-`.

    >>> writer = kt.Role("writer", "Write plainly.", capabilities={"prose"}, allowed_tools={"search"})
    >>> member = kt.Member(writer, kt.MiniAgent("openai:gpt-5-mini"))
    """

    id: Annotated[str, AfterValidator(check_id)]
    instructions: str = ""
    """Part of the prompt of every task that a member in this role works on."""
    capabilities: Names = frozenset()
    """Capabilities that `Task.requires` is compared with."""
    allowed_tools: OptionalNames = None
    """Names of the only tools that a member may use; None allows all tools of its agent."""
    thinking: Annotated[bool, Number(strict=True)] | Thinking | None = None
    """How much the model of a `MiniAgent` in this role thinks before it replies, where the agent's own `thinking` does
    not say it; None leaves it to the model."""


def role_of(role: Role | str) -> Role:
    """Return a role, or make the role of an id: without the validator, because the id is all there is to check."""
    if isinstance(role, str):
        return (trusted(Role) if type(role) is str and is_id(role) else Role)(role)
    return role


_WRAPPERS: Final = {"pydantic_ai": "PydanticAIAgent", "langgraph": "LangGraphAgent", "agents": "OpenAIAgent"}
"""Wrappers by the package the wrapped object's class is from."""


@known_arguments
@dataclass(frozen=True, slots=True, init=False)
class Member:
    """A role with the agent that fills it.

    `agent` is a function, an object with an async `run(assignment, context)`, or one of `kairo_team.agents`. A string
    as `role` is a role of that id without instructions. `name` is by default the role's id, numbered where several
    members have the same. Without a `budget` only the team's limits hold. Raises `ValueError` for an agent of another
    library that has not been wrapped.

    >>> member = kt.Member("writer", write, budget=kt.Budget(tokens=4_000), max_concurrency=2)
    >>> team = kt.Team("newsroom", [member])
    """

    role: Role
    agent: Any
    name: str | None
    """Unique in the team; None takes the role's id, then -2, -3 and so on."""
    budget: Budget | None
    """Set aside from the team's budget when the run starts; None: only the team's limits apply."""
    max_concurrency: int | None
    """Most tasks at once. None: unlimited for functions and agents that declare `reentrant = True`, else 1."""
    constraints: tuple[ResourceConstraint, ...]
    """Checked in every attempt of this member, after the team's; the agent's own limits apply too."""
    guardrails: tuple[GuardrailPolicy, ...]
    """Called for every model and tool call of this member, after the team's."""
    senior: Member | None
    """Gets one attempt at a task if reviews leave this member's work open; not in the team's list of members."""
    id: str = field(init=False, repr=False, compare=False)
    """The member's name in its team (outside one, its role's id)."""
    concurrency: int | None = field(init=False, repr=False, compare=False)
    """Most tasks at once, with the default for this kind of agent filled in; None: unlimited."""

    def __init__(
        self,
        role: Role | str,
        agent: AgentLike,
        name: str | None = None,
        budget: Budget | None = None,
        max_concurrency: int | None = None,
        constraints: Iterable[ResourceConstraint] = (),
        guardrails: Iterable[GuardrailPolicy] = (),
        senior: Member | None = None,
    ) -> None:
        role = role_of(role)
        if not isinstance(role, Role):
            raise ValueError(f"Member.role must be a Role or a role's id, not {role!r}")
        owner = f"member {name or role.id!r}"
        package, _, rest = type(agent).__module__.partition(".")
        is_own = package == "agents" and rest != "agent"  # a user's package may be called so too
        if package in _WRAPPERS and not is_own:
            wrapper = _WRAPPERS[package]
            raise ValueError(
                f"{owner}: {type(agent).__name__} is an object of another library, which is "
                f"governed by its wrapper: from kairo_team.agents import {wrapper}; {wrapper}(...)"
            )
        if isinstance(agent, Team):
            how = "from kairo_team.agents import TeamAgent; TeamAgent(team)"
            raise ValueError(f"{owner}: team {agent.name!r} is an agent only in its wrapper: {how}")
        check_agent(owner, agent)
        if name is not None:
            check_id(name)
        check_kind("Member.budget", budget, Budget, or_none=True)
        if max_concurrency is not None and (type(max_concurrency) is not int or max_concurrency < 1):
            raise ValueError(f"Member.max_concurrency must be a whole number >= 1 or None, not {max_concurrency!r}")
        check_kind("Member.senior", senior, Member, or_none=True)
        guards, rails = check_constraints(owner, constraints), check_guardrails(owner, guardrails)
        reentrant = getattr(agent, "reentrant", not hasattr(agent, "run"))  # an object may keep state between awaits
        concurrency = max_concurrency or (None if reentrant else 1)
        items = (role, agent, name, budget, max_concurrency, guards, rails, senior, name or role.id, concurrency)
        for attribute, item in zip(self.__slots__, items, strict=True):
            object.__setattr__(self, attribute, item)


def _check_conditions(conditions: Mapping[str, Any]) -> None:
    for name, condition in conditions.items():
        if not callable(condition) or inspect.iscoroutinefunction(condition):
            raise ValueError(f"Team.conditions[{name!r}] must be a plain function of an artifact, not {condition!r}")


def _with_seniors(members: Sequence[Member]) -> list[Member]:
    """Return the members, then their seniors, and the seniors of these, each once."""
    found, seen = list(members), {id(member) for member in members}
    for member in found:  # the list grows during the loop
        if member.senior is not None and id(member.senior) not in seen:
            seen.add(id(member.senior))
            found.append(member.senior)
    return found


def _named(members: Sequence[Member]) -> tuple[Member, ...]:
    """Give every member and senior a unique name; refuse a name given twice, and a senior in the list."""
    listed = {id(member) for member in members}
    inside = [one.senior.id for one in members if one.senior is not None and id(one.senior) in listed]
    if inside:
        raise ValueError(f"a senior is not in the team's list of members: take {inside[0]!r} out of it")
    everyone = _with_seniors(members)
    explicit = [member.name for member in everyone if member.name is not None]
    twice = repeated(explicit)
    if twice:
        raise ValueError(f"member names must be unique in a team; given twice: {known(twice)}")
    taken, numbers = set(explicit), dict[str, int]()
    names = [member.name or _free_name(member.role.id, taken, numbers) for member in everyone]
    seniors: dict[int, Member] = {}
    for senior, name in reversed(list(zip(everyone, names, strict=True))[len(members) :]):
        seniors[id(senior)] = _rename(senior, name, seniors)  # a senior comes after its member, and is named before it
    # `names` has the seniors too.
    return tuple(_rename(member, name, seniors) for member, name in zip(members, names, strict=False))


def _rename(member: Member, name: str, seniors: Mapping[int, Member]) -> Member:
    """Return the member under its name, with its senior under its own."""
    senior = None if member.senior is None else seniors[id(member.senior)]
    same = member.name == name and senior is member.senior
    return member if same else replace(member, name=name, senior=senior)


def _free_name(role: str, taken: set[str], numbers: dict[str, int]) -> str:
    """Return the role's id, else the first free one of role-2, role-3 and so on, and reserve it."""
    number = numbers.get(role, 0) + 1
    while (name := role if number == 1 else f"{role}-{number}") in taken:
        number += 1
    numbers[role] = number  # reserved names stay reserved, so the next search begins after this number
    taken.add(name)
    return name


@answers_guesses
@known_arguments
@dataclass(frozen=True, slots=True, init=False)
class Team:
    """The members, the rules for all of them, and the evaluators and output types that tasks refer to by name.

    A team is immutable and may serve many runs. Raises `ValueError` if it has no members, if two members have the same
    name, and if a plug-in does not have the method of its protocol.

    >>> team = kt.Team("newsroom", [kt.Member("writer", lambda assignment: f"About {assignment.goal}")])
    >>> print(kt.run_sync(team, "tides").output)
    About tides
    """

    name: str
    members: tuple[Member, ...]
    coordinator: TeamCoordinator | None
    """Used by `kairo_team.run` if the call names none; a name such as "board" is made into one here."""
    evaluators: Mapping[str, EvaluationStrategy]
    """Rubrics and evaluation strategies, by the names in `Task.evaluator`."""
    output_types: Mapping[str, Any]
    """Types that pydantic can validate, by the names in `Task.output_type`."""
    constraints: tuple[ResourceConstraint, ...]
    """Checked in every attempt of every member; their emergency stop stops the run."""
    guardrails: tuple[GuardrailPolicy, ...]
    """Called for every model and tool call of every member, and for the calls of planners and judges."""
    permissions: ToolPermissions | None
    """What tools may do; None allows what the roles allow, and of an MCP server the tools in its `allow`."""
    runtime: Any
    """The runtime of a bare `coordinator.execute(request, team)`; None makes a new one per run."""
    conditions: Mapping[str, Callable[[Artifact], bool]]
    """Functions for `Condition(..., "holds", name)`, by name: they must be plain, quick, and change nothing."""
    everyone: tuple[Member, ...] = field(init=False, repr=False, compare=False)
    """The members, then their seniors."""

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        coordinator: TeamCoordinator | str | None = None,
        evaluators: Mapping[str, EvaluationStrategy] = EMPTY,
        output_types: Mapping[str, Any] = EMPTY,
        constraints: Iterable[ResourceConstraint] = (),
        guardrails: Iterable[GuardrailPolicy] = (),
        permissions: ToolPermissions | None = None,
        runtime: Runtime | None = None,
        conditions: Mapping[str, Callable[[Artifact], bool]] = EMPTY,
    ) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"Team.name must be a non-blank string, not {name!r}")
        members = as_list("Team.members", "Member objects", members)
        strangers = [member for member in members if not isinstance(member, Member)]
        if strangers:
            raise ValueError(
                f"Team.members must be Member objects, such as kt.Member('writer', agent), not {strangers[0]!r:.200}"
            )
        if not members:
            raise ValueError(f"team {name!r} has no members: give it one, such as kt.Member('writer', agent)")
        named_by_tasks = {"evaluators": evaluators, "output_types": output_types, "conditions": conditions}
        for field_name, by_name in named_by_tasks.items():
            if not isinstance(by_name, Mapping):
                raise ValueError(f"Team.{field_name} is a dict by the names that tasks use, not {by_name!r}")
        for called, evaluator in evaluators.items():
            check_plug_in(f"the team's evaluator {called!r}", "an evaluator", evaluator, "evaluate", "context")
        _check_conditions(conditions)
        if coordinator is not None:
            coordinator = resolve("Team.coordinator", "coordinator", coordinator)
        owner = f"team {name!r}"
        guards, rails = check_constraints(owner, constraints), check_guardrails(owner, guardrails)
        named = _named(members)
        work = (name, named, coordinator, freeze(evaluators), freeze(output_types))
        items = (*work, guards, rails, permissions, runtime, freeze(conditions), tuple(_with_seniors(named)))
        for attribute, item in zip(self.__slots__, items, strict=True):
            object.__setattr__(self, attribute, item)

    def member(self, name: str) -> Member:
        """Return the member, or senior, of that name; `KeyError` lists the existing names."""
        for member in self.everyone:
            if member.name == name:
                return member
        raise KeyError(f"team {self.name!r} has no member {name!r}; it has {known(m.id for m in self.everyone)}")

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the members."""
        return drawing("show_team")(self)


@checked
@dataclass(frozen=True)
class TeamConfig:
    """Limits and rules of one run. Durations are seconds; None means unlimited."""

    budget: Budget = Budget()
    budget_policy: BudgetPolicy = BudgetPolicy()
    risk_profile: RiskProfile = RiskProfile.MEDIUM
    max_feedback_rounds: int = 3
    """Revisions after the first artifact of a task."""
    max_human_rounds: int = 10
    """Revisions that people may request, of one task's work and of the plan; after them the risk profile decides."""
    team_timeout: float | None = None
    """Deprecated, and gone in 1.0: the same limit as `Budget.seconds`, of which the earlier counts."""
    deadline_at: datetime | None = None
    """When the run must have ended, by the wall clock, however long it waited or was down; with a time zone."""
    task_timeout: float | None = 300.0
    """Seconds for one attempt; `Task.timeout` overrides it."""
    review_timeout: float | None = 120.0
    """Seconds for one review."""
    max_parallel_tasks: int | None = None
    """Most tasks between dispatch and verdict at once."""
    cancel_grace: float = 1.0
    """Seconds that clean-up, threads and async subscribers get after an end."""

    def __post_init__(self) -> None:
        for name in ("team_timeout", "task_timeout", "review_timeout", "max_parallel_tasks"):
            check_positive(f"TeamConfig.{name}", getattr(self, name))
        if self.team_timeout is not None:
            instead = f"budget=kt.Budget(seconds={self.team_timeout:g})"
            # Level 4: the line that makes the configuration.
            warnings.warn(f"TeamConfig.team_timeout goes in 1.0: write {instead}", DeprecationWarning, stacklevel=4)
        if self.deadline_at is not None and self.deadline_at.tzinfo is None:
            raise ValueError(
                f"TeamConfig.deadline_at needs a time zone, such as datetime.now(UTC) + timedelta(hours=1), not "
                f"{self.deadline_at!r}"
            )
        for name in ("max_feedback_rounds", "max_human_rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"TeamConfig.{name} must be >= 0, not {getattr(self, name)}")
        if not math.isfinite(self.cancel_grace) or self.cancel_grace < 0:
            raise ValueError(f"TeamConfig.cancel_grace must be a finite number >= 0, not {self.cancel_grace}")


USUAL_CONFIG: Final = trusted(TeamConfig)()


def root_budget(config: TeamConfig) -> Budget:
    """Return a run's budget, with the earlier of its seconds and the deprecated `team_timeout` as deadline."""
    budget, timeout = config.budget, config.team_timeout
    if timeout is None or (budget.seconds is not None and budget.seconds <= timeout):
        return budget
    return replace(budget, seconds=timeout)


def _check_goal(goal: str) -> str:
    if not goal.strip():
        raise ValueError("the goal must not be blank")
    return goal


@checked
@dataclass(frozen=True)
class TeamExecutionRequest:
    """One job for a team; every execution needs a request of its own, with a run id of its own."""

    goal: Annotated[str, AfterValidator(_check_goal)]
    context: Values = field(default=EMPTY)
    """JSON values that every member can read."""
    plan: TaskGraph | None = None
    """The tasks to run; None lets the coordinator plan."""
    config: TeamConfig = field(default_factory=TeamConfig)
    run_id: Annotated[str, AfterValidator(check_id)] = field(default_factory=lambda: uuid.uuid4().hex)
    files: Annotated[Sequence[File], AsTuple()] = ()
    """Files that every member gets with its task. For files of some tasks only there is `Task.files`."""

    __get_pydantic_core_schema__ = omit_empty("files")


def output_type_of(team: Team, task: Task) -> Any:
    """Return the type that a task's answer has; None if it names none."""
    kind = task.output_type
    return team.output_types[kind] if isinstance(kind, str) else kind


def name_types(team: Team, request: TeamExecutionRequest) -> tuple[Team, TeamExecutionRequest]:
    """Give the types that a plan's tasks have as output types to the team, and their names to the tasks."""
    if request.plan is None:
        return team, request
    types = dict(team.output_types)
    tasks = [_with_named_type(task, types) for task in request.plan.tasks]
    if all(new is old for new, old in zip(tasks, request.plan.tasks, strict=True)):
        return team, request
    return replace(team, output_types=types), replace(request, plan=TaskGraph(tasks))


def _with_named_type(task: Task, types: dict[str, Any]) -> Task:
    """Return the task with a name as its output type, and its loop's tasks too; the type is in `types` then."""
    if task.loop is not None:
        body = [_with_named_type(one, types) for one in task.loop.body]
        same = all(new is old for new, old in zip(body, task.loop.body, strict=True))
        return task if same else replace(task, loop=replace(task.loop, body=body))
    kind: Any = task.output_type
    if kind is None or isinstance(kind, str):
        return task
    plain, number = name_of_type(kind) or "", 1
    name = plain
    while types.setdefault(name, kind) != kind:  # two classes may have one name
        number += 1
        name = f"{plain}-{number}"
    return replace(task, output_type=name)
