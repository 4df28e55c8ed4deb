"""Who waits for a top-up is served before what has not begun."""

from __future__ import annotations

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.events import BudgetToppedUp
from kairo_team.testing import EventRecorder

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))


@pytest.mark.parametrize("turn", range(8))  # trio shuffles those that are woken together
@pytest.mark.parametrize("slots", [2, None])
@pytest.mark.parametrize("asks_after", [0.0, 2.0])
async def test_third_o55_who_waits_for_a_top_up_is_served_before_tasks_that_begin_later(
    slots: int | None, asks_after: float, turn: int
) -> None:
    """Each of the later tasks takes all that the one before it gave back."""
    recorder = EventRecorder()
    began = anyio.current_time()
    tries: list[float] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "short":
            tries.append(anyio.current_time() - began)
            await anyio.sleep(asks_after)
            with context.governor.reserve(tokens=60) as hold:
                hold.settle(prompt_tokens=60)
            return "paid"
        with context.governor.reserve(tokens=50) as hold:
            await anyio.sleep(5)
            hold.release()
        return "slept"

    later = [
        kt.Task(f"later-{n}", "do", depends_on=[f"later-{n - 1}" if n else "first"], weight=10.0 ** (8 - 2 * n))
        for n in range(4)
    ]
    plan = kt.TaskGraph([kt.Task("first", "do"), kt.Task("short", "do"), *later])
    team = kt.Team("team", [kt.Member("m", work, max_concurrency=None)], runtime=kt.Runtime(subscribers=[recorder]))
    policy = kt.BudgetPolicy(reserve=0.0, expect=kt.Budget(tokens=10))
    config = kt.TeamConfig(kt.Budget(tokens=100), budget_policy=policy, max_parallel_tasks=slots)
    result = await ONCE.execute(kt.TeamExecutionRequest("goal", plan=plan, config=config), team)
    assert result["short"].status is kt.TaskStatus.COMPLETED, result["short"]
    assert tries == [0, 5], turn
    recorder.assert_lawful()


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("turn", range(4))
async def test_third_o55_those_that_wait_for_a_top_up_together_pay_in_turn_and_never_twice(
    count: int, turn: int
) -> None:
    """Each lacks what only one of them can have: it gets that, gives it back, and the next one is woken."""
    recorder = EventRecorder()
    at_once: list[int] = []

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        if assignment.task.id == "first":
            with context.governor.reserve(tokens=60) as hold:
                await anyio.sleep(5)
                hold.release()
            return "slept"
        await anyio.sleep(1)
        with context.governor.reserve(tokens=60) as hold:
            at_once.append(1)
            assert len(at_once) == 1
            await anyio.sleep(3)
            at_once.clear()
            hold.settle(prompt_tokens=1)
        return "paid"

    plan = kt.TaskGraph([kt.Task("first", "do", weight=20), *(kt.Task(f"short-{n}", "do") for n in range(count))])
    team = kt.Team("team", [kt.Member("m", work, max_concurrency=None)], runtime=kt.Runtime(subscribers=[recorder]))
    policy = kt.BudgetPolicy(reserve=0.0, expect=kt.Budget(tokens=1))
    config = kt.TeamConfig(kt.Budget(tokens=100), budget_policy=policy)
    with anyio.fail_after(100):
        result = await ONCE.execute(kt.TeamExecutionRequest("goal", plan=plan, config=config), team)
    assert {one.status for one in result.outcomes} == {kt.TaskStatus.COMPLETED}, (result.outcomes, turn)
    assert sorted(one.task_id or "" for one in recorder.of(BudgetToppedUp)) == [f"short-{n}" for n in range(count)]
    recorder.assert_lawful()
