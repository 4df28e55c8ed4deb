"""Ctrl-C: once stops the run and keeps what there is, twice leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Final, Self

from kairo_team.errors import RunFinished, RunNotFound
from kairo_team.events import Event, TeamStarted
from kairo_team.runtime import Runtime

NOTICE: Final = "stopping ... press Ctrl-C again to leave at once"
LEFT: Final = 130
"""Exit code of a program that was interrupted: 128 and the signal's number."""
_SHOW_CURSOR: Final = b"\x1b[?25h"

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


class Interrupts:
    """Handles Ctrl-C while its `with` block lasts. Also a subscriber: a Ctrl-C before the run began ends it then.

    After a first Ctrl-C the handler stays, so that a second one leaves the program in whatever it is doing then.
    """

    def __init__(self, runtime: Runtime, notify: Callable[[str], object]) -> None:
        self._runtime = runtime
        self._notify = notify
        self._reason: str | None = None
        self._before: Handler = None
        self._installed = False

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        ignored = self._before is signal.SIG_IGN  # as under nohup: whoever started us wants it so
        self._installed = threading.current_thread() is threading.main_thread() and not ignored
        if self._installed:
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._installed and self._reason is None:
            signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def __call__(self, event: Event) -> None:
        """End a run that begins after it was to be stopped."""
        if self._reason is not None and isinstance(event, TeamStarted):
            self.stop(self._reason)

    def stop(self, reason: str) -> None:
        """Kill the runs; from any thread or signal handler."""
        self._reason = reason
        for run_id in self._runtime.runs:
            with suppress(RunFinished, RunNotFound):
                self._runtime.runs[run_id].cancel(reason)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._reason is not None:
            leave()
        self.stop("interrupted")
        self._notify(NOTICE)


def leave() -> None:
    """End the process now: nothing is waited for, nothing is cleaned up but the cursor."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            if stream is not None and stream.isatty():
                os.write(stream.fileno(), _SHOW_CURSOR)
                break
    os._exit(LEFT)
