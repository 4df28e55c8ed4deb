"""A session of a run, and the thread of a journal that writes for all its sessions."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Thread
from types import MappingProxyType
from typing import ClassVar, Final

from anyio import to_thread

import kairo_team as kt
from kairo_team.durable import NotRecordable, encode, encode_apart
from kairo_team.errors import JournalError
from kairo_team.events import Event
from kairo_team.recorded import ENDED, RecordedCall
from lmdb_journal.store import EVENT, FILE, RESULT, Asked, Book, Row, Store, digest_of, packed

Change = Callable[[Book, Row], object]
TAKEN: Final = "another process has taken the run over"
BEAT: Final = 0.5
"""Seconds between two looks at what other processes want of this one's runs."""
_NOTHING: Final = kt.Usage()
_logger = logging.getLogger("lmdb_journal")


@dataclass(frozen=True, slots=True)
class Entry:
    """Changes of a session's run, or somebody who waits for all entries before."""

    session: LmdbRunJournal | None = None
    changes: Sequence[Change] = ()
    progress: tuple[float, int] = (0.0, 0)
    done: Flag | None = None


class Writer:
    """Writes entries in their order, from a thread; each transaction has whole entries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: SimpleQueue[Entry | None] = SimpleQueue()
        self.sessions: list[LmdbRunJournal] = []
        self.problem: str | None = None
        """Why nothing more is written."""
        self._beaten = 0.0
        self._thread = Thread(target=self._serve, name="lmdb-journal", daemon=True)
        self._thread.start()

    def give(self, entry: Entry) -> None:
        """Take an entry."""
        self._entries.put(entry)

    def flush(self) -> Flag:
        """Return a flag that is set once all earlier entries are written, or have failed."""
        done = Flag()
        self.give(Entry(done=done))
        return done

    def close(self) -> None:
        """Write what is left, and end."""
        if self._thread.is_alive():
            self._entries.put(None)
            self._thread.join()

    def _serve(self) -> None:
        going = True
        while going:
            entries: list[Entry | None] = []
            with suppress(Empty):
                entries.append(self._entries.get(timeout=BEAT if self.sessions else None))
                while True:
                    entries.append(self._entries.get_nowait())
            going = None not in entries
            given = [one for one in entries if one is not None]
            try:
                if self.problem is None:
                    self._write(given)
                    self._beat()
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits must learn of it
                self.fail(f"it cannot be written: {error}")
            for one in given:
                if one.done is not None:
                    one.done.set()

    def fail(self, problem: str) -> None:
        """Write nothing more, and tell all sessions."""
        self.problem = problem
        for session in list(self.sessions):
            session.lose(problem)

    def _write(self, entries: Sequence[Entry]) -> None:
        if all(entry.session is None for entry in entries):
            return
        written: dict[LmdbRunJournal, int] = {}
        with self._store.env.begin(write=True) as txn:
            book = Book(self._store, txn)
            for entry in entries:
                if entry.session is not None and (row := self._owned(book, entry.session)) is not None:
                    for change in entry.changes:
                        change(book, row)
                    entry.session.write_progress(book, row, *entry.progress)
                    written[entry.session] = row.seq
                    row.updated_at = time.time()
                    book.keep(row)
        for session, seq in written.items():
            session.forget_events(seq)

    def _owned(self, book: Book, session: LmdbRunJournal) -> Row | None:
        row = book.find(session.run_id)
        if row is None or row.epoch != session.epoch or row.number != session.number:
            session.lose("the run was forgotten" if row is None else TAKEN)
            return None
        return row

    def _beat(self) -> None:
        if not self.sessions or time.monotonic() - self._beaten < BEAT:
            return
        self._beaten = time.monotonic()
        with self._store.env.begin() as txn:
            book = Book(self._store, txn)
            for session in list(self.sessions):
                row = self._owned(book, session)
                if row is not None and row.cancelled is not None:
                    session.tell_cancelled(row.cancelled)
                if row is not None:
                    session.note()


class LmdbRunJournal:
    """A session of a run."""

    durable: ClassVar[bool] = True

    def __init__(self, place: object, writer: Writer, row: Row, records: dict[str, object], *, events: bool) -> None:
        self._place, self._writer = place, writer
        self.run_id, self.epoch, self.number, self.parent = row.run_id, row.epoch, row.number, row.parent
        self._records = records
        self._sent = 0
        self._calls: dict[int, RecordedCall] = {}
        """The calls of this session, as they were sent, by their numbers."""
        self._orders: dict[int, int] = {}
        """The places of this session's calls in the store, by their numbers; of the writer's thread."""
        self._events: deque[Event] | None = deque() if events else None
        self._progress: Callable[[], tuple[float, int]] = lambda: (row.seconds, row.seq)
        self._on_cancel: Callable[[str], object] | None = None
        self._on_lost: Callable[[JournalError], object] | None = None
        self._lost: str | None = None
        self.in_doubt: Collection[str] = ()
        self.interrupted = False

    def serve(
        self,
        progress: Callable[[], tuple[float, int]],
        on_cancel: Callable[[str], object],
        on_lost: Callable[[JournalError], object],
    ) -> Callable[[Event], object] | None:
        """Serve the session that begins now."""
        self._progress, self._on_cancel, self._on_lost = progress, on_cancel, on_lost
        self._writer.sessions.append(self)
        self._writer.give(Entry())
        return None if self._events is None else self._events.append

    def tell_cancelled(self, reason: str) -> None:
        """Tell the run, once, that somebody cancelled it."""
        tell, self._on_cancel = self._on_cancel, None
        if tell is not None:
            tell(reason)

    def lose(self, problem: str) -> None:
        """Record nothing more, and tell the run."""
        if self._lost is None:
            self._lost = problem
            self._leave()
            if self._on_lost is not None:
                self._on_lost(JournalError(self._place, problem))

    def _leave(self) -> None:
        with suppress(ValueError):
            self._writer.sessions.remove(self)

    def interrupt(self, reason: str) -> None:
        """Record nothing more, here and in the runs inside."""
        inside = [one for one in list(self._writer.sessions) if one.parent == self.run_id and one is not self]
        self._give(_in_state("interrupted"))
        if self._lost is None:
            self._lost = reason
        self.interrupted = True
        self._leave()
        for one in inside:
            one.interrupt(reason)

    # ------------------------------------------------------------------ records

    @property
    def records(self) -> Mapping[str, object]:
        """The recorded values by key."""
        return MappingProxyType(self._records)

    def get(self, key: str, default: object, /) -> object:
        """Return the value recorded under a key."""
        return self._records.get(key, default)

    def put(self, key: str, value: object, /) -> None:
        """Record a value."""
        self._give(*self._step(key, value))

    def put_answer(self, key: str, value: object, number: int, usage: kt.Usage) -> None:
        """Record the answer of a call with its end."""
        self._give(*self._step(key, value), self._end_of(number, "answered", usage))

    def _step(self, key: str, value: object) -> list[Change]:
        self._records[key] = value
        return self._written(f"step {key!r}", value, lambda book, row, text: book.put_step(row, key, text))

    def _written(self, what: str, value: object, write: Callable[[Book, Row, str], object]) -> list[Change]:
        """Return the changes that write a value as it is now, and its files; none for one that cannot be written."""
        try:
            text, files = encode_apart(value)
        except NotRecordable as error:
            _logger.warning("%s of run %r is not recorded: %s", what, self.run_id, error)
            return []
        kept = [(digest_of(file.digest), file.data) for file in files]

        def change(book: Book, row: Row) -> None:
            for digest, data in kept:
                if data is not None:
                    book.put("data", packed(row.number) + FILE + digest, data)
            write(book, row, text)

        return [change]

    async def sent(
        self,
        what: str,
        name: str,
        held: kt.Usage,
        *,
        step: str,
        key: str,
        task_id: str | None,
        member: str | None,
        side_effect: str | None,
        loops: int,
    ) -> int:
        """Record that a call is about to be sent, and wait until it is on disk."""
        self._sent += 1
        number = self._sent
        call = RecordedCall(
            run_id=self.run_id,
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
        self._calls[number], written = call, encode(call)

        def begin(book: Book, row: Row) -> None:
            self._orders[number] = book.next()
            book.put_call(row, self._orders[number], self.epoch, written)

        self._give(begin)
        try:
            await self.written()
        except BaseException:
            self._give(self._end_of(number, "unsent", _NOTHING), late=True)
            raise
        return number

    def ended(self, number: int, state: str, usage: kt.Usage) -> None:
        """Record the end of a call."""
        self._give(self._end_of(number, state, usage))

    def _end_of(self, number: int, state: str, usage: kt.Usage) -> Change:
        ended = encode(replace(self._calls[number], state=state, usage=usage))

        def change(book: Book, row: Row) -> None:
            if number in self._orders:  # else the session was over before the call was written
                book.put_call(row, self._orders[number], self.epoch, ended)

        return change

    async def written(self) -> None:
        """Wait until all records are on disk."""
        done = self._writer.flush()
        await to_thread.run_sync(done.wait, abandon_on_cancel=True)
        problem = self._lost or self._writer.problem
        if problem is not None:
            raise JournalError(self._place, problem)

    def note(self) -> None:
        """Record how far the run is."""
        self._give()

    def _give(self, *changes: Change, late: bool = False) -> None:
        """Hand changes to the writer, all or none; `late`: also those of an interrupted session."""
        if self._lost is None or (late and self.interrupted):
            self._writer.give(Entry(self, changes, self._progress()))

    def write_progress(self, book: Book, row: Row, seconds: float, seq: int) -> None:
        """Write the events up to a number, and how far the run is."""
        row.seconds = seconds
        for event in list(self._events or ()):
            if event.seq > seq:
                break
            if event.seq > row.seq:
                book.put("data", packed(row.number) + EVENT + packed(event.seq), event.to_json().encode())
                row.seq = event.seq
        if self._events is None:
            row.seq = max(row.seq, seq)

    def forget_events(self, seq: int) -> None:
        """Drop the events up to a number, which are on disk now."""
        while self._events and self._events[0].seq <= seq:
            self._events.popleft()

    # ------------------------------------------------------------------ questions and the end

    def keep_open(self, question: kt.HumanRequest) -> None:
        """Record a question that stays open; one that is there stays as it is."""
        self._give(lambda book, row: ask(book, question))

    def close_question(self, question_id: str) -> None:
        """Record that an answer was taken."""
        self._give(lambda book, row: book.delete("asked", digest_of(question_id)))

    def end(self, result: kt.TeamResult) -> None:
        """Record how the session ended."""
        if self.interrupted:
            self._give(late=True)
            return
        state, usage = result.status.value, encode(result.usage)

        def finish(book: Book, row: Row) -> None:
            row.state, row.usage = state, usage
            for name in book.inside(row.run_id) if state in ENDED else ():
                book.drop_questions(name)

        self._give(
            *self._written("the result", result, lambda book, row, text: book.put_text(row, RESULT, text)), finish
        )
        self._leave()


def _in_state(state: str) -> Change:
    def change(book: Book, row: Row) -> None:
        row.state = state

    return change


def ask(book: Book, question: kt.HumanRequest) -> None:
    """Write a question that is not there yet."""
    if book.find_question(question.id) is None:
        book.keep_question(Asked(question.id, question.run_id, encode(question), book.next()))
