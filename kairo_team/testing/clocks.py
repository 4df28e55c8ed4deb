"""Clocks for tests: one moved by hand, and event loops in which hours pass in milliseconds.

In virtual time the clock jumps to the next timer when nothing else is ready. Time is virtual only inside the event
loop. A worker thread works in real time, and while a test waits for one, the clock jumps past every deadline: test code
that runs in threads on the ordinary loops.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Backend = tuple[str, dict[str, Any]]
"""A name and options, as anyio's pytest plugin takes them for `anyio_backend`."""

virtual_time_backends: Final = ("asyncio", "trio")
"""Names that `virtual_time` takes."""


class FakeClock:
    """A clock that starts at 0 seconds and moves only by `advance`, for `Governor(clock=...)`."""

    __slots__ = ("now",)

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the time forward, in seconds; raise `ValueError` for a negative amount."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back: advance({seconds!r})")
        self.now += seconds

    def __repr__(self) -> str:
        return f"FakeClock({self.now!r})"


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never sleeps for a timer: if no file is ready, the time jumps at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock starts at 0 and jumps to the next timer as soon as nothing is ready.

    Without any timer it waits, in real time, for `call_soon_threadsafe` from another thread.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._jumping.now


def virtual_time(backend: str = "asyncio") -> Backend:
    """Return a new backend in virtual time, as the value of an `anyio_backend` fixture.

    ```python
    @pytest.fixture(params=virtual_time_backends)
    def anyio_backend(request):
        return virtual_time(request.param)
    ```
    """
    if backend == "asyncio":
        return backend, {"loop_factory": VirtualTimeLoop}
    if backend == "trio":
        from trio.testing import MockClock  # an extra: only where trio is tested

        return backend, {"clock": MockClock(autojump_threshold=0)}
    raise ValueError(f"no virtual time for {backend!r}; there is {' and '.join(map(repr, virtual_time_backends))}")


def run_in_virtual_time(function: Callable[[*Ts], Awaitable[T]], *arguments: *Ts, backend: str = "asyncio") -> T:
    """Call an async function from sync code, in a new event loop with virtual time."""
    name, options = virtual_time(backend)
    return anyio.run(function, *arguments, backend=name, backend_options=options)
