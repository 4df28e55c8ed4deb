"""`hold`: who waits, for what, in which order, and what ends the waiting."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget, KairoError
from kairo_team.governance import Governor, Reservation

pytestmark = pytest.mark.anyio

Hold = Callable[[], Awaitable[Reservation]]


class Callers:
    """Callers of `hold` in tasks of their own, and what became of them."""

    def __init__(self, group: TaskGroup) -> None:
        self.group = group
        self.got: dict[str, Reservation] = {}
        self.refused: dict[str, KairoError] = {}
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def call(self, name: str, hold: Hold) -> None:
        """Start a caller and let it come as far as it can."""
        self.group.start_soon(self._hold, name, hold)
        await settled()

    async def _hold(self, name: str, hold: Hold) -> None:
        with anyio.CancelScope() as self.scopes[name]:
            try:
                self.got[name] = await hold()
            except KairoError as error:
                self.refused[name] = error

    def settle(self, name: str, tokens: int) -> None:
        self.got[name].settle(prompt_tokens=tokens)


async def settled() -> None:
    """Let everything that can run, run; what was posted to the loop included."""
    for _ in range(5):
        await checkpoint()
    await anyio.sleep(0.002)


def elsewhere(call: Callable[[], Reservation]) -> Reservation:
    """Take a reservation that is not this caller's own."""
    return contextvars.copy_context().run(call)


async def test_an_uncontended_hold_does_not_suspend() -> None:
    governor = Governor(Budget(tokens=100))
    coroutine = governor.hold(tokens=100)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert governor.held.tokens == 100


async def test_kf_b01_spent_never_passes_the_limit_at_any_fan_out() -> None:
    """B01: check, call, record, nothing held in between: 16 parallel callers under 250 tokens spent 1600."""
    team = Governor(Budget(tokens=250), name="team")
    refused = 0

    async def caller(number: int) -> None:
        nonlocal refused
        agent = team.carve(f"agent-{number}")
        try:
            agent.can_proceed()
            with await agent.hold(tokens=100, minimum=Budget(tokens=100)) as hold:
                await checkpoint()
                assert team.held.tokens <= 250
                hold.settle(prompt_tokens=hold.tokens)
        except (HaltError, InsufficientBudget):
            refused += 1

    async with anyio.create_task_group() as group:
        for number in range(16):
            group.start_soon(caller, number)
    assert (team.status()[0].tokens, refused) == (200, 14)


async def test_kf_b18_a_call_waits_for_returns_before_it_is_refused() -> None:
    """B18: worst-case holds starved a budget with nothing spent."""
    team = Governor(Budget(tokens=100), name="team")

    async def caller() -> None:
        with await team.hold(tokens=80) as hold:
            await checkpoint()
            hold.settle(prompt_tokens=1)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(caller)
    assert (team.status()[0].tokens, team.halted) == (20, None)


async def test_waiters_are_served_in_the_order_they_came() -> None:
    team = Governor(Budget(tokens=100), name="team")
    first = elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("large", lambda: team.hold(tokens=80))
        await callers.call("middle", lambda: team.carve("task").hold(tokens=10))
        await callers.call("tiny", lambda: team.hold(tokens=1))
        assert not callers.got
        first.settle(prompt_tokens=15)
        await settled()
        assert set(callers.got) == {"large"}, "five are left, but middle came before tiny"
        await callers.call("late", lambda: team.hold(tokens=1))
        assert set(callers.got) == {"large"}
        callers.settle("large", 1)
        await settled()
        assert set(callers.got) == {"large", "middle", "tiny", "late"}
    assert team.status()[0].tokens == 16


async def test_one_return_serves_several_who_fit() -> None:
    team = Governor(Budget(tokens=100), name="team")
    first = elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        for number in range(5):
            await callers.call(str(number), lambda: team.hold(tokens=30))
        first.release()
        await settled()
        assert set(callers.got) == {"0", "1", "2"}
        callers.got["1"].release()
        await settled()
        assert set(callers.got) == {"0", "1", "2", "3"}
        callers.got["0"].release()


async def test_who_draws_on_its_own_guarantee_does_not_wait_behind_others() -> None:
    team = Governor(Budget(tokens=100), name="team")
    rich = team.carve("rich", guarantee=Budget(tokens=30))
    first = elsewhere(lambda: team.reserve(tokens=70))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("poor", lambda: team.hold(tokens=50))
        await callers.call("rich", lambda: rich.hold(tokens=30))
        assert set(callers.got) == {"rich"}
        first.release()


async def test_a_wait_in_one_place_does_not_hold_up_another() -> None:
    team = Governor(Budget(tokens=1000), name="team")
    narrow, wide = team.carve("narrow", Budget(tokens=10)), team.carve("wide", Budget(tokens=500))
    first = elsewhere(lambda: narrow.reserve(tokens=10))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("narrow", lambda: narrow.hold(tokens=10))
        await callers.call("wide", lambda: wide.hold(tokens=10))
        assert set(callers.got) == {"wide"}
        first.release()


async def test_the_wait_moves_on_to_the_next_place_that_binds() -> None:
    team = Governor(Budget(tokens=100), name="team")
    member = team.carve("member", Budget(tokens=60), guarantee=Budget())
    below = elsewhere(lambda: member.reserve(tokens=60))
    above = elsewhere(lambda: team.reserve(tokens=40))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: member.hold(tokens=50))
        below.settle(5)
        await settled()
        assert set(callers.got) == {"it"}
        callers.settle("it", 5)
        taker = elsewhere(lambda: team.reserve(tokens=40))
        await callers.call("next", lambda: member.hold(tokens=40))
        assert "next" not in callers.got
        above.settle(0)
        await settled()
        assert "next" in callers.got
        taker.release()


async def test_with_no_other_hold_open_it_takes_what_is_left_down_to_the_minimum() -> None:
    team = Governor(Budget(tokens=100, dollars=1), name="team")
    team.reserve(tokens=90).settle(90)
    with await team.hold(tokens=50, dollars="0.2", minimum=Usage(prompt_tokens=10)) as hold:
        assert (hold.tokens, hold.dollars) == (10, Decimal("0.2"))
        hold.settle(prompt_tokens=1)
    with pytest.raises(HaltError) as caught:
        await team.hold(tokens=50, minimum=Budget(tokens=10))
    assert caught.value.reason is HaltReason.TOKEN_BUDGET_EXCEEDED
    assert str(caught.value) == "'team' halted: token_budget_exceeded (spent 91 tokens; 10 tokens needed, 9 left)"


async def test_a_waiter_takes_what_is_left_when_the_last_other_hold_settles() -> None:
    team = Governor(Budget(tokens=100), name="team")
    first = elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: team.hold(tokens=100, minimum=Budget(tokens=20)))
        await callers.call("behind", lambda: team.hold(tokens=100, minimum=Budget(tokens=90)))
        first.settle(60)
        await settled()
        assert callers.got["it"].tokens == 40
        assert isinstance(callers.refused["behind"], HaltError), "90 will never fit again"


async def test_it_never_waits_for_what_others_were_guaranteed() -> None:
    team = Governor(Budget(tokens=100), name="team")
    team.carve("rich", guarantee=Budget(tokens=95))
    with pytest.raises(InsufficientBudget) as caught:
        await team.hold(tokens=50, minimum=Budget(tokens=6))
    assert (caught.value.left, caught.value.origin, team.halted) == (5, "team", None)
    assert str(caught.value) == "'team' has 5 tokens left, 50 asked, at least 6 needed"
    assert (await team.hold(tokens=50)).tokens == 5


async def test_a_caller_that_holds_the_dimension_already_never_waits() -> None:
    team = Governor(Budget(tokens=100, tool_calls=1), name="team")
    with await team.hold(tokens=60) as outer:
        with pytest.raises(InsufficientBudget):
            await team.hold(tokens=60)
        (await team.hold(tokens=40)).release()
        (await team.hold(tool_calls=1)).release()
        outer.release()
    elsewhere(lambda: team.reserve(tokens=60))
    with anyio.move_on_after(0.01) as patience:
        await team.hold(tokens=60)
    assert patience.cancelled_caught, "its own ended, now it waits for the other"


async def test_a_child_task_never_waits_for_what_its_parent_holds() -> None:
    team = Governor(Budget(tokens=100), name="team")
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        with await team.hold(tokens=60):
            await callers.call("child", lambda: team.hold(tokens=60))
            assert isinstance(callers.refused["child"], InsufficientBudget)


async def test_holding_in_one_tree_does_not_keep_from_waiting_in_another() -> None:
    one, other = Governor(Budget(tokens=10)), Governor(Budget(tokens=10))
    first = elsewhere(lambda: other.reserve(tokens=10))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        with await one.hold(tokens=10):
            await callers.call("it", lambda: other.hold(tokens=10))
            assert not callers.refused
            first.release()
            await settled()
            assert "it" in callers.got


async def test_a_tool_call_waits_like_everything_else_but_is_never_a_halt() -> None:
    team = Governor(Budget(tool_calls=1), name="team")
    first = elsewhere(lambda: team.reserve(tool_calls=1))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: team.hold(tool_calls=1))
        assert not callers.got
        assert not callers.refused
        first.settle()
        await settled()
        assert isinstance(callers.refused["it"], InsufficientBudget)
    assert team.halted is None


# -- what ends the waiting --------------------------------------------------------------------


@pytest.mark.parametrize("halt", ["cancel", "cancel above", "crossing", "exhaustion"])
async def test_a_halt_wakes_those_who_wait(halt: str) -> None:
    team = Governor(Budget(tokens=100, dollars=1, loops=0), name="team")
    task = team.carve("task")
    elsewhere(lambda: team.reserve(tokens=100))
    halts: dict[str, Callable[[], None]] = {
        "cancel": task.cancel,
        "cancel above": team.cancel,
        "crossing": lambda: team.record_usage(dollars=1),
        "exhaustion": team.pre_step,
    }
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: task.hold(tokens=10))
        with suppress(HaltError):
            halts[halt]()
        await settled()
        assert isinstance(callers.refused["it"], HaltError)


async def test_a_siblings_halt_wakes_nobody_else() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task, sibling = team.carve("task"), team.carve("sibling")
    first = elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: task.hold(tokens=10))
        sibling.cancel()
        await settled()
        assert not callers.refused
        first.release()


async def test_closing_sends_away_those_who_wait_inside() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("member").carve("task")
    first = elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("inside", lambda: task.hold(tokens=10))
        await callers.call("outside", lambda: team.hold(tokens=10))
        task.close()
        await settled()
        assert isinstance(callers.refused["inside"], GovernorClosed)
        assert not callers.got
        first.release()


async def test_closing_serves_those_it_gives_back_to() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("task", guarantee=Budget(tokens=60))
    elsewhere(lambda: team.reserve(tokens=40))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: team.hold(tokens=50))
        assert not callers.got
        task.close()
        await settled()
        assert callers.got["it"].tokens == 50


async def test_time_that_runs_out_ends_the_waiting() -> None:
    team = Governor(Budget(tokens=100, seconds=0.02), name="team")
    task = team.carve("task")
    elsewhere(lambda: team.reserve(tokens=100))
    with anyio.fail_after(5), pytest.raises(HaltError) as caught:
        await task.hold(tokens=10)
    assert (caught.value.reason, caught.value.origin) == (HaltReason.TIME_BUDGET_EXCEEDED, "team")


async def test_a_cancelled_waiter_holds_nothing_and_lets_the_next_one_through() -> None:
    team = Governor(Budget(tokens=100), name="team")
    first = elsewhere(lambda: team.reserve(tokens=60))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("large", lambda: team.hold(tokens=90))
        await callers.call("small", lambda: team.hold(tokens=30))
        assert not callers.got
        callers.scopes["large"].cancel()
        await settled()
        assert set(callers.got) == {"small"}
        first.release()
    assert team.held.tokens == 30


async def test_a_grant_that_meets_a_cancellation_goes_back() -> None:
    team = Governor(Budget(tokens=100), name="team")
    first = elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: team.hold(tokens=90))
        await callers.call("next", lambda: team.hold(tokens=90))
        callers.scopes["it"].cancel()
        first.release()
        assert team.held.tokens == 90, "granted on its behalf before it could run"
        await settled()
        assert set(callers.got) == {"next"}
        assert team.held.tokens == 90


async def test_a_top_up_serves_those_who_wait() -> None:
    team = Governor(Budget(tokens=100), name="team")
    elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: team.carve("task").hold(tokens=10))
        team.top_up(Budget(tokens=10))
        await settled()
        assert callers.got["it"].tokens == 10


@pytest.mark.real_time
async def test_a_return_from_another_thread_wakes_the_waiter() -> None:
    team = Governor(Budget(tokens=100), name="team")
    first = elsewhere(lambda: team.reserve(tokens=100))
    timer = threading.Timer(0.01, partial(first.settle, 10))
    timer.start()
    with anyio.fail_after(60):
        hold = await team.hold(tokens=90)
    assert (hold.tokens, team.status()[0].tokens) == (90, 10)
    timer.join()


async def test_nobody_is_left_in_a_line() -> None:
    team = Governor(Budget(tokens=50), name="team")
    peak = 0

    async def caller(number: int) -> None:
        nonlocal peak
        with anyio.move_on_after(0.001 if number % 7 == 0 else 30), await team.hold(tokens=number % 20 + 1) as hold:
            peak = max(peak, team.held.tokens)
            await checkpoint()
            hold.release()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(caller, number)
    assert peak <= 50
    assert (team.held, team.remaining.tokens) == (Usage(), 50)


async def test_a_deadline_moved_while_somebody_waits_stops_nobody_early() -> None:
    team = Governor(Budget(tokens=100, seconds=1), name="team", clock=anyio.current_time)
    first = elsewhere(lambda: team.reserve(tokens=100))
    async with anyio.create_task_group() as group:
        callers = Callers(group)
        await callers.call("it", lambda: team.hold(tokens=10))
        team.top_up(Budget(seconds=10))
        await anyio.sleep(5)
        assert (callers.refused, team.halted) == ({}, None)
        first.release()
        await settled()
        assert "it" in callers.got


@dataclass(frozen=True)
class Errand:
    """What a caller of the random test wants: where, how much, for how long, and how patient it is."""

    at: int
    tokens: int
    calls: int
    least: int
    begins: float
    lasts: float
    used: float
    patience: float


errands = st.builds(
    Errand,
    at=st.integers(0, 5),
    tokens=st.integers(1, 60),
    calls=st.integers(0, 2),
    least=st.integers(1, 60),
    begins=st.floats(0, 5),
    lasts=st.floats(0, 5),
    used=st.floats(0, 1),
    patience=st.sampled_from([1e6, 1e6, 1e6, 2.0, 0.5]),
)


@given(st.lists(errands, max_size=25), st.integers(60, 200), st.integers(2, 9))
@settings(max_examples=settings().max_examples * 3 // 5)
async def test_any_crowd_gets_through_without_overspending_or_dead_lock(
    crowd: list[Errand], tokens: int, calls: int
) -> None:
    team = Governor(Budget(tokens=tokens, tool_calls=calls), name="team")
    member = team.carve("member", Budget(tokens=tokens // 2), guarantee=Budget(tokens=tokens // 4))
    tasks = [team, member, member.carve("one"), member.carve("two", guarantee=Budget(tokens=tokens // 8))]
    tasks += [team.carve("three"), team.carve("four", guarantee=Budget(tokens=tokens // 10))]
    spent = 0

    async def caller(errand: Errand) -> None:
        nonlocal spent
        await anyio.sleep(errand.begins)
        governor = tasks[errand.at]
        with anyio.move_on_after(errand.patience), suppress(HaltError, InsufficientBudget):
            minimum = Budget(tokens=min(errand.least, errand.tokens))
            with await governor.hold(errand.tokens, 0, errand.calls, minimum=minimum) as hold:
                used = hold.tokens
                try:
                    await anyio.sleep(errand.lasts)
                    used = int(hold.tokens * errand.used)
                    hold.settle(used)
                finally:
                    spent += used
                    assert minimum.tokens is not None
                    assert minimum.tokens <= hold.tokens <= errand.tokens
                    assert team.held.tokens + team.status()[0].tokens <= tokens

    with anyio.fail_after(1e7):
        async with anyio.create_task_group() as group:
            for errand in crowd:
                group.start_soon(caller, errand)
    assert (team.status()[0].tokens, team.held) == (spent, Usage())
    assert spent <= tokens
    assert team.status()[0].tool_calls <= calls
