"""`AgentEvaluationStrategy`: checks first, then a model answers what is left, and code computes the outcome."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team.budget import Usage, difference
from kairo_team.errors import HaltError, InsufficientBudget, innermost
from kairo_team.evaluators.artifact_view import obvious_defect
from kairo_team.evaluators.judging import Judge
from kairo_team.evaluators.rubric import Rubric
from kairo_team.team import check_positive
from kairo_team.verdicts import Cause, EvaluationVerdict, Finding, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.evaluators.review import Review
    from kairo_team.verdicts import EvaluationContext

BATCH: Final = 4
"""Criteria that a judge is asked about at once."""

_logger = logging.getLogger("kairo_team")


class AgentEvaluationStrategy:
    """Reviews by a rubric with criteria for a judge.

    `judge` is a model's name, a chat model or an agent; it is never the member's own unless that is given here. It is
    asked only about what the outcome still depends on, a few criteria at a time; it sees the artifact as data, answers
    from a menu, and a quote it gives must stand in the artifact (`Criterion.evidence`). Its own failure is
    REVIEW_EXCEEDED with `evaluator_error`, `evaluator_timeout` after `timeout` seconds, or `judge_budget`, never a
    verdict about the artifact. An artifact that seems to talk to its judge is never passed:
    ESCALATE(injection_suspected). `settings` are the model's sampling settings.
    """

    def __init__(
        self,
        judge: str | ChatModel | Agent,
        rubric: Rubric,
        *,
        timeout: float = 60.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(judge, str) and not any(callable(getattr(judge, name, None)) for name in ("complete", "run")):
            raise ValueError(f"the judge must be a model's name, a chat model or an agent, not {judge!r}")
        if not isinstance(rubric, Rubric):
            raise ValueError(f"AgentEvaluationStrategy takes a Rubric, not {rubric!r}")
        if not rubric.decided_by("judge"):
            raise ValueError("no criterion of the rubric asks for a judge: say by='judge', or take the rubric alone")
        check_positive("AgentEvaluationStrategy.timeout", timeout)
        self.judge = judge
        self.rubric = rubric
        self.timeout = timeout
        self.settings = {"temperature": 0.0, **(settings or {})}

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        spent = context.context.governor.usage if context.context is not None else Usage()
        try:
            with anyio.move_on_after(self.timeout) as scope:
                return _with_usage(await self._evaluate(context), context, spent)
        except (HaltError, InsufficientBudget) as short:
            return _with_usage(EvaluationVerdict.review_exceeded(Cause.JUDGE_BUDGET, str(short)), context, spent)
        except Exception as error:
            if context.context is None:
                raise
            _logger.warning("the judge %r failed on task %r", self.judge, context.task.id, exc_info=True)
            why = f"the judge {self.judge!r}: {innermost(error)}"
            return _with_usage(EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, why), context, spent)
        assert scope.cancelled_caught, "nothing else leaves the block"
        late = f"the judge {self.judge!r} took longer than {self.timeout:g} seconds"
        return _with_usage(EvaluationVerdict.review_exceeded(Cause.EVALUATOR_TIMEOUT, late), context, spent)

    async def _evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        review = await self.rubric.review(context)
        if not review.open("judge"):
            return review.verdict()
        defect = obvious_defect(context.artifact)
        if defect is not None:
            return EvaluationVerdict.revise(defect, findings=[Finding("artifact", observed=defect)])
        return await self._ask(review, context)

    async def _ask(self, review: Review, context: EvaluationContext) -> EvaluationVerdict:
        """Ask the judge as long as the outcome depends on it."""
        judge = Judge(self.judge, context, self.settings)
        suspected: str | None = None
        confidence: list[float] = []
        while left := review.open("judge"):
            judgement = await judge.ask(left[:BATCH])
            suspected = suspected or judgement.injection_suspected
            confidence += [] if judgement.confidence is None else [judgement.confidence]
            for criterion_id, answer in judgement.answers.items():
                review = review.answered(criterion_id, answer)
        verdict = replace(review.verdict(), confidence=min(confidence, default=None))
        return verdict if suspected is None else suspect(verdict, suspected)

    def preflight(self, *, judge: bool = True, gate: bool = False) -> list[str]:
        """Return one sentence for each criterion that nobody could decide; see `Rubric.preflight`."""
        return self.rubric.preflight(judge=True, gate=gate)

    @property
    def models(self) -> tuple[Any, ...]:
        """The judges it asks."""
        return (self.judge,)

    @property
    def vacuous(self) -> bool:
        """A judge is asked: it is not."""
        return False

    def __repr__(self) -> str:
        return f"AgentEvaluationStrategy({self.judge!r}, {self.rubric!r})"


def suspect(verdict: EvaluationVerdict, how: str) -> EvaluationVerdict:
    """Keep an artifact that seems to tell its judge what to say from being passed; nothing else changes."""
    if verdict.outcome is not VerdictOutcome.PASS:
        return verdict
    why = f"the artifact seems to tell its judge what to say: {how}"
    return replace(verdict, outcome=VerdictOutcome.ESCALATE, score=None, cause=Cause.INJECTION_SUSPECTED, feedback=why)


def _with_usage(verdict: EvaluationVerdict, context: EvaluationContext, before: Usage) -> EvaluationVerdict:
    """Say what the review has cost."""
    if context.context is None:
        return verdict
    return replace(verdict, usage=difference(context.context.governor.usage, before, 0.0))
