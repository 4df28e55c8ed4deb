"""The exit codes, and the end of the program while a thread is still at work."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

USAGE_ERROR: Final = 2
LEFT_BY_SIGNAL: Final = 128
"""Base of the exit code of a program that a signal ended: the signal's number is added."""
LEFT: Final = LEFT_BY_SIGNAL + signal.SIGINT
"""Exit code of a program that Ctrl-C ended."""
EXIT_CODE_BY_STATUS: Final[Mapping[str, int]] = {
    "completed": 0,
    "degraded": 3,
    "failed": 4,
    "timeout": 5,
    "cancelled": 6,
    "suspended": 7,
}
"""Exit codes of a command that runs a team, by the run's status."""
INCOMPLETE: Final = 3
"""Exit code of an eval that did not run all its trials."""
NO_ANSWER: Final = 4
"""Exit code when a judge gave no answer, or its answers allow no promise."""
NOT_MET: Final = 8
"""Exit code when a requirement is not met, or a check found something wrong."""
GIVEN_UP_CODE: Final = 9
"""Exit code when workers gave the run up, because it ended one after another."""


def list_exit_codes(done: str, codes: Mapping[int, str] = {}, *, refused: str = "usage error") -> str:
    """Return the sentence on exit codes in a command's help: 0 for `done`, 2 for `refused`, and `codes`."""
    said = {0: done, USAGE_ERROR: refused, **codes}
    return f"Exit codes: {'; '.join(f'{code} {said[code]}' for code in sorted(said))}."


EXIT_CODES: Final = list_exit_codes(
    "completed",
    {code: status for status, code in EXIT_CODE_BY_STATUS.items() if code}
    | {129: "ended by SIGHUP", LEFT: "ended by Ctrl-C", 143: "ended by SIGTERM"},
)
"""The exit codes in the help of a command that runs a team."""


_MOST_SECONDS: Final = 5
"""Seconds at the end for exporting the rest of the telemetry."""


class QuietEnd:
    """Ends the process at once if a daemon thread is still alive. Make it first, set `code` when it is known.

    An abandoned thread - an agent past its deadline, a model whose caller is gone - may be inside native code, and
    shutting the interpreter down then aborts the process. So the process exits when all handlers that were registered
    later have run.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        atexit.register(self._end)

    def _end(self) -> None:
        if self.code is None or not any(thread.daemon for thread in threading.enumerate()):
            return
        # An SDK that was set up earlier would export the rest of its telemetry only after this.
        for name, provider in (
            ("trace", "get_tracer_provider"), ("metrics", "get_meter_provider"), ("_logs", "get_logger_provider"),
        ):  # fmt: skip
            api = sys.modules.get(f"opentelemetry.{name}")
            flush = None if api is None else getattr(getattr(api, provider)(), "force_flush", None)
            if flush is not None:
                with suppress(Exception):
                    flush(1000 * _MOST_SECONDS)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(self.code)
