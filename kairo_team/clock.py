"""The event loop's clock, readable from every thread."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from anyio.lowlevel import current_token


def loop_clock() -> Callable[[], float]:
    """Return the running event loop's clock: seconds, monotonic, virtual where the loop's time is."""
    native: Any = current_token().native_token
    own: Callable[[], float] | None = getattr(native, "time", None)
    if own is not None:
        return own
    clock: Callable[[], float] = sys.modules["trio"].lowlevel.current_clock().current_time
    return clock
