"""What workers cost one PostgreSQL, and how soon work goes on after a fault: `python -m benchmarks.crowd`.

The workers are processes with real connections; their attempts wait, as calls of models do. All of them and the server
share this machine. The server counts connections and transactions; those of this program are left out.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess
from statistics import median
from typing import Any, Final

import anyio
import psycopg

from benchmarks.machines import coordinated, desk, request
from benchmarks.table import silence_runs
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import ENGINES, EngineName
from kairo_team.cluster.worker import Worker
from kairo_team.errors import JournalError
from kairo_team.recorded import ENDED
from kairo_team.testing.postgres_server import PostgresServer, postgres_server

CONCURRENCY: Final = 4
"""Attempts at once, of each worker."""
CALL: Final = 2.0
"""Seconds that a call takes when a fault happens."""
LONG: Final = 20.0
"""Seconds that a call takes while the load of workers is counted, as of a model that thinks."""
ROUNDS: Final = 3
"""While its load is counted, each worker has all its attempts, or half of them, this many times."""
SMALL: Final = 500
"""Tasks with a call of a millisecond, for the cost of a small task."""
REST: Final = 25.0
"""Seconds until idle workers have closed what they needed for their work."""
WINDOW: Final = 20.0
"""Seconds in which transactions of idle workers are counted."""
FOUR: Final = 4
"""Workers to which the faults happen."""
SETTINGS: Final = {"fsync": "on", "max_connections": "2500", "shared_buffers": "128MB", "autovacuum": "off"}
"""Of the server: its own transactions would be counted too."""
_REPORTED: Final = 1.5
"""Seconds until a session has reported its transactions."""
_CONNECTIONS: Final = (
    b"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_TRANSACTIONS: Final = b"SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
_CUT: Final = (
    b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    b" WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_HAS: Final = "SELECT pid FROM kairo.process JOIN kairo.unit ON process.id = unit.process WHERE unit.state = 'taken'"


def work(url: str, engine: EngineName, ready: Pipe) -> None:
    """Be a worker until SIGTERM, as `kairo worker` is; start again when the worker is lost."""
    silence_runs()
    logging.disable()  # faults are expected
    anyio.run(_work, url, engine, ready)


async def _work(url: str, engine: EngineName, ready: Pipe) -> None:
    async with anyio.create_task_group() as group:
        scope = group.cancel_scope

        async def end(worker: Worker) -> None:
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    worker.stop()

        async def tell(worker: Worker) -> None:
            await worker.wait_ready()
            with suppress(OSError):  # it was told before
                ready.send(None)
                ready.close()

        lost = True
        while lost:
            cluster = await _reach(partial(Cluster, url, engine=engine))
            worker = Worker(cluster, desk(), concurrency=CONCURRENCY)
            group.start_soon(end, worker)
            group.start_soon(tell, worker)
            await worker.run()
            lost = worker.lost is not None
            await anyio.to_thread.run_sync(cluster.close)
        scope.cancel()


async def _reach(connect: Callable[[], Cluster]) -> Cluster:
    while True:
        try:
            cluster = await anyio.to_thread.run_sync(connect)
            await anyio.to_thread.run_sync(cluster.start)
        except (JournalError, psycopg.Error):
            await anyio.sleep(0.2)
        else:
            return cluster


@contextmanager
def crowd(url: str, engine: EngineName, count: int) -> Generator[list[BaseProcess]]:
    """Let so many workers work for the block."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.machines", "kairo_team.cluster.procrastinate_delivery", "dbos"])
    processes: list[BaseProcess] = []
    pipes: list[Pipe] = []
    try:
        for _ in range(count):
            near, far = context.Pipe()
            process: BaseProcess = context.Process(target=work, args=(url, engine, far), daemon=True)
            process.start()
            processes.append(process)
            pipes.append(near)
        for pipe in pipes:
            pipe.recv()
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(60)
            process.kill()
            process.join()


@dataclass
class Load:
    """What workers cost."""

    workers: int
    connections: float
    """The median."""
    transactions: int
    seconds: float

    def __str__(self) -> str:
        each = self.transactions / self.seconds / self.workers
        return f"{self.connections / self.workers:.1f} connections, {each:.1f} transactions/s"


def counted(url: str, workers: int, begin: Callable[[], Callable[[], bool]], own: int = 1) -> Load:
    """Count from when `begin` is called until what it returns returns False.

    `own` transactions of each round are this program's.
    """
    with psycopg.connect(url, autocommit=True) as connection:
        time.sleep(_REPORTED)
        begun, before, connections = time.monotonic(), _number(connection, _TRANSACTIONS), list[int]()
        goes_on = begin()
        while goes_on():
            time.sleep(0.5)
            connections.append(_number(connection, _CONNECTIONS))
        time.sleep(_REPORTED)
        took = time.monotonic() - begun
        after = _number(connection, _TRANSACTIONS)
    mine = own * len(connections) + 1
    return Load(workers, median(connections), after - before - mine, took)


def _number(connection: psycopg.Connection[Any], sql: bytes) -> int:
    found = connection.execute(sql).fetchone()
    assert found is not None
    return int(found[0])


def submit(url: str, engine: EngineName, seconds: Sequence[float], at_once: int | None = None) -> str:
    """Submit a run of these calls, at most `at_once` at the same time; a worker coordinates it."""
    cluster = Cluster(url, engine=engine)
    asked = request(seconds, f"r{time.time_ns()}")
    asked = replace(asked, config=replace(asked.config, max_parallel_tasks=at_once))
    try:
        return cluster.submit(replace(desk(), runtime=None), asked)
    finally:
        cluster.close()


def has_ended(url: str, run_id: str) -> bool:
    """Return whether a run has ended; False while the database is away."""
    with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT state FROM kairo.run WHERE run_id = %s", (run_id,)).fetchone()
        return found is not None and found[0] in ENDED
    return False


def wait_for(url: str, run_id: str) -> float:
    """Wait for the end of a run; return the seconds that it took."""
    begun = time.monotonic()
    while not has_ended(url, run_id):
        time.sleep(0.05)
    return time.monotonic() - begun


def idle(url: str, workers: int) -> Load:
    """Return what workers cost that have worked and have nothing to do."""
    time.sleep(REST)
    end = time.monotonic() + WINDOW
    return counted(url, workers, lambda: lambda: time.monotonic() < end)


def busy(url: str, engine: EngineName, workers: int, call: float, share: float) -> str:
    """Say what workers cost that have this share of the attempts that they take, until all calls have ended."""
    at_once = max(1, int(share * CONCURRENCY * workers))
    # Not all calls end at the same moment, as they do not where workers are at work for longer.
    calls = [call * (0.75 + n % 11 / 20) for n in range(at_once * ROUNDS)]

    def begin() -> Callable[[], bool]:
        run_id = submit(url, engine, calls, at_once)
        return lambda: not has_ended(url, run_id)

    load = counted(url, workers, begin, own=2)
    took = (load.seconds - _REPORTED) / (sum(calls) / at_once)
    return f"{load}, {load.transactions / len(calls):.0f} a call; it takes {took:.2f} x as long as its calls alone"


def small(url: str, engine: EngineName) -> float:
    """Return the milliseconds that a small task takes, of a run of many at once."""
    return 1000 * coordinated(url, engine, [0.001] * SMALL).wall / SMALL


# ---------------------------------------------------------------------- faults


def _who(url: str, kind: str) -> int:
    """Return the number of a process that coordinates a run, or that only makes attempts."""
    runs = f"{_HAS} AND unit.kind = 'run'"
    sql = runs if kind == "run" else f"{_HAS} AND pid NOT IN ({runs}) LIMIT 1"
    with psycopg.connect(url, autocommit=True) as connection:
        while (found := connection.execute(sql.encode()).fetchone()) is None:  # it has not begun
            time.sleep(0.05)
    return int(found[0])


def _signal(number: signal.Signals, kind: str, _server: PostgresServer, url: str) -> None:
    os.kill(_who(url, kind), number)


def _cut(_server: PostgresServer, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_CUT)


def _restart(server: PostgresServer, _url: str) -> None:
    server.stop()
    server.start()


def _crash(server: PostgresServer, _url: str) -> None:
    server.kill()
    server.start()


FAULTS: Final[dict[str, Callable[[PostgresServer, str], None]]] = {
    "nothing": lambda _server, _url: None,
    "a worker is killed": partial(_signal, signal.SIGKILL, "attempt"),
    "a worker is stopped": partial(_signal, signal.SIGSTOP, "attempt"),
    "the coordinating worker is killed": partial(_signal, signal.SIGKILL, "run"),
    "all connections are cut": _cut,
    "PostgreSQL restarts": _restart,
    "PostgreSQL crashes": _crash,
}


def after(server: PostgresServer, engine: EngineName, fault: str) -> float:
    """Return the seconds that a run of two calls after the other takes, with a fault in its first one."""
    url = server.new_database()
    with crowd(url, engine, FOUR) as processes:
        run_id = submit(url, engine, [CALL] * (2 * FOUR * CONCURRENCY))
        time.sleep(CALL / 2)
        FAULTS[fault](server, url)
        took = wait_for(url, run_id) + CALL / 2
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid or 0, signal.SIGCONT)
    return took


def main() -> None:
    """Print a table for each engine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowd", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="may be repeated; default: both")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 10, 30, 100])
    parser.add_argument("--call", type=float, default=LONG, help="seconds that a call takes while workers are at work")
    parser.add_argument("--small", action="store_true", help="also measure small tasks")
    parser.add_argument("--faults", type=int, default=3, help="how often each fault happens")
    given = parser.parse_args()
    silence_runs()
    for engine in given.engine or ENGINES:
        _say(f"\n{engine}")
        with postgres_server(settings=SETTINGS) as server:
            for workers in given.workers:
                url = server.new_database()
                with crowd(url, engine, workers):
                    if given.small:
                        _say(f"  {workers} workers, a small task: {small(url, engine):.1f} ms")
                    for how, share in (("at work", 1.0), ("half at work", 0.5)):
                        _say(f"  {workers} workers, each {how}: {busy(url, engine, workers, given.call, share)}")
                    _say(f"  {workers} workers, each idle: {idle(url, workers)}")
            for fault in FAULTS if given.faults else ():
                took = sorted(after(server, engine, fault) for _ in range(given.faults))
                _say(f"  {fault}: {', '.join(f'{one:.1f}' for one in took)} s")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
