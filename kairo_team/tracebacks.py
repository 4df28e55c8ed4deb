"""Where an error of a plug-in was raised, in the log: its traceback once, however often it comes."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final

_logger = logging.getLogger("kairo_team")


class Tracebacks:
    """Logs errors of one run's members, evaluators and checks: at WARNING with the traceback once, then at DEBUG.

    The same error is one of the same class, raised in the same line, in the work of the same plug-in.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: set[tuple[str, type[BaseException], str]] = set()

    def log(self, who: str, what: str, error: BaseException) -> None:
        """Log that `who`, such as "the member 'ann'", raised; `what` says where, such as "on task 'letter'"."""
        place = _place_of(error)
        one = (who, type(error), place)
        level = logging.DEBUG if one in self._seen else logging.WARNING
        self._seen.add(one)
        _logger.log(level, "%s", " ".join(filter(None, (who, "raised", what, place))), exc_info=error)

    @contextmanager
    def here(self) -> Generator[None]:
        """Have `log_raised` log here during the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: Final[ContextVar[Tracebacks | None]] = ContextVar("tracebacks", default=None)


def log_raised(who: str, what: str, error: BaseException) -> None:
    """Log an error that a review went on without, as `Tracebacks.log` of its run does; outside a run, each time."""
    (_current.get() or Tracebacks()).log(who, what, error)


def _place_of(error: BaseException) -> str:
    """Return the file and line that raised an error, as `(team.py, line 12)`; empty where it was never raised."""
    last = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        last = (Path(frame.f_code.co_filename).name, line)
    return "" if last is None else f"({last[0]}, line {last[1]})"
