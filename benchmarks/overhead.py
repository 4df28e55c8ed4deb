"""What a run costs for each task that does nothing, against a bare gather of the same coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import kairo_team as kt
from benchmarks.table import Row, compare
from kairo_team.coordinators import TaskDispatchCoordinator

SIZES = {1_000: 31, 20_000: 5}
"""Tasks of a run, and how often it is repeated."""
LAYERS = 10
FAN_IN = 3
MOST = 12.0
MOST_GROWTH = 1.5


async def nothing(_assignment: kt.Assignment | None) -> str:
    """Do nothing: this is the agent, and the bare coroutine."""
    return "done"


def look_away(_event: kt.events.Event) -> None:
    """Subscribe, and do nothing."""


def layered_plan(tasks: int) -> kt.TaskGraph:
    """Make a graph of `LAYERS` layers; every task but those of the first depends on `FAN_IN` of the layer before."""
    width = tasks // LAYERS
    plan: list[kt.Task] = []
    for number in range(tasks):
        layer, place = divmod(number, width)
        before = [f"t{(layer - 1) * width + (place + step) % width}" for step in range(FAN_IN)] if layer else []
        plan.append(kt.Task(f"t{number}", "Do nothing.", depends_on=before))
    return kt.TaskGraph(plan)


def gather_bare(tasks: int) -> None:
    """Gather the same coroutines with nothing around them."""

    async def main() -> None:
        await asyncio.gather(*(nothing(None) for _ in range(tasks)))

    asyncio.run(main())


def run_team(team: kt.Team, plan: kt.TaskGraph) -> None:
    """Run the plan as a task board, everything limited that can be."""
    budget = kt.Budget(tokens=10_000_000, dollars=1_000, loops=1_000_000)
    request = kt.TeamExecutionRequest("Do nothing.", plan=plan, config=kt.TeamConfig(budget=budget))
    result = asyncio.run(TaskDispatchCoordinator().execute(request, team))
    if result.status is not kt.TeamStatus.COMPLETED:
        raise RuntimeError(f"the benchmark's own run did not complete: {result.error}")


def measure() -> list[Row]:
    """Measure both sizes, without and with a subscriber, and how the cost of a task grows."""
    members = [kt.Member("idler", nothing)]
    quiet = kt.Team("idlers", members)
    watched = kt.Team("idlers", members, runtime=kt.Runtime(subscribers=[look_away]))
    rows: list[Row] = []
    each: dict[tuple[int, str], float] = {}
    for tasks, repeats in SIZES.items():
        plan = layered_plan(tasks)
        works: dict[str, Callable[[], object]] = {
            "bare gather": partial(gather_bare, tasks),
            "no subscriber": partial(run_team, quiet, plan),
            "one subscriber": partial(run_team, watched, plan),
        }
        times = compare(works, repeats)
        bare = times.pop("bare gather").seconds / tasks
        for name, timing in times.items():
            each[tasks, name] = timing.seconds / tasks
            note = f"{timing.seconds / tasks * 1e6:.1f} us a task, bare {bare * 1e6:.1f} us"
            rows.append(Row(f"{tasks:,} no-op tasks, {name}", timing.ratio, MOST, note))
    small, large = SIZES
    for name in ("no subscriber", "one subscriber"):
        growth = each[large, name] / each[small, name]
        rows.append(Row(f"growth per task, {large:,} against {small:,}, {name}", growth, MOST_GROWTH))
    return rows
