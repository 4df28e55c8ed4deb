"""Weights that are far apart, and other shares of a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.testing import EventRecorder

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
WEIGHTS = st.lists(
    st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False), min_size=1, max_size=8
)


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    with context.governor.reserve(tokens=1) as hold:
        await anyio.sleep(1)
        hold.settle(prompt_tokens=1)
    return "[1, 2]" if assignment.task.id == "list" else "made"


async def run(tasks: Sequence[kt.Task]) -> tuple[kt.TeamResult, dict[str, int | None]]:
    """Run a plan with 1,000 tokens; return what each task was guaranteed."""
    recorder = EventRecorder()
    member = kt.Member("m", work, max_concurrency=None)
    team = kt.Team("team", [member], runtime=kt.Runtime(subscribers=[recorder]))
    settings = kt.TeamConfig(
        kt.Budget(tokens=1_000), budget_policy=kt.BudgetPolicy(reserve=0.0, expect=kt.Budget(tokens=1))
    )
    request = kt.TeamExecutionRequest("Do all.", plan=kt.TaskGraph(tasks), config=settings)
    result = await ONCE.execute(request, team)
    carved = {one.task_id: one.tokens for one in recorder.of(events.BudgetCarved) if one.task_id is not None}
    return result, carved


@given(WEIGHTS)
@example([1e16, 1.0])
@example([1.0, 1e16])
@example([1e16, *[1.0] * 7])
@example([5e-324, 1.7e308, 1.7e308, 5e-324])
@settings(max_examples=settings().max_examples // 2)
async def test_third_o55_whatever_their_weights_all_tasks_are_done(weights: list[float]) -> None:
    tasks = [kt.Task(f"t{number}", "Do it.", weight=weight) for number, weight in enumerate(weights)]
    result, carved = await run(tasks)
    assert result.status == "completed", result.error
    assert all(tokens is None or 0 < tokens <= 1_000 for tokens in carved.values())
    assert not kt.check(kt.Team("team", [kt.Member("m", work)]), "Do all.", plan=kt.TaskGraph(tasks)).problems


async def test_third_o55_what_a_heavy_task_leaves_is_divided_among_the_light_ones() -> None:
    tasks = [kt.Task("heavy", "Do it.", weight=1e16, budget=kt.Budget(tokens=200))]
    tasks += [kt.Task(f"light{number}", "Do it.") for number in range(8)]
    _, carved = await run(tasks)
    light = [tokens for name, tokens in carved.items() if name.startswith("light")]
    assert light == [pytest.approx(100, abs=1)] * 8


@pytest.mark.parametrize("weight", [1e16, 1e-300, 5e-324, 1.7e308])
async def test_third_o55_what_grows_out_of_a_map_or_a_loop_has_a_weight_too(weight: float) -> None:
    until = {"from": "write", "contains": "made"}
    body = [kt.Task("write", "Do it.", weight=1.7e308), kt.Task("read", "Do it.", weight=5e-324)]
    tasks = [
        kt.Task("list", "List it."),
        kt.Task(
            "map", "Do it.", depends_on=["list"], over="list", max_items=4, weight=weight, budget=kt.Budget(tokens=300)
        ),
        kt.Task("loop", "Do it.", loop=kt.Loop(body, until, max_rounds=2), weight=weight),
        kt.Task("last", "Do it.", depends_on=["map", "loop"], weight=1.0),
    ]
    result, _ = await run(tasks)
    assert result.status in ("completed", "degraded"), result.error
    assert "float" not in (result.error or "")
    assert math.isfinite(weight)
