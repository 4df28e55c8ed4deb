"""Timeouts of attempts: one timer for a whole run. One timer for each attempt would be a tenth of an attempt's cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Protocol

import anyio

_FEW: Final = 64
"""Timeouts of ended attempts that may always be kept."""


class Cancellable(Protocol):
    """What a timeout may end, such as a scope."""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        ...

    def cancel(self) -> None:
        """End it; called in the event loop."""


class Timeouts:
    """When what runs is to be cancelled, such as open scopes, in the time of `clock` (the event loop's).

    Works while `watch` runs.
    """

    __slots__ = ("_due", "_many", "_news", "_order", "_pending", "clock")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._pending: list[tuple[float, int, Cancellable]] = []
        """A heap: those of what has ended are dropped when they come up, or when they are too many."""
        self._many = _FEW
        self._order = count()
        self._due = math.inf
        """When the watch wakes by itself."""
        self._news = anyio.Event()

    def start(self, scope: Cancellable, seconds: float, since: float | None = None) -> None:
        """Cancel it `seconds` after `since` (by default now), unless it has ended by then."""
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
        """How many are kept, some of them of what has ended."""
        return len(self._pending)

    async def watch(self) -> None:
        """Cancel what is due, for ever."""
        while True:
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
