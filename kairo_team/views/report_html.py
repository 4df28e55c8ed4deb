"""A run as one HTML file: no network, no account, nothing from outside, and only its own style and script may run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from kairo_team.engine.plan.planning import planned_task
from kairo_team.events import TeamEnded
from kairo_team.views.progress import STATES
from kairo_team.views.report_graph import draw_run
from kairo_team.views.report_page import Known, describe
from kairo_team.views.report_parts import Packed, left_out, make_parts
from kairo_team.views.report_text import template
from kairo_team.views.run_story import AttemptStory, RunStory, TaskStory

if TYPE_CHECKING:
    from kairo_team.results import TaskOutcome, TeamResult

_SECTIONS: Final = {
    "why": "Why",
    "output": "Output",
    "timeline": "Timeline",
    "graph": "Graph",
    "budget": "Budget",
    "tasks": "Tasks",
    "planning": "Planning",
    "cost": "Cost",
    "notes": "Notes",
}
"""Headings of a report, by their ids."""
_ALWAYS: Final = {"timeline", "graph", "budget", "tasks", "cost"}
"""Sections of every report, also when they are empty."""


def render_report(story: RunStory, known: Known | None = None, inside: Sequence[RunStory] = ()) -> str:
    """Return the page of a run, from its events, other known facts, and the runs inside its tasks."""
    links = {name: f"#task-{number}" for number, name in enumerate(story.tasks, 1)}
    picture, words = draw_run(story, links.__getitem__)
    packed = Packed()
    main, *parts = make_parts(story, known.limits if known else None, inside, packed)
    page = describe(story, known or Known(), inside) | main
    page |= {"graph": picture, "graph_words": words, "inside": parts}
    page["inside_left_out"] = left_out(inside, parts)
    page["contents"] = [(name, words) for name, words in _SECTIONS.items() if name in _ALWAYS or page.get(name)]
    css, js = page_style(), _script()
    trusted = {"policy": Markup(report_policy()), "css": Markup(css), "js": Markup(js)}  # noqa: S704 - the library's own
    return template("report.html").render(page=page, rows=packed.text(), **trusted)


def write_report(path: str | Path, page: str) -> None:
    """Write a page; raises `OSError` where the file cannot be written."""
    Path(path).write_text(page, encoding="utf-8", newline="\n")


def write_result(result: TeamResult, path: str | Path) -> None:
    """Write a result as one HTML file; see `TeamResult.report`."""
    write_report(path, render_report(story_of_result(result), known_of_result(result)))


def story_of_result(result: TeamResult) -> RunStory:
    """Build a story from a result alone: it has no times, no calls, and of each task only the last attempt."""
    story = RunStory()
    story.run_id = result.run_id
    story.team = result.budget.name if result.budget else ""
    error = None if result.error is None else str(result.error)
    story.ended = TeamEnded(result.run_id, 0, datetime.now(UTC), result.status, result.duration, result.usage, error)
    for one in result.plan.tasks if result.plan else ():
        story.task(one.id).planned = planned_task(one, ())
    for outcome in result.outcomes:
        _fill(story.task(outcome.task_id), outcome)
    return story


def known_of_result(result: TeamResult) -> Known:
    """Return what a result contains apart from its tasks."""
    limits = result.budget.budget if result.budget else None
    partial = result.output is None and result.partial_output is not None
    output = result.partial_output if partial else result.output
    return Known(limits=limits, output=output, partial=partial, error=result.error, warnings=result.warnings)


def add_outcomes(story: RunStory, outcomes: Iterable[TaskOutcome]) -> None:
    """Add the artifacts of a run's result to the attempts that made them, where the story has no artifact."""
    for outcome in outcomes:
        task = story.tasks.get(outcome.task_id)
        if task and task.attempts and outcome.artifact and task.attempts[-1].artifact is None:
            task.attempts[-1].artifact, task.attempts[-1].files = outcome.artifact.text, outcome.artifact.files


def _fill(task: TaskStory, outcome: TaskOutcome) -> None:
    task.state, task.member, task.reason = STATES[outcome.status], outcome.member, outcome.error
    task.returned = outcome.usage
    if outcome.attempts:
        attempt = AttemptStory(outcome.attempts, outcome.member, 0.0, 0.0, outcome.status.value)
        attempt.verdict = outcome.verdict
        if outcome.artifact is not None:
            attempt.artifact, attempt.files = outcome.artifact.text, outcome.artifact.files
        task.attempts.append(attempt)


@cache
def asset(name: str) -> str:
    """Return a file that a page contains."""
    return (resources.files("kairo_team.views") / "report_assets" / name).read_text(encoding="utf-8")


def page_style() -> str:
    """Return the style of reports, which begins with what the console has too."""
    return asset("parts.css") + asset("report.css")


def _script() -> str:
    return asset("parts.js") + asset("report.js")


def report_policy() -> str:
    """Return the policy of a report: only its own style and script may run, whatever a member wrote."""
    return f"{policy_of(page_style())}; img-src data:; script-src {_hash_of(_script())}"


def policy_of(css: str) -> str:
    """Return the content security policy of a page that loads nothing and has only this style."""
    return f"default-src 'none'; style-src {_hash_of(css)}; base-uri 'none'; form-action 'none'"


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
