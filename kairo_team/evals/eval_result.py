"""`EvalResult`: the outcome of every trial of an eval, the metrics, and the file."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal, get_args

from kairo_team._util.drawn import drawing
from kairo_team._util.late_pydantic import adapter, read
from kairo_team.artifacts import Finding
from kairo_team.budget import Usage
from kairo_team.evaluators.calibration.confidence_bounds import Proportion, binomial_tail
from kairo_team.verdicts import Cause, CriterionResult

Outcome = Literal["pass", "fail", "undecided", "error", "not run"]
"""fail: the review found a defect. undecided: no usable review decided it. error: the team made no result."""
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

VERSION: Final = 1
"""Version of the file format of a result."""


@dataclass(frozen=True)
class Trial:
    """One run of the team on one case, and its review."""

    case: str
    """The case's id."""
    number: int
    """From 1 to `repeat`."""
    outcome: Outcome
    output: str = ""
    """The text of the team's result, also of one that was cut short."""
    score: float | None = None
    """The rubric's score, from 0 to 1; None if nothing was scored."""
    why: str = ""
    """The review's feedback, or why the result is missing."""
    cause: Cause | None = None
    """Why the trial is undecided."""
    criteria: tuple[CriterionResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    usage: Usage = Usage()
    """Usage of the team; `seconds` is its time."""
    review: Usage = Usage()
    """Usage of the judges."""
    awaits_person: bool = False
    """Whether it passed but for a person's approval: the eval asks no person about its own review."""


@dataclass(frozen=True)
class EvalResult:
    """The trials of an eval in the order of its cases, with the digests of cases and rubric."""

    name: str
    trials: tuple[Trial, ...]
    repeat: int = 1
    run_id: str = ""
    """The run in the journal; "" for a result that was not recorded."""
    team: str = ""
    dataset: str = ""
    """The digest of the cases."""
    rubric: str | None = None
    """The digest of the rubric; None if it has no digest."""
    judge: str = ""
    """The name of the judge; "" without one."""
    error: str | None = None
    """Why some trials were not run, or could not be judged within the budget; None if all were."""

    @property
    def cases(self) -> Mapping[str, Sequence[Trial]]:
        """The trials of each case, by its id."""
        found: dict[str, list[Trial]] = {}
        for trial in self.trials:
            found.setdefault(trial.case, []).append(trial)
        return found

    @property
    def passed(self) -> Proportion:
        """How many trials passed, of all that were planned. Repeats of a case are not independent draws: see `low`."""
        return Proportion(sum(one.outcome == "pass" for one in self.trials), len(self.trials))

    @property
    def interval(self) -> tuple[float, float]:
        """The interval that contains the true pass rate in at least 95 % of datasets.

        Exact (Clopper and Pearson, 1934) over cases: with repeats a case counts as one draw, rounded down for the lower
        end and up for the upper one, which makes the interval wider, never narrower.
        """
        rates = [fmean(one.outcome == "pass" for one in trials) for trials in self.cases.values()]
        # 1e-9 below: a sum such as 1/3 + 2/3 may miss a whole number by rounding.
        whole = math.fsum(rates)  # exact, before it is rounded
        return (
            Proportion(math.floor(whole + 1e-9), len(rates)).low,
            Proportion(math.ceil(whole - 1e-9), len(rates)).high,
        )

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Numbers by name, for a table and for a CI job.

        `pass_rate`, `fail_rate`, `undecided_rate`, `error_rate` and `not_run_rate` are shares of all planned trials;
        `awaits_person_rate` is the share of the same that passed and still needs a person's approval, for rubrics with
        such criteria; `score` is the mean of the trials that have one; `flip_rate` is the share of cases whose repeats
        differ in outcome; `pass_any_K` and `pass_all_K` are the chance that any or all of K trials of a case pass
        (pass@K and pass^K), for K from 2 to `repeat`; `dollars` and `tokens` are the usage of team and judges together;
        `seconds` is the median time of the team, `seconds_p95` the time that 95 % of trials stay below; `criterion.ID`
        is the share of trials that met the criterion, among the trials that decided it. Metrics without anything to
        count are left out.
        """
        count = len(self.trials)
        found: dict[str, float] = {}
        for outcome in OUTCOMES:
            share = sum(one.outcome == outcome for one in self.trials) / count
            found[f"{outcome.replace(' ', '_')}_rate"] = share
        awaits = sum(one.awaits_person for one in self.trials)
        found |= {"awaits_person_rate": awaits / count} if awaits else {}  # only where there are such criteria
        scores = [one.score for one in self.trials if one.score is not None]
        found |= {"score": fmean(scores)} if scores else {}
        if self.repeat > 1:
            found["flip_rate"] = fmean(len({one.outcome for one in trials}) > 1 for trials in self.cases.values())
            for k in range(2, self.repeat + 1):
                found |= {f"pass_any_{k}": self._of_tries(k, any), f"pass_all_{k}": self._of_tries(k, all)}
        found["dollars"] = float(sum(one.usage.dollars + one.review.dollars for one in self.trials))
        found["tokens"] = float(sum(one.usage.tokens + one.review.tokens for one in self.trials))
        # A trial that was not run has no time, and zeros would flatter the team.
        took = sorted(one.usage.seconds for one in self.trials if one.outcome != "not run")
        if took:
            found |= {"seconds": _quantile(took, 0.5), "seconds_p95": _quantile(took, 0.95)}
        return found | {f"criterion.{name}": met.rate for name, met in self.criteria.items() if met.rate is not None}

    def _of_tries(self, k: int, how: Callable[[Iterable[bool]], bool]) -> float:
        """Return the mean chance, over cases, that any or all of `k` of a case's trials passed.

        All ways to choose `k` trials count alike, which makes it the unbiased estimate of pass@k (Chen et al., 2021)
        and of pass^k (Yao et al., 2024).
        """
        chances: list[float] = []
        for trials in self.cases.values():
            passed = sum(one.outcome == "pass" for one in trials)
            # "Any" is counted by its opposite: no one of the k passed.
            good = passed if how is all else len(trials) - passed
            chance = math.comb(good, k) / math.comb(len(trials), k)
            chances.append(chance if how is all else 1 - chance)
        return fmean(chances)

    @property
    def criteria(self) -> Mapping[str, Proportion]:
        """How many trials met each criterion, among the trials that decided it; in the rubric's order."""
        met: dict[str, list[bool]] = {}
        for trial in self.trials:
            for one in trial.criteria:
                met.setdefault(one.id, []).extend([one.passed] if one.passed is not None else [])
        return {name: Proportion(sum(found), len(found)) for name, found in met.items()}

    def compare(self, earlier: EvalResult) -> Comparison:
        """Compare with an earlier result, case by case; see `kairo_team.evals.compare`."""
        return compare(self, earlier)

    def save(self, path: str | Path) -> None:
        """Write the result as JSON; `load` reads it."""
        Path(path).write_text(self.to_json(), encoding="utf-8", newline="\n")

    def to_json(self) -> str:
        """Return the result as JSON: its fields, `metrics`, and the `version` of the form."""
        fields: dict[str, Any] = adapter(EvalResult).dump_python(self, mode="json")
        return json.dumps({"version": VERSION, "metrics": self.metrics, **fields}, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> EvalResult:
        """Read a file that `save` wrote; `ValueError` for any other, `OSError` for one that cannot be read."""
        try:
            found: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it is not JSON ({str(error).partition(':')[0]})") from None
        if not isinstance(found, dict) or found.get("version") != VERSION:  # pyright: ignore[reportUnknownMemberType] - JSON
            raise ValueError(f"it is not a result of an eval, version {VERSION}, as kairo eval --output writes it")
        fields = {name: one for name, one in found.items() if name not in ("version", "metrics", "runs")}  # pyright: ignore[reportUnknownVariableType] - JSON
        return read(cls, fields)

    def _repr_html_(self) -> str:
        """Return the body of the eval's page, for a notebook."""
        return drawing("show_eval")(self)

    def __str__(self) -> str:
        """Return the table that `kairo eval` prints."""
        return drawing("draw_eval")(self)


def _quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the sorted values do not exceed."""
    return values[max(math.ceil(share * len(values)) - 1, 0)]


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
    # Whole cases are drawn with both results: the two evals are not independent.
    means = sorted(fmean(draw.choices(changes, k=len(changes))) for _ in range(_DRAWS))
    low, high = means[int(_DRAWS * 0.025)], means[int(_DRAWS * 0.975)]
    return Difference(fmean(before for before, _ in pairs), fmean(after for _, after in pairs), low, high)


def sign_test(better: int, worse: int) -> float:
    """Return the two-sided exact p-value of so many changes one way and the other; 1 without a change."""
    changed = better + worse
    # Two-sided; the middle would count twice.
    return min(1.0, 2 * binomial_tail(min(better, worse), changed, 0.5)) if changed else 1.0


def _warnings(after: EvalResult, before: EvalResult, common: int) -> list[str]:
    found: list[str] = []
    only = [(len(one.cases) - common, where) for one, where in ((before, "earlier"), (after, "later"))]
    found += [f"{count:,} cases are in the {where} eval alone and are left out" for count, where in only if count]
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
