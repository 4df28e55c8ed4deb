"""Timeouts of attempts: one timer for all of a run, where a timer of its own would be a tenth of an attempt's cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from kairo_team.governance.scope import GovernorScope

_FEW: Final = 64
"""Timeouts of ended attempts that may be kept whatever the others are."""


class Timeouts:
    """When open scopes are to be cancelled, in the time of `clock` (the event loop's). Works while `watch` runs."""

    __slots__ = ("_due", "_many", "_news", "_order", "_pending", "clock")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._pending: list[tuple[float, int, GovernorScope]] = []
        """A heap: those of ended scopes are dropped when they come up, or when they are too many."""
        self._many = _FEW
        self._order = count()
        self._due = math.inf
        """When the watch wakes by itself."""
        self._news = anyio.Event()

    def start(self, scope: GovernorScope, seconds: float, since: float | None = None) -> None:
        """Cancel an open scope `seconds` after `since` (by default now), unless it has ended by then."""
        due = (self.clock() if since is None else since) + seconds
        pending = self._pending
        heappush(pending, (due, next(self._order), scope))
        if due < self._due:
            self._due = due
            self._news.set()
        if len(pending) > self._many:
            pending[:] = [one for one in pending if one[2].running]
            heapify(pending)
            self._many = 2 * len(pending) + _FEW

    @property
    def pending(self) -> int:
        """How many are kept, some of them of scopes that have ended."""
        return len(self._pending)

    async def watch(self) -> None:
        """Cancel what is due, for ever."""
        while True:
            if self._news.is_set():
                self._news = anyio.Event()
            with anyio.CancelScope(deadline=self._due):
                await self._news.wait()
            now = self.clock()
            while self._pending and (self._pending[0][0] <= now or not self._pending[0][2].running):
                scope = heappop(self._pending)[2]
                if scope.running:
                    scope.cancel()
            self._due = self._pending[0][0] if self._pending else math.inf
