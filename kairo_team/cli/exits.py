"""How the program ends when a thread is still at work in it."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from contextlib import suppress


class QuietEnd:
    """Make it when the program begins, set `code` when it is known.

    An abandoned thread - an agent past its deadline, a model whose caller is gone - may be inside native code, and
    shutting the interpreter down then aborts the process. So when all handlers that were registered later have run, and
    a daemon thread is still alive, the process exits at once.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        atexit.register(self._end)

    def _end(self) -> None:
        if self.code is None or not any(thread.daemon for thread in threading.enumerate()):
            return
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(self.code)
