"""Slices: what is lent never passes what the tree allows, and everything is booked where it was spent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.governance.governor import Governor
from kairo_team.governance.holds import Waiter
from kairo_team.governance.ledger import COMMITTED, DIMENSIONS, Units, limits_of
from kairo_team.governance.slices import Ask, Borrower, Grant, Granter, cover_tool_call
from kairo_team.testing import run_in_virtual_time


@dataclass
class Lent:
    """A governor, and the slice of it that somebody has; asks and reports go between them in order."""

    governor: Governor
    spent: Usage = field(default_factory=Usage)
    asks: int = 0
    way: float = 0.0
    """Seconds that an answer is under way."""

    def __post_init__(self) -> None:
        self.granter = Granter(self.governor, self.spent)
        give_back = self.granter.report
        self.borrower = Borrower(self.governor.name, self.granter.first(), self._ask, give_back, spent=self.spent)

    async def _ask(self, ask: Ask, on_wait: Callable[[], object] | None) -> Grant:
        self.asks += 1
        made = await self.granter.grant(ask, on_wait)
        await anyio.sleep(self.way)
        return made

    @property
    def local(self) -> Governor:
        return self.borrower.governor

    def end(self) -> None:
        self.granter.end(self.local.usage)


async def spend(governor: Governor, asked: int, used: int, *, least: int = 1) -> None:
    """Make a call like a model's."""
    governor.can_proceed()
    with await governor.hold(tokens=asked, minimum=Budget(tokens=least)) as hold:
        await anyio.lowlevel.checkpoint()
        hold.settle(min(used, hold.tokens))


async def test_a_call_within_the_guarantee_is_held_without_asking() -> None:
    team = Governor(Budget(tokens=1000))
    lent = Lent(team.carve("task", guarantee=Budget(tokens=300)))
    await spend(lent.local, 200, 90)
    assert lent.asks == 0
    lent.end()
    assert team.usage.tokens == 90


async def test_what_goes_beyond_the_guarantee_is_asked_for_and_given_back_when_the_call_ends() -> None:
    team = Governor(Budget(tokens=1000))
    task = team.carve("task", guarantee=Budget(tokens=100))
    lent = Lent(task)
    with await lent.local.hold(tokens=500) as hold:
        assert team.remaining.tokens == 500
        hold.settle(50)
    assert team.remaining.tokens == 900
    assert team.usage.tokens == 50
    lent.end()
    task.close()
    assert team.remaining.tokens == 950


async def test_a_call_is_capped_at_what_the_team_has_left() -> None:
    team = Governor(Budget(tokens=100))
    lent = Lent(team.carve("task"))
    with await lent.local.hold(tokens=500, minimum=Budget(tokens=10)) as hold:
        assert hold.tokens == 100


async def test_a_call_that_can_never_fit_halts_the_governor_whose_limit_it_is() -> None:
    team = Governor(Budget(tokens=100), name="team")
    lent = Lent(team.carve("task"))
    with pytest.raises(HaltError) as raised:
        await lent.local.hold(tokens=500, minimum=Budget(tokens=200))
    assert (raised.value.reason, raised.value.origin) == (HaltReason.TOKEN_BUDGET_EXCEEDED, "team")
    assert team.halted is HaltReason.TOKEN_BUDGET_EXCEEDED


async def test_guarantees_of_others_are_named_as_what_is_in_the_way() -> None:
    team = Governor(Budget(tokens=100), name="team")
    team.carve("other", guarantee=Budget(tokens=90))
    lent = Lent(team.carve("task"))
    with pytest.raises(InsufficientBudget) as raised:
        await lent.local.hold(tokens=50, minimum=Budget(tokens=50))
    assert raised.value.origin == "team"


async def test_an_ask_waits_while_another_call_may_give_back() -> None:
    team = Governor(Budget(tokens=100))
    first, second = (Lent(team.carve(name)) for name in ("a", "b"))
    waited: list[bool] = []
    is_held = anyio.Event()

    async def ask() -> None:
        await is_held.wait()
        with await second.local.hold(tokens=60, on_wait=lambda: waited.append(True)) as hold:
            hold.settle(60)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        with await first.local.hold(tokens=80) as held:
            is_held.set()
            await anyio.wait_all_tasks_blocked()
            assert waited == [True]
            held.settle(10)
    first.end()
    second.end()
    assert team.usage.tokens == 70


async def test_tool_calls_are_asked_for_and_never_wait() -> None:
    team = Governor(Budget(tool_calls=1), name="team")
    lent = Lent(team.carve("task"))
    await cover_tool_call(lent.local)
    with lent.local.reserve(tool_calls=1) as hold:
        hold.settle(tool_calls=1)
    with pytest.raises(InsufficientBudget):
        await cover_tool_call(lent.local)
    assert team.halted is None


async def test_an_iteration_is_lent_ahead_so_that_a_guard_need_not_wait() -> None:
    team = Governor(Budget(tokens=1000, loops=3))
    lent = Lent(team.carve("task", guarantee=Budget(loops=1)))
    for _ in range(3):
        lent.local.pre_step()
        await spend(lent.local, 10, 10)
    with pytest.raises(HaltError):
        lent.local.pre_step()
    lent.end()
    assert team.usage.loops == 3
    error = lent.granter.why_halted(HaltReason.LOOP_BUDGET_EXCEEDED)
    assert isinstance(error, HaltError)
    assert team.halted is HaltReason.LOOP_BUDGET_EXCEEDED


async def test_an_iteration_lent_ahead_and_not_used_goes_back() -> None:
    team = Governor(Budget(tokens=1000, loops=3))
    task = team.carve("task", guarantee=Budget(loops=1))
    lent = Lent(task)
    lent.local.pre_step()
    await spend(lent.local, 10, 10)
    lent.end()
    task.close()
    assert team.remaining.loops == 2


async def test_a_lost_borrower_is_charged_and_its_iterations_count_anew() -> None:
    team = Governor(Budget(tokens=1000, loops=5))
    task = team.carve("task", guarantee=Budget(tokens=100, loops=2))
    lent = Lent(task)
    lent.local.pre_step()
    await spend(lent.local, 400, 50)
    lent.granter.lose(Usage(350))
    assert (team.usage.tokens, team.usage.loops) == (350, 0)
    again = Lent(task, Usage(350))
    assert again.granter.first().allowance[0] == 350
    again.end()
    task.close()
    assert team.remaining == Budget(tokens=650, dollars=None, loops=5, tool_calls=None)


async def test_remaining_is_what_the_whole_tree_leaves() -> None:
    team = Governor(Budget(tokens=1000))
    team.carve("other", guarantee=Budget(tokens=600))
    lent = Lent(team.carve("task", guarantee=Budget(tokens=100)))
    assert lent.local.remaining.tokens == 400
    await spend(lent.local, 50, 30)
    assert lent.local.remaining.tokens == 370


async def test_all_of_the_guarantee_is_held_without_asking() -> None:
    lent = Lent(Governor(Budget(tokens=1000)).carve("task", guarantee=Budget(tokens=300)))
    await spend(lent.local, 300, 300)
    assert lent.asks == 0


async def test_a_refused_ask_leaves_the_guarantee() -> None:
    team = Governor(Budget(tokens=100))
    team.carve("other", guarantee=Budget(tokens=60))
    lent = Lent(team.carve("task", guarantee=Budget(tokens=30)))
    with pytest.raises(InsufficientBudget):
        await lent.local.hold(tokens=90, minimum=Budget(tokens=90))
    await spend(lent.local, 30, 30)
    assert lent.asks == 1


async def test_a_governor_that_is_stopped_lends_nothing() -> None:
    team = Governor(Budget(tool_calls=5))
    lent = Lent(team.carve("task"))
    team.cancel()
    with pytest.raises(HaltError):
        await cover_tool_call(lent.local)


async def test_the_time_that_is_left_goes_with_the_slice() -> None:
    team = Governor(Budget(seconds=5), clock=lambda: 0.0)
    assert Lent(team.carve("task")).local.budget.seconds == 5


async def test_iterations_of_a_lost_borrower_that_were_recorded_are_repeated() -> None:
    lent = Lent(Governor(Budget(loops=5)).carve("task", guarantee=Budget(loops=2)))
    lent.local.pre_step()
    lent.granter.lose(Usage(loops=1))
    assert lent.granter.repeats == 1


async def test_a_budget_without_limits_is_lent_without_any_asking() -> None:
    lent = Lent(Governor(Budget()))
    lent.local.pre_step()
    await spend(lent.local, 10**9, 5)
    assert lent.asks == 0
    lent.end()
    assert replace(lent.governor.usage, seconds=0.0) == Usage(5, loops=1)


Call = tuple[int, int]


@st.composite
def crowds(draw: st.DrawFn) -> tuple[int, list[tuple[int, list[Call]]]]:
    """Draw a limit, and tasks with their guarantee and calls: what each asks for, and what it uses."""
    limit = draw(st.integers(0, 300))
    calls = st.lists(st.tuples(st.integers(1, 120), st.integers(0, 120)), max_size=4)
    tasks = draw(st.lists(st.tuples(st.integers(0, 80), calls), min_size=1, max_size=5))
    return limit, tasks


@given(crowds())
@settings(deadline=None)
def test_spent_and_held_never_pass_the_limit_and_all_of_it_comes_back(crowd: Any) -> None:
    limit, tasks = crowd
    anyio.run(_run_crowd, limit, tasks)


async def _run_crowd(limit: int, tasks: list[tuple[int, list[Call]]]) -> None:
    team = Governor(Budget(tokens=limit), name="team")
    used: list[int] = []

    async def work(name: str, guarantee: int, calls: list[Call]) -> None:
        try:
            task = team.carve(name, guarantee=Budget(tokens=guarantee))
        except (InsufficientBudget, HaltError):
            return
        lent = Lent(task)
        try:
            for asked, uses in calls:
                lent.local.can_proceed()
                with await lent.local.hold(tokens=asked) as hold:
                    _check(team)
                    await anyio.lowlevel.checkpoint()
                    hold.settle(min(uses, hold.tokens))
                    used.append(min(uses, hold.tokens))
                _check(team)
        except (InsufficientBudget, HaltError):
            pass
        finally:
            lent.end()
            task.close()

    async with anyio.create_task_group() as group:
        for number, (guarantee, calls) in enumerate(tasks):
            group.start_soon(work, f"task-{number}", guarantee, calls)
    assert team.usage.tokens == sum(used) <= limit
    assert team.held == Usage()
    assert _committed(team)[0] == sum(used)


def _check(team: Governor) -> None:
    for dim, most in enumerate(limits_of(team.budget)):
        assert most is None or _committed(team)[dim] <= most, DIMENSIONS[dim]


def _check_lent(lent: Lent) -> None:
    """Who borrows has no more than is held for it, or guaranteed to it."""
    granter = lent.granter
    assert lent.borrower._used()[0] <= max(lent.governor._node.guarantee[0], granter.spent.tokens + granter._out[0])


def _committed(governor: Governor) -> Units:
    tokens, picos, loops, tool_calls = governor._node.cells[COMMITTED : COMMITTED + 4]
    return (tokens, picos, loops, tool_calls)


async def test_who_asks_has_given_back_what_it_does_not_hold() -> None:
    """While it waits it has nothing: what it had serves others."""
    team = Governor(Budget(tokens=100))
    waiting, other = (Lent(team.carve(name)) for name in ("a", "b"))
    with await waiting.local.hold(tokens=30) as first:
        assert team.remaining.tokens == 70
        first.settle(10)
    with await other.local.hold(tokens=60) as held:
        async with anyio.create_task_group() as group:
            group.start_soon(spend, waiting.local, 50, 50)
            await anyio.wait_all_tasks_blocked()
            assert team.remaining.tokens == 30
            held.settle(0)
    waiting.end()
    other.end()
    assert team.usage.tokens == 60


async def test_a_slice_lends_nothing_out_while_one_of_its_calls_waits_for_more() -> None:
    """What is left was given back, and is part of what is waited for."""
    team = Governor(Budget(tokens=100))
    lent, other = Lent(team.carve("a", guarantee=Budget(tokens=20))), Lent(team.carve("b"))
    async with anyio.create_task_group() as group:
        with await other.local.hold(tokens=60) as held:
            group.start_soon(spend, lent.local, 50, 50)
            await anyio.wait_all_tasks_blocked()
            group.start_soon(spend, lent.local, 10, 10)
            await anyio.wait_all_tasks_blocked()
            assert (lent.local.held.tokens, lent.local.usage.tokens) == (0, 0)
            held.settle(0)
    lent.end()
    assert team.usage.tokens == 60


async def test_what_a_call_leaves_while_an_answer_is_under_way_takes_nothing_from_that() -> None:
    """Its report was written before the borrower knew of the grant."""
    team = Governor(Budget(tokens=100))
    lent = Lent(team.carve("a"), way=5)

    async def ask_again() -> None:
        await anyio.sleep(6)
        with await lent.local.hold(tokens=30) as hold:
            hold.settle(30)

    async with anyio.create_task_group() as group:
        group.start_soon(ask_again)
        with await lent.local.hold(tokens=40) as first:
            await anyio.sleep(2)
            first.settle(0)
        await anyio.sleep(1)
        assert team.held.tokens == 30
    lent.end()
    assert (team.usage.tokens, team.held.tokens) == (30, 0)


async def test_calls_of_one_slice_ask_one_after_the_other_and_each_gives_back_what_is_left() -> None:
    team = Governor(Budget(tokens=100))
    lent = Lent(team.carve("task"))
    asked: list[Ask] = []
    receive = lent.granter.receive

    def noting(ask: Ask) -> Grant | Waiter:
        asked.append(ask)
        return receive(ask)

    lent.granter.receive = noting  # type: ignore[method-assign]  # what was asked is looked at
    with await lent.local.hold(tokens=40) as first, await lent.local.hold(tokens=20) as second:
        assert [one.holding[0] for one in asked] == [0, 40]
        first.settle(5)
        second.settle(5)
    assert team.remaining.tokens == 90


async def test_a_slice_begins_with_an_iteration() -> None:
    """An attempt begins with one that nobody can ask for: guards do not wait."""
    team = Governor(Budget(loops=2))
    task = team.carve("task")
    lent = Lent(task)
    assert team.remaining.loops == 1
    lent.local.pre_step()
    lent.end()
    task.close()
    assert (team.usage.loops, team.remaining.loops) == (1, 1)


async def test_nothing_is_lent_where_no_iteration_may_begin() -> None:
    team = Governor(Budget(tokens=10), name="team")
    lent = Lent(team.carve("a"))
    await spend(lent.local, 10, 10)
    lent.end()
    with pytest.raises(HaltError) as raised:
        Lent(team.carve("b"))
    assert (raised.value.reason, raised.value.origin) == (HaltReason.TOKEN_BUDGET_EXCEEDED, "team")


async def test_a_slice_is_halted_where_its_lender_is() -> None:
    """Guards of governors inside it refuse with the same error, as in one tree."""
    team = Governor(Budget(tokens=100), name="team")
    lent = Lent(team.carve("task"))
    inside = lent.local.carve("inside")
    with pytest.raises(HaltError) as raised:
        await inside.hold(tokens=500, minimum=Budget(tokens=200))
    with pytest.raises(HaltError) as again:
        lent.local.can_proceed()
    assert str(again.value) == str(raised.value)
    assert (again.value.origin, lent.local.halted) == ("team", HaltReason.TOKEN_BUDGET_EXCEEDED)


async def test_what_a_lost_borrower_is_charged_is_booked() -> None:
    """Also what it had not reported."""
    team = Governor(Budget(tokens=1000))
    lent = Lent(team.carve("task", guarantee=Budget(tokens=500)))
    await spend(lent.local, 200, 50)
    lent.granter.lose(Usage(200))
    assert team.usage.tokens == 200


async def test_tool_calls_are_lent_one_by_one_and_never_more_than_there_are() -> None:
    team = Governor(Budget(tool_calls=2))
    first, second = (Lent(team.carve(name)) for name in ("a", "b"))
    await cover_tool_call(first.local)
    held = first.local.reserve(tool_calls=1)
    await cover_tool_call(second.local)
    also = second.local.reserve(tool_calls=1)
    for lent in (first, second):
        with pytest.raises(InsufficientBudget):
            await cover_tool_call(lent.local)
    held.settle(tool_calls=1)
    also.settle(tool_calls=1)
    assert team.usage.tool_calls <= 2


Fans = list[tuple[int, list[list[Call]]]]


@st.composite
def fans(draw: st.DrawFn) -> tuple[int, Fans]:
    """Draw a limit, and tasks with their guarantee and what goes on in each at once: calls, one after the other."""
    calls = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), max_size=4)
    tasks = st.lists(st.tuples(st.integers(0, 60), st.lists(calls, min_size=1, max_size=6)), min_size=1, max_size=4)
    return draw(st.integers(0, 300)), draw(tasks)


@given(fans())
@settings(deadline=None)
def test_calls_at_once_in_every_slice_wait_for_each_other_and_never_for_ever(drawn: tuple[int, Fans]) -> None:
    run_in_virtual_time(_run_fans, *drawn)


async def test_a_fan_out_in_every_slice_spends_what_there_is_and_ends() -> None:
    for guarantee in (0, 10, 50, 62):
        await _run_fans(250, [(guarantee, [[(10, 10)]] * 16)] * 4)


async def _run_fans(limit: int, tasks: Fans) -> None:
    team = Governor(Budget(tokens=limit), name="team")
    used: list[int] = []

    async def calls_of(lent: Lent, calls: list[Call]) -> None:
        for asked, uses in calls:
            try:
                with await lent.local.hold(tokens=asked) as hold:
                    _check(team)
                    _check_lent(lent)
                    await anyio.sleep(uses)
                    hold.settle(min(uses, hold.tokens))
                    used.append(min(uses, hold.tokens))
            except (InsufficientBudget, HaltError):
                return
            _check(team)

    async def work(lent: Lent, task: Governor, at_once: list[list[Call]]) -> None:
        async with anyio.create_task_group() as group:
            for calls in at_once:
                group.start_soon(calls_of, lent, calls)
        lent.end()
        task.close()

    with anyio.fail_after(100_000):
        async with anyio.create_task_group() as group:
            for number, (guarantee, at_once) in enumerate(tasks):
                with suppress(InsufficientBudget, HaltError):
                    task = team.carve(f"task-{number}", guarantee=Budget(tokens=guarantee))
                    group.start_soon(work, Lent(task, way=1.5), task, at_once)
    assert team.usage.tokens == sum(used) <= limit
    assert (team.held, _committed(team)[0]) == (Usage(), sum(used))
