"""What the coordinator kit's tests stand on: the factories, the capabilities, and one run watched from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import anyio

from kairo_team.budget import Budget
from kairo_team.contracts import Agent, EvaluationStrategy, HumanGate, MemberContext, Planner, TeamCoordinator
from kairo_team.engine.records.run_handle import Run
from kairo_team.engine.run.ending import LAST_EVENT
from kairo_team.engine.work.runtime import Runtime
from kairo_team.events import TeamEnded, TeamStarted
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, Task, TaskGraph
from kairo_team.tck.kit import ContractTCK, make_it
from kairo_team.team import Member, RiskProfile, Team, TeamConfig, TeamExecutionRequest
from kairo_team.testing.recorder import EventRecorder

Function = Callable[[Assignment, MemberContext], Awaitable[Any]]
REVIEWED = "kit-review"
"""The name under which the kit's evaluator stands in a team."""
LONG: Final = 10.0
"""Seconds in which work that was left running would show."""


@dataclass(slots=True)
class Show:
    """One run, before and after: what it is made of, and what was seen of it."""

    coordinator: TeamCoordinator
    request: TeamExecutionRequest
    team: Team
    seen: EventRecorder

    async def play(self) -> TeamResult:
        """Run it to its end."""
        return await self.coordinator.execute(self.request, self.team)

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[Run]:
        """Start it by its runtime, for a block that watches and steers it; leaving the block early cancels it."""
        runtime: Runtime = self.team.runtime
        async with runtime, runtime.stream(self.team, self.request, coordinator=self.coordinator) as run:
            yield run

    def change_members(self, **changes: Any) -> None:
        """Give every member other fields."""
        self.set_members([replace(member, **changes) for member in self.team.members])

    def set_members(self, members: Iterable[Member]) -> None:
        """Put other members in the team."""
        self.team = replace(self.team, members=tuple(members))

    @property
    def terminal(self) -> str:
        """The type of the last event."""
        return self.seen.types[-1] if self.seen.events else "nothing"


class CoordinatorStage(ContractTCK):
    """The factories and capabilities of the coordinator kit."""

    contract: ClassVar[type] = TeamCoordinator

    supports_plan: ClassVar[bool] = True
    """It runs the plan of the request. False: it makes its own tasks, of at least one member of the team."""
    supports_review: ClassVar[bool] = True
    """It has artifacts reviewed by the evaluator it was made with."""
    reviews_named_tasks: ClassVar[bool] = False
    """It reviews only tasks that name an evaluator of the team: the kit's plans then do, and it is made without one."""
    supports_revision: ClassVar[bool] = True
    """A REVISE verdict leads to another attempt with the findings."""
    supports_planner: ClassVar[bool] = False
    """It can be made with a planner: `make_planning_coordinator`."""
    joins_output: ClassVar[bool] = True
    """Its output is the accepted ends of its plan; False: it sets another."""
    supports_gate: ClassVar[bool] = True
    """What its reviews leave open goes to the run's human gate."""
    supports_resume: ClassVar[bool] = True
    """A question that is put off suspends the run, and `Runtime.resume` goes on with it."""
    tolerates_failures: ClassVar[bool] = False
    """A run with some tasks accepted and some not is DEGRADED at any risk, as on the task board."""

    @classmethod
    def late(cls, seconds: float) -> float:
        """Return by how much something may be late: by these seconds in virtual time, and a minute more in real time.

        In real time other programs work beside the run, and what is due at once comes when the machine has time.
        """
        return seconds if cls.virtual_time else seconds + 60.0

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        """Make a coordinator; with an evaluator one that has every artifact reviewed by it. A fresh one each time."""
        raise make_it(cls, "make_coordinator(cls, *, evaluator=None)")

    @classmethod
    def make_planning_coordinator(cls, planner: Planner, *, fallback: bool = False) -> TeamCoordinator:
        """Make one that plans with this planner; with `fallback`, one task from the goal where planning fails."""
        raise make_it(cls, "make_planning_coordinator(cls, planner, *, fallback=False)")

    @classmethod
    def make_team(cls, agent: Agent | Function, **fields: Any) -> Team:
        """Make the team to run: every member has this agent. Overridden where the coordinator needs certain members."""
        return Team("kit", [Member(name, agent) for name in ("one", "two", "three")], **fields)

    @classmethod
    def stage(
        cls,
        agent: Agent | Function,
        *,
        tasks: Iterable[Task] | None = None,
        evaluator: EvaluationStrategy | None = None,
        gate: HumanGate | None = None,
        budget: Budget | None = None,
        runtime: Mapping[str, Any] | None = None,
        team: Mapping[str, Any] | None = None,
        goal: str = "Write about tides.",
        context: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> Show:
        """Put a run together. `tasks` are its plan, for a coordinator that takes one; else it makes its own.

        `runtime` and `team` are further fields of those, `config` those of `TeamConfig`.
        """
        seen = EventRecorder()
        more = dict(runtime or {})
        around = Runtime(subscribers=[*more.pop("subscribers", ()), seen], gate=gate, **more)
        evaluators = {} if evaluator is None else {REVIEWED: evaluator}
        members = cls.make_team(agent, runtime=around, evaluators=evaluators, **(team or {}))
        plan = cls._plan(tasks, reviewed=evaluator is not None) if tasks is not None and cls.supports_plan else None
        config = {"risk_profile": RiskProfile.MEDIUM, **config}
        settings = TeamConfig(budget=budget or Budget(), **config)
        request = TeamExecutionRequest(goal, context or {}, plan=plan, config=settings)
        made_with = None if cls.reviews_named_tasks else evaluator
        return Show(cls.make_coordinator(evaluator=made_with), request, members, seen)

    @classmethod
    def _plan(cls, tasks: Iterable[Task], *, reviewed: bool) -> TaskGraph:
        """Make a plan of tasks; they name the kit's evaluator if the coordinator uses it."""
        named = reviewed and cls.reviews_named_tasks
        return TaskGraph([replace(task, evaluator=REVIEWED) if named else task for task in tasks])


class Watched:
    """An agent that works by a function, and knows who is at work: it may be called any number of times at once."""

    reentrant = True

    def __init__(self, function: Function) -> None:
        self.calls: list[Assignment] = []
        self.contexts: list[MemberContext] = []
        self.began: dict[str, float] = {}
        """When the first attempt at each task began, by its id."""
        self.at_work: Counter[str] = Counter()
        """How many attempts there are at the moment, by role."""
        self.most = 0
        """How many there were at once."""
        self.most_of_one = 0
        """How many of one role."""
        self.cancelled = 0
        """How many were cancelled."""
        self._function = function

    async def run(self, assignment: Assignment, context: MemberContext) -> Any:
        """Do what the function does."""
        role = context.role.id
        self.calls.append(assignment)
        self.contexts.append(context)
        self.began.setdefault(assignment.task.id, anyio.current_time())
        self.at_work[role] += 1
        self.most = max(self.most, self.at_work.total())
        self.most_of_one = max(self.most_of_one, self.at_work[role])
        try:
            return await self._function(assignment, context)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        finally:
            self.at_work[role] -= 1


async def write(assignment: Assignment, context: MemberContext) -> str:
    """Do the task at once."""
    return f"text of {assignment.task.id}"


async def sleep(assignment: Assignment, context: MemberContext) -> str:
    """Do the task in a second."""
    await anyio.sleep(1)
    return f"text of {assignment.task.id}"


async def hang(assignment: Assignment, context: MemberContext) -> str:
    """Keep something, and never end."""
    context.keep("half a text")
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


async def fail(assignment: Assignment, context: MemberContext) -> str:
    """Break."""
    raise LookupError("the archive is closed")


async def say_nothing(assignment: Assignment, context: MemberContext) -> None:
    """Return nothing at all."""


def fail_at(*broken: str) -> Function:
    """Return a function that breaks at the tasks of these ids, and does the others at once."""

    async def work(assignment: Assignment, context: MemberContext) -> str:
        return await (fail if assignment.task.id in broken else write)(assignment, context)

    return work


def hang_at(broken: str) -> Function:
    """Return a function that never ends at the task of this id, and does the others in a second."""

    async def work(assignment: Assignment, context: MemberContext) -> str:
        return await (hang if assignment.task.id == broken else sleep)(assignment, context)

    return work


async def check_ends(show: Show, result: TeamResult) -> None:
    """Check that a run began and ended once, with the end its result has, and that nothing followed."""
    seen = show.seen
    ended = seen.of(TeamEnded)
    assert seen.types[:1] == ["team.started"], f"the first event is team.started, not {seen.types[:1]}"
    assert len(seen.of(TeamStarted)) == 1, f"it began {len(seen.of(TeamStarted))} times"
    assert len(ended) == 1, f"a run has exactly one last event, not {[event.type for event in ended]}"
    wanted = LAST_EVENT[result.status].type
    assert show.terminal == wanted, f"a run that ends {result.status.value} ends with {wanted}, not {show.terminal}"
    assert ended[0].status is result.status, f"the last event has {ended[0].status}, the result {result.status}"
    assert ended[0].error == result.error, f"the last event has {ended[0].error!r}, the result {result.error!r}"
    assert ended[0].usage == result.usage, f"the last event has {ended[0].usage}, the result {result.usage}"
    before = len(seen.events)
    await anyio.sleep(LONG)
    assert len(seen.events) == before, f"events were emitted after its end: {seen.types[before:]}"
