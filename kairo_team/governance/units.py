"""Amounts as the ledger counts them: whole tokens, picodollars, loops and tool calls, always in this order."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kairo_team.budget import Budget, Usage, picodollars, to_dollars
from kairo_team.frozen import maker

if TYPE_CHECKING:
    from decimal import Decimal

Units = tuple[int, int, int, int]
"""Amounts in ledger units: tokens, picodollars, loops, tool calls."""

Limits = tuple[int | None, int | None, int | None, int | None]
"""Limits in ledger units, in the same order; `None` is unlimited."""

DIMENSIONS: Final = ("tokens", "dollars", "loops", "tool_calls")
TOKENS: Final = 0
DOLLARS: Final = 1
LOOPS: Final = 2
TOOL_CALLS: Final = 3

ALL_DIMENSIONS: Final = (TOKENS, DOLLARS, LOOPS, TOOL_CALLS)
HELD_DIMENSIONS: Final = (TOKENS, DOLLARS, TOOL_CALLS)
"""The dimensions a call is held and charged in."""

NOTHING: Final[Units] = (0, 0, 0, 0)
UNLIMITED: Final[Limits] = (None, None, None, None)
"""Compared by identity where it saves work: a tuple that is only equal costs more and changes nothing."""
FREE: Final = Budget()


def limits_of(budget: Budget) -> Limits:
    """Turn a budget into limits in ledger units; seconds are no part of them."""
    if budget is FREE:
        return UNLIMITED
    if type(budget) is not Budget:
        raise _no_budget(budget)
    dollars = budget.dollars
    limits = (budget.tokens, None if dollars is None else picodollars(dollars), budget.loops, budget.tool_calls)
    return UNLIMITED if limits == UNLIMITED else limits


def units_of(budget: Budget) -> Units:
    """Turn a budget into amounts in ledger units: `None` counts as nothing."""
    try:
        dollars = budget.dollars
    except AttributeError:
        raise _no_budget(budget) from None
    units = (budget.tokens or 0, picodollars(dollars) if dollars else 0, budget.loops or 0, budget.tool_calls or 0)
    return NOTHING if units == NOTHING else units


def finite(limits: Limits) -> Units:
    """Return limits as amounts: `None` counts as nothing."""
    tokens, picos, loops, tool_calls = limits
    return (tokens or 0, picos or 0, loops or 0, tool_calls or 0)


def cut(amounts: Units, limits: Limits) -> Units:
    """Return amounts that are no more than the limits."""
    tokens, picos, loops, tool_calls = (
        amount if most is None or amount < most else most for amount, most in zip(amounts, limits, strict=True)
    )
    return (tokens, picos, loops, tool_calls)


def beyond(floor: int, committed: int, change: int) -> int:
    """Return what of a change that led to `committed` is beyond a guarantee of `floor`."""
    if not floor:
        return change
    before = committed - change
    above = committed - floor if committed > floor else 0
    return above - (before - floor) if before > floor else above


def _no_budget(given: object) -> ValueError:
    return ValueError(f"a budget is a kt.Budget such as Budget(tokens=1000), not {given!r}")


@lru_cache(maxsize=256)
def budget_of(limits: Limits, seconds: float | None = None) -> Budget:
    """Turn limits in ledger units back into a budget."""
    tokens, dollars, loops, tool_calls = limits
    return Budget(tokens, None if dollars is None else to_dollars(dollars), loops, tool_calls, seconds)


_NO_USAGE: Final = Usage()


make_usage: Final = maker(Usage)
"""Makes a usage of amounts out of the ledger, which were checked on their way in."""


def usage_of(tokens: int, dollars: int, loops: int, tool_calls: int) -> Usage:
    """Turn amounts in ledger units into a usage, all tokens as prompt tokens."""
    if not (tokens or dollars or loops or tool_calls):
        return _NO_USAGE
    return Usage(tokens, 0, to_dollars(dollars), loops, tool_calls)


def shown(dim: int, units: int) -> int | Decimal:
    """Turn ledger units into what people read: dollars as a `Decimal`, the rest as it is."""
    return to_dollars(units) if dim == DOLLARS else units


def check_within(guarantee: Units, limit: Limits) -> None:
    """Raise `ValueError` if a guarantee is more than its ceiling."""
    for dim, most in enumerate(limit):
        if most is not None and guarantee[dim] > most:
            what = f"a guarantee of {shown(dim, guarantee[dim])} {DIMENSIONS[dim]}"
            raise ValueError(f"{what} is more than the ceiling of {shown(dim, most)}")
