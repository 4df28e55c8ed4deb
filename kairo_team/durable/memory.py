"""`MemoryJournal`: durable runs without a disk, to test how a team resumes after its process has died."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, cast

from anyio.lowlevel import checkpoint

from kairo_team.budget import Usage
from kairo_team.durable import NotRecordable, decode, encode_apart, encode_request, fetching
from kairo_team.errors import JournalError, Misuse, NoQuestion, RunExists, RunFinished, RunNotFound
from kairo_team.human import HumanDecision, HumanRequest, check_answer, check_same
from kairo_team.recorded import ENDED, Place, RecordedCall, RecordedQuestion, RecoveredRun

if TYPE_CHECKING:
    from kairo_team.durable import LongText
    from kairo_team.events import Event
    from kairo_team.files import File
    from kairo_team.results import TeamResult
    from kairo_team.team import Team, TeamExecutionRequest

_logger = logging.getLogger("kairo_team")

_NOTHING: Final = Usage()


@dataclass(slots=True)
class _Run:
    """The records of a run; values are kept as text, as on a disk."""

    request: str
    place: Place | None
    digests: Mapping[str, str]
    owner: MemoryJournal
    epoch: int = 1
    state: str = "running"
    seconds: float = 0.0
    steps: dict[str, str] = field(default_factory=dict[str, str])
    calls: dict[tuple[int, int], RecordedCall] = field(default_factory=dict[tuple[int, int], RecordedCall])
    """Key: the epoch of the session that sent the call, and the call's number in that session."""
    events: list[Event] = field(default_factory=list["Event"])
    result: str | None = None
    cancelled: str | None = None
    """Why another process cancelled the run; None if none did."""
    session: MemoryRunJournal | None = None
    """The session that has the run."""

    @property
    def seq(self) -> int:
        """The number of the last recorded event."""
        return self.events[-1].seq if self.events else 0

    @property
    def stands(self) -> str:
        """The run's current state: a running run whose process has died is interrupted, or cancelled if marked so."""
        if self.state != "running" or self.owner.alive:
            return self.state
        return "interrupted" if self.cancelled is None else "cancelled"


class _Storage:
    """The storage that several journals share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[str, _Run] = {}
        self.questions: dict[str, RecordedQuestion] = {}
        """Questions by id, oldest first."""
        self.deferred: dict[str, HumanDecision] = {}
        """Decisions of people who deferred a question, by the question's id, earliest first."""
        self.files: dict[str, bytes] = {}
        """The files and long texts of recorded values, by digest."""

    def keep(self, files: Iterable[File | LongText]) -> None:
        """Keep files and long texts that are not here yet."""
        for file in files:
            if file.digest not in self.files and (data := file.data) is not None:
                self.files[file.digest] = data

    def run(self, run_id: str) -> _Run:
        """Return the records of a run; raises `RunNotFound`."""
        if run_id not in self.runs:
            raise RunNotFound(run_id, self.runs, place="this journal, which has")
        return self.runs[run_id]

    def inside(self, run_id: str) -> Iterator[str]:
        """Yield the ids of a run and of the runs inside it, outer runs first."""
        yield run_id
        for other, run in self.runs.items():
            if run.place is not None and run.place.run_id == run_id:
                yield from self.inside(other)

    def drop_questions(self, run_id: str) -> None:
        """Delete the questions of a run."""
        for key in [key for key, one in self.questions.items() if one.question.run_id == run_id]:
            self.drop_question(key)

    def drop_question(self, question_id: str) -> None:
        """Delete a question, if there is one."""
        self.questions.pop(question_id, None)
        self.deferred.pop(question_id, None)


class MemoryJournal:
    """Records runs in memory, as `SqliteJournal` does on disk, to simulate in a test that a process dies.

    A journal represents one process. `crash` lets the process die, `fail` breaks its disk, and `elsewhere` returns the
    journal of another process on the same storage:

    >>> journal.crash()
    >>> result = await kt.Runtime(journal=journal.elsewhere()).resume("run-1", team)
    """

    def __init__(self) -> None:
        self.storage = _Storage()
        self.alive = True
        """Whether the simulated process lives."""
        self.problem: str | None = None
        """Why nothing more is recorded; None while recording works."""

    def elsewhere(self) -> MemoryJournal:
        """Return the journal of another process on the same storage."""
        other = type(self)()
        other.storage = self.storage
        return other

    def crash(self) -> None:
        """Let the process die: it records nothing more, and another process may resume its runs."""
        self.alive = False
        self.fail("its process has died")

    def fail(self, problem: str) -> None:
        """Record nothing more, as with a full disk; the process stays alive."""
        self.problem = problem
        with self.storage.lock:
            for run in self.storage.runs.values():
                if run.owner is self and run.session is not None:
                    run.session.lose(problem)

    # ------------------------------------------------------------------ runs

    def begin(
        self, request: TeamExecutionRequest, team: Team, digests: Mapping[str, str], place: Place | None
    ) -> MemoryRunJournal:
        """Record a new run and return its journal.

        Raises `RunExists` if the id is recorded, `Misuse` if the request or a value of one of the team's output types
        cannot be written, and `JournalError` if another process has the run around this one.
        """
        written, files = encode_request(request, team)
        with self.storage.lock:
            self.check()
            around = None if place is None else self.storage.runs.get(place.run_id)
            if around is not None and around.owner is not self:
                raise JournalError("in memory", "another process has taken the run over")
            if request.run_id in self.storage.runs:
                raise RunExists(request.run_id, recorded=True)
            run = self.storage.runs[request.run_id] = _Run(written, place, dict(digests), self)
            self.storage.keep(files)
            run.session = session = self._open(request.run_id, 1, {})
        return session

    def digests(self, run_id: str) -> Mapping[str, str]:
        """Return the digests of a run's inputs, by name; raises `RunNotFound`."""
        with self.storage.lock:
            return self.storage.run(run_id).digests

    def recover(self, run_id: str, *, take_over: bool = False) -> tuple[RecoveredRun, ...]:
        """Claim a run that no living process has; return its records and the records of each run inside it.

        Raises `RunNotFound`, `RunFinished`, and `Misuse` while a living process has the run, unless `take_over` is set.
        """
        with self.storage.lock:
            self.check()
            run = self.storage.run(run_id)
            if run.stands in ENDED:
                raise RunFinished(run_id, run.stands)
            if run.stands == "running" and not take_over:
                raise Misuse(
                    f"run {run_id!r} is running with {run.owner!r}: cancel it there, or resume it with take_over=True"
                )
            return tuple(map(self._take, [*self.storage.inside(run_id)]))

    def _take(self, run_id: str) -> RecoveredRun:
        """Begin a session of a run, and return the run's records."""
        run = self.storage.run(run_id)
        if run.session is not None:
            run.session.lose("another process has taken the run over")
        run.owner, run.epoch, state = self, run.epoch + 1, run.state
        run.state = state if state in ENDED else "running"
        steps = {key: self._decode(value) for key, value in run.steps.items()}
        calls = tuple(run.calls.values())
        run.session = self._open(run_id, run.epoch, steps, (run.seconds, run.seq), _in_doubt(calls))
        return RecoveredRun(
            request=cast("TeamExecutionRequest", self._decode(run.request)),
            place=run.place,
            seconds=run.seconds,
            seq=run.seq,
            # A copy, because the session adds to its own.
            steps=dict(steps),
            calls=calls,
            questions=[one for one in self.storage.questions.values() if one.question.run_id == run_id],
            journal=run.session,
            state=state,
        )

    def _decode(self, text: str) -> object:
        with fetching(self.storage.files.get):
            return decode(text)

    def _open(
        self,
        run_id: str,
        epoch: int,
        records: dict[str, object],
        progress: tuple[float, int] = (0.0, 0),
        in_doubt: Collection[str] = (),
    ) -> MemoryRunJournal:
        return MemoryRunJournal(self, run_id, epoch, records, progress, in_doubt)

    def result(self, run_id: str) -> TeamResult | None:
        """Return the result of a run that has ended or is suspended, else None. Raises `RunNotFound`."""
        with self.storage.lock:
            written = self.storage.run(run_id).result
        return None if written is None else cast("TeamResult", self._decode(written))

    def events_after(self, run_id: str, seq: int = 0) -> tuple[Event, ...]:
        """Return the recorded events of a run with a number above `seq`, in order; raises `RunNotFound`."""
        with self.storage.lock:
            return tuple(one for one in self.storage.run(run_id).events if one.seq > seq)

    def cancel(self, run_id: str, reason: str = "the run was cancelled") -> None:
        """End a run for good, from any process; raises `RunNotFound`, and `RunFinished` for a run that has ended."""
        with self.storage.lock:
            self.check()
            run = self.storage.run(run_id)
            if run.stands in ENDED:
                raise RunFinished(run_id, run.stands)
            run.cancelled, living = reason, run.stands == "running"
            if not living:
                for one in self.storage.inside(run_id):
                    self.storage.run(one).state = "cancelled"
                    self.storage.drop_questions(one)
        if living and run.session is not None:
            run.session.tell_cancelled(reason)

    # ------------------------------------------------------------------ questions

    def pending(self, run_id: str | None = None) -> tuple[HumanRequest, ...]:
        """Return the unanswered questions of a run and the runs inside it, or of all runs.

        The oldest come first; deferred questions come last.
        """
        with self.storage.lock:
            if run_id is not None:
                self.storage.run(run_id)
            names = set(self.storage.runs if run_id is None else self.storage.inside(run_id))
            deferred = self.storage.deferred
            asked = self.storage.questions
            waiting = [one for key, one in asked.items() if key not in deferred] + [asked[key] for key in deferred]
        return tuple(one.question for one in waiting if one.decision is None and one.question.run_id in names)

    def answer(self, question_id: str, decision: HumanDecision) -> None:
        """Answer a question, or defer it, from any process; repeating the same answer has no effect.

        Raises `NoQuestion` if no open question has this id, and `Misuse` if the answer differs from the first one.
        """
        check_answer(question_id, decision)
        with self.storage.lock:
            self.check()
            asked = self.storage.questions.get(question_id)
            if asked is None:
                raise NoQuestion(question_id, (one.id for one in self.pending()), self._why_closed(question_id))
            check_same(question_id, asked.decision, decision)
            # Even before it is put in again: a question that is deferred twice becomes the last one.
            self.storage.deferred.pop(question_id, None)
            if decision.action == "defer":
                self.storage.deferred[question_id] = decision
            else:
                self.storage.questions[question_id] = replace(asked, decision=decision)

    def _why_closed(self, question_id: str) -> str | None:
        """Return why a question is no longer open; None for an unknown question."""
        for run, key in ((run, question_id.removeprefix(f"{name}:")) for name, run in self.storage.runs.items()):
            if f"withdrawn:{key}" in run.steps or (key != question_id and key in run.steps):
                return str(self._decode(run.steps.get(f"withdrawn:{key}", '"it was answered, or nobody answered"')))
        return None

    def ask(self, question: HumanRequest) -> None:
        """Keep a question for `pending` and `answer` while its run lives; raises `RunNotFound`."""
        with self.storage.lock:
            self.check()
            self.storage.run(question.run_id)
            self.storage.questions.setdefault(question.id, RecordedQuestion(question))
            self.storage.deferred.pop(question.id, None)

    def answer_to(self, question: HumanRequest) -> HumanDecision | None:
        """Return the answer to exactly this question, or the decision that deferred it; None while there is neither."""
        with self.storage.lock:
            found = self.storage.questions.get(question.id)
            deferred = self.storage.deferred.get(question.id)
        if found is None or found.question.digest != question.digest:
            return None
        return found.decision or deferred

    # ------------------------------------------------------------------ shared

    def check(self) -> None:
        """Raise `JournalError` if nothing more can be recorded."""
        if self.problem is not None:
            raise JournalError("in memory", self.problem)

    def __repr__(self) -> str:
        return f"MemoryJournal({len(self.storage.runs)} runs{'' if self.alive else ', crashed'})"


class MemoryRunJournal:
    """The recorded steps of one session of a run, kept in memory; fulfils `contracts.RunJournal`."""

    durable: ClassVar[bool] = True

    def __init__(
        self,
        journal: MemoryJournal,
        run_id: str,
        epoch: int,
        records: dict[str, object],
        progress: tuple[float, int],
        in_doubt: Collection[str],
    ) -> None:
        self.journal = journal
        self._run_id = run_id
        self._epoch = epoch
        self._records = records
        self._sent = 0
        self._lost: str | None = None
        """Why this session records nothing more; None while it may record."""
        self._events: deque[Event] = deque()
        """Events that are not recorded yet."""
        self._on_cancel: Callable[[str], object] | None = None
        self._on_lost: Callable[[JournalError], object] | None = None
        self.in_doubt: Collection[str] = in_doubt
        """Keys of tool calls that an earlier session sent and whose end is not recorded."""
        self.interrupted = False
        """Whether the session was interrupted on request: the run can be resumed."""
        self._progress: Callable[[], tuple[float, int]] = lambda: progress

    def serve(
        self,
        progress: Callable[[], tuple[float, int]],
        on_cancel: Callable[[str], object],
        on_lost: Callable[[JournalError], object],
    ) -> Callable[[Event], object]:
        """Serve the session that begins now until it ends; return the function that takes its events."""
        self._progress, self._on_cancel, self._on_lost = progress, on_cancel, on_lost
        with self.journal.storage.lock:
            cancelled = self.journal.storage.run(self._run_id).cancelled
        if cancelled is not None:
            self.tell_cancelled(cancelled)
        return self._events.append

    def tell_cancelled(self, reason: str) -> None:
        """Notify the run, once, that it is cancelled."""
        tell, self._on_cancel = self._on_cancel, None
        if tell is not None:
            tell(reason)

    def lose(self, problem: str, *, interrupted: bool = False) -> None:
        """Record nothing more; notify the run, unless it was `interrupted` on request."""
        self.interrupted = self.interrupted or interrupted
        if self._lost is None:
            self._lost = problem
            if not interrupted and self._on_lost is not None:
                self._on_lost(JournalError("in memory", problem))

    def interrupt(self, reason: str) -> None:
        """Record nothing more, here and in the runs inside; `recover` can resume the run. From any thread."""
        mine = self._lost is None
        # Another thread may have recorded the session's end just now.
        self._write(lambda run: self._finish(run, "interrupted", None) if run.state == "running" else None)
        with self.journal.storage.lock:
            for run in map(self.journal.storage.run, self.journal.storage.inside(self._run_id)):
                # The session may be of a process that took the run over.
                if run.session is not None and run.session.journal is self.journal:
                    if mine and run.session is not self and run.state == "running":
                        run.state = "interrupted"
                    run.session.lose(reason, interrupted=True)

    @property
    def records(self) -> Mapping[str, object]:
        """A live, read-only view of the recorded values by key."""
        return MappingProxyType(self._records)

    def get(self, key: str, default: object, /) -> object:
        """Return the value recorded under `key`, or `default`."""
        return self._records.get(key, default)

    def put(self, key: str, value: object, /) -> None:
        """Record `value` under `key`; a value that cannot be written is kept for this session only."""
        self._write(*self._step(key, value))

    def put_answer(self, key: str, value: object, number: int, usage: Usage) -> None:
        """Record the answer of a call under `key` and the end of the call, in one transaction."""
        self._write(*self._step(key, value), lambda run: self._end(run, number, "answered", usage))

    def _step(self, key: str, value: object) -> Sequence[Callable[[_Run], object]]:
        self._records[key] = value
        try:
            written, files = encode_apart(value)
        except NotRecordable as error:
            _logger.warning("step %r of run %r is not recorded: %s", key, self._run_id, error)
            return []
        return [lambda _: self.journal.storage.keep(files), lambda run: run.steps.__setitem__(key, written)]

    async def sent(
        self,
        what: str,
        name: str,
        held: Usage,
        *,
        step: str,
        key: str,
        task_id: str | None,
        member: str | None,
        side_effect: str | None,
        loops: int,
    ) -> int:
        """Record that a call is about to be sent; return its number."""
        self._sent += 1
        number = self._sent
        call = RecordedCall(
            run_id=self._run_id,
            what=what,
            name=name,
            task_id=task_id,
            member=member,
            state="sent",
            usage=held,
            step=step,
            key=key,
            loops=loops,
            sent_at=time.time(),
        )
        self._write(lambda run: run.calls.__setitem__((self._epoch, number), call))
        try:
            await self.written()
        except BaseException:
            # Also if the session was interrupted meanwhile: else the call would be in doubt, and charged.
            self._write(lambda run: self._end(run, number, "unsent", _NOTHING), after_shut=True)
            raise
        return number

    def ended(self, number: int, state: str, usage: Usage) -> None:
        """Record the final state of a call and the usage that it is charged."""
        self._write(lambda run: self._end(run, number, state, usage))

    def _end(self, run: _Run, number: int, state: str, usage: Usage) -> None:
        at = (self._epoch, number)
        if at in run.calls:  # else the session was lost before the call was recorded
            run.calls[at] = replace(run.calls[at], state=state, usage=usage)

    async def written(self) -> None:
        """Return at once, because memory needs no wait; raises `JournalError` if nothing more can be recorded."""
        await checkpoint()
        if self._lost is not None:
            raise JournalError("in memory", self._lost)

    def keep_open(self, question: HumanRequest) -> None:
        """Record a question that stays open."""
        self._write(lambda _: self.journal.storage.questions.setdefault(question.id, RecordedQuestion(question)))

    def close_question(self, question_id: str) -> None:
        """Delete a question whose answer the run has taken."""
        self._write(lambda _: self.journal.storage.drop_question(question_id))

    def end(self, result: TeamResult) -> None:
        """Record how the session ended; for an interrupted session, only the events emitted since."""
        if self.interrupted:
            if self._is_last:
                self._reach(self.journal.storage.run(self._run_id), *self._progress())
            return
        written: str | None = None
        files: Sequence[File | LongText] = ()
        try:
            written, files = encode_apart(result)
        except NotRecordable as error:
            _logger.warning("the result of run %r is not recorded: %s", self._run_id, error)
        self._write(
            lambda _: self.journal.storage.keep(files), lambda run: self._finish(run, result.status.value, written)
        )
        self._on_cancel = self._on_lost = None

    @property
    def _is_last(self) -> bool:
        """Whether this interrupted session is the last that had the run, and its process lives."""
        run = self.journal.storage.runs.get(self._run_id)
        return self.interrupted and run is not None and run.session is self and self.journal.alive

    def _finish(self, run: _Run, state: str, result: str | None) -> None:
        run.state, run.result = state, result
        for one in self.journal.storage.inside(self._run_id) if state in ENDED else ():
            self.journal.storage.drop_questions(one)

    def _write(self, *changes: Callable[[_Run], object], after_shut: bool = False) -> None:
        """Apply changes to the run's records, all or none; none once the session is lost.

        `after_shut`: also if it was interrupted, until another session has the run.
        """
        with self.journal.storage.lock:
            if changes and (self._lost is None or (after_shut and self._is_last)):
                run = self.journal.storage.run(self._run_id)
                for change in changes:
                    change(run)
                if self._lost is None:  # `end` records the events of an interrupted run
                    self._reach(run, *self._progress())

    def _reach(self, run: _Run, seconds: float, seq: int) -> None:
        """Record the run's progress, and its events up to that point."""
        run.seconds = seconds
        while self._events and self._events[0].seq <= seq:
            run.events.append(self._events.popleft())


def _in_doubt(calls: Sequence[RecordedCall]) -> frozenset[str]:
    return frozenset(one.key for one in calls if one.what == "tool" and one.state == "sent")
