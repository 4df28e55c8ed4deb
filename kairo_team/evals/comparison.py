"""Comparing two evals, case by case."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from kairo_team.evaluators.calibration.confidence_bounds import binomial_tail

if TYPE_CHECKING:
    from kairo_team.evals.eval_result import EvalResult, Trial

_DRAWS: Final = 4_000
_SIGNIFICANT: Final = 0.05
FEW: Final = 10
"""Cases below which an interval of differences is too narrow."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The change of a mean over cases, with an interval for the true change."""

    before: float
    after: float
    low: float
    high: float

    @property
    def change(self) -> float:
        """`after` minus `before`."""
        return self.after - self.before

    def __str__(self) -> str:
        return f"{self.before:.1%} -> {self.after:.1%}, {self.change:+.1%} ({self.low:+.1%} to {self.high:+.1%})"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evals on the cases that both have."""

    cases: int
    passed: Difference
    """The pass rate. The interval is drawn over cases, paired."""
    score: Difference | None
    """The mean score of the cases with a score in both evals; None without any."""
    better: tuple[str, ...]
    """Cases that pass more often than before."""
    worse: tuple[str, ...]
    p_value: float
    """The exact sign test on `better` and `worse`: how often chance alone splits them at least as unevenly."""
    criteria: Mapping[str, tuple[float, float]]
    """How often each criterion was met, before and after."""
    warnings: tuple[str, ...]
    """Why the two may not be comparable."""

    @property
    def significant(self) -> bool:
        """Whether chance alone would split the changed cases as unevenly in fewer than one of twenty evals."""
        return self.p_value < _SIGNIFICANT


def compare(after: EvalResult, before: EvalResult) -> Comparison:
    """Compare two evals on the cases that both have, each case with itself.

    A case's pass rate is the share of its trials that passed. The interval of the mean change is a percentile bootstrap
    over cases (Efron 1979), with the same draws every time; the test is the exact sign test. Raises `ValueError` if no
    case is in both.
    """
    old, new = before.cases, after.cases
    ids = [one for one in new if one in old]
    if not ids:
        raise ValueError("the two evals have no case in common: cases are paired by their ids")
    pairs = [(_rate(old[one]), _rate(new[one])) for one in ids]
    scored = [(a, b) for one in ids if (a := _score(old[one])) is not None and (b := _score(new[one])) is not None]
    better = tuple(one for one, (a, b) in zip(ids, pairs, strict=True) if b > a)
    worse = tuple(one for one, (a, b) in zip(ids, pairs, strict=True) if b < a)
    met = {
        name: (earlier, now.rate)
        for name, now in after.criteria.items()
        if now.rate is not None and name in before.criteria and (earlier := before.criteria[name].rate) is not None
    }
    score = _difference(scored) if scored else None
    p_value = sign_test(len(better), len(worse))
    warnings = tuple(_warnings(after, before, len(ids)))
    return Comparison(len(ids), _difference(pairs), score, better, worse, p_value, met, warnings)


def _rate(trials: Sequence[Trial]) -> float:
    return fmean(one.outcome == "pass" for one in trials)


def _score(trials: Sequence[Trial]) -> float | None:
    scores = [one.score for one in trials if one.score is not None]
    return fmean(scores) if scores else None


def _difference(pairs: Sequence[tuple[float, float]]) -> Difference:
    changes = [after - before for before, after in pairs]
    draw = random.Random(0)  # noqa: S311 - the same draws every time; they protect no secret
    means = sorted(fmean(draw.choices(changes, k=len(changes))) for _ in range(_DRAWS))
    low, high = means[int(_DRAWS * 0.025)], means[int(_DRAWS * 0.975)]
    return Difference(fmean(before for before, _ in pairs), fmean(after for _, after in pairs), low, high)


def sign_test(better: int, worse: int) -> float:
    """Return the two-sided exact p-value of so many changes one way and the other; 1 without a change."""
    changed = better + worse
    return min(1.0, 2 * binomial_tail(min(better, worse), changed, 0.5)) if changed else 1.0


def _warnings(after: EvalResult, before: EvalResult, common: int) -> list[str]:
    found: list[str] = []
    only = [(len(one.cases) - common, where) for one, where in ((before, "earlier"), (after, "later"))]
    found += [f"{count} cases are in the {where} eval alone and are left out" for count, where in only if count]
    if not any(count for count, _ in only) and before.dataset != after.dataset:
        found.append("the cases have the same ids and different contents")
    if before.rubric != after.rubric:
        found.append("the rubrics differ: a change may come from the criteria")
    elif after.rubric is None:
        found.append("the rubric has no digest: it may have changed")
    if before.judge != after.judge:
        found.append(f"the judges differ: {before.judge or 'none'}, then {after.judge or 'none'}")
    if common < FEW:
        found.append(f"{common} cases are few: the interval is narrower than it should be")
    return found
