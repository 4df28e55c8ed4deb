"""How far one task has come: what its reviews said, and when there is no point in another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kairo_team.verdicts import Cause, EvaluationVerdict, Finding, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.attempts import Attempt

Reviewed = tuple["Attempt", EvaluationVerdict]

_STANDSTILL: Final = 3
"""Verdicts in a row that find the same wanting, without a better score: more of it is no progress."""

MOST_TOLD: Final = 5
"""Blocking findings that a member is told at once; the others stay open and are told once these are mended."""


@dataclass(slots=True)
class Progress:
    """How far one task has come."""

    most: int
    """Revisions that are allowed after the first artifact."""
    tries: int = 0
    reviewed: list[Reviewed] = field(default_factory=lambda: [])  # noqa: PIE807 - a generic alias is slow to call
    """Oldest first."""

    @property
    def verdicts(self) -> list[EvaluationVerdict]:
        """Oldest first."""
        return [verdict for _, verdict in self.reviewed]

    def best(self) -> Reviewed:
        """Return the attempt with most gates met, then the highest score, the fewest open findings, the earliest.

        One that only a person may accept is the best only where there is no other.
        """
        return max(self.reviewed, key=lambda pair: _rank(pair[1]))

    def standing(self, attempt: Attempt) -> EvaluationVerdict | None:
        """Return the verdict of an artifact that was reviewed before: it is never judged again.

        One that is the same as the last keeps its verdict; one that is an earlier one again goes in circles.
        """
        for age, (earlier, verdict) in enumerate(reversed(self.reviewed)):
            if _digest(earlier) == _digest(attempt):
                return verdict if age == 0 else self.used_up(Cause.CYCLE, "an earlier version came back unchanged")
        return None

    def add(self, attempt: Attempt, verdict: EvaluationVerdict) -> EvaluationVerdict:
        """Take note of a verdict; return what it leads to: itself, or that review is used up."""
        self.reviewed.append((attempt, verdict))
        if verdict.outcome is not VerdictOutcome.REVISE:
            return verdict
        if len(self.reviewed) > self.most:
            return self.used_up(Cause.ROUNDS_EXHAUSTED, f"no attempt passed in {len(self.reviewed)} reviews")
        if self._stands_still():
            return self.used_up(Cause.NO_PROGRESS, f"{_STANDSTILL} reviews in a row found the same wanting")
        return verdict

    def _stands_still(self) -> bool:
        last = self.verdicts[-_STANDSTILL:]
        if len(last) < _STANDSTILL or any(_failing(verdict) != _failing(last[0]) for verdict in last):
            return False
        return max(verdict.score or 0.0 for verdict in last[1:]) <= (last[0].score or 0.0)

    def used_up(self, cause: Cause, why: str) -> EvaluationVerdict:
        """Say that review is used up, with what the review of the best attempt found."""
        return self.best()[1].used_up(cause, why)


def to_tell(verdict: EvaluationVerdict, first: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """Return what the member of the next attempt is told: what blocks, what is remarked, and as closed what is met.

    Of what blocks it is `first` and then the first of the verdict, which has in front what moves the outcome most.
    Scores, levels and what a judge said of what is met stay behind.
    """
    wrong = [finding for finding in (*first, *verdict.findings) if finding.status != "closed"]
    blocking = [finding for finding in wrong if finding.severity == "blocking"]
    remarks = [finding for finding in wrong if finding.severity != "blocking"]
    return (*blocking[:MOST_TOLD], *remarks, *_met(verdict, {finding.criterion or finding.id for finding in wrong}))


def _met(verdict: EvaluationVerdict, wrong: set[str]) -> Iterable[Finding]:
    """Return a closed finding for each criterion that is met, whether it ever was wanting or not."""
    told = [replace(finding, severity="info") for finding in verdict.findings if finding.status == "closed"]
    met_now = [one for one in verdict.criteria if one.passed]
    told += [Finding(one.id, one.id, "info", expected=one.text, status="closed") for one in met_now]
    met: dict[str, Finding] = {}
    for finding in told:
        met.setdefault(finding.criterion or finding.id, finding)
    return (finding for name, finding in met.items() if name not in wrong)


def _digest(attempt: Attempt) -> str | None:
    return None if attempt.artifact is None else attempt.artifact.digest


def _failing(verdict: EvaluationVerdict) -> frozenset[tuple[str, str]]:
    """Return what a verdict found wanting: criteria, or where it has none its blocking findings."""
    criteria = frozenset((one.id, "") for one in verdict.criteria if one.passed is not True)
    return criteria or frozenset(
        (one.criterion or one.id, one.observed) for one in verdict.findings if one.severity == "blocking"
    )


def _rank(verdict: EvaluationVerdict) -> tuple[bool, int, float, int]:
    met = sum(criterion.passed is True for criterion in verdict.criteria)
    open_findings = sum(finding.severity == "blocking" for finding in verdict.findings)
    return not verdict.no_risk_accepts, met, verdict.score or 0.0, -open_findings
