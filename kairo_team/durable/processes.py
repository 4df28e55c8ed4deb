"""Processes that share a database: each increments a counter as its heartbeat; others watch it by their own clock."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from kairo_team.durable.line import Line
from kairo_team.durable.postgres_database import CLOSED, connect_to, place_of_url
from kairo_team.errors import JournalError

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection

_logger = logging.getLogger("kairo_team")

LATE: Final = 3
"""Heartbeat intervals without a heartbeat after which a process is declared dead."""
_UNREACHABLE: Final = 2.5
"""Heartbeat intervals without the database after which a process ends its work; fewer than `LATE`."""
_CLASS: Final = 0x6B61_6972
"""The first half of the advisory locks that processes hold while their connection lives."""
_HELD: Final = (
    "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = ? AND objid = ? AND objsubid = 2"
    " AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
)


class Process:
    """This process, one of the processes that share a database; `line` sends its heartbeat.

    The heartbeat also reads what there is for the process, so that an idle process needs no other transaction.
    """

    def __init__(self, url: str, beat: float) -> None:
        self.id = uuid.uuid4().hex
        self.beat = beat
        self._url = url
        self._about: dict[str, Any] = {"kind": "run", "state": "live"}
        self._lock = random.SystemRandom().randrange(1, 2**31)
        self._on_dead: list[Callable[[], object]] = []
        self._on_unreachable: list[Callable[[], object]] = []
        self._on_message: list[Callable[[], object]] = []
        self._ends = threading.Event()
        self._started = False
        self._starting = threading.Lock()
        self._pid = os.getpid()
        # Two heartbeats in each interval: a single late one is not noticed.
        self.line = Line(url, beat / 2, self._hold_lock)
        """The connection of the heartbeat, which also listens for notifications."""
        self.line.each(self._tick)
        self.dead = False
        """Whether the process was declared dead: then it can record nothing more."""
        self.watch_lock: int | None = None
        """The advisory lock of the process that watches the others; None in a process that never watches."""
        self.nobody_watches = False
        """Whether no process held `watch_lock` at the last heartbeat."""
        self.units = 0
        """The number of units that the process had claimed at the last heartbeat."""

    @property
    def silence(self) -> float:
        """Seconds since the process last reached the database."""
        return time.monotonic() - self.line.reached

    def start(self) -> None:
        """Register the process and start its heartbeat; return once it is registered.

        Raises the errors of the first connection, and `JournalError` after `close`.
        """
        with self._starting:
            if self._started:
                return
            if self._ends.is_set():
                raise JournalError(place_of_url(self._url), CLOSED)
            with connect_to(self._url, "process") as connection:
                self._register(connection)
            self._started = True
            self.line.start()
            threading.Thread(target=self._watch, name="kairo-beat-watch", daemon=True).start()
        self.line.wait(4 * self.beat)

    def close(self) -> None:
        """End the heartbeat and delete the process, so that others need not wait until it is late."""
        with self._starting:
            started, self._started = self._started, False
            self._ends.set()
        if not started or self._pid != os.getpid():
            return
        self.line.close()
        with suppress(Exception), connect_to(self._url, "process") as connection:
            sql = (
                "DELETE FROM process WHERE id = ? AND state <> 'dead'"
                " AND NOT EXISTS (SELECT FROM unit WHERE process = ? AND state = 'taken')"
            )  # while it still has units its row stays: the units go to others once it is declared dead
            connection.execute(sql, (self.id, self.id))

    def describe(self, **about: Any) -> None:
        """Describe the process by `kind`, `team`, `digest`, `members`, `concurrency`, `state`.

        The next heartbeat writes the description.
        """
        self._about.update(about)

    def on_dead(self, call: Callable[[], object]) -> None:
        """Register a function to call, in any thread, when the process finds that it was declared dead."""
        self._on_dead.append(call)

    def on_unreachable(self, call: Callable[[], object]) -> None:
        """Register a function to call, in any thread, before others may declare the process dead.

        It is called when the process has not reached the database for two and a half heartbeat intervals.
        """
        self._on_unreachable.append(call)

    def on_message(self, call: Callable[[], object]) -> None:
        """Register a function to call, in any thread, when a heartbeat finds messages to the process."""
        self._on_message.append(call)

    # ------------------------------------------------------------------ the threads

    def _hold_lock(self, connection: Connection) -> None:
        # The server holds this lock as long as the connection lives: others see by it whether it does.
        connection.execute("SELECT pg_try_advisory_lock(?, ?)", (_CLASS, self._lock))

    def _watch(self) -> None:
        """Call the `on_unreachable` functions once when the database is unreachable for too long."""
        # In a thread of its own, because a connection that hangs raises nothing.
        told = False
        while not self._ends.wait(self.beat / 4) and not self.dead:
            silent = self.silence > _UNREACHABLE * self.beat
            if silent and not told:
                _call_all(self._on_unreachable)
            told = silent

    def _tick(self, connection: Connection) -> None:
        if not self.dead:
            self._beat(connection)

    def _beat(self, connection: Connection) -> None:
        about = self._about
        sql = (
            "UPDATE process SET beats = beats + 1, kind = ?, team = ?, digest = ?, members = ?,"
            " concurrency = ?,"
            # A process that was declared dead stays dead, because its units have been given to others.
            " state = CASE WHEN state = 'dead' THEN state ELSE ? END WHERE id = ? RETURNING state,"
            " EXISTS (SELECT FROM message WHERE addressee = process.id),"
            " (SELECT count(*) FROM unit WHERE unit.state = 'taken' AND unit.process = process.id),"
            # A lock that can be taken is given back at once: the monitor takes it on a connection of its own.
            " CASE WHEN pg_try_advisory_lock(?::bigint) THEN pg_advisory_unlock(?::bigint) END"
        )
        values = [about.get(name) for name in ("kind", "team", "digest", "members", "concurrency", "state")]
        row = connection.execute(sql, (*values, self.id, self.watch_lock, self.watch_lock)).fetchone()
        if row is None or row[0] == "dead":
            self.dead = True
            _call_all(self._on_dead)
            return
        self.units, self.nobody_watches = row[2], bool(row[3])
        if row[1]:
            _call_all(self._on_message)

    def _register(self, connection: Connection) -> None:
        sql = (
            "INSERT INTO process (id, kind, host, pid, lock, state, started_at, beat)"
            " VALUES (?, ?, ?, ?, ?, 'live', ?, ?)"
            " ON CONFLICT (id) DO NOTHING"
        )
        host = socket.gethostname()
        about = (self._about["kind"], host, os.getpid(), self._lock, time.time(), self.beat)
        connection.execute(sql, (self.id, *about))


class Observer:
    """Watches the heartbeats of other processes by a monotonic clock."""

    def __init__(self, beat: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._beat = beat
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}
        """For each process, its counter and the time this value was first seen."""
        self._looked: float | None = None

    def forget(self) -> None:
        """Forget all processes, because they were not watched for a while."""
        self._seen.clear()
        self._looked = None

    def late(self, connection: Connection) -> list[str]:
        """Check every process; return the ids of processes without a heartbeat for three intervals of watching.

        A process whose connection is gone too is late after one and a half intervals. The interval is the longer one of
        this process's and the watched one's.
        """
        now = self._clock()
        # Time in which this process did not watch proves nothing about others.
        if self._looked is not None and now - self._looked > 2 * self._beat:
            self._seen.clear()
        self._looked = now
        rows = connection.execute("SELECT id, beats, lock, beat FROM process WHERE state <> 'dead'").fetchall()
        seen = {process: self._seen.get(process) for process, *_ in rows}
        self._seen = {
            process: before if (before := seen[process]) is not None and before[0] == beats else (beats, now)
            for process, beats, *_ in rows
        }
        late: list[str] = []
        for process, _, lock, own_beat in rows:
            since, beat = now - self._seen[process][1], max(own_beat, self._beat)
            if since >= LATE * beat or (since >= 1.5 * beat and not has_connection(connection, lock)):
                late.append(process)
        return late


def has_connection(connection: Connection, lock: int) -> bool:
    """Return whether the heartbeat connection of a process lives, by the lock that it holds."""
    return bool(connection.execute(_HELD, (_CLASS, lock)).fetchone()[0])


def check_not_dead(connection: Connection, process: str, place: str) -> None:
    """Raise `JournalError` if this process was declared dead, even if it has not heard of it yet."""
    alive = "SELECT 1 FROM process WHERE id = ? AND state <> 'dead'"
    if connection.execute(alive, (process,)).fetchone() is None:
        raise JournalError(place, "this process was declared dead")


def is_alive(connection: Connection, process: str) -> bool:
    """Return whether a process seems to live: it was not declared dead, and its connection lives."""
    row = connection.execute("SELECT lock FROM process WHERE id = ? AND state <> 'dead'", (process,)).fetchone()
    return row is not None and has_connection(connection, row[0])


def has_died(connection: Connection, process: str, beat: float) -> bool:
    """Return whether a process is dead, and declare it dead if it is; may take one and a half heartbeat intervals.

    The interval is `beat` seconds, or the process's own if that is longer.
    """
    # A connection alone does not show that the process lives: the server may not have noticed yet that it is gone.
    began, first = time.monotonic(), None
    while True:
        row = connection.execute("SELECT beats, lock, state, beat FROM process WHERE id = ?", (process,)).fetchone()
        if row is None or row[2] == "dead":
            return True
        first = row[0] if first is None else first
        if row[0] != first:
            return False
        if time.monotonic() - began >= 1.5 * max(beat, row[3]):
            if has_connection(connection, row[1]):
                return False
            break
        time.sleep(min(0.5, beat / 4))
    connection.execute("UPDATE process SET state = 'dead' WHERE id = ?", (process,))
    return True


def _call_all(calls: list[Callable[[], object]]) -> None:
    for call in list(calls):
        try:
            call()
        except Exception:
            _logger.exception("a callback about the end of a process raised")
