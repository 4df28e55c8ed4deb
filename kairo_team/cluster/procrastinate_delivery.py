"""Delivery by procrastinate: each delivery is a job, sent by a SQL function of procrastinate and done by its workers.

The jobs are in a schema of their own, apart from the tables of a user's own procrastinate. The workers run on asyncio,
so they have an event loop in a thread of their own. A job that ends is deleted. A job whose work failed is sent again
with a delay by the clock of the database, because the clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, LiteralString, TypeVar

import procrastinate
import psycopg
import psycopg.sql
import psycopg_pool
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition
from procrastinate.schema import SchemaManager

from kairo_team._util.database_url import split_schema
from kairo_team.cluster.delivery import Intervals, Receiver, Take, check_database_url, queue_key

T = TypeVar("T")
TASK: Final = "kairo.unit"
_CANCEL_AGAIN: Final = 0.1
"""Seconds until a task that still runs after its cancellation is cancelled again."""
_SEND: Final = "SELECT {schema}.send(%(queue)s, %(unit)s, %(fence)s, %(delay)s)"
_SEND_AGAIN: Final = "SELECT send(%(queue)s, %(unit)s, %(fence)s, %(delay)s)"
"""The same on a connection of the receiver, which looks into our schema alone."""
_FUNCTIONS: Final = """
CREATE OR REPLACE FUNCTION {schema}.send(queue text, unit text, fence integer, delay double precision)
RETURNS void LANGUAGE sql SET search_path = {schema}, pg_catalog AS $$
    SELECT procrastinate_defer_jobs_v1(ARRAY[ROW(
        queue, 'kairo.unit', 0, NULL, NULL, jsonb_build_object('unit', unit, 'fence', fence),
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

    def __init__(self, url: str, intervals: Intervals | None = None) -> None:
        check_database_url(url)
        self._url, schema = split_schema(url)
        self._schema = f"{schema}_procrastinate"
        self._intervals = intervals or Intervals()

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

    def send(self, connection: psycopg.Connection, queue: str, unit: str, fence: int, *, delay: float = 0.0) -> None:
        """Add a job in the connection's transaction."""
        connection.execute(self._sql(_SEND), {"queue": queue_key(queue), "unit": unit, "fence": fence, "delay": delay})

    @contextmanager
    def receiving(self, process: str, queues: Sequence[str], concurrency: int, take: Take) -> Generator[Receiver]:
        """Run workers of procrastinate in a thread; a process may have any number of receivers."""
        receiver = _Receiver(
            self._url, self._schema, self._intervals, [queue_key(queue) for queue in queues], concurrency, take
        )
        thread = threading.Thread(target=receiver.run, name=f"kairo delivery {process}", daemon=True)
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


class _Receiver:
    """Workers of procrastinate, one after the other: a new one starts when one has lost its connection."""

    def __init__(
        self, url: str, schema: str, intervals: Intervals, queues: list[str], concurrency: int, take: Take
    ) -> None:
        self._url, self._schema, self._intervals, self._queues = url, schema, intervals, queues
        self._concurrency, self._take = concurrency, take
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()
        self._stopping = asyncio.Event()
        self._working: dict[int, int | None] = {}
        """Jobs under way, each with the id of its worker."""

    def stop(self) -> None:
        self._stopped.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stopping.set)

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
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
        connector = _Connector(self._url, self._schema, self._intervals, lost, self._stopping)
        app = procrastinate.App(connector=connector)
        app.task(name=TASK, pass_context=True)(self._deliver)
        with suppress(ConnectorException, psycopg.OperationalError, psycopg_pool.PoolTimeout, asyncio.CancelledError):
            async with app.open_async(), self._alive(app):
                opened.set()
                await app.run_worker_async(
                    queues=self._queues,
                    concurrency=self._concurrency,
                    fetch_job_polling_interval=self._intervals.poll,
                    update_heartbeat_interval=self._intervals.late / 4,
                    stalled_worker_timeout=self._intervals.late,
                    # A job that failed is sent again as a new job, so the old row has no use.
                    delete_jobs=DeleteJobCondition.ALWAYS.value,
                    # The thread is not the main thread, and signals belong to the command that runs the worker.
                    install_signal_handlers=False,
                )

    @asynccontextmanager
    async def _alive(self, app: procrastinate.App) -> AsyncGenerator[None]:
        """Send a worker's heartbeat while it finishes its jobs."""
        # Procrastinate sends no heartbeat after a worker is stopped.

        async def give() -> None:
            while True:
                await asyncio.sleep(self._intervals.late / 4)
                for worker in {one for one in self._working.values() if one is not None}:
                    await app.job_manager.update_heartbeat(worker)

        giving = asyncio.create_task(give())
        try:
            yield
        finally:
            giving.cancel()
            # A heartbeat in the middle of its query must end before the pool closes.
            await asyncio.wait([giving])

    async def _deliver(self, context: procrastinate.JobContext, unit: str, fence: int) -> None:
        """Work on a job until its future is done; resend it if it failed or the receiver is full."""
        job = context.job
        assert job.id is not None
        # The receiver can be full while a worker that lost its connection finishes its jobs.
        if len(self._working) >= self._concurrency:
            await self._send_again(context, self._intervals.poll)
            return
        self._working[job.id] = job.worker_id
        try:
            if not await _made(self._take, unit, fence):
                await self._send_again(context, self._intervals.again)
        finally:
            del self._working[job.id]

    async def _send_again(self, context: procrastinate.JobContext, delay: float) -> None:
        job = context.job
        await context.app.connector.execute_query_async(
            _SEND_AGAIN, queue=job.queue, unit=job.task_kwargs["unit"], fence=job.task_kwargs["fence"], delay=delay
        )


async def _made(take: Take, unit: str, fence: int) -> bool:
    """Begin the work on a unit and wait for its end; return whether it succeeded."""
    try:
        future = take(unit, fence)
    except Exception:  # noqa: BLE001 - the code that works on the unit reports its errors
        return False
    await asyncio.gather(asyncio.wrap_future(future), return_exceptions=True)
    return not future.cancelled() and future.exception() is None


class _Connector(procrastinate.PsycopgConnector):
    """Connections in our schema. A query without a reply is repeated until the database answers or the receiver ends.

    A fetch of a job is not repeated; its failure ends the worker.
    """

    def __init__(
        self, url: str, schema: str, intervals: Intervals, lost: asyncio.Event, stopping: asyncio.Event
    ) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType] - its hooks for JSON have no types
            conninfo=url,
            configure=partial(_configure, schema),
            min_size=1,
            max_size=4,
            timeout=max(intervals.poll, 2.0),
        )
        self._intervals, self._lost, self._stopping = intervals, lost, stopping
        self._end = math.inf
        """The time after which no query is repeated: `late` seconds after the first one that fails after `stop`."""

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        ask = super().execute_query_async
        await self._insist(lambda: ask(query, **arguments))

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
        listen = super().listen_notify
        await self._insist(lambda: listen(on_notification, channels))

    async def _insist(self, ask: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await _cancellable(ask())
            except ConnectorException as error:
                if self._stopping.is_set():
                    self._end = min(self._end, time.monotonic() + self._intervals.late)
                if time.monotonic() >= self._end or not isinstance(error.__cause__, psycopg.OperationalError):
                    raise
                await asyncio.sleep(self._intervals.poll)
            else:
                self._end = math.inf
                return


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
    await connection.commit()
