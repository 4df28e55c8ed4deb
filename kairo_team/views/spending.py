"""Tokens and dollars that a run has spent and holds for calls, from its events."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team.budget import to_dollars

if TYPE_CHECKING:
    from kairo_team.events import Event

_NOTHING: Final = Decimal(0)


class Spending:
    """Sums up the events of one run, in order; `book` adds what tasks spend."""

    def __init__(self) -> None:
        self.tokens = 0
        """Tokens spent by the whole team so far."""
        self.dollars = _NOTHING
        """The same in US dollars."""
        self.held = 0
        """Tokens that are set aside for calls in flight."""
        self.held_dollars = _NOTHING
        self.more_tokens = 0
        """Tokens that the run got beyond its first budget."""
        self.more_dollars = _NOTHING
        self._holds: dict[tuple[str, int], tuple[int, Decimal]] = {}

    def take(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case events.ModelStarted():
                self._hold((event.call_id, event.number), event.held, to_dollars(event.held_picodollars))
            case events.ModelCalled():
                self._hold((event.call_id, event.number), 0, _NOTHING)
            case events.BudgetToppedUp(task_id=None):
                self.more_tokens += event.tokens or 0
                self.more_dollars += to_dollars(event.picodollars or 0)
            case events.TeamEnded():
                self.tokens, self.dollars, self.held = event.usage.tokens, event.usage.dollars, 0
                self.held_dollars = _NOTHING
                self._holds.clear()  # calls without an end hold nothing any longer
            case _:
                pass

    def book(self, tokens: int, dollars: Decimal) -> None:
        """Add spending; it is negative if calls counted for more than their attempt reports."""
        self.tokens += tokens
        self.dollars += dollars

    def _hold(self, call: tuple[str, int], tokens: int, dollars: Decimal) -> None:
        before, dollars_before = self._holds.pop(call, (0, _NOTHING))
        self.held += tokens - before
        self.held_dollars += dollars - dollars_before
        if tokens:
            self._holds[call] = (tokens, dollars)
