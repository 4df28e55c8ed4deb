"""The database of a journal: one writer thread for all sessions, for any kind of database.

The writer also obeys other processes: it looks every second for requests to the runs that this process has.
"""

from __future__ import annotations

import logging
import operator
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import anyio

from kairo_team._util.mistakes import with_article
from kairo_team._util.threads import poster
from kairo_team.durable.codec import CorruptRecord, decode, decode_loaded, fetching, look
from kairo_team.durable.connection import Statement, execute
from kairo_team.durable.event_pages import Said, written_page
from kairo_team.durable.kept_files import read_file
from kairo_team.durable.owners import TAKEN_OVER
from kairo_team.errors import JournalError, Misuse
from kairo_team.recorded import ENDED

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection
    from kairo_team.engine.records.run_handle import RunControl
    from kairo_team.events import Event

Kind = TypeVar("Kind")
Result = TypeVar("Result")
Post = Callable[[Callable[[], object]], object]
"""Calls a function, in another thread if necessary."""
Obey = Callable[[Callable[["RunControl"], object], Callable[[str], object]], object]
"""Applies a request to a run, from any thread, and passes the answer on: "", or why nothing was done."""

_MOST_AT_ONCE: Final = 2_000
"""Most entries in one transaction."""
_GATHER: Final = 0.002
"""Seconds that entries may wait for later ones: a turn of an agent makes several, and a transaction for each costs more
than the records. An entry with a waiter, such as a call that is about to be sent, is written at once."""
_BEAT: Final = 1.0
"""Seconds between two checks for requests of other processes; each check also writes the progress of live runs."""

_FOR_SESSION: Final = (
    "SELECT epoch, cancelled, EXISTS (SELECT 1 FROM request WHERE request.run_id = run.run_id AND taken = 0)"
    " FROM run WHERE run_id = ?"
)
"""What other processes want of a session's run."""
_MAY: Final = frozenset({"cancel_task", "top_up_run", "steer"})
"""The methods of `RunControl` that a request may name: other programs may write to the database."""

_logger = logging.getLogger("kairo_team")


@dataclass(slots=True, eq=False)
class Writing:
    """One session of a run: its events and progress for the writer, and whether it may still write."""

    run_id: str
    epoch: int
    parent: str | None = None
    """The run around this one."""
    unit: tuple[str, int] | None = None
    """The unit and fence of the delivery that writes this session; None for a session of the run itself."""
    has_progress: bool = True
    """Whether this session writes the run's progress; False for a session that does one part of the run's work."""
    progress: Callable[[], tuple[float, int]] = lambda: (0.0, 0)
    """Returns the seconds that the run has worked, and the number of its last event."""
    on_cancel: Callable[[str], object] | None = None
    """Called in any thread with a reason when another process cancels the run."""
    on_request: Obey | None = None
    """Called in any thread when another process asks something of the run; None if the run takes no requests."""
    on_lost: Callable[[JournalError], object] | None = None
    """Called in any thread when nothing more can be written."""
    events: deque[Event] | None = None
    """Events that are not written yet, in order; None if the journal keeps no events."""
    page: list[Event] = field(default_factory=list["Event"])
    """The events that the writer is writing; kept until the transaction is committed."""
    said: Said = field(default_factory=dict[bytes, tuple[int, int]])
    """The messages that earlier events of this session contain."""
    lost: str | None = None
    """Why the session may write nothing more; None while it may."""
    interrupted: bool = False
    """Whether `lost` is set because the session was interrupted on request."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry for the writer: statements of a session, or a waiter to wake once all earlier entries are on disk."""

    session: Writing | None
    statements: Sequence[Statement] = ()
    sync: bool = False
    """Whether the entry must reach the disk itself, not only the operating system."""
    wake: Callable[[], object] | None = None
    post: Post = operator.call
    """Calls `wake` in the waiter's event loop."""
    progress: tuple[float, int] = (0.0, 0)
    """The session's progress when it made the entry: events up to this number are written with it."""


class Database(ABC):
    """The database of recorded runs. One thread writes to it and groups entries into transactions.

    Entries are written in the order of their arrival. A session that no longer owns its run writes nothing more: every
    transaction compares the session's epoch with the run's.
    """

    is_over: ClassVar[str] = "call.epoch != run.epoch"
    """SQL condition on tables `call` and `run`: the session of the call records nothing more."""
    owners: ClassVar[str] = "owner"
    """The table of the processes that have runs."""
    own_calls: ClassVar[str] = ""
    """SQL to append to a condition on table `call`: only calls of the run's own session, not of its units."""
    rest: ClassVar[float | None] = None
    """Seconds without a session after which the writer closes its connection; None: it keeps it."""

    def __init__(self, place: str | Path) -> None:
        """`place` names the database in errors."""
        self.place = place
        self._entries: SimpleQueue[_Entry | None] = SimpleQueue()
        self._sessions: list[Writing] = []
        """The sessions that this process serves."""
        self._beaten = 0.0
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        """Held while the writer is started or ended: there is at most one."""
        self._closing = False
        """Whether the writer is being ended: it may leave an entry that is given now."""
        self._pid = os.getpid()
        self.problem: str | None = None
        """Why nothing more can be written; None while writing works."""

    # ------------------------------------------------------------------ what each kind of database implements

    @abstractmethod
    def _connect(self) -> Connection:
        """Connect for the writer; raises `JournalError` in a forked process."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """Read one snapshot, which includes all earlier entries; the columns of rows have names and numbers.

        Keep the block short.
        """

    @abstractmethod
    def writing(self) -> AbstractContextManager[Connection]:
        """Change the database in one transaction, after all earlier entries; committed when the block ends."""

    @abstractmethod
    def _begin(self, connection: Connection, *, sync: bool) -> bool:
        """Begin the writer's transaction; with `sync`, its commit must reach the disk itself.

        Returns False, with no transaction begun, if its entries are in the database already.
        """

    def decode(self, text: str) -> Any:
        """Return a recorded value of a run that is resumed; may import its classes. Raises `CorruptRecord`."""
        with self.fetched():
            return decode(text)

    @contextmanager
    def fetched(self) -> Generator[None]:
        """Inside the block, recorded values get what was written apart."""
        with fetching(self.file):
            yield

    def file(self, digest: str) -> bytes | None:
        """Return the content of a file or a long text of a recorded run; None if no run refers to it any more."""
        if threading.current_thread() is self._thread:  # it keeps the file at the moment, and does not wait for itself
            return None
        with self.reading() as connection:
            return read_file(connection, digest)

    def look_at(self, text: str, kind: type[Kind], what: str, read: Callable[[str], Any] = look) -> Kind:
        """Return a recorded value for display, read by `read`; by default this imports nothing.

        Raises `CorruptRecord`, also for a value that is not a `kind`; `what` names the value in the error.
        """
        try:
            with self.fetched():
                found: object = read(text)
        except CorruptRecord as error:
            raise CorruptRecord(f"{what}: {error}") from error
        if not isinstance(found, kind):
            is_one, is_none_of = with_article(type(found).__name__), with_article(kind.__name__)
            raise CorruptRecord(f"{what}: it is {is_one}, not {is_none_of}")
        return found

    # ------------------------------------------------------------------ writes

    def open(self, session: Writing) -> None:
        """Start to serve a session: write its progress, and pass on the requests of other processes."""
        self._sessions.append(session)
        self._give(_Entry(None))

    def leave(self, session: Writing) -> None:
        """Stop serving a session that has ended."""
        with suppress(ValueError):  # another thread was first
            self._sessions.remove(session)

    def shut(self, session: Writing, reason: str) -> None:
        """Interrupt a session and the sessions inside it: accept nothing more from them. From any thread.

        Earlier entries are still written.
        """
        # Another thread may have recorded the session's end just now.
        sql = "UPDATE run SET state = 'interrupted' WHERE run_id = ? AND state = 'running'"
        self.put(session, [(sql, (session.run_id,))])
        # The session is marked only after `put`, which takes nothing from a lost session.
        session.lost, session.interrupted = session.lost or reason, True
        self.leave(session)
        for one in list(self._sessions):
            if one.parent == session.run_id:
                self.shut(one, reason)

    def lose(self, reason: str) -> None:
        """Accept nothing more from any session, and notify them through `on_lost`; from any thread."""
        for session in list(self._sessions):
            if session.lost is None:
                session.lost = reason
                self.leave(session)
                self._tell_lost(session, reason)

    def last_event(self, session: Writing) -> int:
        """Return the number of the last event of the outermost session around this one, or of this one."""
        if session.parent is not None:
            for one in list(self._sessions):  # sessions leave in other threads
                if one.run_id == session.parent:
                    return self.last_event(one)
        return session.progress()[1]

    def put(
        self, session: Writing, statements: Sequence[Statement], *, sync: bool = False, after_shut: bool = False
    ) -> None:
        """Queue statements for the writer, after all earlier entries; none of a session that is lost.

        `after_shut`: also of a session that was shut.
        """
        if session.lost is None or (after_shut and session.interrupted):
            self._give(_Entry(session, statements, sync, progress=session.progress()))

    def put_progress(self, session: Writing) -> None:
        """Queue the events that a session has emitted so far, even if the session is shut."""
        self._give(_Entry(session, progress=session.progress()))

    async def written(self, session: Writing) -> None:
        """Wait until all earlier entries are on disk; raises `JournalError` if they cannot be written."""
        done = anyio.Event()
        self._give(_Entry(None, wake=done.set, post=poster()))
        await done.wait()
        self.check(session)

    def change(self, function: Callable[[Connection], Result]) -> Result:
        """Call a function in a transaction of its own."""
        with self.writing() as connection:
            return function(connection)

    def shrink(self) -> None:  # noqa: B027 - PostgreSQL does it by itself
        """Give the space of deleted records back to the disk."""

    def check(self, session: Writing) -> None:
        """Raise `JournalError` if the session can write nothing more."""
        problem = session.lost or self.problem
        if problem is not None:
            raise JournalError(self.place, problem)

    def close(self) -> None:
        """Write the remaining entries, and end the writer."""
        # After a fork the thread exists in the parent alone, and the entries are the parent's.
        if self._pid != os.getpid():
            return
        with self._starting:
            if self._thread is not None:
                self._closing = True
                self._entries.put(None)
                self._thread.join()
            self._thread, self._closing = None, False

    def _flush(self) -> None:
        """Wait until all earlier entries are written, or have failed."""
        if self._thread is not None and self._pid == os.getpid():
            done = threading.Event()
            self._give(_Entry(None, wake=done.set))
            done.wait()

    def _give(self, entry: _Entry) -> None:
        self._entries.put(entry)
        # Without the lock while there is a writer: a signal handler that interrupts a run may come in between.
        if (self._closing or self._thread is None) and threading.current_thread() is not self._thread:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="kairo-journal", daemon=True)
                    self._thread.start()

    def _serve(self) -> None:
        """Write entries until `close`; after an error, write nothing more."""
        connection: Connection | None = None
        ends = False
        while not ends:
            entries = self._take(None if connection is None else self.rest)
            if connection is not None and not entries and not self._sessions:
                connection.close()
                connection = None
            ends = None in entries
            given = [entry for entry in entries if entry is not None]
            try:
                # The writer connects only when a session has something to write, not for a waiter alone.
                if self.problem is None and (self._sessions or any(entry.session for entry in given)):
                    connection = self._work(connection, given)
            except Exception as error:  # noqa: BLE001 - whatever the error is, waiters must learn of it
                self._fail(error)
                connection = None
            # Also after an error: each waiter finds it in `check`.
            _wake(given)
        if connection is not None:
            connection.close()

    def _work(self, connection: Connection | None, given: Sequence[_Entry]) -> Connection:
        """Write the given entries, and handle the requests of other processes; after an error, close the connection."""
        connection = connection or self._connect()
        try:
            self._write(connection, given)
            self._beat(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _fail(self, error: Exception) -> None:
        """Stop every run of this process, because its next steps could not be recorded."""
        self.problem = f"it cannot be written: {error}"
        _logger.warning("journal %s: %s; nothing more is sent", self.place, self.problem)
        for session in list(self._sessions):  # `on_lost` may let a session leave
            self._tell_lost(session, self.problem)

    def _tell_lost(self, session: Writing, problem: str) -> None:
        if session.on_lost is not None:
            session.on_lost(JournalError(self.place, problem))

    def _take(self, rest: float | None) -> list[_Entry | None]:
        """Wait for the next entry and return it with the entries after it, or none.

        Waits for at most `_BEAT` seconds, and without a session for `rest` seconds. More entries are awaited for
        `_GATHER` seconds, unless one of them has a waiter.
        """
        entries: list[_Entry | None] = []
        with suppress(Empty):
            entries.append(self._entries.get(timeout=_BEAT if self._sessions else rest))
            until, is_awaited = time.monotonic() + _GATHER, False
            while len(entries) < _MOST_AT_ONCE:
                last = entries[-1]
                is_awaited = is_awaited or last is None or last.wake is not None
                left = 0.0 if is_awaited else until - time.monotonic()
                entries.append(self._entries.get(timeout=left) if left > 0.0 else self._entries.get_nowait())
        return entries

    def _beat(self, connection: Connection) -> None:
        """Every `_BEAT` seconds, queue the sessions' progress and handle the requests of other processes."""
        now = time.monotonic()
        if now - self._beaten < _BEAT or not self._sessions:
            return
        self._beaten = now
        for session in list(self._sessions):
            row = connection.execute(_FOR_SESSION, (session.run_id,)).fetchone()
            if self._is_lost(connection, session, row):
                continue
            if row[1] is not None and session.on_cancel is not None:
                # Every later check finds the same row, but the run is cancelled only once.
                on_cancel, session.on_cancel = session.on_cancel, None
                on_cancel(row[1])
            if row[2] and session.on_request is not None:
                for request_id, body in _take_requests(connection, session):
                    session.on_request(partial(_apply, body), partial(self._answer, session, request_id))
            # An entry without statements still writes the progress and the events. A session may have left meanwhile.
            if session in self._sessions:
                self.put(session, ())

    def _answer(self, session: Writing, request_id: str, problem: str) -> None:
        """Answer a request: why nothing was done, or ""; the records that the run made for it are written first."""
        self.put(session, [("UPDATE request SET answer = ? WHERE id = ?", (problem, request_id))])

    def _write(self, connection: Connection, entries: Sequence[_Entry]) -> None:
        """Write all entries in one transaction, except entries of sessions that no longer own their run."""
        reached = {one.session: one.progress for one in entries if one.session is not None}
        if not reached:
            return
        if self._begin(connection, sync=any(entry.sync for entry in entries)):
            try:
                self._write_all(connection, entries, reached)
                connection.execute("COMMIT")
            except BaseException:
                # A failed COMMIT may have ended the transaction already.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        for session in reached:
            # The events are dropped only after the commit: a transaction that is repeated writes them again.
            session.page.clear()

    def _write_all(
        self, connection: Connection, entries: Sequence[_Entry], reached: Mapping[Writing, tuple[float, int]]
    ) -> None:
        owned = {one for one in reached if not self._is_lost(connection, one, self.epoch_row(connection, one))}
        for entry in entries:
            if entry.session in owned:
                for statement in entry.statements:
                    execute(connection, statement)
        for session, progress in reached.items():
            if session in owned and session.has_progress:
                self._write_progress(connection, session, progress)

    def _write_progress(self, connection: Connection, session: Writing, progress: tuple[float, int]) -> None:
        """Write a session's progress, and its events up to that point."""
        seconds, seq = progress
        waiting, page = session.events, session.page
        while waiting and waiting[0].seq <= seq:
            page.append(waiting.popleft())
        if page:
            values = (session.run_id, page[-1].seq, written_page(page, session.said))
            connection.execute("INSERT INTO event (run_id, last, body) VALUES (?, ?, ?)", values)
        if waiting is not None:  # the last event may not be in the queue yet: record no number above the written ones
            seq = page[-1].seq if page else 0
        sql = "UPDATE run SET active = ?, seq = CASE WHEN seq < ? THEN ? ELSE seq END, updated_at = ? WHERE run_id = ?"
        connection.execute(sql, (seconds, seq, seq, time.time(), session.run_id))

    def epoch_row(self, connection: Connection, session: Writing) -> tuple[Any, ...] | None:
        """Return the epoch of a session's run and keep it until the transaction ends; None if the run is gone."""
        row: tuple[Any, ...] | None
        row = connection.execute("SELECT epoch FROM run WHERE run_id = ?", (session.run_id,)).fetchone()
        return row

    def _is_lost(self, connection: Connection, session: Writing, row: tuple[Any, ...] | None) -> bool:
        """Return whether a session has lost its run; if so, notify it at once."""
        if row is not None and row[0] == session.epoch:
            return False
        if session.lost is None:
            # Another epoch is another session, which may have ended the run since.
            why = TAKEN_OVER
            if row is None:
                found = connection.execute("SELECT state FROM run WHERE run_id = ?", (session.run_id,)).fetchone()
                if found is None:
                    why = "the run was forgotten"
                elif found[0] in ENDED:
                    why = f"the run has ended: {found[0]}"
            session.lost = why
            self.leave(session)
            self._tell_lost(session, why)
        return True


def _take_requests(connection: Connection, session: Writing) -> list[tuple[str, str]]:
    """Return id and body of the open requests to a session, the oldest first; from now on they count as taken."""
    sql = "SELECT id, body FROM request WHERE run_id = ? AND epoch = ? AND taken = 0 ORDER BY asked_at, id"
    rows = connection.execute(sql, (session.run_id, session.epoch)).fetchall()
    mark = "UPDATE request SET taken = 1 WHERE id = ? AND taken = 0"
    return [(row[0], row[1]) for row in rows if connection.execute(mark, (row[0],)).rowcount]


def _apply(body: str, control: RunControl) -> None:
    """Do what a request asks of a run; raises what the run raises."""
    name, *arguments = decode_loaded(body)
    if name not in _MAY:
        raise Misuse(f"a run knows no request {name!r}")
    getattr(control, name)(*arguments)


def _wake(entries: Iterable[_Entry]) -> None:
    """Wake all waiters."""
    # One call for each event loop, because each call writes to a socket.
    waiting: dict[Post, list[Callable[[], object]]] = defaultdict(list)
    for entry in entries:
        if entry.wake is not None:
            waiting[entry.post].append(entry.wake)
    for post, wakes in waiting.items():
        try:
            post(partial(_call_all, wakes))
        except RuntimeError:  # the waiter is gone, with its event loop
            _logger.debug("a journal's caller did not wait for its end")


def _call_all(calls: Iterable[Callable[[], object]]) -> None:
    for call in calls:
        call()
