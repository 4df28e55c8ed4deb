"""The cost of stopping a run with thousands of tasks in flight: how late it ends, and the cost of each task."""

from __future__ import annotations

import asyncio
from typing import Final

import anyio

import kairo_team as kt
from benchmarks.table import Row, compare
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.testing import run_in_virtual_time

FEW: Final = 500
MANY: Final = 5_000
SECONDS: Final = 2.0
REPEATS: Final = 3
LATE: Final = 1.0
"""Seconds beyond the deadline and the grace that a run may take to end."""
GROWTH: Final = 1.5


async def sleep(_assignment: kt.Assignment, _context: kt.MemberContext) -> str:
    """Stay in flight."""
    await anyio.sleep_forever()
    return ""


async def run_to_the_deadline(tasks: int) -> float:
    """Run so many tasks at once until their deadline; return by how many seconds the run ended later."""
    plan = kt.TaskGraph([kt.Task(f"task-{number}", "Sleep.") for number in range(tasks)])
    config = kt.TeamConfig(budget=kt.Budget(seconds=SECONDS), max_parallel_tasks=tasks)
    team = kt.Team("sleepers", [kt.Member("sleeper", sleep, max_concurrency=tasks)])
    request = kt.TeamExecutionRequest("Sleep.", plan=plan, config=config)
    result = await kt.run(team, request, coordinator=TaskDispatchCoordinator())
    if result.status is not kt.TeamStatus.TIMEOUT:
        raise AssertionError(f"the run ended {result.status}: {result.error}")
    return result.duration - SECONDS


def _few() -> None:
    for _ in range(MANY // FEW):
        run_in_virtual_time(run_to_the_deadline, FEW)


def _many() -> None:
    run_in_virtual_time(run_to_the_deadline, MANY)


def measure() -> list[Row]:
    """Measure how late a run of many ends in real time, and how much more a task of many costs than one of few."""
    late = asyncio.run(run_to_the_deadline(MANY))
    timings = compare({"few": _few, "many": _many}, REPEATS)
    each = timings["many"].seconds / MANY * 1e6
    return [
        Row(
            f"{MANY:,} tasks in flight at a deadline of {SECONDS:g} s, late by",
            late,
            kt.TeamConfig().cancel_grace + LATE,
            unit="s",
        ),
        Row(
            f"growth per task stopped, {MANY:,} against {FEW:,}",
            timings["many"].ratio,
            GROWTH,
            f"{each:.0f} us a task, start to end",
        ),
    ]
