"""Exact bounds on a counted share: Clopper and Pearson (1934), valid for every sample size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_INTERVAL: Final = 0.05
"""The share of intervals that may miss the true share, both sides together."""
_HALVINGS: Final = 60
"""Bisection steps until double precision is exhausted."""


def binomial_tail(k: int, n: int, share: float) -> float:
    """Return the probability of at most `k` successes in `n` independent trials, each with the probability `share`."""
    if k < 0:
        return 0.0
    if k >= n or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    if k > (n + 1) * share:  # beyond the mode the other tail is the short one
        return 1.0 - _falling_sum(n - k - 1, n, 1.0 - share)
    return _falling_sum(k, n, share)


def _falling_sum(k: int, n: int, share: float) -> float:
    """Sum the probabilities of k, k - 1 ... 0 until they no longer change the sum."""
    # In logarithms, because the binomial coefficient overflows a float.
    log_first = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    term = math.exp(log_first + k * math.log(share) + (n - k) * math.log1p(-share))
    odds, total = (1.0 - share) / share, 0.0
    for count in range(k, -1, -1):
        total += term
        term *= odds * count / (n - count + 1)
        if term < total * 1e-17:
            break
    return min(total, 1.0)


# A walk over thresholds asks for the same counts again and again.
@lru_cache(maxsize=65_536)
def upper_bound(k: int, n: int, delta: float) -> float:
    """Return the share that is exceeded with a probability of at most `delta`, where `k` of `n` were counted.

    This is `BetaInv(1 - delta; k + 1, n - k)`, and 1 where n = 0 or k = n. Raises `ValueError` for counts or a `delta`
    that are not possible.
    """
    if not 0 <= k <= n:
        raise ValueError(f"the bound takes counts with 0 <= k <= n, not k={k!r}, n={n!r}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be above 0 and below 1, not {delta!r}")
    if k == n:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_tail(k, n, middle) > delta else (low, middle)
    return high  # the upper end of the last step: never below the true bound


def lower_bound(k: int, n: int, delta: float) -> float:
    """Return the lower bound that is missed with a probability of at most `delta`: the mirror of `upper_bound`."""
    return 1.0 - upper_bound(n - k, n, delta)


def labels_needed(alpha: float, delta: float) -> int:
    """Return how many answers without an error are needed to promise at most `alpha`: ceil(ln delta / ln(1-alpha)).

    At a delta of 0.1 they are 22 for 0.10 and 45 for 0.05. Raises `ValueError` outside of (0, 1).
    """
    for name, value in (("alpha", alpha), ("delta", delta)):
        if not isinstance(value, int | float) or not 0 < value < 1:
            raise ValueError(f"{name} must be a number above 0 and below 1, such as 0.1, not {value!r}")
    needed = max(1, math.ceil(math.log(delta) / math.log1p(-alpha)) - 1)
    while upper_bound(0, needed, delta) > alpha:  # rounding may put the quotient on the wrong side of a whole number
        needed += 1
    return needed


@dataclass(frozen=True, slots=True)
class Proportion:
    """`k` of `n`, and an exact interval for the true share that is right in at least 95 % of samples."""

    k: int
    n: int

    def __post_init__(self) -> None:
        if not 0 <= self.k <= self.n:
            raise ValueError(f"a proportion has 0 <= k <= n, not k={self.k!r}, n={self.n!r}")

    @property
    def rate(self) -> float | None:
        """The counted share; None where `n` is 0."""
        return self.k / self.n if self.n else None

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return lower_bound(self.k, self.n, _INTERVAL / 2)

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return upper_bound(self.k, self.n, _INTERVAL / 2)

    def to_json(self) -> dict[str, float | None]:
        """Return plain data: `k`, `n`, `rate`, `low` and `high`."""
        return {"k": self.k, "n": self.n, "rate": self.rate, "low": self.low, "high": self.high}

    def __str__(self) -> str:
        if self.rate is None:
            return "none"
        return f"{self.k} of {self.n}, {self.rate:.1%} ({self.low:.1%} to {self.high:.1%})"
