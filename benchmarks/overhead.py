"""What a run costs for each task whose agent waits for one turn of the event loop, against a bare gather of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import kairo_team as kt
from benchmarks.table import Row, compare
from kairo_team.coordinators import TaskDispatchCoordinator

SIZES = {1_000: 31, 20_000: 5, 100_000: 3}
"""Tasks of a run, and how often it is repeated."""
LAYERS = 10
FAN_IN = 3
MOST = {1_000: 12.0, 20_000: 12.0, 100_000: 16.0}
MOST_SUBSCRIBED = 12.0
GROWTH = (1_000, 20_000)
"""The sizes whose costs of a task are compared, also with a subscriber."""
MOST_GROWTH = 1.5


async def nothing(_assignment: kt.Assignment | None) -> str:
    """Let the event loop turn once, as whatever asks a model does: this is the agent, and the bare coroutine."""
    await asyncio.sleep(0)
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


def repeat(times: int, work: Callable[[], object]) -> None:
    """Do the same several times."""
    for _ in range(times):
        work()


def measure() -> list[Row]:
    """Measure every size, all but the largest with a subscriber too, and how the cost of a task grows."""
    members = [kt.Member("idler", nothing)]
    runtime = kt.Runtime(subscribers=[look_away])
    teams = {
        "no subscriber": kt.Team("idlers", members),
        "one subscriber": kt.Team("idlers", members, runtime=runtime),
    }
    plans = {tasks: layered_plan(tasks) for tasks in SIZES}
    rows = [row for tasks in SIZES for row in _against_bare(teams, tasks, plans[tasks])]
    return rows + [_growth(name, team, plans) for name, team in teams.items()]


def _against_bare(teams: Mapping[str, kt.Team], tasks: int, plan: kt.TaskGraph) -> list[Row]:
    works: dict[str, Callable[[], object]] = {"bare gather": partial(gather_bare, tasks)}
    watched = tasks in GROWTH
    works |= {name: partial(run_team, team, plan) for name, team in teams.items() if watched or not team.runtime}
    timings = compare(works, SIZES[tasks])
    bare = timings.pop("bare gather").seconds / tasks
    return [
        Row(
            f"{tasks:,} no-op tasks, {name}",
            timing.ratio,
            MOST_SUBSCRIBED if teams[name].runtime else MOST[tasks],
            f"{timing.seconds / tasks * 1e6:.1f} us a task, bare {bare * 1e6:.1f} us",
        )
        for name, timing in timings.items()
    ]


def _growth(name: str, team: kt.Team, plans: Mapping[int, kt.TaskGraph]) -> Row:
    """Compare a task of a large run with one of small runs that are timed beside it."""
    small, large = GROWTH
    together = 5
    works: dict[str, Callable[[], object]] = {
        "small": partial(repeat, together, partial(run_team, team, plans[small])),
        "large": partial(run_team, team, plans[large]),
    }
    growth = compare(works, SIZES[large])["large"].ratio * together * small / large
    return Row(f"growth per task, {large:,} against {small:,}, {name}", growth, MOST_GROWTH)
