"""`EvalResult`: the outcome of every trial of an eval, the metrics, and the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from kairo_team._util.drawn import drawing
from kairo_team.budget import Usage
from kairo_team.evaluators.calibration.confidence_bounds import Proportion
from kairo_team.results import adapter, read
from kairo_team.verdicts import Cause, CriterionResult, Finding

if TYPE_CHECKING:
    from kairo_team.evals.comparison import Comparison

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
    """Why some trials were not run; None if all were."""

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
        whole = math.fsum(rates)
        return (
            Proportion(math.floor(whole + 1e-9), len(rates)).low,
            Proportion(math.ceil(whole - 1e-9), len(rates)).high,
        )

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Numbers by name, for a table and for a CI job.

        `pass_rate`, `fail_rate`, `undecided_rate`, `error_rate` and `not_run_rate` are shares of all planned trials;
        `score` is the mean of the trials that have one; `flip_rate` is the share of cases whose repeats differ in
        outcome; `dollars` and `tokens` are the usage of team and judges together; `seconds` is the median time of the
        team, `seconds_p95` the time that 95 % of trials stay below; `criterion.ID` is the share of trials that met the
        criterion, among the trials that decided it. Metrics without anything to count are left out.
        """
        count = len(self.trials)
        found: dict[str, float] = {}
        for outcome in OUTCOMES:
            share = sum(one.outcome == outcome for one in self.trials) / count
            found[f"{outcome.replace(' ', '_')}_rate"] = share
        scores = [one.score for one in self.trials if one.score is not None]
        found |= {"score": fmean(scores)} if scores else {}
        if self.repeat > 1:
            found["flip_rate"] = fmean(len({one.outcome for one in trials}) > 1 for trials in self.cases.values())
        found["dollars"] = float(sum(one.usage.dollars + one.review.dollars for one in self.trials))
        found["tokens"] = float(sum(one.usage.tokens + one.review.tokens for one in self.trials))
        took = sorted(one.usage.seconds for one in self.trials if one.outcome != "not run")
        if took:
            found |= {"seconds": _quantile(took, 0.5), "seconds_p95": _quantile(took, 0.95)}
        return found | {f"criterion.{name}": met.rate for name, met in self.criteria.items() if met.rate is not None}

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
        from kairo_team.evals.comparison import compare

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
        fields = {name: one for name, one in found.items() if name not in ("version", "metrics")}  # pyright: ignore[reportUnknownVariableType] - JSON
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
