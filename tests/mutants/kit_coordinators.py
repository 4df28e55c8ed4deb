"""Coordinators whose runs begin, tell or end in a wrong way; the kit must reject each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import kairo_team as kt
from kairo_team import events
from kairo_team.budget import HaltReason
from kairo_team.engine.tasks.task_run import RunState
from kairo_team.events import Event
from tests.mutants.honest import Arming, Honest, HonestTCK, Telling
from tests.mutants.kit_mutant import registry_of

MUTANTS, mutant = registry_of(HonestTCK)


# ---------------------------------------------------------------- execute


@mutant("T05", clause="C1")
class BeginsAtTheCall(Honest):
    """The run is registered when `execute` is called, awaited or not."""

    def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> Any:
        team.runtime.runs.prepare(request.run_id)
        return super().execute(request, team)


@mutant("T05", clause="C1")
class TellsAtTheCall(Honest):
    """The plan is told of when `execute` is called, awaited or not."""

    def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> Any:
        for tell in team.runtime.subscribers:
            tell(events.PlanReady(request.run_id, 0, datetime.now(UTC), ()))
        return super().execute(request, team)


@mutant(clause="C1")
class LeavesACoroutineBehind(Honest):
    """The call makes another coroutine, which nobody awaits when the first is dropped."""

    def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> Any:
        inner = super().execute(request, team)

        async def outer() -> kt.TeamResult:
            return await inner

        return outer()


@mutant("U04", clause="C1")
class GivesOldResultsAgain(Honest):
    """A request that was run before gets the result of then."""

    def __init__(self) -> None:
        self.known: dict[str, kt.TeamResult] = {}

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        if request.run_id not in self.known:
            self.known[request.run_id] = await super().execute(request, team)
        return self.known[request.run_id]


@mutant("B08", clause="C1")
class BeginsAnewUnderAnotherId(Honest):
    """A request that was run before is run again, with all its budget."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        try:
            return await super().execute(request, team)
        except kt.RunExists:
            return await super().execute(replace(request, run_id=f"{request.run_id}-again"), team)


@mutant(clause="C2")
class RaisesWhatItRefuses(Honest):
    """A plan that cannot be run is an exception, not a result."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        if result.refused:
            raise ValueError(result.error)
        return result


@mutant("U06", clause="C2")
class HaltsComeOutAsGroups(Honest):
    """A halted run is an ExceptionGroup, as it came out of the task group."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        if result.halt is HaltReason.TIME_BUDGET_EXCEEDED:
            raise ExceptionGroup("unhandled errors in a TaskGroup", [TimeoutError(result.error)])
        return result


@mutant("T16", clause="C3")
class KeepsThePlan(Honest):
    """The plan of one run is kept for the next, which has none."""

    pending: kt.TaskGraph | None = None

    def plan(self, run: kt.TeamRun) -> Any:
        self.pending = run.request.plan or self.pending
        return self.pending or super().plan(run)


@mutant("T16", clause="C3")
class KeepsTheRun(Honest):
    """The run is kept on the coordinator, so that a second one takes over the first one's tasks."""

    run: kt.TeamRun

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with self.opens.open(request, team) as self.run:
            graph = await self.run.plan(lambda: self.plan(self.run))
            async for task in self.run.ready(graph):
                self.run.go(self.one, self.run, task)
        return self.run.result


@mutant("T16", clause="C3")
class KeepsDirectives(Arming):
    """What the members of one run were told by whoever steers it, those of the next are told too."""

    def __init__(self) -> None:
        self.directives: tuple[str, ...] = ()

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        team.runtime.subscribers = (*team.runtime.subscribers, self.listen)
        return await super().execute(request, team)

    def listen(self, event: Event) -> None:
        if isinstance(event, events.TaskSteered):
            self.directives = (*self.directives, event.directive)

    def hand(self, assignment: kt.Assignment, context: Any) -> Sequence[Any]:
        return replace(assignment, directives=self.directives), context


@mutant("T16", clause="C3")
class RemembersWhatFailed(Honest):
    """A task that failed once fails in every later run, untried."""

    def __init__(self) -> None:
        self.failed: set[str] = set()

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        if task.id in self.failed:
            run.fail(task, "it is known to fail")
            return
        attempt = await run.attempt(task, 1)
        if attempt.error is None:
            run.accept(task, attempt)
            return
        self.failed.add(task.id)
        run.fail(task, attempt.error)


# ---------------------------------------------------------------- events


class _Late(kt.TeamRun):
    def _begin(self) -> AbstractContextManager[object]:
        self._move(RunState.PLANNING)
        return nullcontext()

    async def plan(self, make: Any) -> kt.TaskGraph:
        def made() -> Any:
            self.emit(events.TeamStarted, self.team.name, self.request.goal, ())
            return make()

        return await super().plan(made)


@mutant("T18", clause="C4")
class FailsBeforeItBegins(Honest):
    """A run that is refused ends without having started."""

    opens = _Late


class _Twice(Telling):
    def tell(self, event: Event) -> Sequence[Event]:
        twice = isinstance(event, events.TeamRunFailed)
        return [event, replace(event, seq=event.seq + 1)] if twice else [event]


@mutant("T18", clause="C4")
class FailsTwice(Honest):
    """A run that fails has two last events."""

    opens = _Twice


class _DegradedIsFailed(Telling):
    def tell(self, event: Event) -> Sequence[Event]:
        if isinstance(event, events.TeamCompleted) and event.status is kt.TeamStatus.DEGRADED:
            fields = (event.run_id, event.seq, event.at, event.status, event.duration, event.usage, event.error)
            return [events.TeamRunFailed(*fields)]
        return [event]


@mutant("T17", clause="C4")
class DegradedIsToldAsFailed(Honest):
    """A degraded run tells the world that it failed."""

    opens = _DegradedIsFailed


@mutant("T17", clause="C4")
class DegradedLosesItsOutput(Honest):
    """A degraded run drops its output."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        result = await super().execute(request, team)
        return replace(result, artifact=None) if result.status is kt.TeamStatus.DEGRADED else result


class _GoesOn(Telling):
    def _finish(self) -> None:
        super()._finish()
        self.bus.closed = False
        self.emit(events.BudgetWarned, None, None, "tokens", 1.0)


@mutant(clause="C4")
class TellsAfterTheEnd(Honest):
    """Something follows the last event."""

    opens = _GoesOn


class _Endless(Telling):
    def tell(self, event: Event) -> Sequence[Event]:
        return [] if isinstance(event, events.TeamEnded) else [event]


@mutant("G11", clause="C4")
class DropsTheLastEvent(Honest):
    """The last event is dropped."""

    opens = _Endless


class _Lossy(Telling):
    def __init__(self, *args: Any, **named: Any) -> None:
        self.at_work: set[str] = set()
        super().__init__(*args, **named)

    def tell(self, event: Event) -> Sequence[Event]:
        if isinstance(event, events.AttemptStarted):
            self.at_work.add(event.task_id)
            return [] if len(self.at_work) > 1 else [event]
        if isinstance(event, events.AttemptFinished):
            self.at_work.discard(event.task_id)
        return [event]


@mutant("G11", clause="C5")
class DropsEventsSideBySide(Honest):
    """The beginning of an attempt is dropped while another is at work."""

    opens = _Lossy


class _Counting(kt.TeamRun):
    told = 0

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.bus.seq = _Counting.told

    def _finish(self) -> None:
        super()._finish()
        _Counting.told = self.bus.seq


@mutant(clause="C5")
class NumbersRunsTogether(Honest):
    """Events of all runs are numbered in one row."""

    opens = _Counting


class _Silent(kt.TeamRun):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        tell = self.emit
        self.emit = lambda kind, *fields: None if kind is events.TaskSkipped else tell(kind, *fields)


@mutant(clause="C6")
class DoesNotTellOfSkippedTasks(Honest):
    """A task that never starts has no event."""

    opens = _Silent


class _Cheerful(Telling):
    def tell(self, event: Event) -> Sequence[Event]:
        if isinstance(event, events.TaskFailed):
            return [events.TaskCompleted(*(getattr(event, name.name) for name in fields(event)))]
        return [event]


@mutant(clause="C6")
class TellsFailuresAsDone(Honest):
    """A failed task is told as completed."""

    opens = _Cheerful
