"""The default strategy: deterministic, code only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.evaluators.checks import not_blank
from kairo_team.evaluators.rubric import Criterion, Rubric

if TYPE_CHECKING:
    from kairo_team.verdicts import EvaluationContext, EvaluationVerdict


class SimpleEvaluationStrategy:
    """Judges by a rubric; without one, by a single criterion: the artifact is not blank."""

    def __init__(self, rubric: Rubric | None = None) -> None:
        self.rubric = rubric or Rubric([Criterion("not-blank", "the artifact must not be blank", not_blank)])

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact: same input, equal verdict."""
        return await self.rubric.evaluate(context)
