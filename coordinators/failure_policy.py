"""What happens when an attempt fails: `FailurePolicy`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from kairo_team._util.frozen import check_kind, known_arguments
from kairo_team.budget import check_count, check_seconds
from kairo_team.errors import kinds_of
from kairo_team.results import RepeatWrites

Errors = type[BaseException] | tuple[type[BaseException], ...]
"""An exception class, or several."""


@known_arguments
@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """What follows a failed attempt: retries on the same member, then other members, then the task is FAILED.

    No further attempt is made once a constraint has ended one in an orderly way with nothing to review, a person has
    ended one, or an emergency has stopped one. Never retried on the same member: a halt, a block by a guardrail, a
    model without a price under a dollar limit, what a model refuses again (a `ModelCallError` of the kind
    context_length, content_filter, auth or bad_request, and what was raised from one), and a member that returns None
    or a Python value that is not an output. Retried: any other exception, an attempt that is late (`TimeoutError`), an
    empty text, and a reply that is not valid data of the task's output type (both `kairo_team.errors.InvalidReply`):
    the next may be. `retry_on` and `never_on` narrow that down.
    """

    retries: int = 2
    """Tries after the first one, counted from 0 for every artifact requested; `Task.retries` overrides it."""
    backoff: float = 1.0
    """Seconds before the first retry; doubled for each later one."""
    backoff_max: float = 30.0
    """Most seconds before a retry."""
    try_others: bool = True
    """Give the task to the other members that may do it, one after the other, before it fails."""
    abort_team: bool = False
    """End the whole run as FAILED when a task fails and no new plan replaces the tasks that have not started."""
    retry_on: Errors | None = None
    """Exceptions after which the same member tries again: a class, such as `ConnectionError`, or several; None: all."""
    never_on: Errors = ()
    """Exceptions after which the same member does not try again, even if in `retry_on`; other members still try."""
    repeat_writes: RepeatWrites = "ask"
    """Whether the next attempt at the same artifact, by any member, may repeat a tool call of those before it.

    Each attempt sees what those before it did with tools (`Assignment.done`). With "ask", the run's gate decides about
    a call with the same arguments as an earlier one that succeeded, or whose end is unknown; tools that only read or
    are idempotent are exempt. Without a gate, or an answer, the call is not made, and the member gets an error with the
    earlier result. With "allow", the call is repeated."""

    def __post_init__(self) -> None:
        check_count("FailurePolicy.retries", self.retries)
        check_seconds("FailurePolicy.backoff", self.backoff)
        check_seconds("FailurePolicy.backoff_max", self.backoff_max)
        check_kind("FailurePolicy.try_others", self.try_others, bool)
        check_kind("FailurePolicy.abort_team", self.abort_team, bool)
        _check_errors("retry_on", () if self.retry_on is None else self.retry_on)
        _check_errors("never_on", self.never_on)
        if self.repeat_writes not in get_args(RepeatWrites):
            raise ValueError(f'FailurePolicy.repeat_writes must be "ask" or "allow", not {self.repeat_writes!r}')

    def tries_again(self, kinds: Sequence[str]) -> bool:
        """Return whether such a failed attempt is repeated; `kinds` as in `Attempt.kinds`."""
        if not _names(self.never_on).isdisjoint(kinds):
            return False
        return self.retry_on is None or not _names(self.retry_on).isdisjoint(kinds)

    def delay(self, retry: int, seed: str) -> float:
        """Return the seconds before retry number `retry` (from 1): exponential, with jitter down to 50 %.

        The jitter is a function of `seed`, not random, so that a replayed run waits the same.
        """
        full = min(self.backoff * 2.0 ** min(retry - 1, 60), self.backoff_max)  # 60: a float would overflow
        chance = int.from_bytes(hashlib.sha256(f"{seed}:{retry}".encode()).digest()[:8], "big") / 2**64
        return full * (0.5 + 0.5 * chance)


def _as_tuple(errors: Errors) -> tuple[type[BaseException], ...]:
    return errors if isinstance(errors, tuple) else (errors,)


def _names(errors: Errors) -> frozenset[str]:
    """Return the names of exceptions as in `Attempt.kinds`."""
    return frozenset(kinds_of(one)[0] for one in _as_tuple(errors))  # names, because a record has no classes


def _check_errors(name: str, errors: Any) -> None:
    unfit = [one for one in _as_tuple(errors) if not (isinstance(one, type) and issubclass(one, BaseException))]
    if unfit:
        raise ValueError(
            f"FailurePolicy.{name} must be an exception class or a tuple of them, such as (ConnectionError, "
            f"TimeoutError), not {errors!r}"
        )
