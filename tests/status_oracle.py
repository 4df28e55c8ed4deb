"""The status of a run, said a second time: from the design's text on status alone, with its words, rule after rule."""

from __future__ import annotations

from dataclasses import dataclass

import kairo_team as kt


@dataclass(frozen=True)
class TaskEnd:
    """How one task ended, seen from outside."""

    status: str
    needed: bool = True
    """Somebody, or the result itself, had to do without it; False: it was dispensable, or a later plan replaced it."""
    for_budget: bool = False
    """It ended because the team's budget was exhausted."""
    unpassed: bool = False
    """It was reviewed, and accepted without a PASS."""
    partial: bool = False
    """What was accepted is partial, whoever reviewed it."""


@dataclass(frozen=True)
class Story:
    """What happened in a run, seen from outside."""

    tasks: tuple[TaskEnd, ...] = ()
    killed: bool = False
    """By whoever watched it, or its caller was cancelled."""
    late: bool = False
    """The deadline passed."""
    refused: bool = False
    """Planning or binding failed, or the coordinator did."""
    aborted: bool = False
    emergency: bool = False
    """The root was stopped as an emergency."""
    exhausted: bool = False
    """The team's budget was used up."""
    plan_waits: bool = False
    fallback: bool = False
    risk: str = "medium"
    tolerant: bool = False
    """The coordinator opened the run with `tolerate_failures=True`."""


def status_of(story: Story) -> str:
    """Return the status: the first rule that applies."""
    accepted = [task for task in story.tasks if task.status == "completed"]
    missing = [task for task in story.tasks if task.status != "completed"]
    low = story.risk == "low"
    excused = story.tolerant or low or not any(task.needed for task in missing)
    rules = [
        (1, story.killed, "cancelled"),
        (2, story.late, "timeout"),
        (3, story.refused or story.aborted or story.emergency, "failed"),
        (
            4,
            story.exhausted and any(task.for_budget for task in missing),
            "degraded" if low and accepted else "failed",
        ),
        (5, story.plan_waits or any(task.status == "suspended" for task in missing), "suspended"),
        (6, not accepted, "failed"),
        (7, bool(missing), "degraded" if excused else "failed"),
        (8, story.fallback or any(task.unpassed or task.partial for task in accepted), "degraded"),
        (9, True, "completed"),
    ]
    return next(status for _, applies, status in rules if applies)


def an_end_is_accepted(result: kt.TeamResult) -> bool:
    """Return whether one of the plan's last tasks was accepted."""
    tasks = result.plan.tasks if result.plan is not None else ()
    needed = {name for task in tasks for name in task.depends_on}
    return any(result[task.id].status is kt.TaskStatus.COMPLETED for task in tasks if task.id not in needed)
