"""The limits that an agent has left, so that it can finish in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kairo_team.budget import HaltReason

if TYPE_CHECKING:
    from decimal import Decimal

    from kairo_team.budget import Budget
    from kairo_team.contracts import MemberContext

_NEXT_MESSAGE: Final = 64
"""Assumed tokens of the message between two replies, such as the errors of the first."""


def left_of(turns: int | None, context: MemberContext) -> dict[str, int | None]:
    """Return the turns and tokens left, for the template `limits`; None where nothing is limited.

    Tokens are rounded down to two digits: the exact number helps no agent, and similar work has equal prompts.
    """
    tokens = context.remaining.tokens
    return {"turns": turns, "tokens": None if tokens is None else _round_down(tokens)}


def _round_down(number: int) -> int:
    unit = int(10 ** max(0, len(str(number)) - 2))
    return number // unit * unit


def too_little(turn: int, left: Budget) -> str:
    """Return a sentence that says which budget is left and cannot pay for a turn."""
    parts = [f"{left.tokens} tokens"] if left.tokens is not None else []
    parts += [f"${left.dollars}"] if left.dollars is not None else []
    return f"the budget could not pay turn {turn}: {'0 loops' if left.loops == 0 else ', '.join(parts)} left"


def what_is_short(left: Budget, most: Decimal) -> HaltReason:
    """Return which budget could not pay for a turn; no turn so far took more than `most` dollars."""
    if left.loops == 0:
        return HaltReason.LOOP_BUDGET_EXCEEDED
    short_of_dollars = left.dollars is not None and left.dollars < 2 * most
    return HaltReason.DOLLAR_BUDGET_EXCEEDED if short_of_dollars else HaltReason.TOKEN_BUDGET_EXCEEDED


def can_pay_another(left: Budget, tokens: int, dearest: Decimal) -> bool:
    """Return whether the budget left pays for this turn, whose loop is counted already, and one more.

    `tokens` is what the two turns may need, `dearest` the highest cost of a turn so far, in dollars.
    """
    if left.loops == 0 or (left.dollars is not None and left.dollars < 2 * dearest):
        return False
    return left.tokens is None or left.tokens >= tokens


def two_turns(prompt: int, reply: int) -> int:
    """Return the tokens that this turn and one more may need; the second prompt contains the first reply."""
    return 2 * (prompt + reply) + reply + _NEXT_MESSAGE
