"""Find evaluators by name, and wire a team's: a rubric with criteria for a judge gets the coordinator's judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kairo_team.errors import known
from kairo_team.evaluators.rubric import Rubric
from kairo_team.plugins import make

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy
    from kairo_team.evaluators.criterion import Criterion
    from kairo_team.team import Team


def wired(evaluator: EvaluationStrategy, judge: Any) -> EvaluationStrategy:
    """Give `judge` to a rubric with criteria for a judge, even inside a calibrated strategy; None changes nothing."""
    if judge is None:
        return evaluator
    from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy  # imported where a judge reviews
    from kairo_team.evaluators.calibration.calibrated import CalibratedEvaluationStrategy

    if isinstance(evaluator, CalibratedEvaluationStrategy):
        inner = wired(evaluator.strategy, judge)
        return evaluator if inner is evaluator.strategy else CalibratedEvaluationStrategy(inner, evaluator.certificates)
    if isinstance(evaluator, Rubric) and evaluator.decided_by("judge"):
        return AgentEvaluationStrategy(judge, evaluator)
    return evaluator


def compared(evaluator: Any) -> Iterator[Criterion]:
    """Yield the criteria that an evaluator decides by comparing with `Task.reference`, except infos."""
    rubric = evaluator if isinstance(evaluator, Rubric) else getattr(evaluator, "rubric", None)
    if isinstance(rubric, Rubric):
        yield from (one for one in rubric.criteria if one.reference and one.kind != "info")
        return
    inside: Iterable[Any] = getattr(evaluator, "stages", ()) or getattr(evaluator, "strategies", ())
    for part in inside or filter(None, [getattr(evaluator, "strategy", None)]):
        yield from compared(part)


def evaluator_of(team: Team, name: str | None = None) -> EvaluationStrategy:
    """Return a team's evaluator by name, or its coordinator's own, with the coordinator's judge.

    Raises `ValueError` where the team has none.
    """
    coordinator = team.coordinator
    given: Any = getattr(coordinator, "evaluator", None) if name is None else name
    if given is None:
        raise ValueError(
            f"the coordinator of the team {team.name!r} has no evaluator of its own: name one of the team's with "
            f"evaluator=, which are {known(team.evaluators)}"
        )
    if isinstance(given, str):
        if given not in team.evaluators:
            raise ValueError(f"the evaluator {given!r} is unknown; the team has {known(team.evaluators)}")
        given = team.evaluators[given]
    return wired(given, getattr(coordinator, "judge", None))


def load_evaluator(name: str, **options: Any) -> EvaluationStrategy:
    """Make a published evaluator by its name and options, such as a package's rubric for a domain.

    Only that evaluator is imported. Raises `ValueError` for a name that is not published, an unknown option, and an
    object that is not an evaluator.
    """
    made: EvaluationStrategy = make("evaluator", name, options)
    return made
