"""Report how often a judge is wrong, against two baselines that read nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kairo_team._util.frozen import EMPTY
from kairo_team.evaluators.calibration.agreement import Agreement, agreement
from kairo_team.evaluators.calibration.confidence_bounds import Proportion
from kairo_team.evaluators.calibration.thresholds import ALL, SIDES, Reviewed


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """A judge's decisions on labelled artifacts."""

    examples: int
    false_pass: Proportion
    """Among what it passes, the share that a human would not pass: a certificate bounds this."""
    false_revise: Proportion
    """Among what it sends back, the share that a human would pass."""
    false_pass_rate: Proportion
    """Among what a human would not pass, the share that it passes."""
    coverage: Proportion
    """Among all, the share that it decides by itself."""
    decisions: Agreement
    """The judge's PASS and REVISE against the human's decisions."""
    always_pass: Proportion
    """Baseline: `false_pass` when everything is passed."""
    awaits_person: Proportion
    """Among what it passes, the share that still needs the approval of a person, for criteria that a person decides."""
    longest_wins: Proportion
    """Baseline: `false_pass` when the longest artifacts are passed, as many as it passes."""
    flips: Proportion
    """Among what it reviewed again, the share that it then decided otherwise."""
    no_answer: Mapping[str, int]
    """How often it decided nothing, by cause."""
    criteria: Sequence[Agreement] = ()
    """Each criterion for which the labels give the human's answer."""
    why_no_answer: str = ""
    """What it said most often where it decided nothing."""

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa on what it decides: agreement with the human beyond chance. None where chance agrees fully."""
        return self.decisions.kappa

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values; a proportion has `k`, `n`, `rate`, `low` and `high`."""
        made: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        return {
            **{name: _as_json(one) for name, one in made.items()},
            "kappa": self.kappa,
            "criteria": [one.to_json() for one in self.criteria],
        }


def _as_json(one: Any) -> Any:
    if isinstance(one, Proportion | Agreement):
        return one.to_json()
    return dict(cast("Mapping[str, int]", one)) if isinstance(one, Mapping) else one


def report_on(reviewed: Sequence[Reviewed], levels: Mapping[str, Sequence[str]] = EMPTY) -> JudgeReport:
    """Report on the decisions; `levels` are the levels of each criterion, by id."""
    decided = [one.decided(ALL) for one in reviewed]
    passes = [one for one, side in zip(reviewed, decided, strict=True) if side == "pass"]
    sends_back = [one for one, side in zip(reviewed, decided, strict=True) if side == "revise"]
    longest = sorted(reviewed, key=lambda one: one.length, reverse=True)[: len(passes)]
    again = [one.flipped for one in reviewed if one.flipped is not None]
    causes = [one.cause or "low_confidence" for one, side in zip(reviewed, decided, strict=True) if side is None]
    return JudgeReport(
        len(reviewed),
        _bad(passes),
        Proportion(sum(one.passed for one in sends_back), len(sends_back)),
        Proportion(_bad(passes).k, _bad(reviewed).k),
        Proportion(len(passes) + len(sends_back), len(reviewed)),
        # Reversed, because levels are listed worst first.
        agreement(
            "", SIDES[::-1], ((SIDES[not one.passed], side) for one, side in zip(reviewed, decided, strict=True))
        ),
        _bad(reviewed),
        Proportion(sum(one.awaits_person for one in passes), len(passes)),
        _bad(longest),
        Proportion(sum(again), len(again)),
        {cause: causes.count(cause) for cause in sorted(set(causes))},
        tuple(_criteria(reviewed, levels)),
        next((why for why, _ in Counter(one.why for one in reviewed if one.why).most_common(1)), ""),
    )


def _criteria(reviewed: Sequence[Reviewed], levels: Mapping[str, Sequence[str]]) -> Iterator[Agreement]:
    for name, there in levels.items():
        answers = [(one.levels[name], one.said.get(name)) for one in reviewed if name in one.levels]
        if answers:
            yield agreement(name, there, answers)


def _bad(passed: Sequence[Reviewed]) -> Proportion:
    """Count those that a human would not pass."""
    return Proportion(sum(not one.passed for one in passed), len(passed))
