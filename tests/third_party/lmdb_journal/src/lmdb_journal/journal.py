"""`LmdbJournal`: runs of many processes in one LMDB store."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Final

import lmdb

import kairo_team as kt
from kairo_team.durable import CorruptRecord, decode, encode, encode_request
from kairo_team.errors import JournalError, Misuse, NoQuestion, RunExists, RunFinished
from kairo_team.events import Event, event_from_json
from kairo_team.recorded import ENDED, Place, RecordedCall, RecordedQuestion, RecordedRun, RecoveredRun
from lmdb_journal.session import TAKEN, LmdbRunJournal, Writer, ask
from lmdb_journal.store import EVENT, FILE, REQUEST, RESULT, Asked, Book, Owner, Row, Store, digest_of, packed

LARGEST: Final = 64 * 2**30
"""Bytes to which a store may grow, unless it is given."""


class LmdbJournal:
    """Records runs in the LMDB store of a folder, which is made if it is not there.

    Any number of processes of one machine may use it. `sync=False` does not wait for the disk: a power failure may lose
    records and harm the store; a killed process does neither. `events=False` keeps no events. `source` is stored with
    each run that begins here, and says how to start it again. The store grows to `map_size` bytes at most.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        sync: bool = True,
        events: bool = True,
        source: Mapping[str, str] | None = None,
        map_size: int = LARGEST,
    ) -> None:
        if not str(path).strip():
            raise ValueError("LmdbJournal takes the path of a folder, such as 'runs'")
        self.path = Path(path)
        self._events = events
        self._source = dict(source or {})
        self._store = Store(self.path, sync=sync, map_size=map_size)
        self._writer = Writer(self._store)
        self._owner: Owner | None = None
        self._making = Lock()

    def close(self) -> None:
        """Write the last records, and give up all runs and the store."""
        self._writer.close()
        self._leave()
        self._store.close()

    def abandon(self, problem: str, *, dies: bool = False) -> None:
        """Record nothing more, as after a failure of the disk; with `dies`, give up all runs, as a killed process."""
        self._writer.fail(problem)
        if dies:
            self._leave()

    def _leave(self) -> None:
        if self._owner is not None:
            self._owner.leave()
            self._owner = None

    # ------------------------------------------------------------------ transactions

    @contextmanager
    def _reading(self) -> Generator[Book]:
        """Read the store as it is now."""
        self._writer.flush().wait()
        try:
            with self._store.env.begin() as txn:
                yield Book(self._store, txn)
        except (lmdb.Error, CorruptRecord) as error:
            raise JournalError(self.path, f"it cannot be read: {error}") from error

    @contextmanager
    def _writing(self) -> Generator[Book]:
        """Change the store in one transaction."""
        self._writer.flush().wait()
        if self._writer.problem is not None:
            raise JournalError(self.path, self._writer.problem)
        try:
            with self._store.env.begin(write=True) as txn:
                yield Book(self._store, txn)
        except (lmdb.Error, CorruptRecord) as error:
            raise JournalError(self.path, f"it cannot be written: {error}") from error

    def _own(self) -> str:
        with self._making:
            if self._owner is None:
                self._owner = Owner(self._store)
            return self._owner.id

    # ------------------------------------------------------------------ sessions

    def begin(
        self, request: kt.TeamExecutionRequest, team: kt.Team, digests: Mapping[str, str], place: Place | None
    ) -> LmdbRunJournal:
        """Record a new run, and return its journal."""
        written, files = encode_request(request, team)
        with self._writing() as book:
            if book.find(request.run_id) is not None:
                raise RunExists(request.run_id, recorded=True)
            around = None if place is None else book.find(place.run_id)
            if around is not None and around.owner != self._own():
                raise JournalError(self.path, TAKEN)
            now = time.time()
            names = team.name, request.goal
            row = Row(request.run_id, book.next(), *names, self._own(), now, now, dict(digests), self._source)
            if place is not None:
                row.parent, row.parent_step, row.parent_member = place.run_id, place.step, place.member
            book.keep(row)
            book.put_text(row, REQUEST, written)
            for file in files:
                if file.data is not None:
                    book.put("data", packed(row.number) + FILE + digest_of(file.digest), file.data)
        return self._session(row, {})

    def _session(self, row: Row, steps: dict[str, object]) -> LmdbRunJournal:
        return LmdbRunJournal(self.path, self._writer, row, steps, events=self._events)

    def recover(self, run_id: str, *, take_over: bool = False) -> tuple[RecoveredRun, ...]:
        """Take a run that no living process has, and return its records, with those of the runs inside it."""
        with self._writing() as book:
            row = book.row(run_id)
            state = book.state(row)
            if state in ENDED:
                raise RunFinished(run_id, state)
            if state == "running" and not take_over:
                raise Misuse(f"run {run_id!r} is running: cancel it, or resume it with take_over=True")
            return tuple(self._take(book, book.row(name)) for name in book.inside(run_id))

    def _take(self, book: Book, row: Row) -> RecoveredRun:
        state, row.owner, row.epoch = row.state, self._own(), row.epoch + 1
        if state not in ENDED:
            row.state, row.usage = "running", None
        book.keep(row)
        steps, calls = book.steps(row), tuple(one.call for one in book.calls(row))
        session = self._session(row, steps)
        session.in_doubt = frozenset(one.key for one in calls if one.what == "tool" and one.state == "sent")
        asked = [one for one in book.asked() if one.run_id == row.run_id]
        return RecoveredRun(
            request=book.decode(row, book.text(row, REQUEST) or ""),
            place=row.place,
            seconds=row.seconds,
            seq=row.seq,
            steps=dict(steps),
            calls=calls,
            questions=[RecordedQuestion(_question(one), _decision(one)) for one in asked],
            journal=session,
            state=state,
        )

    # ------------------------------------------------------------------ what is recorded

    def digests(self, run_id: str) -> Mapping[str, str]:
        """Return the digests of the parts that a run began with."""
        with self._reading() as book:
            return book.row(run_id).digests

    def result(self, run_id: str) -> kt.TeamResult | None:
        """Return the result of a run; None without one."""
        with self._reading() as book:
            row = book.row(run_id)
            written = book.text(row, RESULT)
            found: kt.TeamResult | None = None if written is None else book.decode(row, written)
            return found

    def events_after(self, run_id: str, seq: int = 0) -> tuple[Event, ...]:
        """Return the events of a run with a number above `seq`."""
        with self._reading() as book:
            prefix = packed(book.row(run_id).number) + EVENT
            return tuple(event_from_json(value.decode()) for _, value in book.under("data", prefix, packed(seq + 1)))

    def runs(self, *, state: str | None = None, team: str | None = None) -> tuple[RecordedRun, ...]:
        """Return the runs that are inside no other, the newest first."""
        with self._reading() as book:
            rows = [row for row in book.rows() if row.parent is None and team in (None, row.team)]
            found = [self._shown(book, row) for row in reversed(rows)]
        return tuple(run for run in found if state in (None, run.state))

    def show(self, run_id: str) -> RecordedRun:
        """Return a run."""
        with self._reading() as book:
            return self._shown(book, book.row(run_id))

    def _shown(self, book: Book, row: Row) -> RecordedRun:
        calls = self._calls(book, row)
        usage = sum((one.usage for one in calls), kt.Usage()) if row.usage is None else decode(row.usage)
        held = sum((one.held for one in calls), kt.Usage())
        times = row.seconds, row.started_at, row.updated_at
        usage = replace(usage, seconds=row.seconds)
        state = book.state(row)
        return RecordedRun(row.run_id, row.team, row.goal, state, row.parent, row.source, usage, *times, held=held)

    def calls(self, run_id: str) -> tuple[RecordedCall, ...]:
        """Return the calls of a run and of the runs inside it, in the order they were sent."""
        with self._reading() as book:
            return self._calls(book, book.row(run_id))

    def _calls(self, book: Book, row: Row) -> tuple[RecordedCall, ...]:
        nothing = kt.Usage()
        alive = book.state(row) == "running"
        found: list[tuple[int, RecordedCall]] = []
        for name in book.inside(row.run_id):
            of = book.row(name)
            for one in book.calls(of):
                under_way = alive and one.call.state == "sent" and one.epoch == of.epoch
                call = replace(one.call, usage=nothing, held=one.call.usage) if under_way else one.call
                found.append((one.order, call))
        return tuple(call for _, call in sorted(found, key=lambda pair: pair[0]))

    def cancel(self, run_id: str, reason: str = "the run was cancelled") -> None:
        """End a run for good."""
        with self._writing() as book:
            row = book.row(run_id)
            state = book.state(row)
            if state in ENDED:
                raise RunFinished(run_id, state)
            row.cancelled = reason
            book.keep(row)
            if state != "running":
                book.cancel(run_id)

    def forget(self, run_id: str | None = None, *, older_than: float | None = None) -> int:
        """Delete a run and the runs inside it, or all runs that ended so many seconds ago; return their number."""
        if (run_id is None) == (older_than is None):
            raise ValueError("forget takes a run's id, or older_than= in seconds")
        with self._writing() as book:
            if run_id is not None:
                if book.state(book.row(run_id)) == "running":
                    raise Misuse(f"run {run_id!r} is running: cancel it first")
                chosen = [run_id]
            else:
                before = time.time() - (older_than or 0.0)
                rows = [row for row in book.rows() if row.parent is None and row.updated_at < before]
                chosen = [row.run_id for row in rows if book.state(row) in ENDED]
            for one in chosen:
                book.forget(one)
        return len(chosen)

    # ------------------------------------------------------------------ questions

    def pending(self, run_id: str | None = None) -> tuple[kt.HumanRequest, ...]:
        """Return the open questions: oldest first, and after them those that a person deferred."""
        with self._reading() as book:
            names = None if run_id is None else {*book.inside(book.row(run_id).run_id)}
            asked = [one for one in book.asked() if one.decision is None and (names is None or one.run_id in names)]
        return tuple(_question(one) for one in sorted(asked, key=lambda one: (one.deferred or 0, one.order)))

    def answer(self, question_id: str, decision: kt.HumanDecision, *, by: str = "") -> None:
        """Answer a question, or defer it; `by` is who does."""
        if not isinstance(decision, kt.HumanDecision):
            raise ValueError(f"an answer is a HumanDecision, such as HumanDecision.approve(), not {decision!r:.200}")
        with self._writing() as book:
            asked = book.find_question(question_id)
            if asked is None:
                waiting = [one.id for one in book.asked() if one.decision is None]
                raise NoQuestion(question_id, waiting, place=f"the journal {str(self.path)!r}")
            given = _decision(asked)
            if given is not None and given != decision:
                raise Misuse(f"the question {question_id!r} was answered already: {given.action}")
            if decision.action == "defer":
                asked.deferred, asked.deferred_by = book.next(), by or decision.by
            elif given is None:
                asked.decision = encode(replace(decision, by=by or decision.by))
            book.keep_question(asked)

    def ask(self, question: kt.HumanRequest) -> None:
        """Keep a question while its run lives; one that was deferred waits again."""
        with self._writing() as book:
            book.row(question.run_id)
            ask(book, question)
            asked = book.find_question(question.id)
            if asked is not None and asked.decision is None:
                asked.deferred = None
                book.keep_question(asked)

    def answer_to(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        """Return the answer to exactly this question, or its deferral; None while there is neither."""
        with self._reading() as book:
            asked = book.find_question(question.id)
        if asked is None or _question(asked).digest != question.digest:
            return None
        deferral = None if asked.deferred is None else kt.HumanDecision("defer", by=asked.deferred_by)
        return _decision(asked) or deferral

    def __repr__(self) -> str:
        return f"LmdbJournal({str(self.path)!r})"


def _question(asked: Asked) -> kt.HumanRequest:
    found: kt.HumanRequest = decode(asked.body)
    return found


def _decision(asked: Asked) -> kt.HumanDecision | None:
    found: kt.HumanDecision | None = None if asked.decision is None else decode(asked.decision)
    return found
