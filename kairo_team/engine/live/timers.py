"""Timeouts of attempts, with one timer for the whole run: one for each would take a tenth of an attempt's time."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

import anyio

_FEW: Final = 64
"""Number of ended timeouts that may always be kept."""


class Cancellable(Protocol):
    """Anything that a timeout may cancel, such as a scope."""

    @property
    def running(self) -> bool:
        """Whether the work has not ended."""
        ...

    def cancel(self) -> None:
        """End the work; called in the event loop."""


class Timeouts:
    """Cancels work, such as open scopes, when it is due, by `clock` (the event loop's).

    Takes effect only while `watch` runs.
    """

    __slots__ = ("_due", "_many", "_news", "_order", "_pending", "clock")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._pending: list[tuple[float, int, Cancellable]] = []
        """A heap. Entries of ended work are dropped when they come up, or when there are too many."""
        self._many = _FEW
        self._order = count()
        self._due = math.inf
        """When the watch wakes by itself."""
        self._news = anyio.Event()

    def start(self, scope: Cancellable, seconds: float, since: float | None = None) -> None:
        """Cancel `scope` `seconds` after `since` (by default now), unless it has ended by then."""
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
        """Number of kept timeouts, including some of ended work."""
        return len(self._pending)

    async def watch(self) -> None:
        """Cancel whatever is due, for ever."""
        while True:
            # An event cannot be cleared.
            if self._news.is_set():
                self._news = anyio.Event()
            with anyio.CancelScope(deadline=self._due):
                await self._news.wait()
            now = self.clock()
            due: list[Cancellable] = []
            while self._pending and (self._pending[0][0] <= now or not self._pending[0][2].running):
                due.append(heappop(self._pending)[2])
            for one in due:  # which may start another timeout, due at once
                if one.running:
                    one.cancel()
            self._due = self._pending[0][0] if self._pending else math.inf
