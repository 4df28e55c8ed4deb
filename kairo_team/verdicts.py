"""The outcome of a review: `EvaluationVerdict`, its findings and causes; and its context, `EvaluationContext`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from kairo_team._util.frozen import (
    EMPTY,
    check_kind,
    checked,
    freeze_named,
    freeze_several,
    known_arguments,
)
from kairo_team._util.late_pydantic import AsTuple
from kairo_team.artifacts import Artifact, Finding
from kairo_team.budget import Usage, check_count
from kairo_team.files import File, as_files
from kairo_team.messages import Message
from kairo_team.tasks import Task
from kairo_team.team import TeamConfig

if TYPE_CHECKING:
    from kairo_team.contracts import MemberContext


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


def _cause(given: Cause | str) -> Cause:
    try:
        return Cause(given)
    except ValueError:
        raise ValueError(f"the cause must be one of {', '.join(map(repr, map(str, Cause)))}, not {given!r}") from None


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

UNKNOWN: Final = "unknown"
NOT_APPLICABLE: Final = "not applicable"
APPROVED: Final = "approved"
"""Levels that a result can have besides those of its criterion."""
NOT_BLANK: Final = "not blank"
"""The feedback of a review that checked only for blankness begins with this."""


@checked
@dataclass(frozen=True)
class CriterionResult:
    """The result of an artifact on one criterion."""

    id: str
    level: str
    passed: bool | None
    """None: unknown (not run, or it broke)."""
    reason: str = ""
    quote: str | None = None
    text: str = ""
    """The criterion's requirement; a member gets it if it is met, to leave that unchanged."""
    by: Literal["check", "judge", "human"] | None = None
    """What decides the criterion; None when the evaluator does not set it."""
    agreement: float | None = None
    """The share, from 0 to 1, of a panel's answers that named the most named level, by weight; None without a panel."""

    @property
    def left_to_a_person(self) -> bool:
        """Whether a person has to decide the criterion and has not yet."""
        return self.by == "human" and self.passed is None and self.level != NOT_APPLICABLE


_BY_A_PERSON: Final = "a person approved it"


@checked
@dataclass(frozen=True)
class EvaluationVerdict:
    """The decision of one review. Build it with `passed`, `revise`, `escalate` or `review_exceeded`."""

    outcome: VerdictOutcome
    score: float | None = None
    """From 0 to 1; None if nothing was scored."""
    feedback: str = ""
    """For the report and for people. The next attempt gets that of a REVISE too, unless it repeats a finding."""
    suggestions: Annotated[Sequence[str], AsTuple()] = ()
    """What would make the artifact better; the next attempt gets them as remarks, which it need not follow."""
    findings: Annotated[Sequence[Finding], AsTuple()] = ()
    criteria: Annotated[Sequence[CriterionResult], AsTuple()] = ()
    cause: Cause | None = None
    """Mandatory for ESCALATE and REVIEW_EXCEEDED, absent otherwise."""
    confidence: float | None = None
    """From 0 to 1; None if the strategy has none."""
    usage: Usage = Usage()
    evaluated_at: datetime = field(default_factory=partial(datetime.now, UTC), compare=False)
    """UTC; ignored by comparisons."""
    other_causes: Annotated[Sequence[Cause], AsTuple()] = ()
    """Causes besides `cause` that leave the verdict open; empty without a `cause`."""

    def __post_init__(self) -> None:
        for name in ("score", "confidence"):
            number = getattr(self, name)
            if number is not None and not (math.isfinite(number) and 0 <= number <= 1):
                raise ValueError(f"EvaluationVerdict.{name} must be from 0 to 1 or None, not {number!r}")
        needs_cause = self.outcome in (VerdictOutcome.ESCALATE, VerdictOutcome.REVIEW_EXCEEDED)
        if needs_cause != (self.cause is not None):
            raise ValueError(f"a cause belongs to ESCALATE and REVIEW_EXCEEDED only: {self.outcome} with {self.cause}")
        if self.other_causes and self.cause is None:
            raise ValueError(f"other causes need a cause: {self.outcome} with {self.other_causes}")
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
        """Send the artifact back; without findings the feedback itself is the one finding."""
        if not isinstance(feedback, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise ValueError(
                "EvaluationVerdict.revise takes the feedback as a text, and findings by name: "
                f"revise('too long', findings=[...]), not {feedback!r:.80}"
            )
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
        other_causes: Sequence[Cause] = (),
    ) -> Self:
        """Leave the decision to a higher authority."""
        verdict = (VerdictOutcome.ESCALATE, None, feedback, (), findings, criteria, _cause(cause), confidence)
        return cls(*verdict, other_causes=other_causes)

    @classmethod
    def review_exceeded(
        cls,
        cause: Cause | str,
        feedback: str = "",
        *,
        findings: Sequence[Finding] = (),
        criteria: Sequence[CriterionResult] = (),
    ) -> Self:
        """Report that a usable review is missing, or that the review is used up."""
        return cls(VerdictOutcome.REVIEW_EXCEEDED, None, feedback, (), findings, criteria, _cause(cause))

    @property
    def vacuous(self) -> bool:
        """Whether the verdict is a PASS of a review that only a blank artifact could fail."""
        return self.outcome is VerdictOutcome.PASS and self.score is None and self.feedback.startswith(NOT_BLANK)

    def used_up(self, cause: Cause, why: str) -> Self:
        """Return REVIEW_EXCEEDED with this verdict's score, findings, criteria and open causes.

        `why` comes before its feedback. A verdict that is used up already keeps its own cause among `other_causes`.
        """
        before = tuple(one for one in (self.cause, *self.other_causes) if one is not None and one is not cause)
        feedback = f"{why}; the best one: {self.feedback}" if self.feedback else why
        return replace(
            self, outcome=VerdictOutcome.REVIEW_EXCEEDED, cause=cause, other_causes=before, feedback=feedback
        )

    @property
    def awaits_approval(self) -> bool:
        """Whether only a person's approval is missing for a PASS: nothing else is open, and no finding blocks."""
        only = self.cause is Cause.HUMAN_REQUIRED and not self.other_causes
        return only and not any(_blocks(finding) for finding in self.findings)

    @property
    def no_risk_accepts(self) -> bool:
        """Whether the verdict is open for a reason that no risk profile accepts: see `NEVER_BY_RISK`."""
        return not NEVER_BY_RISK.isdisjoint((self.cause, *self.other_causes))

    def approved(self, feedback: str = "") -> Self:
        """Return the verdict after a person's approval: a PASS if only that was missing, else itself, unchanged.

        `feedback` is the person's text. The criteria that were left to a person are met, at the level "approved".
        """
        if not self.awaits_approval:
            return self
        met = [
            replace(one, level=APPROVED, passed=True, reason=feedback or _BY_A_PERSON) if one.left_to_a_person else one
            for one in self.criteria
        ]
        reason = f"{_BY_A_PERSON}: {feedback}" if feedback else _BY_A_PERSON
        return replace(self, outcome=VerdictOutcome.PASS, cause=None, feedback=reason, criteria=met)


def _blocks(finding: Finding) -> bool:
    return finding.severity == "blocking" and not finding.is_right


@known_arguments
@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """What an evaluator sees. It changes nothing and has no handle on the run."""

    task: Task
    artifact: Artifact
    attempt: int
    """Number of this reviewed artifact of the task, from 1."""
    prior_verdicts: Sequence[EvaluationVerdict] = ()
    """Earlier verdicts, oldest first."""
    goal: str = ""
    upstream: Mapping[str, Artifact] = EMPTY
    """Accepted artifacts of the task's dependencies, by task id."""
    config: TeamConfig | None = None
    """The run's configuration; None outside a run."""
    context: MemberContext | None = None
    """Governed models for the purpose "evaluate"; None outside a run."""
    transcript: Sequence[Message] = ()
    """The member's conversation, in order; empty if its agent keeps none."""
    files: Sequence[File] = ()
    """Files of the request and of the task. Those of artifacts are in `artifact` and `upstream`."""
    usage: Usage | None = None
    """The task's usage so far, in all its attempts and without its reviews; None outside a run."""

    def __post_init__(self) -> None:
        check_kind("EvaluationContext.task", self.task, Task)
        check_kind("EvaluationContext.artifact", self.artifact, Artifact)
        check_count("EvaluationContext.attempt", self.attempt, 1)
        check_kind("EvaluationContext.goal", self.goal, str)
        check_kind("EvaluationContext.config", self.config, TeamConfig, or_none=True)
        check_kind("EvaluationContext.usage", self.usage, Usage, or_none=True)
        prior = freeze_several("EvaluationContext.prior_verdicts", self.prior_verdicts, EvaluationVerdict)
        object.__setattr__(self, "prior_verdicts", prior)
        transcript = freeze_several("EvaluationContext.transcript", self.transcript, Message)
        object.__setattr__(self, "transcript", transcript)
        object.__setattr__(self, "files", as_files("EvaluationContext.files", self.files))
        upstream = freeze_named("EvaluationContext.upstream", self.upstream, Artifact)
        object.__setattr__(self, "upstream", upstream)
