"""How much longer a run takes than its critical path, or, with few slots, than its work shared by them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from statistics import median

import kairo_team as kt
from benchmarks.table import Row
from kairo_team.coordinators import TaskDispatchCoordinator

LAYERS, WIDTH, FAN_IN = 8, 12, 3
MEAN_SECONDS = 0.15
SIGMA = 0.8
SEED = 20
REPEATS = 3
MOST = 1.02
SLOTS = (2, 4, 8)
MOST_WITH_SLOTS = 1.10


def sleepy_plan(chance: random.Random) -> tuple[kt.TaskGraph, dict[str, float]]:
    """Make a layered graph, and seconds of log-normal sleep for each task."""
    plan: list[kt.Task] = []
    seconds: dict[str, float] = {}
    for layer in range(LAYERS):
        for place in range(WIDTH):
            name = f"t{layer}-{place}"
            before = [f"t{layer - 1}-{other}" for other in chance.sample(range(WIDTH), FAN_IN)] if layer else []
            plan.append(kt.Task(name, "Sleep.", depends_on=before))
            seconds[name] = MEAN_SECONDS * chance.lognormvariate(-SIGMA * SIGMA / 2, SIGMA)
    return kt.TaskGraph(plan), seconds


def critical_path(plan: kt.TaskGraph, seconds: Mapping[str, float]) -> float:
    """Add up the longest chain of sleeps; plan order has every dependency first."""
    ends: dict[str, float] = {}
    for task in plan.tasks:
        ends[task.id] = seconds[task.id] + max((ends[before] for before in task.depends_on), default=0.0)
    return max(ends.values())


async def sleep_through(plan: kt.TaskGraph, seconds: Mapping[str, float], slots: int | None) -> float:
    """Run the plan in this many slots, and return the seconds it took; None is no limit."""

    async def sleeper(assignment: kt.Assignment) -> str:
        await asyncio.sleep(seconds[assignment.task.id])
        return "slept"

    team = kt.Team("sleepers", [kt.Member("sleeper", sleeper)])
    config = kt.TeamConfig(max_parallel_tasks=slots)
    began = time.perf_counter()
    (await TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("Sleep.", plan=plan, config=config), team)).check()
    return time.perf_counter() - began


def measure() -> list[Row]:
    """Measure without a cap, and then with each number of slots; those runs mostly sleep, and do so side by side."""
    plan, seconds = sleepy_plan(random.Random(SEED))  # noqa: S311 - repeatable, no secret
    path, work = critical_path(plan, seconds), sum(seconds.values())
    free = median(asyncio.run(sleep_through(plan, seconds, None)) for _ in range(REPEATS))
    note = f"{free:.3f} s, critical path {path:.3f} s"
    rows = [Row(f"makespan of {len(plan)} sleeping tasks, against the critical path", free / path, MOST, note)]

    async def side_by_side() -> list[float]:
        return await asyncio.gather(*(sleep_through(plan, seconds, slots) for slots in SLOTS))

    rounds = [asyncio.run(side_by_side()) for _ in range(REPEATS)]
    for slots, taken in zip(SLOTS, map(median, zip(*rounds, strict=True)), strict=True):
        bound = max(path, work / slots)
        note = f"{taken:.3f} s, bound {bound:.3f} s"
        rows.append(Row(f"makespan in {slots} slots, against the bound", taken / bound, MOST_WITH_SLOTS, note))
    return rows
