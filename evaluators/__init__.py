"""Evaluators: what decides whether an artifact is accepted."""

from kairo_team.evaluators.rubric import Check as Check
from kairo_team.evaluators.rubric import Criterion as Criterion
from kairo_team.evaluators.rubric import Rubric as Rubric
from kairo_team.evaluators.simple import SimpleEvaluationStrategy as SimpleEvaluationStrategy

__all__ = ["Check", "Criterion", "Rubric", "SimpleEvaluationStrategy"]
