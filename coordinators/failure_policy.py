"""What happens when an attempt fails."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kairo_team._util.frozen import known_arguments
from kairo_team.errors import kinds_of

Errors = type[BaseException] | tuple[type[BaseException], ...]
"""An exception class, or several."""


@known_arguments
@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What follows a failed attempt: retries on the same member, then other members, then the task is FAILED.

    Nobody tries again once a constraint has ended an attempt in an orderly way with nothing to review, a person has
    ended it, or an emergency has stopped it. Never retried on the same member: a halt, a block by a guardrail, a model
    without a price under a dollar limit, and a member that returns None or a Python value that is no output. Retried:
    whatever it raises, an attempt that is late (`TimeoutError`), an empty text, and a reply that is no valid data of
    the task's output type (both `kairo_team.errors.InvalidReply`): the next may be. `retry_on` and `never_on` narrow
    that down.
    """

    retries: int = 2
    """Tries after the first one, anew for every artifact asked for; `Task.retries` goes before it."""
    backoff: float = 1.0
    """Seconds before the first retry; doubled for each one after it."""
    backoff_max: float = 30.0
    """Most seconds before a retry."""
    try_others: bool = True
    """Give the task to the other members that may do it, one after the other, before it fails."""
    abort_team: bool = False
    """End the whole run as FAILED when a task fails and no new plan takes the place of what has not started."""
    retry_on: Errors | None = None
    """Exceptions after which the same member tries again: a class, such as `ConnectionError`, or several; None: all."""
    never_on: Errors = ()
    """Exceptions after which it does not; these count before `retry_on`. Other members are still asked."""

    def __post_init__(self) -> None:
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise ValueError(f"FailurePolicy.retries must be a whole number >= 0, not {self.retries!r}")
        for name in ("backoff", "backoff_max"):
            seconds = getattr(self, name)
            number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if not number or not math.isfinite(seconds) or seconds < 0:
                raise ValueError(f"FailurePolicy.{name} must be a finite number of seconds >= 0, not {seconds!r}")
        for name in ("try_others", "abort_team"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"FailurePolicy.{name} must be True or False, not {getattr(self, name)!r}")
        _check_errors("retry_on", () if self.retry_on is None else self.retry_on)
        _check_errors("never_on", self.never_on)

    def tries_again(self, kinds: Sequence[str]) -> bool:
        """Return whether an attempt that failed like this is made again; `kinds` as in `Attempt.kinds`."""
        if not _names(self.never_on).isdisjoint(kinds):
            return False
        return self.retry_on is None or not _names(self.retry_on).isdisjoint(kinds)

    def delay(self, retry: int, seed: str) -> float:
        """Return the seconds before retry number `retry` (from 1): exponential, with jitter down to half of it.

        The jitter follows from `seed`, not from chance, so that a replayed run waits the same.
        """
        full = min(self.backoff * 2.0 ** min(retry - 1, 60), self.backoff_max)
        chance = int.from_bytes(hashlib.sha256(f"{seed}:{retry}".encode()).digest()[:8], "big") / 2**64
        return full * (0.5 + 0.5 * chance)


def _several(errors: Errors) -> tuple[type[BaseException], ...]:
    return errors if isinstance(errors, tuple) else (errors,)


def _names(errors: Errors) -> frozenset[str]:
    """Name exceptions as an attempt's record names what it failed with."""
    return frozenset(kinds_of(one)[0] for one in _several(errors))


def _check_errors(name: str, errors: Any) -> None:
    unfit = [one for one in _several(errors) if not (isinstance(one, type) and issubclass(one, BaseException))]
    if unfit:
        raise ValueError(
            f"FailurePolicy.{name} must be an exception class or a tuple of them, such as (ConnectionError, "
            f"TimeoutError), not {errors!r}"
        )
