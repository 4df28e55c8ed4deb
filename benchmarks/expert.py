"""The cost of plan, generate and review for each task, when agents return at once.

The unit is that of `benchmarks.overhead`: a bare gather of the same coroutines, for each task. An instant planner makes
the plan, the agent of that benchmark generates, an instant strategy reviews; the cost of the run is divided by its
tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import kairo_team as kt
from benchmarks.overhead import gather_bare, layered_plan, nothing
from benchmarks.table import Row, compare
from kairo_team.coordinators import ExpertTeamCoordinator

SIZES = {1: None, 1_000: 40.0}
"""Tasks of a run, and the limit; a run of one task pays for the whole run, so it is there to be known."""
REPEATS = 21
TOGETHER = {1: 200, 1_000: 1}
"""How often each is done before the clock is looked at."""


class Ready:
    """A planner that has its plan."""

    def __init__(self, plan: kt.TaskGraph) -> None:
        self._plan = plan

    async def plan(self, _request: kt.TeamExecutionRequest, _team: kt.Team, _context: kt.MemberContext) -> kt.TaskGraph:
        """Return it."""
        return self._plan


class Content:
    """A strategy that passes everything."""

    async def evaluate(self, _context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        """Pass the artifact."""
        return kt.EvaluationVerdict.passed(1.0)


async def run_expert_team(coordinator: ExpertTeamCoordinator, team: kt.Team, times: int) -> None:
    """Plan, generate and review, so many times, under a budget."""
    budget = kt.Budget(tokens=10_000_000, dollars=1_000, loops=1_000_000)
    for _ in range(times):
        request = kt.TeamExecutionRequest("Do nothing.", config=kt.TeamConfig(budget=budget))
        (await coordinator.execute(request, team)).check()


def measure() -> list[Row]:
    """Measure a run of a thousand tasks, and one of a single task."""
    return [_row(tasks, limit) for tasks, limit in SIZES.items()]


def _row(tasks: int, limit: float | None) -> Row:
    times = TOGETHER[tasks]
    plan = layered_plan(tasks) if tasks > 1 else kt.TaskGraph([kt.Task("t0", "Do nothing.")])
    coordinator = ExpertTeamCoordinator(planner=Ready(plan), evaluator=Content())
    team = kt.Team("idlers", [kt.Member("idler", nothing)])

    def expert() -> None:
        asyncio.run(run_expert_team(coordinator, team, times))

    works: dict[str, Callable[[], object]] = {"bare": partial(gather_bare, 1_000), "expert": expert}
    timings = compare(works, REPEATS)
    cost = timings["expert"].seconds / tasks / times
    ratio = timings["expert"].ratio / tasks / times * 1_000
    what = f"plan, generate and review: a task of {tasks:,}" if tasks > 1 else "plan, generate and review: a run of one"
    return Row(what, ratio, limit, f"{cost * 1e6:.1f} us a task")
