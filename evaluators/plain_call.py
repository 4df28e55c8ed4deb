"""Calling a plain function under a limit: in a thread of its own, which the event loop waits for a moment."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from kairo_team.threads import run_in_thread

PATIENCE: Final = 0.1
"""Seconds the event loop stands still for a plain function at most."""


class PlainCall:
    """One call of a plain function, in a daemon thread: one that hangs keeps neither run nor process from ending.

    A quick function ends in the moment the event loop waits for it, and then it was as if it had been called in place:
    nothing else happened meanwhile, and where time is virtual none of it passed.
    """

    __slots__ = ("_call", "_done", "_error", "_result")

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def ends_within(self, seconds: float) -> bool:
        """Start it, wait in place, and tell whether it has ended."""
        threading.Thread(target=_context().run, args=(self._work,), name="kairo-check", daemon=True).start()
        return self._done.wait(seconds)

    async def wait(self, longest: float) -> None:
        """Wait for its end with the event loop free; cancellation leaves it to itself. `longest` is in seconds."""
        await run_in_thread(self._done.wait, longest)

    def outcome(self) -> Any:
        """Return what it returned, or raise what it raised."""
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            self._error = None  # else the error, its traceback and this object keep each other alive

    def _work(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - handed to the caller, who raises it
            self._error = error
        finally:
            self._done.set()


def _context() -> contextvars.Context:
    """Copy the caller's context variables, without sniffio's claim that an event loop runs here."""
    context = contextvars.copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context
