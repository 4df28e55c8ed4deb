"""Wrong journals, each rejected by the kit at one clause: what is recorded, in which order, and what comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from anyio.lowlevel import checkpoint

import kairo_team as kt
from kairo_team.durable import decode, encode
from kairo_team.durable.memory import MemoryRunJournal
from kairo_team.recorded import Place, RecordedQuestion, RecoveredRun
from kairo_team.tck import JournalTCK
from kairo_team.testing import MemoryJournal
from tests.mutants.kit_mutant import registry_of

NOTHING = kt.Usage()


class Session(MemoryRunJournal):
    """A right session, also with calls that a mutant has lost."""

    def _end(self, run: Any, number: int, state: str, usage: kt.Usage) -> None:
        if (self._epoch, number) in run.calls:
            super()._end(run, number, state, usage)


class Right(MemoryJournal):
    """A right journal; the mutants change one thing of it, or of its sessions."""

    Session: ClassVar[type[MemoryRunJournal]] = Session

    def _open(
        self,
        run_id: str,
        epoch: int,
        records: dict[str, object],
        progress: tuple[float, int] = (0.0, 0),
        in_doubt: Collection[str] = (),
    ) -> MemoryRunJournal:
        return self.Session(self, run_id, epoch, records, progress, in_doubt)


class RightKit(JournalTCK):
    """The kit of the right journal."""

    kind: ClassVar[type[Right]] = Right
    patience = 0.2

    @classmethod
    def make_journal(cls) -> Any:
        return cls.kind()

    @classmethod
    def make_another(cls, journal: Any) -> Any:
        return journal.elsewhere()

    @classmethod
    def crash(cls, journal: Any) -> None:
        journal.crash()

    @classmethod
    def fail(cls, journal: Any) -> None:
        journal.fail("the disk is full")


MUTANTS, mutant = registry_of(RightKit)


class Buffered(Session):
    """Writes what it was given when somebody waits for it: right, but for what the mutants do with it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.waiting: list[Sequence[Callable[[Any], object]]] = []

    def _write(self, *changes: Callable[[Any], object], after_shut: bool = False) -> None:
        self.waiting.append(changes)

    def flush(self) -> None:
        waiting, self.waiting = self.waiting, []
        for changes in waiting:
            super()._write(*changes)

    async def written(self) -> None:
        self.flush()
        await super().written()

    def interrupt(self, reason: str) -> None:
        self.flush()
        super()._write(lambda run: self._finish(run, "interrupted", None))
        super().interrupt(reason)


def _step(key: str, write: Callable[[], str]) -> Callable[[Any], None]:
    """Return a change of what is kept of a run: a step's value, written when it is made."""

    def change(run: Any) -> None:
        run.steps[key] = write()

    return change


# ---------------------------------------------------------------- before a call is sent


@mutant("D06", clause="C2")
class LosesTheIntent(Right):
    """A call is recorded with its answer: one without an answer leaves no trace."""

    class Session(Session):
        async def sent(self, *given: Any, **named: Any) -> int:
            number = await super().sent(*given, **named)
            run = self.journal.storage.run(self._run_id)
            self.late = run.calls.pop((self._epoch, number))
            return number

        def _end(self, run: Any, number: int, state: str, usage: kt.Usage) -> None:
            run.calls[self._epoch, number] = replace(self.late, state=state, usage=usage)


@mutant(clause="C2")
class SendsBeforeItIsWritten(Right):
    """The call is on its way to the disk when it is sent."""

    class Session(Buffered):
        async def sent(self, *given: Any, **named: Any) -> int:
            before, self.waiting = self.waiting, []
            number = await super().sent(*given, **named)
            run = self.journal.storage.run(self._run_id)
            call = run.calls.pop((self._epoch, number))
            self.waiting = [*before, [lambda run: run.calls.__setitem__((self._epoch, number), call)]]
            return number


# ---------------------------------------------------------------- order


@mutant(clause="C3")
class WritesTheNewestFirst(Right):
    """What waits is written from the end."""

    class Session(Buffered):
        def flush(self) -> None:
            self.waiting.reverse()
            super().flush()


@mutant(clause="C3")
class WritesEndsWhenThereIsTime(Right):
    """Steps are written at once, and the ends of calls with the next call."""

    class Session(Buffered):
        def put(self, key: str, value: object, /) -> None:
            Session._write(self, *self._step(key, value))


@mutant("D04", clause="C3")
class ForgetsWhatWaited(Right):
    """It says that all is written, and drops what it had not come to."""

    class Session(Buffered):
        def flush(self) -> None:
            self.waiting = self.waiting[:10]
            super().flush()


@mutant(clause="C4")
class AnswersBeforeTheEnd(Right):
    """An answer is written at once, and the end of its call with the next call: it is charged in full, or free."""

    class Session(Buffered):
        def put_answer(self, key: str, value: object, number: int, usage: kt.Usage) -> None:
            Session._write(self, *self._step(key, value))
            self.ended(number, "answered", usage)


@mutant(clause="C4")
class EndsBeforeTheAnswer(Right):
    """The end of a call is written at once, and its answer with the next call: it was paid for nothing."""

    class Session(Buffered):
        def put_answer(self, key: str, value: object, number: int, usage: kt.Usage) -> None:
            Session._write(self, lambda run: self._end(run, number, "answered", usage))
            self.put(key, value)


# ---------------------------------------------------------------- what comes back


class Alters(Right):
    """Alters what is recovered."""

    def _take(self, run_id: str) -> RecoveredRun:
        return self.alter(super()._take(run_id))

    def alter(self, found: RecoveredRun) -> RecoveredRun:
        return found


@mutant("D14", clause="C5")
class CountsACallTwice(Alters):
    """Calls without an end are recorded again in the session that goes on."""

    def alter(self, found: RecoveredRun) -> RecoveredRun:
        return replace(found, calls=[*found.calls, *(one for one in found.calls if one.state == "sent")])


@mutant("D06", clause="C5")
class DropsCallsInDoubt(Alters):
    """A call without an answer was not made, it thinks."""

    def alter(self, found: RecoveredRun) -> RecoveredRun:
        return replace(found, calls=[one for one in found.calls if one.state != "sent"])


@mutant("D06", clause="C5")
class ChargesNothingForDoubt(Alters):
    """A call without an answer is free."""

    def alter(self, found: RecoveredRun) -> RecoveredRun:
        return replace(
            found, calls=[replace(one, usage=NOTHING) if one.state == "sent" else one for one in found.calls]
        )


@mutant("D11", clause="C5")
class NumbersCallsAnew(Right):
    """The first call of a new session has the row of the first call of the last one."""

    class Session(Session):
        def __init__(self, journal: Any, run_id: str, epoch: int, *more: Any) -> None:
            super().__init__(journal, run_id, 1, *more)


@mutant(clause="C5")
class ForgetsRunsInside(Alters):
    """Runs inside that have ended are not recovered: their cost is gone."""

    def recover(self, run_id: str, *, take_over: bool = False) -> Any:
        states = {name: run.state for name, run in self.storage.runs.items()}
        return [
            one for one in super().recover(run_id, take_over=take_over) if states[one.request.run_id] != "completed"
        ]


@mutant("D11", clause="C5")
class BeginsItsClockAnew(Alters):
    """What the run has worked, and the number of its last event, are those of the session."""

    def alter(self, found: RecoveredRun) -> RecoveredRun:
        self.storage.run(found.request.run_id).seconds = 0.0
        return found


@mutant("D06", clause="C6")
class ForgetsDoubts(Right):
    """No tool call is in doubt after a crash: all of them are made again."""

    class Session(Session):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.in_doubt = ()


@mutant(clause="C6")
class DoubtsAnsweredTools(Right):
    """Every tool call that an earlier session sent is in doubt."""

    class Session(Session):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            calls = self.journal.storage.run(self._run_id).calls.values()
            self.in_doubt = {one.key for one in calls if one.what == "tool"}


# ---------------------------------------------------------------- values


@mutant("D08", clause="C10")
class WritesPlainJson(Right):
    """Values are written as JSON writes them: tuples come back as lists, money as text."""

    class Session(Session):
        def _step(self, key: str, value: object) -> Any:
            if super()._step(key, value):
                plain = encode(json.loads(json.dumps(value, default=str, skipkeys=True)))
                return [_step(key, lambda: plain)]
            return []


@mutant(clause="C10")
class WritesValuesLater(Right):
    """A value is written down when the writer comes to it: with what was done to it since."""

    class Session(Buffered):
        def _step(self, key: str, value: object) -> Any:
            return [_step(key, lambda: encode(value))] if super()._step(key, value) else []


@mutant("D07", clause="C10")
class StumblesOverAValue(Right):
    """With an answer that cannot be written the end of its call is not written either."""

    class Session(Session):
        def put_answer(self, key: str, value: object, number: int, usage: kt.Usage) -> None:
            if self._step(key, value):
                super().put_answer(key, value, number, usage)


@mutant(clause="C11")
class KnowsOnlyWhatIsWritten(Right):
    """A session reads its own records from the store, where the last ones are not yet."""

    class Session(Buffered):
        def get(self, key: str, default: object, /) -> object:
            steps = self.journal.storage.run(self._run_id).steps
            return decode(steps[key]) if key in steps else default


# ---------------------------------------------------------------- at once


@mutant(clause="C12")
class SharesItsSteps(Right):
    """Steps have their keys as names, and runs with the same keys share them."""

    steps: ClassVar[dict[str, str]] = {}

    def begin(
        self, request: kt.TeamExecutionRequest, team: kt.Team, digests: Mapping[str, str], place: Place | None
    ) -> MemoryRunJournal:
        session = super().begin(request, team, digests, place)
        if len(self.storage.runs) > 1:
            first = next(iter(self.storage.runs.values()))
            self.storage.run(request.run_id).steps = first.steps
        return session


@mutant(clause="C12")
class GivesANumberTwice(Right):
    """Two calls that are sent at the same time get one number."""

    class Session(Session):
        async def sent(self, *given: Any, **named: Any) -> int:
            before = self._sent
            await checkpoint()
            self._sent = before
            return await super().sent(*given, **named)


@mutant(clause="C13")
class LeavesACancelledCallInDoubt(Right):
    """Whoever waited for a call to be recorded was cancelled: it stays as if it were sent."""

    class Session(Session):
        def _write(self, *changes: Callable[[Any], object], after_shut: bool = False) -> None:
            if not after_shut:
                super()._write(*changes)


@mutant(clause="C13")
class WritesForWhoWaits(Right):
    """What somebody waited for is not written once they have gone."""

    class Session(Buffered):
        async def written(self) -> None:
            waiting, self.waiting = self.waiting, []
            await checkpoint()
            self.waiting = waiting
            await super().written()


# ---------------------------------------------------------------- questions


@mutant("D17", clause="C14")
class AsksAnew(Right):
    """A question that is put off again loses the answer that came meanwhile."""

    class Session(Session):
        def keep_open(self, question: kt.HumanRequest) -> None:
            asked = {question.id: RecordedQuestion(question)}
            self._write(lambda _: self.journal.storage.questions.update(asked))


@mutant("D10", clause="C14")
class ShowsItsOwnQuestions(Right):
    """It shows the questions of the runs that it has itself."""

    def pending(self, run_id: str | None = None) -> Any:
        return tuple(one for one in super().pending(run_id) if self.storage.run(one.run_id).owner is self)


@mutant(clause="C14")
class KeepsClosedQuestions(Right):
    """A question that its run has answered itself still waits."""

    class Session(Session):
        def close_question(self, question_id: str) -> None:
            pass


@mutant(clause="C15")
class TakesTheLastAnswer(Right):
    """An answer overwrites the one before it."""

    def answer(self, question_id: str, decision: kt.HumanDecision) -> None:
        asked = self.storage.questions.get(question_id)
        if asked is not None and isinstance(decision, kt.HumanDecision) and decision.action != "defer":
            self.storage.questions[question_id] = replace(asked, decision=None)
        super().answer(question_id, decision)


@mutant("D17", clause="C15")
class AnswersTheDead(Right):
    """An answer goes to the process that asked, and is lost with it."""

    def answer(self, question_id: str, decision: kt.HumanDecision) -> None:
        asked = self.storage.questions.get(question_id)
        if asked is None or self.storage.run(asked.question.run_id).owner.alive:
            super().answer(question_id, decision)


@mutant(clause="C14")
class KeepsDeferredQuestionsInTheirPlace(Right):
    """A deferred question stays before those that were asked later."""

    def pending(self, run_id: str | None = None) -> Any:
        places = list(self.storage.questions)
        return tuple(sorted(super().pending(run_id), key=lambda one: places.index(one.id)))


@mutant(clause="C14")
class DefersForGood(Right):
    """A deferred question does not wait any more."""

    def pending(self, run_id: str | None = None) -> Any:
        return tuple(one for one in super().pending(run_id) if one.id not in self.storage.deferred)


@mutant(clause="C15")
class DoesNotTellOfDeferral(Right):
    """A run goes on waiting for an answer to a question that was deferred."""

    def answer_to(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        found = super().answer_to(question)
        return None if found is not None and found.action == "defer" else found


@mutant(clause="C15")
class DefersWhatIsAskedAnew(Right):
    """A question that was deferred once is put off again whenever its run asks it."""

    def ask(self, question: kt.HumanRequest) -> None:
        deferred = self.storage.deferred.get(question.id)
        super().ask(question)
        if deferred is not None:
            super().answer(question.id, deferred)


@mutant(clause="C15")
class AnswersWhatWasAskedBefore(Right):
    """An answer to a question holds for another one with its id, about something else."""

    def answer_to(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        return (self.storage.questions[question.id]).decision
