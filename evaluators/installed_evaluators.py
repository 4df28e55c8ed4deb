"""Load evaluators by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kairo_team.plugins import make

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy


def load_evaluator(name: str, **options: Any) -> EvaluationStrategy:
    """Make a published evaluator by its name and options, such as a package's rubric for a domain.

    Only that evaluator is imported. Raises `ValueError` for a name that is not published, an unknown option, and an
    object that is not an evaluator.
    """
    made: EvaluationStrategy = make("evaluator", name, options)
    return made
