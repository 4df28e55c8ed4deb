"""What a task is expected to take, so that no more are let in than the budget can carry to their end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kairo_team.governance.units import NOTHING, Limits, Units, units_of

if TYPE_CHECKING:
    from kairo_team.budget import BudgetPolicy
    from kairo_team.governance.governor import Governor

_AT_FIRST: Final = 2
"""Tasks that start at once although nobody knows yet what one takes, and there may be little."""
_MARGIN: Final = (5, 4)
"""Above the mean: half of the tasks take more than that."""


class Needs:
    """What a task of each member is expected to take, in ledger units, by what those that ended have taken.

    Before the first has ended that is the policy's `expect`, or half of what there is for tasks, where that is less.
    Afterwards it is a quarter more than the mean. A task that ran out of budget is presumed to have been half way.
    """

    def __init__(self, governors: Mapping[str, Governor], policy: BudgetPolicy) -> None:
        self._governors = governors
        self._policy = policy
        self._expected: dict[str, Units] = {}
        self._taken: dict[str, tuple[int, Units]] = {}
        """How many have ended, and what they took together."""
        self._aside: dict[str, Limits] | None = None
        """What is not for tasks: the reserve, and what members and purposes were guaranteed before the first task."""

    def of(self, member: str) -> Units:
        """Return what a task of the member is expected to take; nothing where nothing is limited."""
        if self._aside is None:  # of all at once: what one member's tasks are guaranteed is not aside for another's
            self._aside = {name: self._find_aside(governor) for name, governor in self._governors.items()}
        return self._expected.get(member) or self._at_first(member)

    def start_with_less(self, member: str, in_flight: int) -> bool:
        """Say whether a task of the member starts with less than that: where nothing can come back, or nobody knows."""
        return not in_flight or (in_flight < _AT_FIRST and member not in self._expected)

    def learn(self, member: str, took: Units, *, ran_out: bool) -> None:
        """Take into account what an ended task took."""
        if not self._governors[member].limited:
            return
        ended, (tokens, picos, loops, tool_calls) = self._taken.get(member, (0, NOTHING))
        times = 2 if ran_out else 1
        ended += 1
        tokens, picos = tokens + times * took[0], picos + times * took[1]
        loops, tool_calls = loops + times * took[2], tool_calls + times * took[3]
        self._taken[member] = ended, (tokens, picos, loops, tool_calls)
        more, of = _MARGIN[0], _MARGIN[1] * ended
        self._expected[member] = (
            tokens * more // of, picos * more // of, loops * more // of, tool_calls * more // of,
        )  # fmt: skip

    def _find_aside(self, governor: Governor) -> Limits:
        unspent, free = governor.unspent, governor.allottable(self._policy.reserve)
        tokens, picos, loops, tool_calls = (
            None if left is None or most is None else most - left for most, left in zip(unspent, free, strict=True)
        )
        return (tokens, picos, loops, tool_calls)

    def _at_first(self, member: str) -> Units:
        governor = self._governors[member]
        if not governor.limited or self._aside is None:
            return NOTHING
        tokens, picos, loops, tool_calls = (
            0 if left is None or aside is None else min(expected, max(0, left - aside) // _AT_FIRST)
            for expected, left, aside in zip(
                units_of(self._policy.expect), governor.unspent, self._aside[member], strict=True
            )
        )
        return (tokens, picos, loops, tool_calls)
