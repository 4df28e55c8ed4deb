"""What others got wrong about budgets, where the governor alone can be asked: one test or more per row."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal

import anyio
import pytest

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.governance import Governor
from kairo_team.testing import FakeClock

pytestmark = pytest.mark.anyio


def halt_of(call: Callable[[], object]) -> HaltError:
    with pytest.raises(HaltError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("end", ["limit", "timeout", "kill"])
async def test_kf_b06_the_true_usage_is_there_whatever_ended_the_work(end: str) -> None:
    """B06: limit, timeout or kill: finished work and true usage lost."""
    team = Governor(Budget(tokens=100, seconds=5), name="team", clock=anyio.current_time)
    task = team.carve("task")
    done: list[str] = []
    with pytest.raises(HaltError) as caught:
        async with team.scope(), anyio.create_task_group() as group:
            with task.reserve(tokens=30) as hold:
                hold.settle(prompt_tokens=12, completion_tokens=8)
                done.append("first")
            if end == "limit":
                group.start_soon(anyio.sleep, 1)
                task.record_usage(prompt_tokens=80)
            with task.reserve(tokens=40):
                if end == "kill":
                    team.cancel()
                await anyio.sleep_forever()
    spent = {"limit": 100, "timeout": 60, "kill": 60}[end]
    assert done == ["first"]
    assert caught.value.usage.tokens == team.usage.tokens == team.tree().children[0].usage.tokens == spent
    assert team.held == Usage()


async def test_kf_b10_a_halt_keeps_its_type_and_its_data_on_its_way_out() -> None:
    """B10: the halt was swallowed by callbacks, event buses, or flattened to RuntimeError(str)."""
    team = Governor(Budget(tokens=10), name="team")

    async def agent() -> None:
        async with team.carve("agent").scope():
            team.record_usage(prompt_tokens=25)

    async def three_adapters_deep() -> None:
        async with (
            anyio.create_task_group() as group,
            team.carve("outer").scope(),
            anyio.create_task_group() as inner,
        ):
            inner.start_soon(agent)
            group.start_soon(anyio.sleep, 0)

    with pytest.raises(HaltError) as caught:
        async with team.scope():
            await three_adapters_deep()
    halt = caught.value
    assert (halt.reason, halt.origin, halt.usage.tokens) == (HaltReason.TOKEN_BUDGET_EXCEEDED, "team", 25)
    assert json.loads(json.dumps(halt.reason)) == "token_budget_exceeded"
    assert not isinstance(halt, RuntimeError | ExceptionGroup)


@pytest.mark.parametrize("ending", ["raises", "is cancelled", "says nothing", "closes"])
async def test_kf_b14_a_call_whose_outcome_is_unknown_is_charged(ending: str) -> None:
    """B14: a call in flight when everything ended left no trace."""
    team = Governor(Budget(tokens=100, dollars=1), name="team", clock=FakeClock())
    task = team.carve("task")
    with anyio.CancelScope() as scope:
        try:
            with await task.hold(tokens=40, dollars="0.25", tool_calls=1):
                if ending == "raises":
                    raise ConnectionError("the line died")
                if ending == "is cancelled":
                    scope.cancel()
                    await anyio.sleep_forever()
                if ending == "closes":
                    task.close()
        except ConnectionError:
            pass
    assert (team.usage, team.held) == (Usage(40, 0, Decimal("0.25"), tool_calls=1), Usage())


async def test_kf_b15_a_call_that_hangs_ends_at_the_deadline() -> None:
    """B15: "time limit 1 s" ended after 37 s because a call hung."""
    team = Governor(Budget(seconds=1, tokens=100), name="team", clock=anyio.current_time)
    begun = anyio.current_time()
    with pytest.raises(HaltError) as caught:
        async with team.carve("task", Budget(seconds=50)).scope():
            with team.reserve(tokens=30):
                await anyio.sleep(37)
    assert anyio.current_time() - begun == pytest.approx(1, abs=0.1)
    assert (caught.value.reason, caught.value.origin) == (HaltReason.TIME_BUDGET_EXCEEDED, "team")
    assert team.usage.tokens == 30


def test_kf_b16_two_runs_on_one_budget_object_share_nothing() -> None:
    """B16: a second `run()` on one object got a fresh budget, or shared a counter with another run."""
    limit = Budget(tokens=10, loops=1)
    one, other = (Governor(limit, name=name, clock=FakeClock()) for name in ("one", "other"))
    one.pre_step()
    one.reserve(tokens=10).settle(10)
    halt_of(one.can_proceed)
    other.pre_step()
    other.can_proceed()
    assert other.usage == Usage(loops=1)
    whole = Governor(limit, name="whole")
    first, second = whole.carve("first"), whole.carve("second")
    first.reserve(tokens=10).settle(10)
    assert halt_of(second.can_proceed).origin == "whole", "a second child of one budget is no second budget"


def test_kf_b17_a_reply_without_usage_is_charged_what_was_held() -> None:
    """B17: usage missing in a reply: the cap silently inactive."""
    team = Governor(Budget(tokens=100), name="team")
    calls = 0
    with pytest.raises(HaltError):
        while True:
            team.can_proceed()
            with team.reserve(tokens=25):
                calls += 1
    assert (calls, team.usage.tokens) == (4, 100)


def test_kf_b19_elapsed_follows_the_clock() -> None:
    """B19: elapsed always 0, so the timeout never fired."""
    clock = FakeClock(7.0)
    team = Governor(Budget(seconds=10), name="team", clock=clock)
    task = team.carve("task")
    clock.advance(4)
    assert (team.elapsed, task.usage.seconds, team.remaining.seconds) == (4, 4, 6)
    clock.advance(6)
    assert halt_of(task.can_proceed).reason is HaltReason.TIME_BUDGET_EXCEEDED


def test_kf_u01_shares_are_guarantees_and_the_pool_lends() -> None:
    """U01: fair shares as ceilings: twice the money needed, 130 of 200 documents refused."""
    needs = [10 + 170 * (number % 3 == 0) for number in range(200)]
    team = Governor(Budget(tokens=2 * sum(needs)), name="team")
    refused = 0
    for number, need in enumerate(needs):
        task, (guarantee, *_) = team.carve_share(f"document-{number}", None, 1 / (len(needs) - number), 0.1)
        assert guarantee >= 1
        try:
            task.reserve(tokens=need).settle(need)
        except InsufficientBudget:
            refused += 1
        task.close()
    assert (refused, team.usage.tokens) == (0, sum(needs))


async def test_kf_u01_shares_of_tasks_side_by_side_lend_too() -> None:
    """U01: also when all of them are open at once, and each holds twice what it needs."""
    needs = [10 + 170 * (number % 3 == 0) for number in range(200)]
    team = Governor(Budget(tokens=2 * sum(needs)), name="team")
    served = 0

    async def work(task: Governor, need: int) -> None:
        nonlocal served
        with await task.hold(tokens=2 * need, minimum=Budget(tokens=need)) as hold:
            await anyio.sleep(1)
            hold.settle(need)
        task.close()
        served += 1

    async with anyio.create_task_group() as group:
        for number, need in enumerate(needs):
            task, _ = team.carve_share(f"document-{number}", None, 1 / (len(needs) - number), 0.1)
            group.start_soon(work, task, need)
    assert (served, team.usage.tokens) == (200, sum(needs))
