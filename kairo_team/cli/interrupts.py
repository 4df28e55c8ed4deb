"""Signals that stop a run and keep its work: Ctrl-C, SIGTERM, SIGHUP. A second Ctrl-C exits at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, Self

from kairo_team.cli.exit_codes import LEFT, LEFT_BY_SIGNAL
from kairo_team.engine.work.runtime import Runtime
from kairo_team.errors import Misuse
from kairo_team.events import Event, TeamResumed, TeamStarted

NOTICE: Final = "stopping ... press Ctrl-C again to exit at once"
PATIENCE: Final = 8.0
"""Seconds after SIGTERM or SIGHUP in which the run ends; then the process ends. Service managers kill after 10."""
_REASONS: Final = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "the terminal was closed"}
_SIGNALS: Final = {
    getattr(signal, name): reason for name, reason in _REASONS.items() if hasattr(signal, name)
}  # Windows has no SIGHUP
_SHOW_CURSOR: Final = b"\x1b[?25h"

Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


def not_ignored(numbers: Iterable[int]) -> list[int]:
    """Return these signals without ignored ones, as under nohup: the program was started that way on purpose."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], Any]) -> Generator[None]:
    """Call a handler on these signals in the block; Python lets only the main thread do so, and others change none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier or signal.SIG_DFL)


class Interrupts:
    """Handles the signals in its `with` block. Also a subscriber: a run that begins after a signal ends at once.

    A run with a journal on disk is interrupted, so that it can be resumed; any other run is cancelled.

    After a first signal the handlers stay, so that a second Ctrl-C exits the program at any point. A second SIGTERM or
    SIGHUP changes nothing, because process managers often send them twice.
    """

    def __init__(self, runtime: Runtime, notify: Callable[[str], object], last_line: str = "") -> None:
        """`notify` prints a notice, `last_line` is printed when the program is left in the middle of the run."""
        self.exit_code: int | None = None
        """The exit code after SIGTERM (143) or SIGHUP (129); None: the run's status decides it."""
        self._runtime = runtime
        self._notify = notify
        self._last_line = last_line
        self._reason: str | None = None
        self._before: dict[int, Handler] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in not_ignored(_SIGNALS)}
        return self

    def __exit__(self, *_: object) -> None:
        if self.exit_code is not None:
            _set_alarm(0)
        if self._reason is None:
            for number, handler in self._before.items():
                signal.signal(number, handler or signal.SIG_DFL)

    def __call__(self, event: Event) -> None:
        """End a run that begins after a signal."""
        if self._reason is not None and isinstance(event, TeamStarted | TeamResumed):
            self.stop(self._reason)

    def stop(self, reason: str) -> None:
        """Stop the runs; from any thread or signal handler."""
        self._reason = reason
        for run_id in self._runtime.runs:
            with suppress(Misuse):  # it has ended meanwhile
                run = self._runtime.runs[run_id]
                if self._runtime.store is None:
                    run.cancel(reason)
                else:
                    run.interrupt(reason)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._reason is not None:
                leave(LEFT, self._last_line)
            self.stop(_SIGNALS[number])
            self._notify(NOTICE)
        elif self.exit_code is None:
            self.exit_code = LEFT_BY_SIGNAL + number
            _set_alarm(PATIENCE, self._leave)
            self.stop(self._reason or _SIGNALS[number])
            self._notify(f"stopping: {_SIGNALS[number]}")

    def _leave(self, number: int, frame: FrameType | None) -> None:
        leave(self.exit_code or LEFT, self._last_line)


def _set_alarm(seconds: float, handler: Handler = signal.SIG_IGN) -> None:
    """Have the handler called after some seconds, 0 for never."""
    # A timer, not a thread: a signal handler cannot start a thread safely.
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def leave(code: int, last_line: str = "") -> None:
    """End the process now with an exit code: wait for nothing, restore only the cursor."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            if stream is not None and stream.isatty():
                os.write(stream.fileno(), _SHOW_CURSOR)
                break
    if last_line:
        warn_at_once(last_line)
    os._exit(code)


def warn_at_once(text: str) -> None:
    """Print a line to stderr without going through any buffer or lock: safe in a signal handler."""
    with suppress(OSError, ValueError, AttributeError):
        os.write(sys.__stderr__.fileno(), f"{text}\n".encode())  # type: ignore[union-attr]  # None is suppressed
