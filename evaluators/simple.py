"""The default strategy: deterministic, code only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kairo_team.errors import known
from kairo_team.evaluators.checks.text import not_blank
from kairo_team.evaluators.criterion import Criterion
from kairo_team.evaluators.rubric import Rubric
from kairo_team.frozen import known_arguments

if TYPE_CHECKING:
    from kairo_team.verdicts import EvaluationContext, EvaluationVerdict


@known_arguments
class SimpleEvaluationStrategy:
    """Judges by a rubric of checks; without one, by a single criterion: the artifact is not blank.

    Raises `ValueError` for a rubric with criteria that a judge decides: it has none.
    """

    models: tuple[Any, ...] = ()
    """The judges it asks: none."""

    def __init__(self, rubric: Rubric | None = None) -> None:
        self.rubric = rubric or Rubric([Criterion("not-blank", "the artifact must not be blank", not_blank)])
        judged = [criterion.id for criterion in self.rubric.decided_by("judge")]
        if judged:
            raise ValueError(
                f"SimpleEvaluationStrategy asks no judge, and one decides {known(judged)}: give them checks, or take a "
                "strategy with a judge"
            )

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact: same input, equal verdict."""
        return await self.rubric.evaluate(context)

    def preflight(self, *, judge: bool = False, gate: bool = False) -> list[str]:
        """Return one sentence for each criterion that nobody could decide; see `Rubric.preflight`."""
        return self.rubric.preflight(judge=judge, gate=gate)

    @property
    def vacuous(self) -> bool:
        """All that can fail here is a blank artifact."""
        return self.rubric.vacuous
