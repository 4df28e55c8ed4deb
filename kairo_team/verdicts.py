"""What a review says: `EvaluationVerdict`, its findings and causes, and the context a review is made in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass as value

from kairo_team.budget import Usage
from kairo_team.frozen import VALUE, no_other_fields

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext
    from kairo_team.results import Artifact
    from kairo_team.tasks import Task
    from kairo_team.team import TeamConfig


class VerdictOutcome(StrEnum):
    """What happens to a reviewed artifact."""

    PASS = "pass"
    REVISE = "revise"
    ESCALATE = "escalate"
    REVIEW_EXCEEDED = "review_exceeded"


class Cause(StrEnum):
    """Why a review ended in ESCALATE or REVIEW_EXCEEDED."""

    UNDECIDED = "undecided"
    JUDGE_DISAGREEMENT = "judge_disagreement"
    LOW_CONFIDENCE = "low_confidence"
    INJECTION_SUSPECTED = "injection_suspected"
    HUMAN_REQUIRED = "human_required"
    UNACTIONABLE = "unactionable"
    CONTRADICTION = "contradiction"
    EVALUATOR_ERROR = "evaluator_error"
    EVALUATOR_TIMEOUT = "evaluator_timeout"
    JUDGE_BUDGET = "judge_budget"
    ROUNDS_EXHAUSTED = "rounds_exhausted"
    NO_PROGRESS = "no_progress"
    CYCLE = "cycle"


ESCALATION_CAUSES = frozenset(
    {
        Cause.UNDECIDED,
        Cause.JUDGE_DISAGREEMENT,
        Cause.LOW_CONFIDENCE,
        Cause.INJECTION_SUSPECTED,
        Cause.HUMAN_REQUIRED,
        Cause.UNACTIONABLE,
        Cause.CONTRADICTION,
    }
)
NEVER_BY_RISK = frozenset({Cause.INJECTION_SUSPECTED, Cause.HUMAN_REQUIRED})
"""Causes that no risk profile accepts."""


@no_other_fields
@value(frozen=True, config=VALUE)
class Finding:
    """One defect, said so that a member can mend it."""

    id: str
    criterion: str | None = None
    severity: Literal["blocking", "info"] = "blocking"
    locus: str = ""
    """Where in the artifact."""
    observed: str = ""
    expected: str = ""
    recheck: str = ""
    """How it will be checked again."""
    status: Literal["open", "closed", "regressed"] = "open"
    """closed: it was wanting before and is right now. regressed: it was right before."""


@no_other_fields
@value(frozen=True, config=VALUE)
class CriterionResult:
    """How an artifact stands on one criterion."""

    id: str
    level: str
    passed: bool | None
    """None: unknown (not run, or it broke)."""
    reason: str = ""
    quote: str | None = None
    text: str = ""
    """What the criterion asks for; a member is told it of what is met, to leave that unchanged."""


def _now() -> datetime:
    return datetime.now(UTC)


@no_other_fields
@value(frozen=True, config=VALUE)
class EvaluationVerdict:
    """What one review decided. Build it with `passed`, `revise`, `escalate` or `review_exceeded`."""

    outcome: VerdictOutcome
    score: float | None = None
    """From 0 to 1; None when nothing was scored."""
    feedback: str = ""
    suggestions: Annotated[Sequence[str], AfterValidator(tuple)] = ()
    findings: Annotated[Sequence[Finding], AfterValidator(tuple)] = ()
    criteria: Annotated[Sequence[CriterionResult], AfterValidator(tuple)] = ()
    cause: Cause | None = None
    """Mandatory for ESCALATE and REVIEW_EXCEEDED, absent otherwise."""
    confidence: float | None = None
    """From 0 to 1; None when the strategy has none."""
    usage: Usage = Usage()
    evaluated_at: datetime = field(default_factory=_now, compare=False)
    """UTC; two verdicts that differ in it alone are equal."""

    def __post_init__(self) -> None:
        for name in ("score", "confidence"):
            number = getattr(self, name)
            if number is not None and not (math.isfinite(number) and 0 <= number <= 1):
                raise ValueError(f"EvaluationVerdict.{name} must be from 0 to 1 or None, not {number!r}")
        needs_cause = self.outcome in (VerdictOutcome.ESCALATE, VerdictOutcome.REVIEW_EXCEEDED)
        if needs_cause != (self.cause is not None):
            raise ValueError(f"a cause belongs to ESCALATE and REVIEW_EXCEEDED only: {self.outcome} with {self.cause}")
        if self.cause is not None and (self.cause in ESCALATION_CAUSES) != (self.outcome is VerdictOutcome.ESCALATE):
            raise ValueError(f"cause {self.cause.value!r} does not belong to {self.outcome.value!r}")
        if self.outcome is VerdictOutcome.REVISE and not any(_blocks(f) for f in self.findings):
            raise ValueError("REVISE needs at least one blocking finding the member can act on")

    @classmethod
    def passed(
        cls, score: float | None = None, *, criteria: Sequence[CriterionResult] = (), feedback: str = ""
    ) -> Self:
        """Accept the artifact."""
        return cls(VerdictOutcome.PASS, score, feedback, criteria=criteria)

    @classmethod
    def revise(
        cls,
        feedback: str,
        *,
        findings: Sequence[Finding] = (),
        score: float | None = None,
        criteria: Sequence[CriterionResult] = (),
        suggestions: Sequence[str] = (),
    ) -> Self:
        """Send it back; without findings the feedback itself is the one finding."""
        found = findings or (Finding("feedback", observed=feedback),)
        return cls(VerdictOutcome.REVISE, score, feedback, suggestions, found, criteria)

    @classmethod
    def escalate(
        cls,
        cause: Cause | str,
        feedback: str = "",
        *,
        findings: Sequence[Finding] = (),
        criteria: Sequence[CriterionResult] = (),
        confidence: float | None = None,
    ) -> Self:
        """Leave the decision to a higher authority."""
        return cls(VerdictOutcome.ESCALATE, None, feedback, (), findings, criteria, Cause(cause), confidence)

    @classmethod
    def review_exceeded(
        cls,
        cause: Cause | str,
        feedback: str = "",
        *,
        findings: Sequence[Finding] = (),
        criteria: Sequence[CriterionResult] = (),
    ) -> Self:
        """Say that there is no usable review, or that review is used up."""
        return cls(VerdictOutcome.REVIEW_EXCEEDED, None, feedback, (), findings, criteria, Cause(cause))


def _blocks(finding: Finding) -> bool:
    return finding.severity == "blocking" and finding.status != "closed"


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What an evaluator sees. It changes nothing and holds no handle on the run."""

    task: Task
    artifact: Artifact
    attempt: int
    """Which reviewed artifact of the task this is, from 1."""
    prior_verdicts: Sequence[EvaluationVerdict] = ()
    """Oldest first."""
    goal: str = ""
    upstream: Mapping[str, Artifact] = field(default_factory=dict[str, "Artifact"])
    """Accepted artifacts of the task's dependencies, by task id."""
    config: TeamConfig | None = None
    """The run's configuration; None outside a run."""
    context: MemberContext | None = None
    """Governed models for the purpose "evaluate"; None outside a run."""
