"""Evaluators by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kairo_team.plugins import make

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy


def load_evaluator(name: str, **options: Any) -> EvaluationStrategy:
    """Make the evaluator of a name with its options, such as the rubric of a domain that a package publishes.

    Only the named one is imported. Raises `ValueError` for a name that is not published, an unknown option, and
    what is no evaluator.
    """
    made: EvaluationStrategy = make("evaluator", name, options)
    return made
