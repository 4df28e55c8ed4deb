"""How fast a run's tasks end, and how long the rest may take at that pace. This module uses no terminal."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Final

from kairo_team.views.text import clock

_LATEST: Final = 50
"""Tasks that ended last, from which the pace is measured."""
_FEWEST: Final = 5
"""Ends that a pace needs at least."""
_MANY: Final = 100
"""A pace that is written without a fraction."""
_HOUR, _MINUTE, _SECOND = (3_600.0, "an hour"), (60.0, "a minute"), (1.0, "a second")


class Pace:
    """Takes the time of each task's end."""

    def __init__(self) -> None:
        self._ends: deque[datetime] = deque(maxlen=_LATEST)
        self._began: datetime | None = None

    def begin(self, at: datetime) -> None:
        """Take the time at which a task began to be worked on."""
        self._began = self._began or at

    def end(self, at: datetime) -> None:
        """Take the time at which a task that was worked on ended."""
        self._ends.append(at)

    def per_second(self, now: datetime) -> float | None:
        """Return how many tasks end in a second; None while that is not known."""
        if len(self._ends) < _FEWEST or self._began is None:
            return None
        full = len(self._ends) == _LATEST
        passed = (now - (self._ends[0] if full else self._began)).total_seconds()
        return (len(self._ends) - full) / passed if passed > 0 else None

    def describe(self, left: int, now: datetime) -> str:
        """Return the pace, and how long so many tasks may take: `12 a minute, about 2:05 left`; "" if it is unknown."""
        rate = self.per_second(now)
        if rate is None:
            return ""
        size, unit = next((one for one in (_SECOND, _MINUTE) if rate * one[0] >= 1), _HOUR)
        pace = f"{rate * size:,.3g} {unit}" if rate * size < _MANY else f"{rate * size:,.0f} {unit}"
        return f"{pace}, about {clock(left / rate)} left" if left else pace
