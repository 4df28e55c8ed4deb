"""The text on its limits that an agent receives, so that it can finish in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from decimal import Decimal

    from kairo_team.budget import Budget
    from kairo_team.contracts import MemberContext

_NEXT_MESSAGE: Final = 64
"""Tokens of the message between two replies, such as the errors of the first."""
LAST_TURN: Final = "This is your last turn: finish now with what you have."


def describe_limits(turns_left: int | None, context: MemberContext) -> str:
    """Return a text on what is left; empty when nothing is limited."""
    left = context.remaining
    parts = [f"{turns_left} turns"] if turns_left is not None else []
    parts += [f"{left.tokens} tokens"] if left.tokens is not None else []
    parts += [f"${left.dollars}"] if left.dollars is not None else []
    parts += [f"{left.seconds:.0f} seconds"] if left.seconds is not None else []
    return f"Left for this task: {', '.join(parts)}." if parts else ""


def too_little(turn: int, left: Budget) -> str:
    """Return a sentence on a turn that was not taken because what is left could not pay for it."""
    parts = [f"{left.tokens} tokens"] if left.tokens is not None else []
    parts += [f"${left.dollars}"] if left.dollars is not None else []
    return f"the budget could not pay turn {turn}: {'0 loops' if left.loops == 0 else ', '.join(parts)} left"


def can_pay_another(left: Budget, tokens: int, dearest: Decimal) -> bool:
    """Return whether what is left pays for this turn, whose loop is counted, and one more.

    `tokens` is what the two may need, `dearest` the highest cost of a turn so far, in dollars.
    """
    if left.loops == 0 or (left.dollars is not None and left.dollars < 2 * dearest):
        return False
    return left.tokens is None or left.tokens >= tokens


def two_turns(prompt: int, reply: int) -> int:
    """Return the tokens that a turn and one more may need: the second prompt has the reply to the first in it."""
    return 2 * (prompt + reply) + reply + _NEXT_MESSAGE
