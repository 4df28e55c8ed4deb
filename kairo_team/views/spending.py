"""What a run has spent, holds for calls, and has free, from its events."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from kairo_team import events
from kairo_team.budget import to_dollars

if TYPE_CHECKING:
    from kairo_team.events import Event


class Spending:
    """Takes every event of one run, in order; what tasks spend is told with `book`."""

    def __init__(self) -> None:
        self.tokens = 0
        """Spent by the whole team so far."""
        self.dollars = Decimal(0)
        """The same in US dollars."""
        self.held = 0
        """Tokens that are set aside for calls in flight."""
        self.more_tokens = 0
        """What the run got beyond its first budget."""
        self.more_dollars = Decimal(0)
        self._holds: dict[tuple[str, int], int] = {}

    def take(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case events.ModelStarted():
                self._hold((event.call_id, event.number), event.held)
            case events.ModelCalled():
                self._hold((event.call_id, event.number), 0)
            case events.BudgetToppedUp(task_id=None):
                self.more_tokens += event.tokens or 0
                self.more_dollars += to_dollars(event.picodollars or 0)
            case events.TeamEnded():
                self.tokens, self.dollars, self.held = event.usage.tokens, event.usage.dollars, 0
                self._holds.clear()
            case _:
                pass

    def book(self, tokens: int, dollars: Decimal) -> None:
        """Add what was spent; below 0 where calls had counted for more than their attempt says."""
        self.tokens += tokens
        self.dollars += dollars

    def _hold(self, call: tuple[str, int], tokens: int) -> None:
        self.held += tokens - self._holds.pop(call, 0)
        if tokens:
            self._holds[call] = tokens
