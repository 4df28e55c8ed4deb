"""Evaluators that packages publish, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kairo_team.governance.plug_ins import Catalogue

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy

GROUP: Final = "kairo_team.evaluators"
"""The entry-point group: each entry is a class or function that makes an evaluator."""


def load_evaluator(name: str, **options: Any) -> EvaluationStrategy:
    """Make the evaluator that a package publishes under a name, such as a rubric of its domain.

    Only the named one is imported. Raises `ValueError` for a name that is not published, an unknown option, and
    what is no evaluator.
    """
    made: EvaluationStrategy = _CATALOGUE.make(name, options)
    return made


def _check(owner: str, evaluators: Any) -> tuple[Any, ...]:
    for one in evaluators:
        if isinstance(one, type) or not callable(getattr(one, "evaluate", None)):
            raise ValueError(f"{owner}: an evaluator has an async evaluate(context), and {one!r} has none")
    return tuple(evaluators)


_CATALOGUE: Final[Catalogue[Any]] = Catalogue("evaluator", GROUP, {}, _check)
