"""What several workers bring, and what a task over a database costs: `python -m benchmarks.machines`.

The workers are processes on this machine, over a PostgreSQL server that the program starts. Their tasks wait, as calls
of models do, so that a machine with two processors can show what more workers bring. Each figure is a ratio of one
sitting, but for bytes and rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from uuid import uuid4

import anyio

import kairo_team as kt
from benchmarks.table import silence_runs
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import ENGINES
from kairo_team.cluster.worker import Worker
from kairo_team.testing import FunctionModel
from kairo_team.testing.postgres_server import postgres_server

PAUSES: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
"""Seconds that the calls of the tasks take, in turn."""
TASKS: Final = 96
CONCURRENCY: Final = 4
"""Attempts at once, of each worker."""
WARM: Final = 48
"""Tasks before what is measured: every worker makes some, and has loaded what it needs then."""
SMALL: Final = 1_000
"""Tasks with a call of a millisecond each."""
MANY: Final = 10_000
"""As many of them that what the coordinator takes for each is seen to grow, if it does."""
RUNS: Final = 100
LEAST: Final = {2: 1.8, 4: 3.2}
"""By the number of workers: how many times faster they are than one."""
MOST_TASK: Final = 8.0
"""Milliseconds of wall clock that a small task costs more than in a local recorded run."""
PROMPT: Final = "Explain how the moon pulls the sea, and why. " * 45
REPLY: Final = "The moon pulls the near side of the sea more. " * 65


async def _answer(request: kt.ModelRequest) -> str:
    await anyio.sleep(float(request.messages[-1].text.partition(" ")[0]))
    return f"{uuid4()}: {REPLY}"  # a text that a journal has already costs less


async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Make one call, of the seconds that the task says."""
    prompt = f"{assignment.task.inputs['seconds']} {PROMPT}"
    return (await context.model("m:x").complete(kt.ModelRequest([kt.Message.user(prompt)], max_tokens=2_000))).text


def desk() -> kt.Team:
    """Return the team, as every process has it."""
    return kt.Team("desk", [kt.Member("clerk", ask)], runtime=kt.Runtime(models={"m:x": FunctionModel(_answer)}))


def request(seconds: Sequence[float], name: str) -> kt.TeamExecutionRequest:
    """Return a run of one task for each of these calls."""
    tasks = [kt.Task(f"t{n}", "Do it.", member="clerk", inputs={"seconds": one}) for n, one in enumerate(seconds)]
    config = kt.TeamConfig(budget=kt.Budget(tokens=1_000_000_000))
    return kt.TeamExecutionRequest("Go.", plan=kt.TaskGraph(tasks), config=config, run_id=name)


@contextmanager
def workers(url: str, engine: str, count: int, concurrency: int) -> Generator[None]:
    """Let worker processes work, for the block."""
    command = [sys.executable, "-m", "benchmarks.machines", "--engine", engine, "--work", str(concurrency)]
    environment = {**os.environ, "KAIRO_DATABASE": url}
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(count)]  # noqa: S603 - its own program
    try:
        for one in running:
            assert one.stdout is not None
            one.stdout.readline()  # it is ready
        yield
    finally:
        for one in running:
            one.terminate()
        for one in running:
            one.wait()


async def _work(engine: Any, concurrency: int) -> None:
    cluster = Cluster(os.environ["KAIRO_DATABASE"], engine=engine)
    worker = Worker(cluster, desk(), concurrency=concurrency)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        await worker.wait_ready()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        with anyio.open_signal_receiver(15) as signals:
            async for _ in signals:
                worker.stop()
                break
    cluster.close()


class Took(NamedTuple):
    """What runs took, in seconds."""

    wall: float
    processor: float
    """Of the process that coordinated them."""


def coordinated(url: str, engine: Any, seconds: Sequence[float], runs: int = 1) -> Took:
    """Return what runs of these calls take, all at once, with whatever workers there are."""

    async def main() -> Took:
        cluster = Cluster(url, engine=engine)
        team = desk()
        runtime = kt.Runtime(engine=cluster)
        here = kt.Team(team.name, team.members)
        name = f"r{time.time_ns()}"
        await kt.run(here, request([0.05] * WARM, f"{name}-first"), runtime=runtime)
        begun, used = time.perf_counter(), time.process_time()
        async with anyio.create_task_group() as group:
            for number in range(runs):
                group.start_soon(partial(_run, here, request(seconds, f"{name}-{number}"), runtime))
        took = Took(time.perf_counter() - begun, time.process_time() - used)
        cluster.close()
        return took

    return anyio.run(main)


async def _run(team: kt.Team, given: kt.TeamExecutionRequest, runtime: kt.Runtime) -> None:
    result = await kt.run(team, given, runtime=runtime)
    assert result.status is kt.TeamStatus.COMPLETED, result.error


def local(seconds: Sequence[float]) -> float:
    """Return how long the same run takes in one process, recorded in a file."""
    with TemporaryDirectory() as folder:
        team = desk()
        runtime = kt.Runtime(models={"m:x": FunctionModel(_answer)}, journal=kt.SqliteJournal(f"{folder}/runs.db"))
        here = kt.Team(team.name, team.members)
        anyio.run(partial(kt.run, here, request(seconds[:1], "first"), runtime=runtime))
        begun = time.perf_counter()
        anyio.run(partial(_run, here, request(seconds, "all"), runtime))
        return time.perf_counter() - begun


def size(url: str) -> tuple[int, int]:
    """Return the rows and bytes of a database's tables."""
    import psycopg

    sql = (
        "SELECT sum(n_live_tup), sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
        " WHERE schemaname = 'kairo' AND relname IN ('run', 'step', 'call', 'event', 'unit', 'message')"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")
        found = connection.execute(sql).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def measure(engine: Any, repeats: int) -> list[tuple[str, str, str]]:
    """Measure everything with one engine; return what, the figure, and what it should be."""
    calls = [PAUSES[n % len(PAUSES)] for n in range(TASKS)]
    rows: list[tuple[str, str, str]] = []
    with ExitStack() as stack:
        server = stack.enter_context(postgres_server(settings={"fsync": "on"}))
        url = server.new_database()
        took: dict[int, list[float]] = {}
        for _ in range(repeats):
            for count in (1, 2, 4):
                with workers(url, engine, count, CONCURRENCY):
                    took.setdefault(count, []).append(coordinated(url, engine, calls).wall)
        for count, least in LEAST.items():
            ratio = median(one / many for one, many in zip(took[1], took[count], strict=True))
            rows.append((f"{count} workers against one, {TASKS} tasks", f"{ratio:.2f} x", f">= {least:g}"))
        small = [0.001] * SMALL
        with workers(url, engine, 2, 32):
            before = size(url)
            made = [coordinated(url, engine, small) for _ in range(repeats)]
            extra = [1000 * (one.wall - local(small)) / SMALL for one in made]
            after = size(url)
            share = median(one.processor for one in made) / SMALL
            many = coordinated(url, engine, [0.001] * MANY).processor / MANY
            rows.append(
                (
                    f"a task more than in a local recorded run, {SMALL:,} tasks",
                    f"{median(extra):.1f} ms",
                    f"<= {MOST_TASK:g}",
                )
            )
            rows.append(("processor time of the coordinator, a task", f"{1000 * share:.1f} ms", ""))
            rows.append((f"the same of {MANY:,} tasks against {SMALL:,}", f"{many / share:.2f} x", ""))
            tasks = repeats * (SMALL + WARM)
            rows.append(("rows that stay, a task", f"{(after[0] - before[0]) / tasks:.1f}", ""))
            rows.append(("bytes that stay, a task (reply of 3 kB)", f"{(after[1] - before[1]) / tasks:,.0f}", ""))
        with workers(url, engine, 4, 16):
            took_all = coordinated(url, engine, [0.1] * 8, RUNS).wall
            rows.append((f"{RUNS} runs of 8 tasks at once on 4 workers", f"{took_all:.1f} s", ""))
    return rows


def main() -> None:
    """Measure each engine, or work for a measurement."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machines")
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    silence_runs()
    if given.work:
        anyio.run(_work, given.engine, given.work)
        return
    for engine in ENGINES if given.engine is None else (given.engine,):
        sys.stdout.write(f"\n{engine}\n")
        for what, figure, goal in measure(engine, given.repeats):
            sys.stdout.write(f"  {what:60} {figure:>12}  {goal}\n")


if __name__ == "__main__":
    main()
