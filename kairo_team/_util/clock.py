"""The event loop's clock, readable from every thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import current_token


class LoopClock:
    """The running event loop's clock: seconds, monotonic, virtual where the loop's time is.

    It also remembers its event loop, so that code in that loop need not look it up again.
    """

    __slots__ = ("cancel_scope", "loop", "read", "thread")

    def __init__(self) -> None:
        self.loop: Any = current_token().native_token
        self.thread = threading.get_ident()
        own: Callable[[], float] | None = getattr(self.loop, "time", None)  # asyncio
        self.cancel_scope: type[anyio.CancelScope] = type(anyio.CancelScope())
        """Makes a cancel scope of that loop; `anyio.CancelScope` itself finds out which loop is running first."""
        if getattr(own, "__func__", None) is _usual_time():
            own = time.monotonic
        self.read: Callable[[], float] = own or sys.modules["trio"].lowlevel.current_clock().current_time

    def __call__(self) -> float:
        """Read the clock, from any thread."""
        return self.read()


def _usual_time() -> object:
    """Return the method by which asyncio's own loops read `time.monotonic`; read directly it costs a third."""
    return sys.modules["asyncio"].BaseEventLoop.time if "asyncio" in sys.modules else None
