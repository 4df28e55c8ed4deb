"""How much longer a run takes than its critical path."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import median

import kairo_team as kt
from benchmarks.table import Row
from kairo_team.coordinators import TaskDispatchCoordinator

LAYERS, WIDTH, FAN_IN = 8, 12, 3
MEAN_SECONDS = 0.15
SIGMA = 0.8
SEED = 20
REPEATS = 3
MOST = 1.03


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


def critical_path(plan: kt.TaskGraph, seconds: dict[str, float]) -> float:
    """Add up the longest chain of sleeps; plan order has every dependency first."""
    ends: dict[str, float] = {}
    for task in plan.tasks:
        ends[task.id] = seconds[task.id] + max((ends[before] for before in task.depends_on), default=0.0)
    return max(ends.values())


def measure() -> list[Row]:
    """Measure the makespan against the critical path."""
    plan, seconds = sleepy_plan(random.Random(SEED))  # noqa: S311 - repeatable, no secret

    async def sleeper(assignment: kt.Assignment) -> str:
        await asyncio.sleep(seconds[assignment.task.id])
        return "slept"

    team = kt.Team("sleepers", [kt.Member("sleeper", sleeper)])
    path = critical_path(plan, seconds)
    taken: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        asyncio.run(TaskDispatchCoordinator().execute(kt.TeamExecutionRequest("Sleep.", plan=plan), team)).check()
        taken.append(time.perf_counter() - began)
    note = f"{median(taken):.3f} s, critical path {path:.3f} s"
    return [Row(f"makespan of {len(plan)} sleeping tasks, against the critical path", median(taken) / path, MOST, note)]
