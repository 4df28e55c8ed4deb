"""What happens when an attempt fails."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What follows a failed attempt: retries on the same member, then other members, then the task is FAILED.

    Never retried on the same member: a halt, a block by a guardrail, a model without a price under a dollar limit, and
    a member that returns None or a Python value that is no output. Retried: whatever it raises, an empty text, and a
    reply that is no valid data of the task's output type (`InvalidReply`): the next may be.
    """

    retries: int = 2
    """Tries after the first one, anew for every artifact asked for."""
    backoff: float = 1.0
    """Seconds before the first retry; doubled for each one after it."""
    backoff_max: float = 30.0
    """Most seconds before a retry."""
    try_others: bool = True
    """Give the task to the other members that may do it, one after the other, before it fails."""
    abort_team: bool = False
    """End the whole run as FAILED when a task fails and no new plan takes the place of what has not started."""

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

    def delay(self, retry: int, seed: str) -> float:
        """Return the seconds before retry number `retry` (from 1): exponential, with jitter down to half of it.

        The jitter follows from `seed`, not from chance, so that a replayed run waits the same.
        """
        full = min(self.backoff * 2.0 ** min(retry - 1, 60), self.backoff_max)
        chance = int.from_bytes(hashlib.sha256(f"{seed}:{retry}".encode()).digest()[:8], "big") / 2**64
        return full * (0.5 + 0.5 * chance)
