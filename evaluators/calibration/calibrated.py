"""`CalibratedEvaluationStrategy`: a strategy decides by itself only where certificates bound how often it errs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import known_arguments
from kairo_team._util.narrowing import is_several
from kairo_team.engine.records.digests import criteria_digest
from kairo_team.evaluators.calibration.certificates import (
    Certificate,
    Valid,
    check_digests,
    stages_of,
    subject_of,
    valid_for,
)
from kairo_team.evaluators.calibration.labelled import bucket_of
from kairo_team.evaluators.calibration.thresholds import Side
from kairo_team.evaluators.combined import CascadeEvaluationStrategy
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy

DECIDED: Final[dict[VerdictOutcome, Side]] = {VerdictOutcome.PASS: "pass", VerdictOutcome.REVISE: "revise"}


def decided_by_itself(verdict: EvaluationVerdict) -> Side | None:
    """Return the decision of a verdict; what only awaits a person's approval is a PASS as far as the strategy goes."""
    return "pass" if verdict.awaits_approval else DECIDED.get(verdict.outcome)


def sureness(verdict: EvaluationVerdict) -> float | None:
    """Return how sure a verdict is, from 0 to 1; None where its judge gave no confidence.

    A verdict of code alone is sure: 1.0 for a PASS, infinity for a REVISE.
    """
    if verdict.confidence is not None:
        return verdict.confidence
    if verdict.usage.tokens:  # a judge was asked, and gave no confidence
        return None
    # No judge may overrule what code sends back, whatever the thresholds.
    return math.inf if verdict.outcome is VerdictOutcome.REVISE else 1.0


@known_arguments
class CalibratedEvaluationStrategy:
    """Accept a strategy's PASS and REVISE where it is as sure as its certificates require; else leave it to a human.

    `certificates` come from `calibrate` with this very strategy; a certificate for other attempts, or for another
    rubric, judge, setting or prompt, does not count. A verdict that is not sure enough, or not certified, becomes
    ESCALATE(low_confidence) with the judge's findings; a cascade asks its next stage first. A REVISE by code alone is
    always kept. A verdict that only awaits a person's approval counts as a PASS: where it is not sure enough, an
    approval alone does not make it one.
    """

    def __init__(self, strategy: EvaluationStrategy, certificates: Iterable[Certificate]) -> None:
        several = is_several(certificates)
        found: tuple[Any, ...] = tuple(certificates) if several else ()
        strangers = [one for one in found if not isinstance(one, Certificate)]
        if strangers or not several:
            raise ValueError(
                "certificates are a list of Certificate objects, such as (await calibrate(...)).certificates or "
                f"read_certificates(text), not {(strangers or [certificates])[0]!r:.80}"
            )
        self.strategy = strategy
        self.certificates: tuple[Certificate, ...] = found
        check_digests(strategy)  # now, and not at the first review

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        stages = stages_of(self.strategy)
        subject = subject_of(self.strategy, context.context)
        valid = valid_for(self.certificates, subject, bucket_of(context.attempt), stages=len(stages))
        sure = [_Sure(stage, valid) for stage in stages]
        return await (sure[0] if len(sure) == 1 else CascadeEvaluationStrategy(sure)).evaluate(context)

    def preflight(self, *, judge: bool = False, gate: bool = False) -> list[str]:
        """Return one sentence for each criterion that no check, judge or person could decide."""
        ask = getattr(self.strategy, "preflight", None)
        return [] if ask is None else ask(judge=judge, gate=gate)

    @property
    def models(self) -> tuple[Any, ...] | None:
        """The judges that the strategy asks; None when it does not name them."""
        judges: tuple[Any, ...] | None = getattr(self.strategy, "models", None)
        return judges

    @property
    def digest(self) -> str | None:
        """Digest of the strategy's criteria."""
        return criteria_digest(self.strategy)

    @property
    def vacuous(self) -> bool:
        """Whether only a blank artifact can fail."""
        return bool(getattr(self.strategy, "vacuous", False))

    @property
    def reads_transcript(self) -> bool:
        """Whether the strategy reads the member's conversation."""
        return bool(getattr(self.strategy, "reads_transcript", False))

    def __repr__(self) -> str:
        return f"CalibratedEvaluationStrategy({self.strategy!r}, {len(self.certificates)} certificates)"


class _Sure:
    """A stage that keeps only verdicts that are sure enough."""

    def __init__(self, stage: EvaluationStrategy, valid: Valid) -> None:
        self._stage = stage
        self._valid = valid

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        verdict = await self._stage.evaluate(context)
        side = decided_by_itself(verdict)
        if side is None:
            return verdict
        sure, threshold = sureness(verdict), self._valid.thresholds.get(side, math.inf)
        if sure is not None and sure >= threshold:
            return verdict
        why = _why_not_decided(side, sure, threshold, self._valid.why_not)
        others = (Cause.HUMAN_REQUIRED,) if verdict.awaits_approval else ()
        low = replace(verdict, outcome=VerdictOutcome.ESCALATE, cause=Cause.LOW_CONFIDENCE, score=None, feedback=why)
        return replace(low, other_causes=others) if others else low


def _why_not_decided(side: Side, sure: float | None, threshold: float, why_not: str) -> str:
    if threshold == math.inf:
        return f"the judge says {side}, which is not calibrated: {why_not}"
    said = "does not say how sure it is" if sure is None else f"is sure to {sure!r}"
    return f"the judge says {side} and {said}, where {threshold!r} is asked for"
