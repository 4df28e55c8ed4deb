"""Clocks for tests: one moved by hand, and event loops in which hours pass in milliseconds.

In virtual time the clock jumps to the next timer when nothing else is ready. Time is virtual only inside the event
loop. A worker thread works in real time, and while a test waits for one, the clock keeps real time. What the clock does
not see are threads that code starts by itself, and sockets: test these on the ordinary loops.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from kairo_team._util.threads import calls_at_work

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


_LOOK: Final = 0.02
"""Seconds after which the clock looks again whether worker threads are at work."""


def _waits_for_threads() -> bool:
    """Return whether worker threads of the library or of anyio are at work; only inside an event loop."""
    return calls_at_work() > 0 or anyio.to_thread.current_default_thread_limiter().borrowed_tokens > 0


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never sleeps for a timer: the time jumps if no file is ready and no thread is at work."""

    now = 0.0
    in_executors = 0
    """Calls of `run_in_executor` that have not ended."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # asked before the look at files: what a thread that ends in between has posted is then among them
        waits = timeout is not None and timeout > 0 and (self.in_executors > 0 or _waits_for_threads())
        ready = super().select(None if timeout is None else 0)  # None: no timer, so only a file or a thread can wake it
        if ready or timeout is None or timeout <= 0:
            return ready
        if not waits:
            self.now += timeout
            return ready
        began = time.monotonic()
        ready = super().select(min(timeout, _LOOK))  # a thread that ends without a post would not wake it
        self.now += min(time.monotonic() - began, timeout)  # never past the timer: it must fire at its time
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock starts at 0 and jumps to the next timer as soon as nothing is ready.

    While a worker thread is at work, and without a timer, it waits in real time.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        return self._jumping.now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` in a thread; until it ends, the clock keeps real time."""
        call = super().run_in_executor(executor, func, *args)
        self._jumping.in_executors += 1
        call.add_done_callback(self._left_executor)  # also for a cancelled call
        return call

    def _left_executor(self, call: object) -> None:
        self._jumping.in_executors -= 1


def _trio_clock() -> Any:
    """Return trio's clock that jumps when nothing is ready; in real time while a worker thread is at work."""
    import trio  # an extra: only where trio is tested
    from trio.testing import MockClock

    clock: Any = MockClock(autojump_threshold=0)  # 0: as soon as nothing is ready
    jump_to_next_timer = clock._autojump  # noqa: SLF001 - the class is final, and has no public place for a condition

    def autojump() -> None:
        waited, clock.autojump_threshold = clock.autojump_threshold, _LOOK if _waits_for_threads() else 0
        now = trio.lowlevel.current_statistics()
        if clock.autojump_threshold:
            if waited:
                clock.jump(min(waited, max(0.0, now.seconds_to_next_deadline)))
        # A thread may have posted its result after trio looked, and then have left: the loop is not idle then.
        elif not now.run_sync_soon_queue_size:
            jump_to_next_timer()

    clock._autojump = autojump  # noqa: SLF001 - as above
    return clock


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
        return backend, {"clock": _trio_clock()}
    raise ValueError(f"no virtual time for {backend!r}; there is {' and '.join(map(repr, virtual_time_backends))}")


def run_in_virtual_time(function: Callable[[*Ts], Awaitable[T]], *arguments: *Ts, backend: str = "asyncio") -> T:
    """Call an async function from sync code, in a new event loop with virtual time."""
    name, options = virtual_time(backend)
    return anyio.run(function, *arguments, backend=name, backend_options=options)
