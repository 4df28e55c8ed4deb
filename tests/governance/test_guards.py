"""The guards and the bookings: one test or more per row of the governor's table."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from kairo_team.budget import Budget, HaltReason, Money, Usage
from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.governance import Governor
from kairo_team.testing import FakeClock
from tests.governance.halting import halt_of

# -- pre_step ---------------------------------------------------------------------------------


def test_pre_step_counts_one_loop_on_the_whole_path() -> None:
    team = Governor(Budget(loops=10), name="team")
    task = team.carve("member").carve("task")
    task.pre_step()
    task.pre_step()
    assert (task.status()[0].loops, team.status()[0].loops) == (2, 2)


@pytest.mark.parametrize("where", ["task", "team"])
def test_pre_step_refuses_the_loop_after_the_last_here_or_above(where: str) -> None:
    team = Governor(Budget(loops=2) if where == "team" else Budget(), name="team")
    task = team.carve("task", Budget(loops=2) if where == "task" else Budget())
    task.pre_step()
    task.pre_step()
    halt = halt_of(task.pre_step)
    assert (halt.reason, halt.origin, halt.usage.loops) == (HaltReason.LOOP_BUDGET_EXCEEDED, where, 2)
    assert task.status()[0].loops == 2
    assert (team.halted is None) is (where == "task")


def test_pre_step_that_only_a_guarantee_forbids_halts_nobody() -> None:
    team = Governor(Budget(loops=2), name="team")
    sibling, task = team.carve("sibling", Budget(loops=2)), team.carve("task")
    with pytest.raises(InsufficientBudget) as caught:
        task.pre_step()
    assert (caught.value.dimension, caught.value.left, caught.value.origin) == ("loops", 0, "team")
    assert team.halted is task.halted is None
    sibling.pre_step()


@pytest.mark.parametrize("limit", [Budget(tokens=10), Budget(dollars="0.10")])
@pytest.mark.parametrize("where", ["task", "team"])
@pytest.mark.parametrize("restored", [False, True])
def test_audit_g02_pre_step_refuses_when_tokens_or_dollars_are_spent(limit: Budget, where: str, restored: bool) -> None:
    spent = Usage(limit.tokens or 0, 15 if restored else 0, limit.dollars or Decimal(0))
    team = Governor(limit if where == "team" else Budget(), name="team", restored_usage=spent if restored else None)
    task = team.carve("task", limit if where == "task" else Budget(), guarantee=Budget())
    if not restored or where == "task":
        task.reserve().settle(spent.prompt_tokens, spent.completion_tokens, spent.dollars)
    reason = HaltReason.TOKEN_BUDGET_EXCEEDED if limit.tokens else HaltReason.DOLLAR_BUDGET_EXCEEDED
    for guard in (task.pre_step, task.can_proceed, task.reserve):
        halt = halt_of(guard)
        assert (halt.reason, halt.origin) == (reason, where)
    assert team.usage.loops == 0, "a refused iteration is not counted"


def test_pre_step_lets_an_iteration_begin_where_there_were_no_tokens_to_spend() -> None:
    governor = Governor(Budget(tokens=0, dollars=0))
    governor.pre_step()
    assert governor.usage.loops == 1
    governor.reserve().settle(1)
    assert halt_of(governor.pre_step).reason is HaltReason.TOKEN_BUDGET_EXCEEDED
    paid = Governor(Budget(tokens=0, dollars=1))
    paid.reserve(dollars="0.5").settle(dollars="0.5")
    paid.pre_step()
    assert paid.usage.loops == 1


@pytest.mark.parametrize("where", ["task", "team"])
def test_audit_g02_a_halt_keeps_its_reason_when_the_governor_is_closed(where: str) -> None:
    team = Governor(name="team")
    task = team.carve("task")
    (team if where == "team" else task).cancel(HaltReason.EMERGENCY_STOP)
    task.close()
    for guard in (task.pre_step, task.can_proceed, task.reserve, lambda: task.carve("more")):
        halt = halt_of(guard)
        assert (halt.reason, halt.origin) == (HaltReason.EMERGENCY_STOP, where)


def test_the_last_allowed_iteration_may_call_and_record() -> None:
    governor = Governor(Budget(loops=1, tokens=100))
    governor.pre_step()
    governor.can_proceed()
    governor.record_usage(prompt_tokens=5)
    assert governor.halted is None


# -- can_proceed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "spend", "reason"),
    [
        (Budget(tokens=10), {"prompt_tokens": 4, "completion_tokens": 6}, HaltReason.TOKEN_BUDGET_EXCEEDED),
        (Budget(dollars="0.30"), {"dollars": "0.30"}, HaltReason.DOLLAR_BUDGET_EXCEEDED),
    ],
)
@pytest.mark.parametrize("where", ["task", "team"])
def test_can_proceed_raises_when_what_was_spent_reaches_a_limit(
    limit: Budget, spend: dict[str, Any], reason: HaltReason, where: str
) -> None:
    team = Governor(limit if where == "team" else Budget(), name="team")
    task = team.carve("task", limit if where == "task" else Budget())
    task.can_proceed()
    task.reserve(limit.tokens or 0, limit.dollars or 0).settle(**spend)
    assert task.halted is None, "settling never halts"
    halt = halt_of(task.can_proceed)
    assert (halt.reason, halt.origin) == (reason, where)


def test_of_two_limits_reached_at_once_the_outermost_is_the_origin() -> None:
    team = Governor(Budget(tokens=10), name="team")
    task = team.carve("task", Budget(tokens=10))
    task.reserve(tokens=10).settle(10)
    assert halt_of(task.can_proceed).origin == "team"


def test_can_proceed_looks_at_no_loops_no_tool_calls_and_no_dollar_limit_of_zero() -> None:
    governor = Governor(Budget(loops=1, tool_calls=0, dollars=0))
    governor.pre_step()
    governor.can_proceed()


def test_a_dollar_limit_of_zero_above_does_not_hide_one_that_is_used_up() -> None:
    team = Governor(Budget(dollars=0), name="team")
    task = team.carve("task", Budget(dollars=1), guarantee=Budget())
    assert halt_of(lambda: task.record_usage(dollars=1)).origin == "team"
    other = Governor(Budget(dollars=1), name="other").carve("free", Budget(dollars=0))
    other.can_proceed()


def test_spent_dollars_are_named_beside_a_token_limit_of_zero() -> None:
    governor = Governor(Budget(tokens=0, dollars=1))
    governor.reserve(dollars=1).settle(dollars=1)
    assert halt_of(governor.pre_step).reason is HaltReason.DOLLAR_BUDGET_EXCEEDED


def test_kf_b04_zero_is_nothing_and_none_is_unlimited() -> None:
    """B04: a child's 0 read as "unlimited"."""
    team = Governor(Budget(tokens=100), name="team")
    nothing = team.carve("nothing", Budget(tokens=0))
    unlimited = team.carve("unlimited")
    assert halt_of(nothing.can_proceed).reason is HaltReason.TOKEN_BUDGET_EXCEEDED
    assert halt_of(lambda: nothing.reserve(tokens=1)).origin == "nothing"
    assert nothing.remaining.tokens == 0
    unlimited.reserve(tokens=100).release()
    assert unlimited.remaining.loops is None


@pytest.mark.parametrize("field", ["tokens", "dollars", "loops", "tool_calls", "seconds"])
def test_kf_b04_a_limit_of_zero_refuses_in_every_dimension(field: str) -> None:
    """B04: 0 is nothing, whatever it counts."""
    governor = Governor(Budget(**{field: 0}))
    attempts = {
        "tokens": governor.can_proceed,
        "dollars": lambda: governor.reserve(dollars="0.000001"),
        "loops": governor.pre_step,
        "tool_calls": lambda: governor.reserve(tool_calls=1),
        "seconds": governor.can_proceed,
    }
    with pytest.raises((HaltError, InsufficientBudget)):
        attempts[field]()
    assert governor.status()[0].tokens == 0


def test_kf_b05_the_call_that_would_pass_the_limit_is_refused_before_it_is_made() -> None:
    """B05: the limit is seen only after call N+1 was paid."""
    governor = Governor(Budget(tokens=300))
    for _ in range(3):
        governor.can_proceed()
        with governor.reserve(tokens=100) as hold:
            hold.settle(prompt_tokens=100)
    halt = halt_of(governor.can_proceed)
    assert (halt.reason, halt.usage.tokens) == (HaltReason.TOKEN_BUDGET_EXCEEDED, 300)


# -- time -------------------------------------------------------------------------------------


def test_time_up_stops_at_every_guard() -> None:
    for name in ("pre_step", "can_proceed", "reserve", "record_usage"):
        clock = FakeClock(100.0)
        governor = Governor(Budget(seconds=5), clock=clock)
        guard: Callable[[], object] = getattr(governor, name)
        guard()
        clock.now += 5
        assert halt_of(guard).reason is HaltReason.TIME_BUDGET_EXCEEDED
        assert governor.stopped is HaltReason.TIME_BUDGET_EXCEEDED


def test_a_childs_time_ends_with_its_parents_which_is_the_origin() -> None:
    clock = FakeClock(100.0)
    team = Governor(Budget(seconds=10), name="team", clock=clock)
    task = team.carve("task", Budget(seconds=60))
    same = team.carve("same", Budget(seconds=10))
    short = team.carve("short", Budget(seconds=3))
    assert task.remaining.seconds == 10
    clock.now += 3
    assert halt_of(short.can_proceed).origin == "short"
    task.can_proceed()
    clock.now += 7
    assert halt_of(same.can_proceed).origin == "team"
    assert halt_of(task.can_proceed).origin == "team"
    assert team.halted is HaltReason.TIME_BUDGET_EXCEEDED


def test_elapsed_is_a_nodes_own_time_until_it_closes() -> None:
    clock = FakeClock(100.0)
    team = Governor(clock=clock)
    clock.now += 2
    task = team.carve("task")
    clock.now += 3
    task.close()
    clock.now += 4
    assert (team.elapsed, task.elapsed) == (9, 3)
    assert team.status()[0].seconds == 9


# -- record_usage -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "spend", "reason"),
    [
        (Budget(tokens=10), {"prompt_tokens": 10}, HaltReason.TOKEN_BUDGET_EXCEEDED),
        (Budget(tokens=10), {"completion_tokens": 25}, HaltReason.TOKEN_BUDGET_EXCEEDED),
        (Budget(dollars=1), {"dollars": 1}, HaltReason.DOLLAR_BUDGET_EXCEEDED),
        (Budget(dollars=0), {"dollars": "0.01"}, HaltReason.DOLLAR_BUDGET_EXCEEDED),
        (Budget(tool_calls=2), {"tool_calls": 2}, HaltReason.TOOL_BUDGET_EXCEEDED),
    ],
)
@pytest.mark.parametrize("where", ["task", "team"])
def test_record_usage_books_first_and_stops_whose_limit_it_reached(
    limit: Budget, spend: dict[str, Any], reason: HaltReason, where: str
) -> None:
    team = Governor(limit if where == "team" else Budget(), name="team")
    task = team.carve("task", limit if where == "task" else Budget())
    halt = halt_of(lambda: task.record_usage(**spend))
    assert (halt.reason, halt.origin) == (reason, where)
    assert team.status()[0].tokens == sum(value for key, value in spend.items() if "tokens" in key)
    assert (task.halted, task.stopped) == (reason, reason)
    assert (team.halted is None) is (where == "task")


def test_record_usage_checks_only_what_it_added_and_never_loops() -> None:
    governor = Governor(Budget(loops=1, dollars=0, tool_calls=0))
    governor.pre_step()
    governor.record_usage(prompt_tokens=5)
    spent = Governor(Budget(tokens=10, dollars=5))
    spent.reserve(tokens=10).settle(10)
    spent.record_usage(dollars=1)
    assert spent.halted is None


def test_record_usage_still_books_when_halted_and_raises_the_same() -> None:
    governor = Governor(Budget(tokens=10), name="team")
    governor.cancel()
    halt = halt_of(lambda: governor.record_usage(prompt_tokens=50))
    assert (halt.reason, halt.usage.tokens) == (HaltReason.CANCELLED, 50)


def test_kf_b02_a_childs_use_counts_on_every_ancestor() -> None:
    """B02: each nested agent got a fresh counter: limit 3, 120 child calls."""
    team = Governor(Budget(loops=3), name="team")
    agents = [team.carve(f"agent-{number}").carve("inner").carve("innermost") for number in range(120)]
    for agent in agents[:3]:
        agent.pre_step()
    for agent in agents[3:]:
        assert halt_of(agent.pre_step).origin == "team"
    assert team.status()[0].loops == 3


# -- halts ------------------------------------------------------------------------------------


def test_kf_b09_the_first_reason_wins() -> None:
    """B09: a later cancel overwrote the first halt reason."""
    governor = Governor(Budget(tokens=10))
    with pytest.raises(HaltError):
        governor.record_usage(prompt_tokens=10)
    governor.cancel()
    governor.cancel(HaltReason.EMERGENCY_STOP)
    for guard in (governor.pre_step, governor.can_proceed, governor.reserve):
        assert halt_of(guard).reason is HaltReason.TOKEN_BUDGET_EXCEEDED
    cancelled = Governor(Budget(seconds=1), clock=(clock := FakeClock(100.0)))
    cancelled.cancel(HaltReason.EMERGENCY_STOP)
    clock.now += 5
    cancelled.cancel()
    assert halt_of(cancelled.can_proceed).reason is HaltReason.EMERGENCY_STOP


def test_a_childs_halt_leaves_its_siblings_running_and_a_parents_shows_in_all() -> None:
    team = Governor(name="team")
    one, other = team.carve("one"), team.carve("other")
    below = other.carve("below")
    one.cancel()
    other.can_proceed()
    team.can_proceed()
    team.cancel(HaltReason.EMERGENCY_STOP)
    for governor in (team, other, below):
        halt = halt_of(governor.can_proceed)
        assert (halt.reason, halt.origin) == (HaltReason.EMERGENCY_STOP, "team")
    assert (one.halted, halt_of(one.can_proceed).origin) == (HaltReason.CANCELLED, "one")


def test_a_halt_carries_the_usage_of_its_origin() -> None:
    team = Governor(Budget(tokens=100), name="team")
    team.carve("other").record_usage(prompt_tokens=70)
    halt = halt_of(lambda: team.carve("task").record_usage(prompt_tokens=20, completion_tokens=10))
    assert (halt.usage.prompt_tokens, halt.usage.completion_tokens) == (90, 10)
    assert str(halt).startswith("'team' halted: token_budget_exceeded (spent ")


# -- restored ---------------------------------------------------------------------------------


def test_kf_b07_what_an_earlier_session_spent_counts_its_seconds_included() -> None:
    """B07: the clock restarts on resume."""
    clock = FakeClock(100.0)
    earlier = Usage(prompt_tokens=600, completion_tokens=300, dollars=Decimal("0.5"), loops=3, tool_calls=2, seconds=50)
    governor = Governor(
        Budget(tokens=1000, dollars=1, loops=4, tool_calls=2, seconds=60), clock=clock, restored_usage=earlier
    )
    assert governor.status() == (earlier, None)
    assert governor.elapsed == 50
    assert governor.remaining == Budget(tokens=100, dollars="0.5", loops=1, tool_calls=0, seconds=10)
    governor.pre_step()
    with pytest.raises(InsufficientBudget):
        governor.reserve(tokens=101)
    clock.now += 10
    assert halt_of(governor.can_proceed).reason is HaltReason.TIME_BUDGET_EXCEEDED


def test_restored_usage_beyond_the_budget_is_refused_at_the_first_guard() -> None:
    governor = Governor(Budget(tokens=10), restored_usage=Usage(prompt_tokens=25))
    assert governor.overshoot.tokens == 15
    assert halt_of(governor.can_proceed).reason is HaltReason.TOKEN_BUDGET_EXCEEDED
    with pytest.raises(HaltError):
        governor.carve("task", Budget(tokens=1))


def test_kf_b08_a_restored_halt_is_terminal() -> None:
    """B08: a halted run, reopened by its id, got a fresh budget."""
    governor = Governor(Budget(dollars=5), name="run", restored_halt=HaltReason.DOLLAR_BUDGET_EXCEEDED)
    assert governor.halted is HaltReason.DOLLAR_BUDGET_EXCEEDED
    for guard in (governor.pre_step, governor.can_proceed, governor.reserve, lambda: governor.carve("task")):
        halt = halt_of(guard)
        assert (halt.reason, halt.origin) == (HaltReason.DOLLAR_BUDGET_EXCEEDED, "run")
    governor.top_up(Budget(dollars=100))
    governor.cancel()
    assert halt_of(governor.can_proceed).reason is HaltReason.DOLLAR_BUDGET_EXCEEDED


# -- exactness --------------------------------------------------------------------------------


def test_kf_b11_a_limit_made_of_tenths_is_reached_exactly() -> None:
    """B11: floats: exact-limit sums differ by order."""
    runs: list[list[Money]] = [[0.1] * 10, [0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7], ["0.3", 0.3, Decimal("0.4")]]
    for prices in runs:
        governor = Governor(Budget(dollars=1))
        for price in prices[:-1]:
            governor.reserve(dollars=price).settle(dollars=price)
            governor.can_proceed()
        assert governor.remaining.dollars == Decimal(str(prices[-1]))
        governor.reserve(dollars=prices[-1]).settle(dollars=prices[-1])
        assert governor.status()[0].dollars == 1
        assert halt_of(governor.can_proceed).reason is HaltReason.DOLLAR_BUDGET_EXCEEDED
