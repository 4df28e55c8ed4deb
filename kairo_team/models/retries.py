"""`ModelRetry`: which failed model calls are tried again, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import known_arguments
from kairo_team.budget import check_count, check_seconds

if TYPE_CHECKING:
    from kairo_team.errors import ModelCallError, ModelErrorKind

TRANSIENT: Final[frozenset[ModelErrorKind]] = frozenset({"rate_limited", "overloaded", "timeout", "connection"})
"""Kinds of temporary errors."""
_MOST_DOUBLINGS: Final = 60


@known_arguments
@dataclass(frozen=True, slots=True)
class ModelRetry:
    """How often a model call that failed for a temporary reason is retried, and how long to wait before each retry.

    The wait doubles with each try. Up to half of it is left out at random, so that callers that failed together do not
    retry together. The wait is never shorter than the provider asks for; if that is more than `backoff_max`, the call
    is not retried.
    """

    retries: int = 2
    """Tries after the first."""
    backoff: float = 0.5
    """Seconds before the first retry."""
    backoff_max: float = 30.0
    """Most seconds before any retry."""

    def __post_init__(self) -> None:
        check_count("ModelRetry.retries", self.retries)
        check_seconds("ModelRetry.backoff", self.backoff)
        check_seconds("ModelRetry.backoff_max", self.backoff_max)

    def pause(self, tries: int, error: ModelCallError) -> float | None:
        """Return the seconds to wait after `tries` failed tries, the last with `error`; None: do not retry."""
        if tries > self.retries or error.kind not in TRANSIENT:
            return None
        # A float overflows after 1,023 doublings.
        own = min(self.backoff * 2.0 ** min(tries - 1, _MOST_DOUBLINGS), self.backoff_max)
        asked = error.retry_after
        if asked is None:
            return own * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        if not asked <= self.backoff_max:  # `not`: also for NaN
            return None
        return max(own, asked) + random.uniform(0.0, min(self.backoff, 1.0))  # noqa: S311 - no secret


def check_retry(retry: Any) -> ModelRetry:
    """Return the setting, or the default for None; `ValueError` for anything else."""
    if retry is not None and not isinstance(retry, ModelRetry):
        raise ValueError(f"model_retry must be a kt.ModelRetry, such as kt.ModelRetry(retries=4), not {retry!r}")
    return retry or ModelRetry()
