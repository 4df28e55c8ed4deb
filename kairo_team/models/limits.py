"""`ModelLimit`: how many calls of a model may be in flight, and how many may begin in a minute."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import anyio

from kairo_team.budget import check_count
from kairo_team.frozen import known_arguments
from kairo_team.governance.loops import current_loop, send

_MINUTE: Final = 60.0
_SLACK: Final = 1e-6
"""Seconds by which a timer may fire early."""


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelLimit:
    """What a provider lets an account do; None is unlimited.

    Whoever has to wait holds no budget meanwhile. First come, first served.
    """

    concurrency: int | None = None
    """Calls in flight at once."""
    per_minute: int | None = None
    """Calls begun in any 60 seconds; every try of a call counts."""

    def __post_init__(self) -> None:
        for name in ("concurrency", "per_minute"):
            value = getattr(self, name)
            if value is None:
                continue
            check_count(f"ModelLimit.{name}", value)
            if value == 0:
                raise ValueError(f"ModelLimit.{name} must be at least 1, or None for no limit; 0 would wait for ever")


class ModelLimits:
    """The limits of one program, and who is inside them now; may be used from several event loops and threads.

    An exact name goes before patterns such as `openai:*`, and those in the order given. All models that one pattern
    stands for share its limit.
    """

    def __init__(self, limits: Mapping[str, ModelLimit] | None = None) -> None:
        self._gates = {pattern: Gate(_checked(pattern, limit)) for pattern, limit in dict(limits or {}).items()}
        self._found: dict[str, Gate | None] = {}

    def gate(self, model: str) -> Gate | None:
        """Return where calls of that model wait for their turn; None where they need not."""
        if not self._gates:
            return None
        if model not in self._found:
            gates = self._gates
            matching = (gate for pattern, gate in gates.items() if fnmatchcase(model, pattern))
            self._found[model] = gates.get(model) or next(matching, None)
        return self._found[model]


def _checked(pattern: object, limit: object) -> ModelLimit:
    if not isinstance(pattern, str) or not (":" in pattern or "*" in pattern):
        raise ValueError(f"limits are set for 'provider:name' or a pattern such as 'openai:*', not for {pattern!r}")
    if not isinstance(limit, ModelLimit):
        raise ValueError(f"the limit of {pattern!r} must be a kt.ModelLimit, such as kt.ModelLimit(8), not {limit!r}")
    return limit


class _Waiter:
    """A caller in line."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._loop = current_loop()

    def wake(self) -> None:
        """Let it look again; from any thread."""
        send(self._loop, self._event.set)

    async def sleep(self, seconds: float | None) -> None:
        """Sleep until woken, or for so long."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        if self._event.is_set():
            self._event = anyio.Event()


class Gate:
    """One limit: who is inside, who waits, and when calls began."""

    def __init__(self, limit: ModelLimit) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._inside = 0
        self._begun: deque[float] = deque()
        self._line: deque[_Waiter] = deque()
        self._clock = _Clock()

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Wait for a turn, and have it inside the block; cancelled while it waits, a caller leaves the line."""
        await self._enter()
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                self._call_next()

    async def _enter(self) -> None:
        with self._lock:
            if not self._line and self._due() == 0:
                self._begin()
                return
            waiter = _Waiter()
            self._line.append(waiter)
        try:
            while (seconds := self._seconds(waiter)) != 0:
                await waiter.sleep(seconds)
        except BaseException:
            with self._lock:
                self._line.remove(waiter)
                self._call_next()
            raise

    def _seconds(self, waiter: _Waiter) -> float | None:
        """Let the first in line in (0), or say how long it is to wait; None: until it is woken."""
        with self._lock:
            if self._line[0] is not waiter:
                return None
            due = self._due()
            if due == 0:
                self._line.popleft()
                self._begin()
                self._call_next()
            return due

    def _due(self) -> float | None:
        """Return in how many seconds a call may begin; None: once another has ended. Needs the lock."""
        limit = self._limit
        if limit.concurrency is not None and self._inside >= limit.concurrency:
            return None
        if limit.per_minute is None:
            return 0
        now, begun = self._clock(), self._begun
        while begun and not now - _MINUTE + _SLACK < begun[0] <= now + _SLACK:
            begun.popleft()
        return 0 if len(begun) < limit.per_minute else begun[0] + _MINUTE - now

    def _begin(self) -> None:
        self._inside += 1
        if self._limit.per_minute is not None:
            self._begun.append(self._clock())

    def _call_next(self) -> None:
        if self._line:
            self._line[0].wake()


class _Clock:
    """The running event loop's clock, moved so that the readings of loops that follow one another can be compared."""

    __slots__ = ("_ahead", "_loop")

    def __init__(self) -> None:
        self._loop: Any = None
        self._ahead = 0.0

    def __call__(self) -> float:
        """Tell the time in seconds; in virtual time it is virtual."""
        now, loop = anyio.current_time(), current_loop()
        if loop is not self._loop:
            self._loop, self._ahead = loop, time.monotonic() - now
        return now + self._ahead
