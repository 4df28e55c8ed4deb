"""Delivery by DBOS: a delivery is a workflow, sent by its SQL function into a schema of ours, and taken by its queues.

The schema keeps them apart from the workflows of a user's own DBOS. There is one DBOS in a process, so there is one
receiver. DBOS knows who has a workflow but not whether that process lives: each receiver holds a lock of the database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from uuid import uuid4

import psycopg
import sqlalchemy.exc
from dbos import DBOS, DBOSClient

from kairo_team.cluster.delivery import Beats, Receiver, Take, check_database_url, queue_key
from kairo_team.errors import Misuse

SCHEMA: Final = "kairo_dbos"
APPLICATION: Final = "kairo"
VERSION: Final = "1"
"""Of the workflow below, the same for all processes: DBOS gives a workflow to its own version only."""
_PATIENCE: Final = 60.0
"""Seconds that the database may take to give a process its lock."""
LOOK: Final = 1.0
"""Seconds between two looks for workflows that ended, and for those that were taken but never begun."""
_SEND: Final = """
SELECT kairo_dbos.enqueue_workflow(
    workflow_name => 'kairo.unit', queue_name => %(queue)s, workflow_id => %(id)s, application_name => 'kairo',
    positional_args => ARRAY[to_json(%(queue)s::text), to_json(%(unit)s::text), to_json(%(fence)s::integer)],
    delay_until_epoch_ms => CASE WHEN %(delay)s::double precision > 0
        THEN (extract(epoch FROM clock_timestamp()) + %(delay)s) * 1000 END::bigint
)"""
_LIVES: Final = """
CREATE OR REPLACE FUNCTION kairo_dbos.kairo_lives(executor text) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT FROM pg_catalog.pg_locks JOIN pg_catalog.pg_database ON pg_database.oid = pg_locks.database
        WHERE datname = pg_catalog.current_database() AND locktype = 'advisory' AND objsubid = 1 AND granted
            AND (classid::bigint << 32 | objid::bigint) = pg_catalog.hashtextextended(executor, 0)
    )
$$"""
"""Whether a session of the database has the lock of this executor."""
_UNDER_WAY: Final = """
SELECT workflow_uuid FROM kairo_dbos.workflow_status WHERE name = 'kairo.unit'
AND (status IN ('ENQUEUED', 'DELAYED') OR status = 'PENDING' AND kairo_dbos.kairo_lives(executor_id))"""
_FORGET: Final = """
UPDATE kairo_dbos.workflow_status SET status = 'CANCELLED' WHERE name = 'kairo.unit'
AND regexp_replace(workflow_uuid, ':[0-9]+:[0-9a-f]+$', '') = ANY(%s)
AND (status IN ('ENQUEUED', 'DELAYED') OR status = 'PENDING' AND NOT kairo_dbos.kairo_lives(executor_id))"""
_DUE: Final = """
UPDATE kairo_dbos.workflow_status SET status = 'ENQUEUED' WHERE name = 'kairo.unit' AND status = 'DELAYED'
AND delay_until_epoch_ms <= extract(epoch FROM clock_timestamp()) * 1000"""
"""One process of all ends delays for DBOS, by its own clock: where that is slow, nobody's delay would end."""
_ENDED: Final = """
SELECT workflow_uuid FROM kairo_dbos.workflow_status
WHERE name = 'kairo.unit' AND status NOT IN ('ENQUEUED', 'DELAYED', 'PENDING') LIMIT 1000"""
_TAKEN: Final = """
SELECT workflow_uuid, queue_name FROM kairo_dbos.workflow_status WHERE status = 'PENDING' AND executor_id = %s"""
_GIVEN_BACK: Final = "UPDATE kairo_dbos.workflow_status SET status = 'CANCELLED' WHERE workflow_uuid = %s"

logging.getLogger("dbos").addHandler(logging.NullHandler())  # DBOS logs to the console where it finds no handler


class DBOSDelivery:
    """Delivers units by DBOS; see `kairo_team.cluster.delivery.Delivery`.

    A delay is rounded up to a second. It is shorter where a receiver's clock is fast, and no longer where one is slow.
    """

    def __init__(self, url: str, beats: Beats | None = None) -> None:
        check_database_url(url)
        self._url = "postgresql" + url[url.index("://") :]
        self._beats = beats or Beats()

    def __repr__(self) -> str:
        return f"DBOSDelivery({self._beats!r})"

    def install(self) -> None:
        """Make the tables of DBOS in a schema of ours, or bring them up to the version that is installed."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not _hold(connection, SCHEMA):  # who waits in a statement is in the way of an index that is made
                time.sleep(self._beats.poll)
            with _errors_of_psycopg():
                DBOS.migrate(self._url, schema=SCHEMA)
            connection.execute(_LIVES)

    def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, *, delay: float = 0.0) -> None:
        """Enqueue a workflow in the connection's transaction."""
        name = f"{unit}:{fence}:{uuid4().hex}"
        connection.execute(_SEND, {"queue": queue_key(queue), "id": name, "unit": unit, "fence": fence, "delay": delay})

    @contextmanager
    def receiving(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> Generator[Receiver]:
        """Launch DBOS for these queues. Raises `Misuse` where it runs in this process already."""
        receiver = _Receiver(self, self._url, self._beats, process, take, concurrency)
        with _errors_of_psycopg():
            receiver.start([queue_key(queue) for queue in queues])
        try:
            yield receiver
        finally:
            receiver.leave()

    def under_way(self, connection: psycopg.Connection, sent: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Look at the workflows, and at the locks of those who have them."""
        return {_pair(name) for (name,) in connection.execute(_UNDER_WAY).fetchall()} & {*sent}

    def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
        """Cancel the workflows that wait, and those without a lock; a receiver deletes them soon."""
        connection.execute(_FORGET, (list(units),))


@contextmanager
def _errors_of_psycopg() -> Generator[None]:
    """Raise psycopg's own errors, which callers know, where SQLAlchemy wraps them."""
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        raise error.orig or error from None


def _client(url: str) -> DBOSClient:
    return DBOSClient(
        system_database_url=url,
        dbos_system_schema=SCHEMA,
        application_name=APPLICATION,
        system_database_pool_size=1,
        retry_connection_errors=False,
    )


def _pair(workflow: str) -> tuple[str, int]:
    unit, fence, _ = workflow.rsplit(":", 2)
    return unit, int(fence)


class _Receiver:
    """The DBOS of this process, and a thread that tidies up behind it."""

    def __init__(
        self, delivery: DBOSDelivery, url: str, beats: Beats, process: str, take: Take, concurrency: int
    ) -> None:
        self._delivery, self._url, self._beats, self._take = delivery, url, beats, take
        self._executor = f"{process}#{uuid4().hex[:8]}"
        self._concurrency = concurrency
        self._room = threading.Condition()
        self._free = concurrency
        self._stopped = False
        self._known: set[str] = set()
        """Workflows that were begun and are not known to be recorded as ended."""
        self._ended: set[str] = set()
        """Those of them whose work has ended."""
        self._strays: set[str] = set()
        """Workflows that are ours by the last look, but were not begun."""
        self._left = threading.Event()
        self._lives = threading.Event()
        """The lock that says that this process lives is held."""
        self._destroying = threading.Thread(target=self._destroy, name=f"kairo drain {process}", daemon=True)
        self._keeping = threading.Thread(target=self._keep, name=f"kairo delivery {process}", daemon=True)

    def start(self, queues: Sequence[str]) -> None:
        _occupy(self)
        try:
            self._register(queues)
            DBOS(
                config={
                    "name": APPLICATION,
                    "application_version": VERSION,
                    "executor_id": self._executor,
                    "system_database_url": self._url,
                    "dbos_system_schema": SCHEMA,
                    "sys_db_pool_size": 8,
                    "run_migrations": False,
                    "enable_otlp": False,
                    "log_level": "WARNING",
                }
            )
            if self._executor != DBOS.executor_id:
                raise Misuse("This process uses DBOS for itself: receive by 'procrastinate', or in another process")
            self._keeping.start()
            if not self._lives.wait(_PATIENCE):  # what was taken before would count as a dead process's
                raise Misuse("The database does not answer: the process cannot show that it lives")
            DBOS.listen_queues(queues)
            DBOS.launch()
        except BaseException:
            self._left.set()
            if self._executor == DBOS.executor_id:
                DBOS.destroy()
            _occupied.release()
            raise

    def _register(self, queues: Sequence[str]) -> None:
        """Make the queues. How much each process takes of a queue is one number for all: that of the largest."""
        client = _client(self._url)
        try:
            for queue in queues:
                known = client.retrieve_queue(queue)
                most = max(self._concurrency, (known and known.worker_concurrency) or 0)
                client.register_queue(queue, worker_concurrency=most, polling_interval_sec=self._beats.poll)
        finally:
            client.destroy()

    def stop(self) -> None:
        with self._room:
            if self._stopped:
                return
            self._stopped = True
            self._room.notify_all()
        self._destroying.start()

    def leave(self) -> None:
        """Stop, wait for what was taken, and give back what was never begun."""
        self.stop()
        with self._room:
            self._room.wait_for(lambda: self._free == self._concurrency)
        self._destroying.join(self._beats.late + 10)
        self._left.set()
        self._keeping.join()

    def _destroy(self) -> None:
        """End DBOS: at once it takes nothing more, and it waits for the workflows that it has."""
        DBOS.destroy(workflow_completion_timeout_sec=10**9)
        _occupied.release()

    def work(self, workflow: str, queue: str, unit: str, fence: int) -> None:
        """Work on a delivery until its future is done; send it again if it failed, or if there is no room for it."""
        self._known.add(workflow)
        with self._room:
            room = self._room.wait_for(lambda: self._free > 0 or self._stopped, self._beats.again)
            taken = room and not self._stopped
            self._free -= taken
        made = taken and _made(self._take, unit, fence)
        with self._room:
            self._free += taken
            self._room.notify_all()
        while not made and not self._left.is_set():
            made = self._sent_again(queue, unit, fence)
        self._ended.add(workflow)

    def _sent_again(self, queue: str, unit: str, fence: int) -> bool:
        """Send a delivery again, or wait a little where the database is away."""
        try:
            with psycopg.connect(self._url) as connection:
                self._delivery.send(connection, queue, unit, fence, delay=self._beats.again)
        except psycopg.OperationalError:
            self._left.wait(self._beats.poll)
            return False
        return True

    def _keep(self) -> None:
        """Hold the lock that says that this process lives, and tidy up, until the context is left."""
        while not self._left.is_set():
            with (
                suppress(psycopg.OperationalError, sqlalchemy.exc.DBAPIError),
                self._connected() as (connection, client),
            ):
                held = False
                while not self._left.is_set():
                    held = held or _hold(connection, self._executor)
                    if held:
                        self._lives.set()
                    self._left.wait(LOOK if held else self._beats.poll)
                    self._give_back_strays(connection)
                    connection.execute(_DUE)
                    if ended := [name for (name,) in connection.execute(_ENDED).fetchall()]:
                        client.delete_workflows(ended)
            self._left.wait(self._beats.poll)
        with suppress(psycopg.OperationalError), psycopg.connect(self._url, autocommit=True) as connection:
            for _ in range(2):  # who is a stray twice is given back
                self._give_back_strays(connection)

    @contextmanager
    def _connected(self) -> Generator[tuple[psycopg.Connection, DBOSClient]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            client = _client(self._url)
            try:
                yield connection, client
            finally:
                client.destroy()

    def _give_back_strays(self, connection: psycopg.Connection) -> None:
        """Send again what is ours by the database, but was not begun since the last look: its dispatch was cut off."""
        ended = {*self._ended}
        ours: dict[str, str] = dict(connection.execute(_TAKEN, (self._executor,)).fetchall())
        strays = ours.keys() - self._known
        for name in strays & self._strays:
            with connection.transaction():
                self._delivery.send(connection, ours[name], *_pair(name))
                connection.execute(_GIVEN_BACK, (name,))
        self._strays = strays
        self._known -= ended - ours.keys()
        self._ended -= ended - ours.keys()


def _made(take: Take, unit: str, fence: int) -> bool:
    """Begin the work on a unit and wait for its end; return whether it came to a good one."""
    try:
        return take(unit, fence).exception() is None
    except Exception:  # noqa: BLE001 - of any kind: whoever works on the unit reports it; or it was cancelled
        return False


def _hold(connection: psycopg.Connection, name: str) -> bool:
    """Take a lock for this session; return whether it has it now."""
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (name,)).fetchone()
    return row is not None and bool(row[0])


_occupied = threading.Lock()
_current: _Receiver | None = None


def _occupy(receiver: _Receiver) -> None:
    """Make it the receiver of this process, or raise `Misuse`."""
    global _current  # noqa: PLW0603 - there is one DBOS in a process
    if not _occupied.acquire(blocking=False):
        raise Misuse(
            "This process receives by 'dbos' already, and DBOS can be launched once in a process: leave that context "
            "first, receive from all queues in one context, or use 'procrastinate'"
        )
    _current = receiver


@DBOS.workflow(name="kairo.unit", max_recovery_attempts=None)
def _unit(queue: str, unit: str, fence: int) -> None:
    """Work on a delivery, as the workflow that it is for DBOS."""
    workflow = DBOS.workflow_id
    assert workflow is not None
    assert _current is not None
    _current.work(workflow, queue, unit, fence)
