"""Messages between processes: rows of the table `message`, read by one thread of each process.

The thread reads after each notification on the process's line, and when a heartbeat finds messages, because a
notification may be lost. It has a connection while the process waits for messages.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import anyio

from kairo_team._util.threads import poster
from kairo_team.durable.codec import CorruptRecord, decode_loaded
from kairo_team.durable.kept_files import encode_for
from kairo_team.durable.postgres_database import PostgresConnection, connect_to

if TYPE_CHECKING:
    from kairo_team.durable.connection import Statement
    from kairo_team.durable.processes import Process

_logger = logging.getLogger("kairo_team")

Side = Literal["coordinator", "worker"]
"""The reader of a message; a process may be both for one unit."""
_TO_WORKERS: Final = frozenset({"answer", "waits", "cancel", "leave", "directive", "exit"})
"""Kinds of messages that a coordinator sends to a worker."""
_AT_ONCE: Final = 500
"""Most messages that are read at once."""
_REST: Final = 10.0
"""Seconds that an unused connection is kept."""


class Message(NamedTuple):
    """A message from one process to another about a unit."""

    unit: str
    fence: int
    kind: str
    body: Any


def message_to(addressee: str, message: Message, run_id: str) -> list[Statement]:
    """Return the statements that send a message, to execute in the transaction that it belongs to.

    The files in it are kept for the run.
    """
    insert = "INSERT INTO message (addressee, unit, fence, kind, body) VALUES (?, ?, ?, ?, ?)"
    written, files = encode_for(run_id, message.body)
    values = (addressee, message.unit, message.fence, message.kind, written)
    return [*files, (insert, values), ("SELECT pg_notify(?, '')", (channel_of(addressee),))]


def channel_of(process: str) -> str:
    """Return the channel on which a process is notified of messages."""
    return f"kairo_{process}"


class MessageQueue:
    """The messages of one unit, in order, for the event loop that created this object."""

    def __init__(self) -> None:
        self._post = poster()
        self._waiting: deque[Message] = deque()
        self._news = anyio.Event()

    def put(self, message: Message) -> None:
        """Add a message, in any thread; drop it if the event loop has ended."""
        with suppress(RuntimeError):
            self._post(partial(self._take, message))

    def _take(self, message: Message) -> None:
        self._waiting.append(message)
        self._news.set()

    async def next(self) -> Message:
        """Wait for the next message."""
        while not self._waiting:
            # No message comes in between, because `_take` runs in this event loop.
            self._news = anyio.Event()
            await self._news.wait()
        return self._waiting.popleft()


class Mailbox:
    """Reads the messages to one process in a thread, and delivers them to waiters."""

    def __init__(self, url: str, process: Process, decode: Callable[[str], Any] = decode_loaded) -> None:
        """`decode` reads the bodies of messages."""
        self._url = url
        self._decode = decode
        self._process = process
        self._readers: dict[tuple[str, Side], list[Callable[[Message], object]]] = {}
        """Readers by unit and side; several, because a unit may be delivered to a process twice."""
        self._changing = threading.Lock()
        self._news = threading.Event()
        """Set when there may be messages, or the thread must end."""
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._handled: set[int] = set()
        """Ids of messages that were delivered and may still be in the table."""

    @contextmanager
    def open(self, unit: str, side: Side) -> Generator[MessageQueue]:
        """Receive the messages of a unit while the block runs, as its coordinator or as its worker."""
        messages = MessageQueue()
        self._start()
        key: tuple[str, Side] = (unit, side)
        put = messages.put
        with self._changing:
            self._readers[key] = [*self._readers.get(key, ()), put]
        self._news.set()  # the thread connects now, not when the first message is there
        try:
            yield messages
        finally:
            with self._changing:
                left = [one for one in self._readers[key] if one != put]
                if left:  # in one step: the thread reads without the lock
                    self._readers[key] = left
                else:
                    del self._readers[key]

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        self._news.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=self._process.beat * 4)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._process.line.listen(channel_of(self._process.id), self._news.set)
                self._process.on_message(self._news.set)
                self._process.start()
                self._thread = threading.Thread(target=self._serve, name="kairo-mailbox", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        """Read messages until `close`; connect again when the connection breaks."""
        while not self._ends.is_set():
            self._news.wait()
            try:
                self._read_all()
            except Exception as error:  # noqa: BLE001 - whatever the error is, reading continues
                _logger.debug("the reader of messages has no connection: %s", type(error).__name__)
                self._ends.wait(min(1.0, self._process.beat))
                # Else it would connect again only at the next message.
                self._news.set()

    def _read_all(self) -> None:
        """Read messages while there are readers, and `_REST` seconds longer."""
        with connect_to(self._url, "mailbox") as connection:
            while not self._ends.is_set():
                self._news.clear()
                # Cleared before the reading: a message that comes meanwhile sets it again.
                while self._read(connection):
                    pass
                while not self._news.wait(_REST):
                    if not self._readers:
                        return

    def _read(self, connection: PostgresConnection) -> bool:
        """Read a page of messages; return whether there may be more."""
        sql = (
            "SELECT id, unit, fence, kind, body FROM message WHERE addressee = ? ORDER BY id"
            # Rows that were handled and not deleted must not keep new ones out of the page.
            f" LIMIT {_AT_ONCE + len(self._handled)}"
        )
        rows = connection.execute(sql, (self._process.id,)).fetchall()
        if not rows:
            self._handled.clear()
            return False
        for number, unit, fence, kind, body in rows:
            if number not in self._handled:
                # If the database cannot be reached meanwhile, this raises, and the message is read again.
                self._give(unit, fence, kind, body)
                # Noted before the rows are deleted: that may fail after the message was delivered.
                self._handled.add(number)
        numbers = [row[0] for row in rows]
        connection.execute("DELETE FROM message WHERE id = ANY(?)", (numbers,))
        self._handled.difference_update(numbers)
        return len(rows) >= _AT_ONCE

    def _give(self, unit: str, fence: int, kind: str, body: str) -> None:
        readers = self._readers.get((unit, "worker" if kind in _TO_WORKERS else "coordinator"))
        if readers is None:
            return
        try:
            message = Message(unit, fence, kind, self._decode(body))
        except CorruptRecord as error:
            _logger.warning("a message about unit %r cannot be read: %s", unit, error)
            return
        for reader in readers:
            reader(message)
