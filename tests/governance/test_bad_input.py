"""What a caller can do wrong: each mistake is an error that says what is wrong, and the ledger is as it was before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import GovernorClosed, HaltError, InsufficientBudget
from kairo_team.governance import Governor, Reservation
from kairo_team.testing import FakeClock

NAN, INFINITE = float("nan"), float("inf")
BORED: Any = "bored"
WRONG: Any = Usage(5)
HALF: Any = 0.5


def small_team() -> Governor:
    return Governor(Budget(tokens=1000, dollars=1, loops=10, tool_calls=5, seconds=60), name="team", clock=FakeClock())


@dataclass
class House:
    """A small tree with something of everything."""

    team: Governor = field(default_factory=small_team)
    member: Governor = field(init=False)
    task: Governor = field(init=False)
    halted: Governor = field(init=False)
    closed: Governor = field(init=False)
    open: Reservation = field(init=False)
    settled: Reservation = field(init=False)
    released: Reservation = field(init=False)

    def __post_init__(self) -> None:
        self.member = self.team.carve("member", Budget(tokens=500, dollars="0.50"))
        self.task = self.member.carve("task", guarantee=Budget(tokens=100))
        self.halted = self.team.carve("halted", guarantee=Budget(tokens=50))
        self.halted.cancel(HaltReason.EMERGENCY_STOP)
        self.closed = self.team.carve("closed", Budget(tokens=10))
        self.open = self.task.reserve(tokens=30, dollars="0.10", tool_calls=1)
        self.settled, self.released = self.task.reserve(tokens=20), self.task.reserve(tokens=20)
        self.settled.settle(prompt_tokens=5, completion_tokens=5)
        self.released.release()
        self.closed.close()


MISTAKES: dict[str, tuple[Callable[[House], object], type[Exception], str]] = {
    # Budgets that are none.
    "negative tokens": (
        lambda h: h.member.carve("x", Budget(tokens=-1)),
        ValueError,
        r"Budget.tokens must be .*not -1",
    ),
    "negative dollars": (lambda h: h.member.carve("x", Budget(dollars=-1)), ValueError, r"Budget.dollars .*not -1"),
    "negative seconds": (lambda h: h.team.top_up(Budget(seconds=-1.0)), ValueError, r"Budget.seconds .*not -1.0"),
    "NaN dollars": (lambda h: h.team.top_up(Budget(dollars=NAN)), ValueError, "Budget.dollars .*finite.*not nan"),
    "infinite dollars": (lambda h: h.team.top_up(Budget(dollars=INFINITE)), ValueError, "finite amount >= 0, not inf"),
    "infinite seconds": (lambda h: h.member.carve("x", Budget(seconds=INFINITE)), ValueError, "finite number"),
    "NaN seconds": (lambda h: h.member.carve("x", Budget(seconds=NAN)), ValueError, "Budget.seconds .*not nan"),
    "too many dollars": (lambda h: h.team.top_up(Budget(dollars=10**15)), ValueError, r"less than 10\*\*15 dollars"),
    "no budget": (lambda h: h.member.carve("x", BORED), ValueError, "a budget is a kt.Budget .*not 'bored'"),
    "a usage for a budget": (lambda h: h.member.carve("x", WRONG), ValueError, "a budget is a kt.Budget .*not Usage"),
    "no guarantee": (lambda h: h.member.carve("x", guarantee=BORED), ValueError, "a budget is a kt.Budget"),
    "no top-up": (lambda h: h.member.top_up(BORED), ValueError, "a budget is a kt.Budget"),
    "a number for a name": (
        lambda h: h.member.carve(WRONG),
        ValueError,
        "a governor's name must be a string, not Usage",
    ),
    # A hold and a truth that are none.
    "hold of half a token": (lambda h: h.task.reserve(tokens=HALF), ValueError, "tokens to hold .*not 0.5"),
    "hold of a truth value": (lambda h: h.task.reserve(tokens=True), ValueError, "tokens to hold .*not True"),
    "hold of true dollars": (lambda h: h.task.reserve(dollars=True), ValueError, "finite amount >= 0, not True"),
    "paid by a word": (lambda h: h.open.settle(BORED), ValueError, "prompt_tokens used .*not 'bored'"),
    "usage of half a token": (lambda h: h.task.record_usage(HALF), ValueError, "prompt_tokens used .*not 0.5"),
    "hold of negative tokens": (
        lambda h: h.task.reserve(tokens=-1),
        ValueError,
        "tokens to hold must be .* >= 0, not -1",
    ),
    "hold of negative calls": (
        lambda h: h.task.reserve(tool_calls=-2),
        ValueError,
        "tool calls to hold .* >= 0, not -2",
    ),
    "hold of negative dollars": (lambda h: h.task.reserve(tokens=5, dollars="-1"), ValueError, "finite amount >= 0"),
    "hold of NaN dollars": (lambda h: h.task.reserve(tokens=5, dollars=NAN), ValueError, "not nan"),
    "hold of no money": (lambda h: h.task.reserve(tokens=5, dollars="five"), ValueError, "such as '0.05', not 'five'"),
    "minimum above what is asked": (
        lambda h: h.task.reserve(tokens=5, minimum=Budget(tokens=6)),
        ValueError,
        r"minimum tokens \(6\) is more than asked \(5\)",
    ),
    "negative truth": (lambda h: h.open.settle(prompt_tokens=-1), ValueError, "prompt_tokens used .* >= 0, not -1"),
    "negative paid": (lambda h: h.open.settle(5, 5, dollars=-1), ValueError, "finite amount >= 0, not -1"),
    "infinite paid": (lambda h: h.open.settle(5, 5, dollars=INFINITE), ValueError, "not inf"),
    "negative usage": (
        lambda h: h.task.record_usage(completion_tokens=-1),
        ValueError,
        "completion_tokens used .*not -1",
    ),
    "NaN usage": (lambda h: h.task.record_usage(10, dollars=Decimal("NaN")), ValueError, "not Decimal"),
    "unknown reason": (lambda h: h.task.cancel(BORED), ValueError, "'bored' is not a valid HaltReason"),
    # More than there is.
    "child with more than its parent": (
        lambda h: h.member.carve("x", Budget(tokens=501)),
        InsufficientBudget,
        "'member' has 400 tokens left, 501 asked",
    ),
    "child with more than the path": (
        lambda h: h.task.carve("x", guarantee=Budget(loops=11)),
        InsufficientBudget,
        "'team' has 10 loops left, 11 asked",
    ),
    "guarantee above the ceiling": (
        lambda h: h.team.carve("x", Budget(tokens=10), guarantee=Budget(tokens=11)),
        ValueError,
        "a guarantee of 11 tokens is more than the ceiling of 10",
    ),
    "top_up beyond what is left": (
        lambda h: h.member.top_up(Budget(tokens=451)),
        InsufficientBudget,
        "'team' has 450 tokens left, 451 asked",
    ),
    "top_up beyond in the second dimension": (
        lambda h: h.member.top_up(Budget(tokens=1, dollars="0.51")),
        InsufficientBudget,
        "'team' has 0.5 dollars left, 0.51 asked",
    ),
    "hold of more than there is": (lambda h: h.task.reserve(tokens=471), InsufficientBudget, "'member' has 460 tokens"),
    # Twice, and after the end.
    "settling twice": (lambda h: h.settled.settle(9), GovernorClosed, "the reservation on 'task' is closed"),
    "releasing after settling": (lambda h: h.settled.release(), GovernorClosed, "the reservation on 'task' is closed"),
    "settling after releasing": (lambda h: h.released.settle(9), GovernorClosed, "the reservation on 'task' is closed"),
    "releasing twice": (lambda h: h.released.release(), GovernorClosed, "the reservation on 'task' is closed"),
    "carve from a closed governor": (lambda h: h.closed.carve("x"), GovernorClosed, "the governor 'closed' is closed"),
    "share of a closed governor": (
        lambda h: h.closed.carve_share("x", None, 0.5, 0.0),
        GovernorClosed,
        "the governor 'closed' is closed",
    ),
    "hold after close": (lambda h: h.closed.reserve(tokens=1), GovernorClosed, "the governor 'closed' is closed"),
    "step after close": (lambda h: h.closed.pre_step(), GovernorClosed, "the governor 'closed' is closed"),
    "guard after close": (lambda h: h.closed.can_proceed(), GovernorClosed, "the governor 'closed' is closed"),
    "top_up after close": (lambda h: h.closed.top_up(Budget(tokens=1)), GovernorClosed, "'closed' is closed"),
    "carve from a halted governor": (lambda h: h.halted.carve("x"), HaltError, "'halted' halted: emergency_stop"),
    "hold after a halt": (lambda h: h.halted.reserve(tokens=1), HaltError, "'halted' halted: emergency_stop"),
    "step after a halt": (lambda h: h.halted.pre_step(), HaltError, "'halted' halted: emergency_stop"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_says_what_is_wrong_and_changes_nothing(mistake: str) -> None:
    act, error, message = MISTAKES[mistake]
    house = House()
    before = house.team.tree()
    with pytest.raises(error, match=message):
        act(house)
    assert house.team.tree() == before
    assert house.open.open
    house.open.settle(prompt_tokens=1)
    house.member.close()
    assert house.team.remaining == Budget(939, 1, 10, 4, 60), "and all of it still works"


@pytest.mark.parametrize("field", ["tokens", "dollars", "loops", "tool_calls", "seconds"])
@pytest.mark.parametrize("value", [-1, NAN, INFINITE, -INFINITE, "many", True, [1], Decimal("NaN")])
def test_no_field_of_a_budget_takes_what_is_no_amount(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"Budget.{field} must be"):
        Budget(**{field: value})


@pytest.mark.anyio
@pytest.mark.parametrize("amounts", [{"tokens": -1}, {"dollars": NAN}, {"tool_calls": -1}])
async def test_a_hold_that_waits_takes_no_other_amounts_than_one_that_does_not(amounts: dict[str, Any]) -> None:
    house = House()
    before = house.team.tree()
    with pytest.raises(ValueError, match=">= 0"):
        await house.task.hold(**amounts)
    for governor, error in ((house.closed, GovernorClosed), (house.halted, HaltError)):
        with pytest.raises(error):
            await governor.hold(tokens=1)
    assert house.team.tree() == before
