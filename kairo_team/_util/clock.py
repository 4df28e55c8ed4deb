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
    """The running event loop's clock: in seconds, monotonic, virtual if the loop's time is virtual.

    It also keeps its event loop, so that code in that loop need not look it up again.
    """

    __slots__ = ("cancel_scope", "loop", "read", "thread")

    def __init__(self) -> None:
        self.loop: Any = current_token().native_token
        self.thread = threading.get_ident()
        own: Callable[[], float] | None = getattr(self.loop, "time", None)  # asyncio
        self.cancel_scope: type[anyio.CancelScope] = type(anyio.CancelScope())
        """The class of that loop's cancel scopes; `anyio.CancelScope` would first look up which loop is running."""
        asyncio: Any = sys.modules.get("asyncio")
        # A loop with a virtual time has its own method; the one of asyncio's loops reads `time.monotonic`.
        if asyncio is not None and getattr(own, "__func__", None) is asyncio.BaseEventLoop.time:
            # Read directly it costs a third.
            own = time.monotonic
        self.read: Callable[[], float] = own or sys.modules["trio"].lowlevel.current_clock().current_time

    def __call__(self) -> float:
        """Read the clock, from any thread."""
        return self.read()
