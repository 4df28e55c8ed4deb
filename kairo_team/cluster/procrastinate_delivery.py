"""Delivery by procrastinate: each delivery is a job, sent by a SQL function of procrastinate and done by its workers.

The jobs are in a schema of their own, apart from the tables of a user's own procrastinate. The workers run on asyncio,
so they have an event loop in a thread of their own. A job that ends is deleted. A job whose work failed is sent again
with a delay by the clock of the database, because the clocks of machines differ.

New jobs are notified on the line of the process, which also sends the workers' heartbeats. A notification that is lost
costs at most `Intervals.late` seconds: so often the workers look for jobs without one. A notification reaches all idle
workers of a queue, and one of them gets the job. So that a hundred idle workers do not all ask the database for each
job, a worker that has come too late several times waits a moment, and does not look at all if it is busy by then.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple, TypeVar

import procrastinate
import psycopg
import psycopg.sql
import psycopg_pool
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition, Job
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager

from kairo_team._util.database_url import split_schema
from kairo_team.cluster.delivery import Intervals, Receiver, Take, check_database_url, queue_key
from kairo_team.durable.line import Line

if TYPE_CHECKING:
    from kairo_team.durable.postgres_database import PostgresConnection

T = TypeVar("T")
TASK: Final = "kairo.unit"
_CANCEL_AGAIN: Final = 0.1
"""Seconds until a task that still runs after its cancellation is cancelled again."""
_REST: Final = 10.0
"""Seconds that an unused connection is kept."""
_TURN: Final = 0.05
"""Most seconds that a worker waits after a notification, for each earlier one after which it found nothing."""
_NEWS: Final = json.dumps({"type": "job_inserted", "job_id": 0})
"""The payload that procrastinate gets for each notification, because no other kinds are sent."""
_NEVER: Final = 1e9
_SEND: Final = "SELECT {schema}.send(%(queue)s, %(unit)s, %(fence)s, %(delay)s, %(priority)s)"
_SEND_AGAIN: Final = "SELECT send(%(queue)s, %(unit)s, %(fence)s, %(delay)s, %(priority)s)"
"""The same on a connection of the receiver, which looks into our schema alone."""
# Each function sets its search path: the journal's connections call it, and these look into another schema.
_FUNCTIONS: Final = """
CREATE OR REPLACE FUNCTION {schema}.send(
    queue text, unit text, fence integer, delay double precision, priority integer
) RETURNS void LANGUAGE sql SET search_path = {schema}, pg_catalog AS $$
    SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(
        queue, 'kairo.unit', priority, NULL, NULL, jsonb_build_object('unit', unit, 'fence', fence),
        CASE WHEN delay > 0 THEN clock_timestamp() + make_interval(secs => delay) END
    )::procrastinate_job_to_defer_v1])
$$;
CREATE OR REPLACE FUNCTION {schema}.deliveries(units text[], late double precision)
RETURNS TABLE (id bigint, unit text, fence integer, waits boolean, lives boolean)
LANGUAGE sql STABLE SET search_path = {schema}, pg_catalog AS $$
    SELECT job.id, job.args->>'unit', (job.args->>'fence')::integer, job.status = 'todo',
        COALESCE(worker.last_heartbeat > clock_timestamp() - make_interval(secs => late), false)
    FROM procrastinate_jobs job LEFT JOIN procrastinate_workers worker ON worker.id = job.worker_id
    WHERE job.status IN ('todo', 'doing') AND job.args->>'unit' = ANY(units)
$$;
CREATE OR REPLACE FUNCTION {schema}.live(workers bigint[])
RETURNS void LANGUAGE sql SET search_path = {schema}, pg_catalog AS $$
    SELECT procrastinate_update_heartbeat_v1(worker) FROM unnest(workers) worker
$$;
CREATE OR REPLACE FUNCTION {schema}.forget(units text[], late double precision)
RETURNS void LANGUAGE plpgsql SET search_path = {schema}, pg_catalog AS $$
BEGIN
    PERFORM procrastinate_cancel_job_v1(id, false, true) FROM deliveries(units, late) WHERE waits;
    DELETE FROM procrastinate_jobs USING deliveries(units, late) gone
        WHERE procrastinate_jobs.id = gone.id AND status = 'doing' AND NOT gone.waits AND NOT gone.lives;
END $$;
"""


class ProcrastinateDelivery:
    """Delivers units by procrastinate; see `kairo_team.cluster.delivery.Delivery`."""

    def __init__(self, url: str, intervals: Intervals | None = None, line: Callable[[], Line] | None = None) -> None:
        """`line` returns the started line of the process; None: each receiver has its own."""
        check_database_url(url)
        self._url, schema = split_schema(url)
        self._schema = f"{schema}_procrastinate"
        self._intervals = intervals or Intervals()
        self._line = line

    def _sql(self, text: LiteralString) -> psycopg.sql.Composed:
        """Return a statement for our schema."""
        return psycopg.sql.SQL(text).format(schema=psycopg.sql.Identifier(self._schema))

    def __repr__(self) -> str:
        return f"ProcrastinateDelivery({self._intervals!r})"

    def install(self) -> None:
        """Create procrastinate's tables in our schema, or migrate them to the installed version."""
        with psycopg.connect(self._url) as connection:
            # Several processes may install at once, and `CREATE ... IF NOT EXISTS` fails in one of them without a lock.
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self._schema,))
            connection.execute(self._sql("CREATE SCHEMA IF NOT EXISTS {schema}"))
            connection.execute(self._sql("SET LOCAL search_path = {schema}"))
            _migrate(connection)
            connection.execute(self._sql(_FUNCTIONS))

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
        """Add a job in the connection's transaction."""
        given = {"queue": queue_key(queue), "unit": unit, "fence": fence, "delay": delay, "priority": priority}
        connection.execute(self._sql(_SEND), given)

    @contextmanager
    def receiving(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> Generator[Receiver]:
        """Run workers of procrastinate in a thread; a process may have any number of receivers."""
        with ExitStack() as ending:
            if self._line is None:
                line = Line(self._url, self._intervals.late / 4)
                line.start()
                ending.callback(line.close)
            else:
                line = self._line()
            receiver = _Receiver(
                _Database(self._url, self._schema, line, self._intervals),
                [queue_key(queue) for queue in queues],
                concurrency,
                take,
            )
            ending.callback(line.each(partial(receiver.live, self._sql("SELECT {schema}.live(%s)"))))
            thread = threading.Thread(
                target=lambda: asyncio.run(receiver.run()), name=f"kairo delivery {process}", daemon=True
            )
            thread.start()
            try:
                yield receiver
            finally:
                receiver.stop()
                thread.join()

    def under_way(self, connection: psycopg.Connection, sent: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
        """Return the pairs in `sent` with a job that waits, or whose worker has a recent heartbeat.

        The age of a heartbeat is measured by the clock of the database.
        """
        units = list({unit for unit, _ in sent})
        query = self._sql("SELECT unit, fence FROM {schema}.deliveries(%s, %s) WHERE waits OR lives")
        found = connection.execute(query, (units, self._intervals.late)).fetchall()
        return {(unit, fence) for unit, fence in found} & {*sent}

    def forget(self, connection: psycopg.Connection, units: Collection[str]) -> None:
        """Delete the jobs of these units that wait, or whose worker has no recent heartbeat."""
        connection.execute(self._sql("SELECT {schema}.forget(%s, %s)"), (list(units), self._intervals.late))


def _migrate(connection: psycopg.Connection) -> None:
    """Run the migrations of procrastinate that have not been run, in the order of their names."""
    connection.execute("CREATE TABLE IF NOT EXISTS kairo_migration (name text PRIMARY KEY)")
    files = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    done = {name for (name,) in connection.execute("SELECT name FROM kairo_migration").fetchall()}
    if not done:
        connection.execute(SchemaManager.get_schema())  # the schema includes all migrations
    else:
        for file in files:
            if file.name not in done:
                connection.execute(file.read_bytes())
    names = [(file.name,) for file in files if file.name not in done]
    connection.cursor().executemany("INSERT INTO kairo_migration VALUES (%s)", names)


class _Database(NamedTuple):
    """The database, as a receiver uses it."""

    url: str
    schema: str
    line: Line
    intervals: Intervals


class _Jobs(JobManager):
    """Notes in a set which workers of procrastinate this process has: the line sends their heartbeats."""

    def __init__(self, connector: _Connector, workers: set[int]) -> None:
        super().__init__(connector)
        self._workers = workers
        self._connector = connector

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        told = self._connector.told
        job = await super().fetch_job(queues, worker_id)
        self._connector.turns.note_look(found=job is not None)
        if job is None and told != self._connector.told:
            self._connector.heard.set()  # procrastinate's worker forgets a notification that comes during a look
        return job

    async def register_worker(self) -> int:
        worker = await super().register_worker()
        self._workers.add(worker)
        return worker

    async def unregister_worker(self, worker_id: int) -> None:
        try:
            await super().unregister_worker(worker_id)
        finally:
            self._workers.discard(worker_id)


class _Receiver:
    """Workers of procrastinate, one after the other: a new one starts when one has lost its connection."""

    def __init__(self, database: _Database, queues: list[str], concurrency: int, take: Take) -> None:
        self._database, self._intervals, self._queues = database, database.intervals, queues
        self._concurrency, self._take = concurrency, take
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._stopping = asyncio.Event()
        self._working = 0
        """The number of jobs under way."""
        self._workers: set[int] = set()
        """The ids of the workers that take jobs or finish some."""

    def live(self, sql: psycopg.sql.Composed, connection: PostgresConnection) -> None:
        """Send the heartbeat of the workers, on the line."""
        if workers := list(self._workers):
            connection.raw.execute(sql, (workers,))

    def stop(self) -> None:
        self._stopped.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        """Run the workers until `stop`, and until their jobs have ended."""
        self._loop = asyncio.get_running_loop()
        if self._stopped.is_set():
            return
        generations: set[asyncio.Task[None]] = set()
        stopping = asyncio.create_task(self._stopping.wait())
        while not self._stopping.is_set():
            lost, opened = asyncio.Event(), asyncio.Event()
            worker = asyncio.create_task(self._work(lost, opened))
            generations.add(worker)
            worker.add_done_callback(generations.discard)
            losing = asyncio.create_task(lost.wait())
            await asyncio.wait([stopping, worker, losing], return_when=asyncio.FIRST_COMPLETED)
            opening = asyncio.create_task(opened.wait())
            # A pool that is cancelled while it opens leaves a task behind that never ends.
            await asyncio.wait([worker, opening], return_when=asyncio.FIRST_COMPLETED)
            worker.cancel()  # procrastinate's worker takes no new jobs, and finishes the current ones
            losing.cancel()
            opening.cancel()
            if not self._stopping.is_set():
                await asyncio.wait([stopping], timeout=self._intervals.poll)
        while generations:
            await asyncio.wait(generations)

    async def _work(self, lost: asyncio.Event, opened: asyncio.Event) -> None:
        """Run one worker until it is cancelled or loses its connection."""
        connector = _Connector(self._database, lost, self._stopping)
        app = procrastinate.App(connector=connector)
        app.job_manager = _Jobs(connector, self._workers)
        app.task(name=TASK, pass_context=True)(self._deliver)
        with suppress(ConnectorException, psycopg.OperationalError, psycopg_pool.PoolTimeout, asyncio.CancelledError):
            async with app.open_async():
                opened.set()
                await app.run_worker_async(
                    queues=self._queues,
                    concurrency=self._concurrency,
                    fetch_job_polling_interval=self._intervals.late,
                    update_heartbeat_interval=_NEVER,  # the line sends the heartbeats
                    abort_job_polling_interval=_NEVER,  # no job is aborted
                    stalled_worker_timeout=self._intervals.late,
                    # A job that failed is sent again as a new job, so the old row has no use.
                    delete_jobs=DeleteJobCondition.ALWAYS.value,
                    # The thread is not the main thread, and signals belong to the command that runs the worker.
                    install_signal_handlers=False,
                )

    async def _deliver(self, context: procrastinate.JobContext, unit: str, fence: int) -> None:
        """Work on a job until its future is done; resend it if it failed or the receiver is full."""
        # The receiver can be full while a worker that lost its connection finishes its jobs.
        if self._working >= self._concurrency:
            await self._send_again(context, self._intervals.poll)
            return
        self._working += 1
        try:
            if not await _made(self._take, unit, fence):
                await self._send_again(context, self._intervals.again)
        finally:
            self._working -= 1

    async def _send_again(self, context: procrastinate.JobContext, delay: float) -> None:
        job = context.job
        await context.app.connector.execute_query_async(
            _SEND_AGAIN, queue=job.queue, **job.task_kwargs, delay=delay, priority=job.priority
        )


async def _made(take: Take, unit: str, fence: int) -> bool:
    """Begin the work on a unit and wait for its end; return whether it succeeded."""
    try:
        future = take(unit, fence)
    except Exception:  # noqa: BLE001 - the code that works on the unit reports its errors
        return False
    await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)
    return not future.cancelled() and future.exception() is None


class Turns:
    """How long a worker waits after a notification before it looks for the job.

    A worker that has missed `n` jobs in a row shares its queue with about `n` others, and of as many random moments
    between 0 and `n` turns the first one comes after about a turn. So the workers together look about as often as if
    they were few, and the first look comes about as soon.
    """

    def __init__(self, longest: float) -> None:
        """`longest` is in seconds."""
        self._longest = longest
        self._missed = 0
        self._is_told = False
        """Whether a notification came since the last look."""

    def draw(self) -> float:
        """Return the seconds until the look after a notification."""
        self._is_told = True
        # A worker that has the queue for itself misses a job only if it found it before the notification.
        return random.uniform(0, min(self._longest, _TURN * max(0, self._missed - 1)))  # noqa: S311 - not a secret

    def note_look(self, *, found: bool) -> None:
        """Note whether a look found a job."""
        if found:
            self._missed = 0
        elif self._is_told:
            self._missed += 1
        self._is_told = False


class _Connector(procrastinate.PsycopgConnector):
    """Connections in our schema. A query without a reply is repeated until the database answers or the receiver ends.

    A fetch of a job is not repeated; its failure ends the worker.
    """

    def __init__(self, database: _Database, lost: asyncio.Event, stopping: asyncio.Event) -> None:
        self._intervals, self._line = database.intervals, database.line
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - its hooks for JSON have no types
            conninfo=database.url,
            kwargs={"autocommit": True, "application_name": "kairo-team delivery"},
            configure=partial(_configure, database.schema),
            min_size=1,
            max_size=4,
            max_idle=_REST,
            timeout=max(self._intervals.poll, 2.0),
        )
        self._lost, self._stopping = lost, stopping
        self.turns = Turns(self._intervals.again)
        self.heard = asyncio.Event()
        """Set when there may be a job."""
        self.told = 0
        """The number of times that the worker was woken to look for jobs."""
        self._end = math.inf
        """The time after which no query is repeated: `late` seconds after the first one that fails after `stop`."""

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        while True:
            try:
                await _cancellable(super().execute_query_async(query, **arguments))
            except ConnectorException as error:
                if self._stopping.is_set():
                    self._end = min(self._end, time.monotonic() + self._intervals.late)
                if time.monotonic() >= self._end or not isinstance(error.__cause__, psycopg.OperationalError):
                    raise
                await asyncio.sleep(self._intervals.poll)
            else:
                self._end = math.inf
                return

    async def execute_query_one_async(self, query: LiteralString, **arguments: Any) -> dict[str, Any]:
        try:
            return await _cancellable(super().execute_query_one_async(query, **arguments))
        except ConnectorException:
            # If only the reply was lost, this worker has a job that it does not know of. It must end, so that the job
            # counts as lost.
            self._lost.set()
            raise

    async def execute_query_all_async(self, query: LiteralString, **arguments: Any) -> list[dict[str, Any]]:
        return await _cancellable(super().execute_query_all_async(query, **arguments))

    async def listen_notify(self, on_notification: Any, channels: Iterable[str]) -> None:
        """Look for jobs soon after each notification, and once more when a delayed job may be due."""
        loop, heard = asyncio.get_running_loop(), self.heard
        is_news = False

        def hear() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(heard.set)

        with ExitStack() as ending:
            for channel in channels:
                ending.callback(self._line.listen(channel, hear))
            heard.set()  # a job may have come before
            due = math.inf
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(None if due == math.inf else due):
                        await heard.wait()
                if heard.is_set():
                    heard.clear()
                    is_news, due = True, min(due, loop.time() + self.turns.draw())
                if loop.time() >= due:
                    # A delayed job is notified when it is sent, not when it is due.
                    is_news, due = False, loop.time() + self._intervals.again if is_news else math.inf
                    self.told += 1
                    await on_notification(channel="", payload=_NEWS)


async def _cancellable(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` in a task of its own; when cancelled, cancel the task until it ends."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        # psycopg, its pool and procrastinate use `asyncio.wait_for`, which sometimes loses a cancellation before Python
        # 3.12: the task would continue, and the receiver would not end.
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_CANCEL_AGAIN)
        await asyncio.gather(task, return_exceptions=True)  # its result is not needed
        raise
    return task.result()


async def _configure(schema: str, connection: psycopg.AsyncConnection) -> None:
    """Set the schema; `options` in the URL stay as they are."""
    await connection.execute(psycopg.sql.SQL("SET search_path = {}").format(psycopg.sql.Identifier(schema)))
