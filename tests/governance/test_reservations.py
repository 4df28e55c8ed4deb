"""Holds before a call and the truth after it: `reserve`, `settle`, `reduce` and `release`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance import Governor
from tests.governance.halting import halt_of

# -- reserve ----------------------------------------------------------------------------------


def test_reserve_holds_everything_on_the_whole_path_or_nothing() -> None:
    team = Governor(Budget(tokens=100, dollars=1, tool_calls=1), name="team")
    task = team.carve("member").carve("task")
    first = task.reserve(tokens=60, dollars="0.4", tool_calls=1)
    assert (team.held.tokens, team.held.dollars, team.held.tool_calls) == (60, Decimal("0.4"), 1)
    refused: list[dict[str, Any]] = [{"tokens": 41}, {"dollars": "0.61", "tokens": 1}, {"tool_calls": 1, "tokens": 1}]
    for amounts in refused:
        with pytest.raises(InsufficientBudget) as caught:
            task.reserve(**amounts)
        assert caught.value.origin == "team"
        assert team.held == task.held == Usage(60, 0, Decimal("0.4"), 0, 1)
    first.release()
    assert team.held == Usage()


@pytest.mark.parametrize(
    ("dimension", "asked", "left"), [("tokens", 41, 40), ("dollars", Decimal("0.7"), Decimal("0.6"))]
)
def test_a_refusal_names_dimension_asked_left_and_origin(dimension: str, asked: Any, left: Any) -> None:
    team = Governor(Budget(tokens=100, dollars=1), name="team")
    task = team.carve("task")
    task.reserve(tokens=60, dollars="0.4")
    with pytest.raises(InsufficientBudget) as caught:
        task.reserve(**{dimension: asked})
    refused = caught.value
    assert (refused.dimension, refused.asked, refused.left, refused.origin) == (dimension, asked, left, "team")
    assert str(refused) == f"'team' has {left} {dimension} left, {asked} asked"


def test_when_the_minimum_no_longer_fits_the_limit_halts() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("task")
    task.reserve(tokens=90).settle(90)
    with pytest.raises(InsufficientBudget):
        task.reserve(tokens=20, minimum=Budget(tokens=10))
    assert team.halted is None
    halt = halt_of(lambda: task.reserve(tokens=20, minimum=Budget(tokens=11)))
    assert (halt.reason, halt.origin) == (HaltReason.TOKEN_BUDGET_EXCEEDED, "team")
    assert team.stopped is None, "exhausted: what is in flight may finish"


@pytest.mark.parametrize(
    ("budget", "asked", "minimum", "said"),
    [
        (Budget(tokens=100), {"tokens": 90}, Budget(tokens=41), "spent 60 tokens; 41 tokens needed, 40 left"),
        (Budget(dollars=1), {"dollars": "0.9"}, Budget(dollars="0.41"), "$0.6; 0.41 dollars needed, 0.4 left"),
        (Budget(tokens=60), {"tokens": 90}, None, "spent 60 tokens"),
    ],
    ids=["tokens", "dollars", "used up"],
)
def test_a_halt_says_what_did_not_fit_into_what_was_left(
    budget: Budget, asked: dict[str, Any], minimum: Budget | None, said: str
) -> None:
    team = Governor(budget, name="team")
    team.carve("other").record_usage(dollars="0.6") if budget.dollars else team.reserve(tokens=60).settle(60)
    halt = halt_of(lambda: team.reserve(**asked, minimum=minimum))
    assert str(halt).startswith(f"'team' halted: {halt.reason.value} (")
    assert str(halt).endswith(f"{said})")
    assert str(halt_of(team.can_proceed)) == str(halt), "every later guard says the same"
    team.top_up(Budget(tokens=1000, dollars=10))
    team.cancel()
    assert "needed" not in str(halt_of(team.can_proceed)), "what was lacking is there"


def test_the_minimum_may_be_a_usage_and_defaults_to_one_unit_of_what_is_asked() -> None:
    governor = Governor(Budget(tokens=10, dollars=0))
    governor.reserve(tokens=9).settle(9)
    with pytest.raises(InsufficientBudget):
        governor.reserve(tokens=5, minimum=Usage(prompt_tokens=1))
    with pytest.raises(HaltError):
        governor.reserve(tokens=5, minimum=Usage(prompt_tokens=2))


def test_a_minimum_above_what_is_asked_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"minimum tokens \(6\) is more than asked \(5\)"):
        Governor().reserve(tokens=5, minimum=Budget(tokens=6))
    with pytest.raises(ValueError, match="minimum dollars"):
        Governor().reserve(tokens=5, minimum=Budget(dollars="0.1"))


def test_what_others_only_hold_is_a_refusal_and_not_a_halt() -> None:
    governor = Governor(Budget(tokens=100))
    governor.reserve(tokens=100)
    with pytest.raises(InsufficientBudget):
        governor.reserve(tokens=1)
    assert governor.halted is None


def test_a_tool_call_over_its_limit_is_a_refusal_and_never_a_halt() -> None:
    governor = Governor(Budget(tool_calls=1))
    governor.reserve(tool_calls=1).settle()
    assert governor.status()[0].tool_calls == 1
    with pytest.raises(InsufficientBudget):
        governor.reserve(tool_calls=1)
    assert governor.halted is None
    governor.can_proceed()


@pytest.mark.parametrize(
    "amounts", [{"tokens": -1}, {"dollars": "-0.1"}, {"dollars": float("nan")}, {"tool_calls": -1}]
)
def test_negative_and_unreadable_amounts_are_refused(amounts: dict[str, Any]) -> None:
    governor = Governor()
    with pytest.raises(ValueError):  # noqa: PT011 - three sentences
        governor.reserve(**amounts)
    with pytest.raises(ValueError):  # noqa: PT011
        governor.record_usage(**{key.replace("tokens", "prompt_tokens"): value for key, value in amounts.items()})
    hold = governor.reserve(tokens=5)
    with pytest.raises(ValueError):  # noqa: PT011
        hold.settle(**{key.replace("tokens", "prompt_tokens"): value for key, value in amounts.items()})
    assert hold.open
    usage = governor.status()[0]
    assert (usage.tokens, usage.dollars, usage.tool_calls) == (0, Decimal(0), 0)


def test_nothing_can_be_reserved_at_any_time() -> None:
    governor = Governor(Budget(tokens=0, dollars=0, tool_calls=0))
    with governor.reserve() as hold:
        assert (hold.tokens, hold.dollars, hold.tool_calls) == (0, Decimal(0), 0)


# -- settle -----------------------------------------------------------------------------------


def test_settle_replaces_the_hold_by_the_truth_on_the_whole_path() -> None:
    team = Governor(Budget(tokens=1000, dollars="1.00", tool_calls=9), name="team")
    task = team.carve("member").carve("task")
    with task.reserve(tokens=150, dollars="0.10", tool_calls=2) as hold:
        hold.settle(prompt_tokens=60, completion_tokens=40, dollars="0.002")
    for governor in (team, task):
        usage = governor.status()[0]
        assert (usage.prompt_tokens, usage.completion_tokens, usage.tokens) == (60, 40, 100)
        assert (usage.dollars, usage.tool_calls) == (Decimal("0.002"), 2)
        assert governor.held == Usage()
    assert not hold.open
    assert not hold.overshoot
    assert team.remaining == Budget(tokens=900, dollars="0.998", tool_calls=7)


def test_more_than_was_held_is_booked_and_reported_and_the_next_guard_refuses() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("task", guarantee=Budget(tokens=10))
    hold = task.reserve(tokens=50)
    hold.settle(prompt_tokens=120)
    assert hold.overshoot
    assert (team.status()[0].tokens, team.overshoot.tokens, task.overshoot.tokens) == (120, 20, 0)
    assert team.halted is None
    assert halt_of(task.can_proceed).origin == "team"
    assert team.tree().overshoot.tokens == 20


def test_a_guarantee_is_not_honoured_with_money_that_an_overshoot_has_spent() -> None:
    """B01: the limit stands, also when a truth booked late has eaten what was guaranteed to somebody."""
    team = Governor(Budget(tokens=20), name="team")
    guaranteed = team.carve("guaranteed", guarantee=Budget(tokens=10))
    team.reserve(tokens=5).settle(15)
    assert guaranteed.remaining.tokens == 5
    with pytest.raises(InsufficientBudget):
        guaranteed.reserve(tokens=6)
    guaranteed.reserve(tokens=5).settle(5)
    assert team.status()[0].tokens == 20


def test_left_unsettled_the_whole_hold_is_charged() -> None:
    governor = Governor(Budget(tokens=100))
    with governor.reserve(tokens=30, dollars="0.5", tool_calls=1):
        pass
    with pytest.raises(RuntimeError, match="lost"), governor.reserve(tokens=20):
        raise RuntimeError("lost")
    usage = governor.status()[0]
    assert (usage.prompt_tokens, usage.dollars, usage.tool_calls) == (50, Decimal("0.5"), 1)


def test_a_hold_can_be_made_smaller_and_the_rest_goes_back() -> None:
    team = Governor(Budget(tokens=100, dollars=1), name="team")
    task = team.carve("task")
    with task.reserve(tokens=100, dollars=1, tool_calls=2) as hold:
        hold.reduce(30, "0.25")
        assert (hold.tokens, hold.dollars, hold.tool_calls) == (30, Decimal("0.25"), 2)
        assert (team.held.tokens, team.remaining.tokens, team.remaining.dollars) == (30, 70, Decimal("0.75"))
        hold.reduce(50, 1)
        assert (hold.tokens, hold.dollars) == (30, Decimal("0.25")), "it never grows"
        with pytest.raises(ValueError, match="tokens to hold"):
            hold.reduce(-1)
    assert (team.usage.tokens, team.usage.dollars, team.usage.tool_calls) == (30, Decimal("0.25"), 2)
    with pytest.raises(GovernorClosed):
        hold.reduce(1)


def test_a_hold_made_smaller_after_the_close_is_charged_that_much() -> None:
    team = Governor(Budget(tokens=100), name="team")
    task = team.carve("task")
    hold = task.reserve(tokens=100)
    task.close()
    hold.reduce(30)
    assert (team.usage.tokens, task.usage.tokens, team.remaining.tokens) == (30, 30, 70)
    hold.settle(20)
    assert (team.usage.tokens, task.usage.tokens, team.remaining.tokens) == (20, 20, 80)


def test_release_gives_all_of_it_back() -> None:
    governor = Governor(Budget(tokens=100))
    with governor.reserve(tokens=30) as hold:
        hold.release()
    assert governor.remaining.tokens == 100


@pytest.mark.parametrize("first", ["settle", "release"])
@pytest.mark.parametrize("second", ["settle", "release"])
def test_a_reservation_ends_once(first: str, second: str) -> None:
    governor = Governor(name="team")
    hold = governor.reserve(tokens=30)
    getattr(hold, first)()
    before = governor.status()[0].tokens
    with pytest.raises(GovernorClosed, match="the reservation on 'team' is closed"):
        getattr(hold, second)()
    assert governor.status()[0].tokens == before


def test_kf_b18_holds_come_back_at_settle() -> None:
    """B18: worst-case holds starved a budget with nothing spent."""
    governor = Governor(Budget(tokens=1000))
    for _ in range(50):
        with governor.reserve(tokens=900) as hold:
            hold.settle(prompt_tokens=2)
    assert governor.halted is None
    assert governor.status()[0].tokens == 100
