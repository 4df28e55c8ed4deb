"""The base of the coordinator kit's tests: the factories, the capabilities, and one run observed from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import anyio
from anyio.lowlevel import checkpoint

from kairo_team.budget import Budget
from kairo_team.contracts import Agent, EvaluationStrategy, HumanGate, MemberContext, Planner, TeamCoordinator
from kairo_team.engine.records.run_handle import Run
from kairo_team.engine.run.ending import LAST_EVENT
from kairo_team.engine.work.runtime import Runtime
from kairo_team.events import AttemptStarted, Event, TeamEnded, TeamStarted
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, Task, TaskGraph
from kairo_team.tck.kit import ContractTCK, make_it
from kairo_team.team import Member, RiskProfile, Team, TeamConfig, TeamExecutionRequest
from kairo_team.testing.recorder import EventRecorder

Function = Callable[[Assignment, MemberContext], Awaitable[Any]]
REVIEWED = "kit-review"
"""The name of the kit's evaluator in a team."""
_MOST_ATTEMPTS: Final = 500
"""More attempts than any run of the kit needs."""
LONG: Final = 10.0
"""Seconds within which work that was left running would show."""


@dataclass(slots=True)
class Attempts:
    """Counts the attempts of a run, as a subscriber."""

    count: int = 0
    enough: Callable[[], object] = lambda: None
    """Called at each attempt after `_MOST_ATTEMPTS`."""

    def __call__(self, event: Event) -> None:
        """Count an attempt."""
        if isinstance(event, AttemptStarted):
            self.count += 1
            if self.count > _MOST_ATTEMPTS:
                self.enough()


@dataclass(slots=True)
class Show:
    """One run: its parts, and the events that were seen."""

    coordinator: TeamCoordinator
    request: TeamExecutionRequest
    team: Team
    seen: EventRecorder
    attempts: Attempts

    async def play(self) -> TeamResult:
        """Run it to its end; fail if it begins more attempts than any of the kit's runs needs."""
        # Virtual time does not pass in a loop of work that takes none.
        with anyio.CancelScope() as scope:
            self.attempts.enough = scope.cancel
            return await self.coordinator.execute(self.request, self.team)
        raise AssertionError(
            f"it began {self.attempts.count} attempts in one run, and did not stop: when does it give up?"
        )

    @asynccontextmanager
    async def live(self) -> AsyncGenerator[Run]:
        """Start the run for a block that watches and steers it; leaving the block early cancels the run."""
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
    """Whether it runs the plan of the request. False: it makes its own tasks, for at least one member of the team."""
    supports_review: ClassVar[bool] = True
    """Whether the evaluator it was made with reviews artifacts."""
    reviews_named_tasks: ClassVar[bool] = False
    """Whether only tasks that name an evaluator of the team are reviewed. Then the kit's plans name one."""
    supports_revision: ClassVar[bool] = True
    """Whether a REVISE verdict leads to another attempt with the findings."""
    supports_planner: ClassVar[bool] = False
    """Whether it can be made with a planner: `make_planning_coordinator`."""
    joins_output: ClassVar[bool] = True
    """Whether the output joins the accepted final tasks of the plan. False: it sets another output."""
    supports_gate: ClassVar[bool] = True
    """Whether the run's human gate decides what reviews leave open."""
    supports_resume: ClassVar[bool] = True
    """Whether a deferred question suspends the run, and `Runtime.resume` resumes it."""
    tolerates_failures: ClassVar[bool] = False
    """Whether a run with only some tasks accepted is DEGRADED at any risk, as on the task board."""

    @classmethod
    def late(cls, seconds: float) -> float:
        """Return the seconds by which something may be late: `seconds` in virtual time, a minute more in real time.

        In real time other programs use the machine too.
        """
        return seconds if cls.virtual_time else seconds + 60.0

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        """Make a coordinator; an `evaluator` must review every artifact. A fresh one each time."""
        raise make_it(cls, "make_coordinator(cls, *, evaluator=None)")

    @classmethod
    def make_planning_coordinator(cls, planner: Planner, *, fallback: bool = False) -> TeamCoordinator:
        """Make one that plans with this planner; with `fallback`, one task from the goal if planning fails."""
        raise make_it(
            cls, "make_planning_coordinator(cls, planner, *, fallback=False), or say supports_planner = False,"
        )

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
        """Put a run together. `tasks` is the plan, for a coordinator that takes one.

        `runtime`, `team` and `config` are more fields of the runtime, the team and `TeamConfig`.
        """
        seen, attempts = EventRecorder(), Attempts()
        more = dict(runtime or {})
        around = Runtime(subscribers=[*more.pop("subscribers", ()), seen, attempts], gate=gate, **more)
        evaluators = {} if evaluator is None else {REVIEWED: evaluator}
        members = cls.make_team(agent, runtime=around, evaluators=evaluators, **(team or {}))
        plan = cls._plan(tasks, reviewed=evaluator is not None) if tasks is not None and cls.supports_plan else None
        config = {"risk_profile": RiskProfile.MEDIUM, **config}
        settings = TeamConfig(budget=budget or Budget(), **config)
        request = TeamExecutionRequest(goal, context or {}, plan=plan, config=settings)
        made_with = None if cls.reviews_named_tasks else evaluator
        return Show(cls.make_coordinator(evaluator=made_with), request, members, seen, attempts)

    @classmethod
    def _plan(cls, tasks: Iterable[Task], *, reviewed: bool) -> TaskGraph:
        """Make a plan of tasks; they name the kit's evaluator if the coordinator uses it."""
        named = reviewed and cls.reviews_named_tasks
        return TaskGraph([replace(task, evaluator=REVIEWED) if named else task for task in tasks])


class Watched:
    """An agent that calls a function and records who is at work; may be called any number of times at once."""

    reentrant = True

    def __init__(self, function: Function) -> None:
        self.calls: list[Assignment] = []
        self.contexts: list[MemberContext] = []
        self.began: dict[str, float] = {}
        """Time at which the first attempt at each task began, by task id."""
        self.at_work: Counter[str] = Counter()
        """Number of attempts now at work, by role."""
        self.most = 0
        """Most attempts at once."""
        self.most_of_one = 0
        """How many of one role."""
        self.cancelled = 0
        """How many were cancelled."""
        self.function = function

    async def run(self, assignment: Assignment, context: MemberContext) -> Any:
        """Call the function."""
        role = context.role.id
        self.calls.append(assignment)
        self.contexts.append(context)
        self.began.setdefault(assignment.task.id, anyio.current_time())
        self.at_work[role] += 1
        self.most = max(self.most, self.at_work.total())
        self.most_of_one = max(self.most_of_one, self.at_work[role])
        try:
            return await self.function(assignment, context)
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
    await checkpoint()  # a coordinator that asks again for ever can be cancelled here
    raise LookupError("the archive is closed")


async def say_nothing(assignment: Assignment, context: MemberContext) -> None:
    """Return nothing at all."""


def fail_at(*broken: str) -> Function:
    """Return a function that fails at the tasks with these ids, and does the others at once."""

    async def work(assignment: Assignment, context: MemberContext) -> str:
        return await (fail if assignment.task.id in broken else write)(assignment, context)

    return work


def hang_at(broken: str) -> Function:
    """Return a function that never ends at the task with this id, and does the others in a second."""

    async def work(assignment: Assignment, context: MemberContext) -> str:
        return await (hang if assignment.task.id == broken else sleep)(assignment, context)

    return work


async def check_ends(show: Show, result: TeamResult) -> None:
    """Check that a run began and ended once, that the end agrees with the result, and that nothing followed."""
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
