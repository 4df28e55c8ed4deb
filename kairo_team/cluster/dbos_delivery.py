"""Delivery by DBOS: each delivery is a workflow, sent by a SQL function of DBOS and received by its queues.

The workflows are in a schema of their own, apart from the workflows of a user's own DBOS. A process has one DBOS, so it
has one receiver. DBOS knows which process has a workflow but not whether that process lives, so each receiver holds a
database lock while it lives.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, LiteralString
from uuid import uuid4

import psycopg
import psycopg.sql
import sqlalchemy.exc
from dbos import DBOS, DBOSClient

from kairo_team._util.database_url import split_schema
from kairo_team.cluster.delivery import Intervals, Receiver, Take, check_database_url, queue_key
from kairo_team.durable.line import LEAST_IDLE
from kairo_team.errors import Misuse

APPLICATION: Final = "kairo"
VERSION: Final = "1"
"""The version of the workflow below, equal in all processes: DBOS gives a workflow only to its own version."""
_PATIENCE: Final = 60.0
"""Seconds that the database may take to give a process its lock."""
LOOK: Final = 1.0
"""Seconds between two searches for workflows that ended, or that were taken but never begun."""
_SEND: Final = """
SELECT {schema}.enqueue_workflow(
    workflow_name => 'kairo.unit', queue_name => %(queue)s, workflow_id => %(id)s, application_name => 'kairo',
    priority => %(order)s::integer,
    positional_args => ARRAY[to_json(%(queue)s::text), to_json(%(unit)s::text), to_json(%(fence)s::integer)],
    delay_until_epoch_ms => CASE WHEN %(delay)s::double precision > 0
        THEN (extract(epoch FROM clock_timestamp()) + %(delay)s) * 1000 END::bigint
)"""
_LIVES: Final = """
CREATE OR REPLACE FUNCTION {schema}.kairo_lives(executor text) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT FROM pg_catalog.pg_locks JOIN pg_catalog.pg_database ON pg_database.oid = pg_locks.database
        WHERE datname = pg_catalog.current_database() AND locktype = 'advisory' AND objsubid = 1 AND granted
            AND (classid::bigint << 32 | objid::bigint) = pg_catalog.hashtextextended(executor, 0)
    )
$$"""
"""Creates the SQL function that says whether a database session holds the lock of an executor."""
_UNDER_WAY: Final = """
SELECT workflow_uuid FROM {schema}.workflow_status WHERE name = 'kairo.unit'
AND (status IN ('ENQUEUED', 'DELAYED') OR status = 'PENDING' AND {schema}.kairo_lives(executor_id))"""
_FORGET: Final = """
UPDATE {schema}.workflow_status SET status = 'CANCELLED' WHERE name = 'kairo.unit'
AND regexp_replace(workflow_uuid, ':[0-9]+:[0-9a-f]+$', '') = ANY(%s)
AND (status IN ('ENQUEUED', 'DELAYED') OR status = 'PENDING' AND NOT {schema}.kairo_lives(executor_id))"""
_DUE: Final = """
UPDATE {schema}.workflow_status SET status = 'ENQUEUED' WHERE name = 'kairo.unit' AND status = 'DELAYED'
AND delay_until_epoch_ms <= extract(epoch FROM clock_timestamp()) * 1000"""
"""Ends the delays that are over. DBOS ends delays by the clock of one process; with a slow clock they would not end."""
_ENDED: Final = """
SELECT workflow_uuid FROM {schema}.workflow_status
WHERE name = 'kairo.unit' AND status NOT IN ('ENQUEUED', 'DELAYED', 'PENDING') LIMIT 1000"""
_TAKEN: Final = """
SELECT workflow_uuid, queue_name FROM {schema}.workflow_status WHERE status = 'PENDING' AND executor_id = %s"""
_ORDER: Final = "SELECT priority FROM {schema}.workflow_status WHERE workflow_uuid = %s"
_GIVEN_BACK: Final = "UPDATE {schema}.workflow_status SET status = 'CANCELLED' WHERE workflow_uuid = %s"

logging.getLogger("dbos").addHandler(logging.NullHandler())  # else DBOS would log to the console


class DBOSDelivery:
    """Delivers units by DBOS; see `kairo_team.cluster.delivery.Delivery`.

    A delay is rounded up to a second. It is shorter if a receiver's clock is fast, but not longer if one is slow.
    """

    def __init__(self, url: str, intervals: Intervals | None = None) -> None:
        check_database_url(url)
        plain, schema = split_schema(url)
        self._url = "postgresql" + plain[plain.index("://") :]
        self.schema = f"{schema}_dbos"
        self._intervals = intervals or Intervals()

    def __repr__(self) -> str:
        return f"DBOSDelivery({self._intervals!r})"

    def sql(self, text: LiteralString) -> psycopg.sql.Composed:
        """Return a statement for our schema."""
        return psycopg.sql.SQL(text).format(schema=psycopg.sql.Identifier(self.schema))

    def install(self) -> None:
        """Create the tables of DBOS in our schema, or migrate them to the installed version."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not _hold(connection, self.schema):  # a waiting statement would block `CREATE INDEX`
                time.sleep(self._intervals.poll)
            with _errors_of_psycopg():
                DBOS.migrate(self._url, schema=self.schema)
            connection.execute(self.sql(_LIVES))

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
        """Enqueue a workflow in the connection's transaction."""
        # DBOS runs each id once, so every delivery of the same unit and fence needs an id of its own.
        name = f"{unit}:{fence}:{uuid4().hex}"
        given = {"queue": queue_key(queue), "id": name, "unit": unit, "fence": fence, "delay": delay}
        # DBOS takes the lowest number first.
        connection.execute(self.sql(_SEND), {**given, "order": -priority})

    def send_again(self, connection: psycopg.Connection, queue: str, workflow: str, *, delay: float = 0.0) -> None:
        """Enqueue a workflow for the same delivery, with the same priority."""
        found = connection.execute(self.sql(_ORDER), (workflow,)).fetchone()
        self.send(connection, queue, *_pair(workflow), delay=delay, priority=-found[0] if found is not None else 0)

    @contextmanager
    def receiving(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> Generator[Receiver]:
        """Launch DBOS for these queues. Raises `Misuse` if DBOS runs in this process already."""
        receiver = _Receiver(self, self._url, self._intervals, process, take, concurrency)
        with _errors_of_psycopg():
            receiver.start([queue_key(queue) for queue in queues])
        try:
            yield receiver
        finally:
            receiver.leave()

    def under_way(self, connection: psycopg.Connection, sent: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return the pairs in `sent` with a workflow that waits or whose executor holds its lock."""
        return {_pair(name) for (name,) in connection.execute(self.sql(_UNDER_WAY)).fetchall()} & {*sent}

    def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
        """Cancel the workflows that wait or whose executor holds no lock; a receiver deletes them soon."""
        connection.execute(self.sql(_FORGET), (list(units),))


@contextmanager
def _errors_of_psycopg() -> Generator[None]:
    """Raise the psycopg errors inside SQLAlchemy's errors, because callers handle psycopg's."""
    try:
        yield
    except sqlalchemy.exc.DBAPIError as error:
        raise error.orig or error from None


@contextmanager
def _client(url: str, schema: str) -> Generator[DBOSClient]:
    client = DBOSClient(
        system_database_url=url,
        dbos_system_schema=schema,
        application_name=APPLICATION,
        system_database_pool_size=1,
        retry_connection_errors=False,
    )
    try:
        yield client
    finally:
        client.destroy()


def _pair(workflow: str) -> tuple[str, int]:
    unit, fence, _ = workflow.rsplit(":", 2)
    return unit, int(fence)


class _Receiver:
    """The DBOS of this process, and a thread that deletes and resends its leftover workflows."""

    def __init__(
        self, delivery: DBOSDelivery, url: str, intervals: Intervals, process: str, take: Take, concurrency: int
    ) -> None:
        self._delivery, self._url, self._intervals, self._take = delivery, url, intervals, take
        self._executor = f"{process}#{uuid4().hex[:8]}"
        self._concurrency = concurrency
        self._silence = max(LEAST_IDLE, int(1000 * intervals.late))
        """Milliseconds without a query after which the process loses its lock."""
        self._room = threading.Condition()
        self._free = concurrency
        self.is_stopped = False
        """Whether it takes no new deliveries, and ends."""
        self._known: set[str] = set()
        """Workflows that were begun and may not be recorded as ended."""
        self._ended: set[str] = set()
        """Workflows in `_known` whose work has ended."""
        self._strays: set[str] = set()
        """Workflows that this executor had at the last search, but had not begun."""
        self._left = threading.Event()
        self._lives = threading.Event()
        """Set once this process holds the lock that shows that it lives."""
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
                    "dbos_system_schema": self._delivery.schema,
                    "sys_db_pool_size": 8,
                    "run_migrations": False,
                    "enable_otlp": False,
                    "log_level": "WARNING",
                }
            )
            if self._executor != DBOS.executor_id:
                raise Misuse("This process uses DBOS for itself: receive by 'procrastinate', or in another process")
            self._keeping.start()
            if not self._lives.wait(_PATIENCE):  # without the lock, its workflows would count as a dead process's
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
        """Create the queues."""
        with _client(self._url, self._delivery.schema) as client:
            for queue in queues:
                # The concurrency of a queue is one number for all processes: use the largest.
                known = client.retrieve_queue(queue)
                most = max(self._concurrency, (known and known.worker_concurrency) or 0)
                client.register_queue(queue, worker_concurrency=most, polling_interval_sec=self._intervals.poll)

    def stop(self) -> None:
        with self._room:
            if self.is_stopped:
                return
            self.is_stopped = True
            self._room.notify_all()
        self._destroying.start()

    def leave(self) -> None:
        """Stop, wait for the current deliveries, and give back the ones that were never begun."""
        self.stop()
        with self._room:
            self._room.wait_for(lambda: self._free == self._concurrency)
        self._destroying.join(self._intervals.late + 10)
        self._left.set()
        self._keeping.join()

    def _destroy(self) -> None:
        """End DBOS: it takes no new workflows at once, and waits for the current ones."""
        try:
            DBOS.destroy(workflow_completion_timeout_sec=10**9)
        finally:
            _occupied.release()

    def work(self, workflow: str, queue: str, unit: str, fence: int) -> None:
        """Work on a delivery until its future is done; resend it if it failed or the receiver is full."""
        self._known.add(workflow)
        with self._room:
            room = self._room.wait_for(lambda: self._free > 0 or self.is_stopped, self._intervals.again)
            taken = room and not self.is_stopped
            self._free -= taken
        made = taken and _made(self._take, unit, fence)
        with self._room:
            self._free += taken
            self._room.notify_all()
        while not made and not self._left.is_set():
            try:
                with psycopg.connect(self._url) as connection:
                    self._delivery.send_again(connection, queue, workflow, delay=self._intervals.again)
                made = True
            except psycopg.OperationalError:  # the database is unreachable
                self._left.wait(self._intervals.poll)
        self._ended.add(workflow)

    def _keep(self) -> None:
        """Until the context is left, hold the lock that shows that this process lives, and clean up workflows."""
        while not self._left.is_set():
            with (
                suppress(psycopg.OperationalError, sqlalchemy.exc.DBAPIError),
                psycopg.connect(self._url, autocommit=True) as connection,
                _client(self._url, self._delivery.schema) as client,
            ):
                held = False
                # The server ends the session of a process that is stopped or has lost the network, with its lock: else
                # deliveries that the process has taken and not begun would be under way for ever.
                connection.execute(f"SET idle_session_timeout = {self._silence}".encode())
                while not self._left.is_set():
                    held = held or _hold(connection, self._executor)
                    if held:
                        self._lives.set()
                    self._left.wait(LOOK if held else self._intervals.poll)
                    self._give_back_strays(connection)
                    connection.execute(self._delivery.sql(_DUE))
                    if ended := [name for (name,) in connection.execute(self._delivery.sql(_ENDED)).fetchall()]:
                        client.delete_workflows(ended)
            self._left.wait(self._intervals.poll)
        with suppress(psycopg.OperationalError), psycopg.connect(self._url, autocommit=True) as connection:
            for _ in range(2):  # a workflow is given back when it is a stray twice
                self._give_back_strays(connection)

    def _give_back_strays(self, connection: psycopg.Connection) -> None:
        """Resend workflows that this executor has but did not begin since the last search."""
        # DBOS was cut off between taking and starting such a workflow.
        ended = {*self._ended}
        ours: dict[str, str] = dict(connection.execute(self._delivery.sql(_TAKEN), (self._executor,)).fetchall())
        strays = ours.keys() - self._known
        for name in strays & self._strays:
            with connection.transaction():
                self._delivery.send_again(connection, ours[name], name)
                connection.execute(self._delivery.sql(_GIVEN_BACK), (name,))
        self._strays = strays
        self._known -= ended - ours.keys()
        self._ended -= ended - ours.keys()


def _made(take: Take, unit: str, fence: int) -> bool:
    """Begin the work on a unit and wait for its end; return whether it succeeded."""
    try:
        return take(unit, fence).exception() is None
    except Exception:  # noqa: BLE001 - the code that works on the unit reports its errors; or it was cancelled
        return False


def _hold(connection: psycopg.Connection, name: str) -> bool:
    """Try to take a lock for this session; return whether the session holds it now."""
    row = connection.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", (name,)).fetchone()
    return row is not None and bool(row[0])


# Not reentrant: `_destroy` releases it in another thread than the one that took it.
_occupied = threading.Lock()
_current: _Receiver | None = None


def _occupy(receiver: _Receiver) -> None:
    """Register the receiver of this process; wait for one that ends, and raise `Misuse` if another one receives."""
    global _current  # noqa: PLW0603 - there is one DBOS in a process
    # A worker that was lost with its database leaves a DBOS that may end after the next worker has begun.
    patience = _PATIENCE if _current is not None and _current.is_stopped else 0.0
    if not _occupied.acquire(timeout=patience):
        raise Misuse(
            "This process receives by 'dbos' already, and DBOS can be launched once in a process: leave that context "
            "first, receive from all queues in one context, or use 'procrastinate'"
        )
    _current = receiver


@DBOS.workflow(name="kairo.unit", max_recovery_attempts=None)
def _unit(queue: str, unit: str, fence: int) -> None:
    """Work on a delivery; the DBOS workflow."""
    workflow = DBOS.workflow_id
    assert workflow is not None
    assert _current is not None
    _current.work(workflow, queue, unit, fence)
