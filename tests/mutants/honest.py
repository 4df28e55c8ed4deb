"""A small honest coordinator, and what its mutants are made with: armed members, and a run that tells other things."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import kairo_team as kt
from kairo_team.contracts import TeamCoordinator
from kairo_team.events import Event
from kairo_team.tck import TeamCoordinatorTCK


class Honest:
    """Runs the plan, or one task made of the goal; every task is tried once."""

    opens: ClassVar[type[kt.TeamRun]] = kt.TeamRun

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with self.opens.open(request, team) as run:
            graph = await run.plan(lambda: self.plan(run))
            async for task in run.ready(graph):
                run.go(self.one, run, task)
        return run.result

    def plan(self, run: kt.TeamRun) -> Any:
        return run.request.plan or self.one_task(run.request)

    def one_task(self, request: kt.TeamExecutionRequest) -> kt.TaskGraph:
        return kt.TaskGraph([kt.Task("task", request.goal)])

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        if attempt.error is not None:
            run.fail(task, attempt.error)
        else:
            run.accept(task, attempt)


class HonestTCK(TeamCoordinatorTCK):
    """The kit of `Honest`."""

    supports_review = False
    supports_revision = False
    supports_gate = False
    supports_resume = False
    kind: type[Honest] = Honest

    @classmethod
    def make_coordinator(cls, *, evaluator: Any = None) -> TeamCoordinator:
        return cls.kind()


def change_config(request: kt.TeamExecutionRequest, **changes: Any) -> kt.TeamExecutionRequest:
    """Return the same request with other fields in its configuration."""
    return replace(request, config=replace(request.config, **changes))


class Armed:
    """A member's agent with something done to what it is handed."""

    reentrant = True

    def __init__(self, agent: Any, coordinator: Arming) -> None:
        self.agent = agent
        self.coordinator = coordinator

    async def run(self, assignment: kt.Assignment, context: Any) -> Any:
        run = getattr(self.agent, "run", self.agent)
        return await run(*self.coordinator.hand(assignment, context))


class Arming(Honest):
    """Hands its members something else than they are due."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        members = tuple(replace(member, agent=self.arm(member)) for member in team.members)
        return await super().execute(request, replace(team, members=members))

    def arm(self, member: kt.Member) -> Any:
        return Armed(member.agent, self)

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return assignment, context


class Context:
    """A member's context, but for what a subclass has instead."""

    def __init__(self, context: Any) -> None:
        self.real = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Telling(kt.TeamRun):
    """A run whose subscribers hear what `tell` makes of each event."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.bus._listeners = [self.through(listener) for listener in self.bus._listeners]

    def through(self, listener: Callable[[Event], object]) -> Callable[[Event], object]:
        def listen(event: Event) -> None:
            for told in self.tell(event):
                listener(told)

        return listen

    def tell(self, event: Event) -> Sequence[Event]:
        return [event]
