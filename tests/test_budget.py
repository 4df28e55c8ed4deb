"""Budgets, usages and exact money: what is refused, what is equal, what goes through JSON."""

from __future__ import annotations

import decimal
import math
import pickle
import random
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from kairo_team.budget import (
    PICODOLLARS,
    Budget,
    BudgetPolicy,
    HaltReason,
    Money,
    Usage,
    difference,
    picodollars,
    to_dollars,
    to_picodollars,
)
from kairo_team.governance import CostLimit, Governor
from kairo_team.governance.pricing import Price

amounts_of_money = st.decimals(min_value=0, max_value=10**9, places=12)
usages = st.builds(
    Usage,
    prompt_tokens=st.integers(0, 10**12),
    completion_tokens=st.integers(0, 10**12),
    dollars=amounts_of_money,
    loops=st.integers(0, 10**6),
    tool_calls=st.integers(0, 10**6),
    seconds=st.floats(0, 1e9),
)
budgets = st.builds(
    Budget,
    tokens=st.none() | st.integers(0, 10**12),
    dollars=st.none() | amounts_of_money,
    loops=st.none() | st.integers(0, 10**6),
    tool_calls=st.none() | st.integers(0, 10**6),
    seconds=st.none() | st.floats(0, 1e9),
)


# -- money ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "units"),
    [
        ("0.05", 5 * 10**10),
        (0.1, 10**11),
        (1, 10**12),
        (Decimal("1e-12"), 1),
        ("1.10", 11 * 10**11),
        (0, 0),
        ("123456789.123456789012", 123456789123456789012),
    ],
)
def test_money_is_read_exactly_however_it_is_written(amount: Money, units: int) -> None:
    assert to_picodollars(amount) == picodollars(amount) == units
    assert to_dollars(units) == Decimal(str(amount))


def test_what_is_finer_than_a_picodollar_is_rounded_up_and_limits_down() -> None:
    assert to_picodollars("0.0000000000001") == 1
    assert to_picodollars("1.0000000000009", round_up=False) == PICODOLLARS
    assert to_picodollars("0.1" + "0" * 60 + "1") == 10**11 + 1
    assert Usage(dollars=Decimal("0.0000000000001")).dollars == Decimal("1e-12")
    assert Budget(dollars="0.0000000000019").dollars == Decimal("1e-12")


@pytest.mark.parametrize("amount", [1e-13, "1e-13", "0.0000000000009", Decimal("1e-13"), "1e-999999999", 5e-324])
def test_audit_g33_a_limit_in_dollars_too_small_to_be_kept_is_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match=r"Budget\.dollars must be 0 or at least 0\.000000000001 ") as refused:
        Budget(dollars=amount)
    assert repr(amount) in str(refused.value)
    with pytest.raises(ValueError, match=r"CostLimit\.dollars must be"):
        CostLimit(amount)
    with pytest.raises(ValidationError, match=r"Budget\.dollars must be 0 or at least"):
        TypeAdapter(Budget).validate_python({"dollars": str(amount)})


@pytest.mark.parametrize("zero", [0, "0", 0.0, "0e-20", Decimal("0.00")])
def test_a_limit_of_no_dollars_is_one(zero: Any) -> None:
    assert Budget(dollars=zero).dollars == 0


@given(st.one_of(st.floats(0, 1e-9, exclude_min=True), st.decimals(0, 1, places=15).filter(bool)))
def test_audit_g33_an_amount_above_0_never_becomes_0(amount: Any) -> None:
    exact = Decimal(repr(amount)) if isinstance(amount, float) else amount
    governor = Governor()
    with governor.reserve(dollars=amount) as hold:
        assert hold.dollars >= exact
    governor.record_usage(dollars=amount)
    assert governor.usage.dollars == 2 * hold.dollars
    assert Usage(dollars=Decimal(exact)).dollars == hold.dollars
    assert Price(amount).input == Price(request=amount).request == hold.dollars
    assert Price(amount).cost(Usage(1)) > 0
    if exact < Decimal("1e-12"):
        with pytest.raises(ValueError, match="at least"):
            Budget(dollars=amount)
    else:
        assert 0 < Decimal(str(Budget(dollars=amount).dollars)) <= exact


@pytest.mark.parametrize(
    "amount", [-1, "-0.01", math.nan, math.inf, "NaN", "Infinity", "ten", "", None, [], True, "1e999"]
)
def test_what_is_no_amount_of_money_is_refused_by_its_name(amount: Any) -> None:
    with pytest.raises(ValueError, match=r"Budget\.dollars must be"):
        to_picodollars(amount, field="Budget.dollars")


def test_an_absurd_amount_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(ValueError, match="less than"):
        Budget(dollars="1e999999999")


def test_money_does_not_depend_on_the_applications_decimal_context() -> None:
    with decimal.localcontext(decimal.Context(prec=3, rounding=decimal.ROUND_UP, traps=[decimal.Inexact])):
        assert to_picodollars("1.23456789") == 1234567890000
        assert to_dollars(123456789012345) == Decimal("123.456789012345")
        total = Usage(dollars=Decimal("1.23456789")) + Usage(dollars=Decimal("1000000.1"))
        spent = difference(total, Usage(dollars=Decimal("0.00000001")), 1.5)
    assert total.dollars == Decimal("1000001.33456789")
    assert (spent.dollars, spent.seconds) == (Decimal("1000001.33456788"), 1.5)


def test_dollars_are_shown_without_trailing_zeros_and_exponents() -> None:
    assert [str(to_dollars(units)) for units in (10**12, 10**15, 5 * 10**10, 0)] == ["1", "1000", "0.05", "0"]


@given(st.integers(0, 10**24))
def test_ledger_units_go_to_dollars_and_back(units: int) -> None:
    assert to_picodollars(to_dollars(units)) == units


# -- budgets ----------------------------------------------------------------------------------


def test_none_is_unlimited_and_zero_is_kept() -> None:
    assert Budget() == Budget(None, None, None, None, None)
    assert Budget(tokens=0) != Budget()
    assert Budget(0, 0, 0, 0, 0).dollars == 0


@pytest.mark.parametrize("field", ["tokens", "loops", "tool_calls", "dollars", "seconds"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf, "many", True])
def test_a_limit_that_is_no_limit_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"Budget\.{field} must be"):
        Budget(**{field: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["tokens", "loops", "tool_calls"])
def test_counts_are_whole_numbers(field: str) -> None:
    with pytest.raises(ValueError, match="whole number"):
        Budget(**{field: 1.5})  # type: ignore[arg-type]


def test_equal_limits_are_equal_and_hash_alike_however_they_are_written() -> None:
    written = [Budget(tokens=5, dollars=amount) for amount in ("0.10", 0.1, Decimal("0.1"), "1e-1")]
    assert len(set(written)) == 1
    assert repr(written[0]) == "Budget(tokens=5, dollars=0.1)"


def test_a_budget_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Budget().tokens = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Usage().loops = 5  # type: ignore[misc]


@given(budgets)
def test_a_budget_goes_through_json_and_pickle(budget: Budget) -> None:
    adapter = TypeAdapter(Budget)
    assert adapter.validate_json(adapter.dump_json(budget)) == budget
    assert pickle.loads(pickle.dumps(budget)) == budget  # noqa: S301 - our own bytes


@pytest.mark.parametrize("text", ['{"tokens": -1}', '{"dollars": -0.1}', '{"dollars": "NaN"}', '{"seconds": -1}'])
def test_json_is_checked_like_everything_else(text: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Budget).validate_json(text)


def test_json_numbers_are_exact_dollars() -> None:
    assert TypeAdapter(Budget).validate_json('{"dollars": 0.1}') == Budget(dollars="0.1")


def test_the_reserve_is_a_share() -> None:
    assert BudgetPolicy().reserve == pytest.approx(0.10)
    for share in (-0.1, 1, 1.5, math.nan, "half", True):
        with pytest.raises(ValueError, match=r"BudgetPolicy\.reserve must be a share"):
            BudgetPolicy(reserve=share)  # type: ignore[arg-type]


# -- usage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens", "loops", "tool_calls", "dollars", "seconds"])
@pytest.mark.parametrize("value", [-1, math.nan, "many"])
def test_a_usage_that_cannot_be_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"Usage\.{field} must be"):
        Usage(**{field: value})  # type: ignore[arg-type]


@given(usages, usages, usages)
def test_adding_is_exact_commutative_and_associative(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b).tokens == a.tokens + b.tokens
    assert a + Usage() == a
    assert hash(a + b) == hash(b + a)


def test_kf_b11_a_sum_of_tenths_is_the_same_in_every_order() -> None:
    """B11: floats: exact-limit sums differ by order."""
    prices = ["0.1", "0.2", "0.3", "0.7", "1e-12"]
    totals: set[Usage] = set()
    for order in permutations(prices):
        total = Usage()
        for price in order:
            total += Usage(dollars=Decimal(price))
        totals.add(total)
    assert totals == {Usage(dollars=Decimal("1.300000000001"))}
    many = [0.1, 0.2, 0.3, 1e-9, 0.7] * 200
    units = sum(map(to_picodollars, many))
    random.Random(7).shuffle(many)  # noqa: S311 - an order, not a secret
    assert sum(map(to_picodollars, many)) == units == 260 * PICODOLLARS + 200_000


def test_seconds_do_not_add() -> None:
    assert (Usage(seconds=3) + Usage(seconds=5)).seconds == 5


def test_only_usages_can_be_added() -> None:
    with pytest.raises(TypeError):
        Usage() + 5  # type: ignore[operator]


@given(usages)
def test_a_usage_goes_through_json(usage: Usage) -> None:
    adapter = TypeAdapter(Usage)
    assert adapter.validate_json(adapter.dump_json(usage)) == usage


def test_halt_reasons_are_strings() -> None:
    assert [reason.value for reason in HaltReason] == [
        "token_budget_exceeded",
        "dollar_budget_exceeded",
        "loop_budget_exceeded",
        "tool_budget_exceeded",
        "time_budget_exceeded",
        "cancelled",
        "emergency_stop",
    ]
    assert TypeAdapter(HaltReason).dump_json(HaltReason.CANCELLED) == b'"cancelled"'
