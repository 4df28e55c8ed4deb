"""What a review would need and nobody wired: refused before work starts, not found out after it was paid for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kairo_team.errors import PlanRefused

if TYPE_CHECKING:
    from kairo_team.tasks import TaskGraph
    from kairo_team.team_run import TeamRun


def check_reviews(run: TeamRun, graph: TaskGraph, evaluator: Any = None) -> None:
    """Raise `PlanRefused` for tasks whose review asks a judge or a person that is not there.

    `evaluator` reviews tasks that name none. Strategies that know what they need have a `preflight`, others are taken
    as they are.
    """
    found: dict[str | None, list[str]] = {}
    for task in graph.tasks:
        if task.evaluator not in found:
            chosen = evaluator if task.evaluator is None else run.team.evaluators[task.evaluator]
            preflight = getattr(chosen, "preflight", None)
            found[task.evaluator] = [] if preflight is None else list(preflight(gate=run.gated))
    problems = [
        f"task {task.id!r} cannot be reviewed: {problem}" for task in graph.tasks for problem in found[task.evaluator]
    ]
    if problems:
        raise PlanRefused(problems)
