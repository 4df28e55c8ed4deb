"""Retention: runs that ended long ago are deleted from the journal of a runtime, now and then."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.threads import run_in_thread
from kairo_team.errors import KairoError

if TYPE_CHECKING:
    from kairo_team.contracts import Journal

_logger = logging.getLogger("kairo_team")

_EVERY: Final = 3600.0
"""Most seconds between two deletions of a runtime that has work; a shorter retention deletes more often."""


class Retention:
    """Deletes runs that ended more than `seconds` ago; a runtime and its copies share one."""

    def __init__(self, seconds: float) -> None:
        """Keep runs for `seconds` after their end; raises `ValueError` for anything else than a positive number."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
            raise ValueError(
                "Runtime.retention is how many seconds a run is kept after its end, such as 30 * 86_400 for thirty "
                f"days, or None to keep all runs, not {seconds!r:.80}"
            )
        self._seconds = float(seconds)
        self._next = -math.inf

    async def apply(self, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        """Delete the old runs of a journal, unless that was done shortly before; a failure is logged."""
        if clock() < self._next:
            return
        # Set before the deletion, so that a run that begins meanwhile does not delete too.
        self._next = clock() + min(self._seconds, _EVERY)
        if not takes_age(journal):
            _logger.warning("Runtime(retention=) deletes nothing: %r cannot forget runs by their age", journal)
            return
        try:
            number = await run_in_thread(partial(_forget, journal, self._seconds))
        except KairoError as error:  # the run that begins needs no deletion
            _logger.warning("Runtime(retention=) could not delete old runs: %s", error)
        else:
            _logger.info("retention: %d old runs are deleted from %r", number, journal)


def takes_age(journal: Any) -> bool:
    """Return whether a journal can delete runs by their age."""
    forget = getattr(journal, "forget", None)
    return callable(forget) and "older_than" in inspect.signature(forget).parameters


def _forget(journal: Any, seconds: float) -> int:
    return int(journal.forget(older_than=seconds))
