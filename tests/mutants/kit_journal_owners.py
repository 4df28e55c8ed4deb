"""Wrong journals, each rejected by the kit at one clause: who has a run, how it ends, and what others see of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import kairo_team as kt
from kairo_team.durable.memory import MemoryRunJournal
from kairo_team.errors import JournalError
from kairo_team.recorded import Place
from tests.mutants.kit_journals import Right, RightKit, Session
from tests.mutants.kit_mutant import registry_of

MUTANTS, mutant = registry_of(RightKit)


@mutant("D16", clause="C1")
class BeginsARunTwice(Right):
    """A run that has ended makes room for another one with its id."""

    def begin(
        self, request: kt.TeamExecutionRequest, team: kt.Team, digests: Mapping[str, str], place: Place | None
    ) -> MemoryRunJournal:
        earlier = self.storage.runs.get(request.run_id)
        if earlier is not None and earlier.state == "completed":
            del self.storage.runs[request.run_id]
        return super().begin(request, team, digests, place)


@mutant(clause="C1")
class ForgetsThePlace(Right):
    """Where in another run a run is made is not recorded: it is never recovered with that."""

    def begin(
        self, request: kt.TeamExecutionRequest, team: kt.Team, digests: Mapping[str, str], place: Place | None
    ) -> MemoryRunJournal:
        return super().begin(request, team, digests, None)


@mutant("D09", clause="C7")
class TakesOverSilently(Right):
    """Whoever asks for a run gets it, from a living process too."""

    def recover(self, run_id: str, *, take_over: bool = False) -> Any:
        return super().recover(run_id, take_over=True)


@mutant("D13", clause="C7")
class WaitsForTheDead(Right):
    """A process counts as alive until its lease has run out."""

    def crash(self) -> None:
        super().crash()
        self.alive = True


@mutant("D15", clause="C7")
class RevivesTheFinished(Right):
    """A run that has failed can go on: the next try may do better."""

    def recover(self, run_id: str, *, take_over: bool = False) -> Any:
        run = self.storage.runs.get(run_id)
        if run is not None and run.state == "failed":
            run.state = "suspended"
        return super().recover(run_id, take_over=take_over)


@mutant("D09", clause="C8")
class ForgetsTheEpoch(Right):
    """A process that was only asleep goes on recording after it was taken over."""

    class Session(Session):
        def lose(self, problem: str, *, interrupted: bool = False) -> None:
            if not problem.startswith("another"):
                super().lose(problem, interrupted=interrupted)


@mutant(clause="C8")
class DropsInSilence(Right):
    """After a take-over the earlier session records nothing, and is told that all is well."""

    class Session(Session):
        async def written(self) -> None:
            try:
                await super().written()
            except JournalError:
                if self.journal.alive and self.journal.problem is None:
                    return
                raise


@mutant("D09", clause="C8")
class TrustsItsOwnProcess(Right):
    """It looks whether the process has the run, and not which of its sessions."""

    class Session(Session):
        def lose(self, problem: str, *, interrupted: bool = False) -> None:
            self.taken = True
            if not problem.startswith("another"):
                super().lose(problem, interrupted=interrupted)

        def _write(self, *changes: Callable[[Any], object], after_shut: bool = False) -> None:
            if self.journal.storage.run(self._run_id).owner is self.journal:
                super()._write(*changes, after_shut=after_shut)

        async def written(self) -> None:
            await super().written()
            if self.journal.storage.run(self._run_id).owner is not self.journal:
                raise JournalError("in memory", "another process has taken the run over")


@mutant(clause="C8")
class ForgetsTheRunsInside(Right):
    """After a take-over the runs inside the run go on in the process that had it."""

    class Session(Session):
        def lose(self, problem: str, *, interrupted: bool = False) -> None:
            inside = self.journal.storage.run(self._run_id).place is not None
            if not (inside and problem.startswith("another")):
                super().lose(problem, interrupted=interrupted)


@mutant(clause="C8")
class BeginsRunsInside(Right):
    """It looks who has a run where something is recorded of it, and not where a run begins inside."""

    def begin(
        self, request: kt.TeamExecutionRequest, team: kt.Team, digests: Mapping[str, str], place: Place | None
    ) -> MemoryRunJournal:
        begun = super().begin(request, team, digests, None)
        self.storage.runs[request.run_id].place = place
        return begun


@mutant(clause="C8")
class TellsNobody(Right):
    """Who has lost a run finds out with its next call, in an hour."""

    class Session(Session):
        def lose(self, problem: str, *, interrupted: bool = False) -> None:
            self._on_lost = None
            super().lose(problem, interrupted=interrupted)


@mutant(clause="C9")
class SwallowsFailures(Right):
    """The disk is full: it logs that, and lets calls be sent."""

    class Session(Session):
        async def written(self) -> None:
            if self.journal.problem is None:
                await super().written()


@mutant(clause="C9")
class RecoversByItself(Right):
    """After a failure it goes on with the next record: one in the middle is not there."""

    class Session(Session):
        async def written(self) -> None:
            try:
                await super().written()
            except JournalError:
                if self.journal.alive and self.journal.problem is not None:
                    self._lost = self.journal.problem = None
                raise


@mutant(clause="C9")
class FailsForOneRun(Right):
    """Of the sessions of a journal that fails, one is told."""

    def fail(self, problem: str) -> None:
        sessions = [run.session for run in self.storage.runs.values() if run.owner is self]
        if sessions and sessions[0] is not None:
            sessions[0].lose(problem)
        if not self.alive:
            super().fail(problem)


# ---------------------------------------------------------------- ends


@mutant(clause="C16")
class EndsWithoutAResult(Right):
    """It records that a run has ended, and not with what."""

    class Session(Session):
        def _finish(self, run: Any, state: str, result: str | None) -> None:
            super()._finish(run, state, None)


@mutant(clause="C16")
class KeepsTheFirstResult(Right):
    """The result of a run that was suspended stays that of its first session."""

    class Session(Session):
        def _finish(self, run: Any, state: str, result: str | None) -> None:
            super()._finish(run, state, run.result or result)


@mutant(clause="C17")
class InterruptsInName(Right):
    """A run that was interrupted records what it does until it has ended."""

    class Session(Session):
        def interrupt(self, reason: str) -> None:
            self._write(lambda run: self._finish(run, "interrupted", None))


@mutant(clause="C17")
class KeepsWhatWasInterrupted(Right):
    """A run that was interrupted belongs to its process as long as that lives."""

    class Session(Session):
        def _finish(self, run: Any, state: str, result: str | None) -> None:
            super()._finish(run, "running" if state == "interrupted" else state, result)


@mutant(clause="C17")
class ForgetsItsLastWord(Right):
    """What a run tells of its interruption is not recorded."""

    class Session(Session):
        def end(self, result: kt.TeamResult) -> None:
            if not self.interrupted:
                super().end(result)


@mutant(clause="C18")
class CancelsForTheNextSession(Right):
    """A living run is not told that it was cancelled."""

    class Session(Session):
        def tell_cancelled(self, reason: str) -> None:
            pass


@mutant("D15", clause="C18")
class CancelsTheLivingOnly(Right):
    """A run that nobody has is cancelled when somebody goes on with it, which is never."""

    def cancel(self, run_id: str, reason: str = "the run was cancelled") -> None:
        run = self.storage.runs.get(run_id)
        if run is None or run.stands not in ("suspended", "interrupted"):
            super().cancel(run_id, reason)


@mutant("D15", clause="C18")
class ForgetsToCancelTheDead(Right):
    """A run whose process died before it was told goes on."""

    def crash(self) -> None:
        super().crash()
        for run in self.storage.runs.values():
            run.cancelled = None


# ---------------------------------------------------------------- events


@mutant(clause="C19")
class LosesAPageOfEvents(Right):
    """Events are written by tens; those of the last page are lost when the process dies."""

    class Session(Session):
        def _reach(self, run: Any, seconds: float, seq: int) -> None:
            run.seconds = seconds
            while len(self._events) >= 10:
                run.events += [self._events.popleft() for _ in range(10)]


@mutant(clause="C19")
class RepeatsEvents(Right):
    """Every page has the events of the pages before it too."""

    class Session(Session):
        def _reach(self, run: Any, seconds: float, seq: int) -> None:
            waiting = list(self._events)
            super()._reach(run, seconds, seq)
            self._events.extend(waiting[-2:])


@mutant(clause="C19")
class NumbersEventsAnew(Right):
    """The recovered run does not know how many events there are."""

    def _take(self, run_id: str) -> Any:
        return replace(super()._take(run_id), seq=0)
