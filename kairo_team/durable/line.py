"""`Line`: the connection on which a process sends its heartbeat and listens for notifications."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kairo_team.durable.postgres_database import connect_to

if TYPE_CHECKING:
    from kairo_team.durable.postgres_database import PostgresConnection

_logger = logging.getLogger("kairo_team")

Tick = Callable[["PostgresConnection"], object]
_AGAIN: Final = 0.2
"""Most seconds between two attempts to connect."""
LEAST_IDLE: Final = 5000
"""Minimum milliseconds of silence after which the server ends a session, with its locks; enough for a busy machine."""


class Line:
    """A thread with one connection, for everything of a process that is periodic or waits for a notification.

    Every `interval` seconds it calls the `each` functions, all in one transaction. It calls the listeners of a channel
    after each notification. A connection that is lost is opened again; then all listeners are called, because
    notifications may have been missed. No function may block.
    """

    def __init__(self, url: str, interval: float, opened: Tick = lambda _connection: None) -> None:
        """Call `opened` with each new connection."""
        self._url = url
        self._interval = interval
        self._opened = opened
        # Tuples, each replaced as a whole: the thread walks along them without the lock.
        self._each: tuple[Tick, ...] = ()
        self._listeners: tuple[tuple[str, Callable[[], object]], ...] = ()
        self._changing = threading.Lock()
        self._ends = threading.Event()
        self._ticked = threading.Event()
        self._thread: threading.Thread | None = None
        self._wake_here: socket.socket | None = None
        self._wake_there: socket.socket | None = None
        self.reached = time.monotonic()
        """The time of the last interval in which the database was reached."""

    def each(self, call: Tick) -> Callable[[], None]:
        """Call a function at each interval, until the returned function is called."""
        with self._changing:
            self._each += (call,)

        def end() -> None:
            with self._changing:
                self._each = tuple(one for one in self._each if one is not call)

        return end

    def listen(self, channel: str, call: Callable[[], object]) -> Callable[[], None]:
        """Call a function after each notification on a channel, until the returned function is called.

        It is also called once the connection listens, because notifications before that are missed.
        """
        entry = (channel, call)
        with self._changing:
            self._listeners += (entry,)
        self._wake()

        def end() -> None:
            with self._changing:
                self._listeners = tuple(one for one in self._listeners if one is not entry)

        return end

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        with self._changing:
            if self._thread is None and not self._ends.is_set():
                # A socket, so that one `select` waits for a wake-up and for the connection.
                self._wake_here, self._wake_there = socket.socketpair()
                self._wake_here.setblocking(False)
                self._wake_there.setblocking(False)
                self._thread = threading.Thread(target=self._serve, name="kairo-line", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the first interval, at most so many seconds."""
        self._ticked.wait(seconds)

    def close(self) -> None:
        """End the thread, and close the connection."""
        self._ends.set()
        self._wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            # Twice the longest statement: see `statement_timeout`.
            thread.join(timeout=8 * self._interval)

    def _wake(self) -> None:
        there = self._wake_there
        if there is not None:
            try:
                there.send(b"\0")
            except OSError:  # it is full, so the thread wakes anyway; or the thread has ended
                _logger.debug("the line needs no other wake-up")

    # ------------------------------------------------------------------ the thread

    def _serve(self) -> None:
        wake = self._wake_here
        assert wake is not None
        assert self._wake_there is not None
        with wake, self._wake_there:
            while not self._ends.is_set():
                try:
                    with connect_to(self._url, "line") as connection, selectors.DefaultSelector() as selector:
                        selector.register(wake, selectors.EVENT_READ)
                        selector.register(connection.raw.fileno(), selectors.EVENT_READ)
                        self._attend(connection, selector, wake)
                except Exception as error:  # noqa: BLE001 - whatever the error is, it tries again
                    _logger.debug("a process has no connection for its heartbeat: %s", type(error).__name__)
                    self._ends.wait(min(_AGAIN, self._interval / 5))

    def _attend(self, connection: PostgresConnection, selector: selectors.BaseSelector, wake: socket.socket) -> None:
        milliseconds = int(4000 * self._interval) + 1
        # A database that hangs must not hold up the heartbeat for long. The server ends the session of a process that
        # is stopped or has lost the network, with its locks. Heartbeats need not reach the disk.
        connection.execute(
            f"SET statement_timeout = {milliseconds}; SET synchronous_commit = off;"
            f" SET idle_session_timeout = {max(LEAST_IDLE, int(6000 * self._interval))}"
        )
        self._opened(connection)
        heard: frozenset[str] = frozenset()
        due = time.monotonic()
        while not self._ends.is_set():
            heard = self._listen(connection, heard)
            if time.monotonic() >= due:
                with connection.transaction():
                    for call in self._each:
                        call(connection)
                self.reached = time.monotonic()
                self._ticked.set()
                due = self.reached + self._interval
            # Before the wait: a notification that came with the answer to a statement wakes no `select`.
            self._call_listeners({one.channel for one in connection.raw.notifies(timeout=0)})
            selector.select(max(0.0, due - time.monotonic()))
            with suppress(BlockingIOError):  # the time was over
                wake.recv(4096)

    def _listen(self, connection: PostgresConnection, heard: frozenset[str]) -> frozenset[str]:
        """Listen on the channels that have listeners, and on no others; return them."""
        wanted = frozenset(channel for channel, _ in self._listeners)
        for channel in sorted(wanted - heard):
            connection.execute(f'LISTEN "{channel}"')
        for channel in sorted(heard - wanted):
            connection.execute(f'UNLISTEN "{channel}"')
        self._call_listeners(wanted - heard)
        return wanted

    def _call_listeners(self, channels: frozenset[str] | set[str]) -> None:
        for channel, call in self._listeners:
            if channel in channels:
                call()
