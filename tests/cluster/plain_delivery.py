"""A right delivery engine of one table, from which the wrong ones are made."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import ClassVar

import psycopg

from kairo_team.cluster.delivery import Intervals, Receiver, Take

Row = tuple[int, str, str, int]
"""Number, queue, unit, fence."""
LIVES = """EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = hashtextextended(receiver, 0))"""


class PlainDelivery:
    """Rows of a table; receivers poll, and hold a lock of the database while they live."""

    def __init__(self, url: str, beats: Intervals) -> None:
        self._url, self.beats = url, beats

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self._url, autocommit=True)

    def install(self) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute("SELECT pg_advisory_xact_lock(1)")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS delivery (id bigserial PRIMARY KEY, queue text, unit text, fence integer,"
                " due timestamptz, receiver text, priority integer)"
            )

    def send(
        self,
        connection: psycopg.Connection,
        queue: str,
        unit: str,
        fence: int,
        *,
        delay: float = 0.0,
        priority: int = 0,
    ) -> None:
        connection.execute(
            "INSERT INTO delivery (queue, unit, fence, due, priority)"
            " VALUES (%s, %s, %s, clock_timestamp() + make_interval(secs => %s), %s)",
            (queue, unit, fence, delay, priority),
        )

    @contextmanager
    def receiving(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> Generator[Receiver]:
        receiver = self.make_receiver(process, queues, concurrency, take)
        receiver.thread.start()
        try:
            yield receiver
        finally:
            self.leave(receiver)

    def make_receiver(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> PlainReceiver:
        return PlainReceiver(self, process, queues, concurrency, take)

    def leave(self, receiver: PlainReceiver) -> None:
        receiver.stop()
        receiver.thread.join()

    def under_way(self, connection: psycopg.Connection, sent: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        query = f"SELECT unit, fence FROM delivery WHERE receiver IS NULL OR {LIVES}"  # noqa: S608 - a constant
        return {(unit, fence) for unit, fence in connection.execute(query.encode()).fetchall()} & {*sent}

    def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
        query = f"DELETE FROM delivery WHERE unit = ANY(%s) AND (receiver IS NULL OR NOT {LIVES})"  # noqa: S608
        connection.execute(query.encode(), (list(units),))


class PlainReceiver:
    """One thread that takes rows, and gives them back or deletes them when their work has ended."""

    order: ClassVar[str] = "priority DESC, id"
    silence: ClassVar[str] = "2s"
    """After which it does not live."""

    def __init__(
        self, delivery: PlainDelivery, process: str, queues: Sequence[str], concurrency: int, take: Take
    ) -> None:
        self.delivery, self.process, self.queues = delivery, process, list(queues)
        self.concurrency, self.take = concurrency, take
        self.working: dict[int, tuple[Row, Future[None]]] = {}
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def stop(self) -> None:
        self.stopped.set()

    def run(self) -> None:
        while self.working or not self.stopped.is_set():
            try:
                with self.delivery.connect() as connection:
                    self.live(connection)
            except psycopg.OperationalError:
                time.sleep(self.delivery.beats.poll)

    def live(self, connection: psycopg.Connection) -> None:
        connection.execute(f"SET idle_session_timeout = '{self.silence}'".encode())
        connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (self.process,))
        while self.working or not self.stopped.is_set():
            self.look(connection)
            time.sleep(self.delivery.beats.poll)

    def look(self, connection: psycopg.Connection) -> None:
        for number, (row, future) in list(self.working.items()):
            if future.done():
                well = not future.cancelled() and future.exception() is None
                self.end(connection, row, well=well)
                del self.working[number]
        if not self.stopped.is_set():
            for row in self.fetch(connection, self.concurrency - len(self.working)):
                self.working[row[0]] = row, self.begin(row)

    def fetch(self, connection: psycopg.Connection, room: int) -> list[Row]:
        # An array is made once. PostgreSQL may run a subquery again for each row, and then skips what is locked.
        query = (
            "UPDATE delivery SET receiver = %s WHERE id = ANY(ARRAY(SELECT id FROM delivery WHERE receiver IS NULL"  # noqa: S608
            f" AND queue = ANY(%s) AND due <= clock_timestamp() ORDER BY {self.order} LIMIT %s FOR UPDATE SKIP LOCKED))"
            " RETURNING id, queue, unit, fence"
        )
        rows: list[Row] = connection.execute(query.encode(), (self.process, self.queues, room)).fetchall()
        return rows

    def begin(self, row: Row) -> Future[None]:
        _, _, unit, fence = row
        try:
            return self.take(unit, fence)
        except Exception as error:  # noqa: BLE001 - of any kind
            failed = Future[None]()
            failed.set_exception(error)
            return failed

    def end(self, connection: psycopg.Connection, row: Row, *, well: bool) -> None:
        if well:
            connection.execute("DELETE FROM delivery WHERE id = %s", row[:1])
        else:
            connection.execute(
                "UPDATE delivery SET receiver = NULL, due = clock_timestamp() + make_interval(secs => %s)"
                " WHERE id = %s",
                (self.delivery.beats.again, row[0]),
            )
