"""The text that reports its limits to an agent, so that it can finish in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from decimal import Decimal

    from kairo_team.budget import Budget
    from kairo_team.contracts import MemberContext

_NEXT_MESSAGE: Final = 64
"""Assumed tokens of the message between two replies, such as the errors of the first."""
LAST_TURN: Final = "This is your last turn: finish now with what you have."


def describe_limits(turns_left: int | None, context: MemberContext) -> str:
    """Return a text with the turns and the budget left; "" when nothing is limited."""
    left = context.remaining
    parts = [f"{turns_left} turns"] if turns_left is not None else []
    parts += [f"{left.tokens} tokens"] if left.tokens is not None else []
    parts += [f"${left.dollars}"] if left.dollars is not None else []
    parts += [f"{left.seconds:.0f} seconds"] if left.seconds is not None else []
    return f"Left for this task: {', '.join(parts)}." if parts else ""


def too_little(turn: int, left: Budget) -> str:
    """Return a sentence that says which budget is left and cannot pay for a turn."""
    parts = [f"{left.tokens} tokens"] if left.tokens is not None else []
    parts += [f"${left.dollars}"] if left.dollars is not None else []
    return f"the budget could not pay turn {turn}: {'0 loops' if left.loops == 0 else ', '.join(parts)} left"


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
