"""A run as one HTML file: no network, no account, nothing from outside, and only its own style and script may run."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

from kairo_team.events import PlannedTask, TeamEnded
from kairo_team.views.progress import RowState
from kairo_team.views.report_graph import draw_run
from kairo_team.views.report_page import Known, describe, overview
from kairo_team.views.report_tasks import WAITS, make_rows
from kairo_team.views.report_text import template
from kairo_team.views.run_story import AttemptStory, RunStory, TaskStory

if TYPE_CHECKING:
    from kairo_team.results import TaskOutcome, TeamResult
    from kairo_team.views.report_tasks import Row

_INLINE: Final = 200
"""Rows that stand in the page itself; of more, the first 100 do, and a script shows the rest."""
_FIRST: Final = 100
_STATES: Final = {
    "pending": RowState.PENDING,
    "in_flight": RowState.RUNNING,
    "completed": RowState.DONE,
    "failed": RowState.FAILED,
    "skipped": RowState.SKIPPED,
    "cancelled": RowState.CANCELLED,
    "suspended": RowState.SUSPENDED,
}
_NO_TIMELINE: Final = "The result of a run has no times: a report of its events, or of its journal, has them."


def render_report(story: RunStory, known: Known | None = None) -> str:
    """Return the page of a run: of its events, and of what else is known of it."""
    rows = make_rows(story)
    most = _INLINE if len(rows) <= _INLINE else _FIRST
    picture, words = draw_run(story)
    timed = story.started_at is not None
    page = describe(story, known or Known()) | {
        "timeline": [Markup(row.bar) for row in rows] if timed else [],  # noqa: S704 - made by a template that escapes
        "tasks": [Markup(row.details) for row in rows],  # noqa: S704 - likewise
        "overview": overview(story),
        "no_timeline": "No task has begun." if timed else _NO_TIMELINE,
        "graph": picture,
        "graph_words": words,
        "legend": _legend(rows),
    }
    css, js = _asset("report.css"), _asset("report.js")
    policy = f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(js)}; base-uri 'none'; form-action 'none'"
    data = {"timeline": _as_data(rows, "bar"), "tasks": _as_data(rows, "details")} if len(rows) > _INLINE else {}
    trusted = {"policy": Markup(policy), "css": Markup(css), "js": Markup(js)}  # noqa: S704 - the library's own
    return template("report.html").render(page=page, most=most, data=data, **trusted)


def write_report(path: str | Path, page: str) -> None:
    """Write a page; raises `OSError` where the file cannot be written."""
    Path(path).write_text(page, encoding="utf-8", newline="\n")


def story_of_result(result: TeamResult) -> RunStory:
    """Return what a result alone tells of its run: no times, no calls, and of each task the last attempt."""
    story = RunStory()
    story.run_id = result.run_id
    story.team = result.budget.name if result.budget else ""
    error = None if result.error is None else str(result.error)
    story.ended = TeamEnded(result.run_id, 0, datetime.now(UTC), result.status, result.duration, result.usage, error)
    for one in result.plan.tasks if result.plan else ():
        story.task(one.id).planned = PlannedTask(one.id, tuple(one.depends_on), evaluator=one.evaluator)
    for outcome in result.outcomes:
        _fill(story.task(outcome.task_id), outcome)
    return story


def known_of_result(result: TeamResult) -> Known:
    """Return what a result says beside its tasks."""
    limits = result.budget.budget if result.budget else None
    output = result.output if result.output is not None else result.partial_output
    return Known(limits=limits, output=output, error=result.error, warnings=result.warnings)


def add_outcomes(story: RunStory, outcomes: Iterable[TaskOutcome]) -> None:
    """Add the artifacts of a run's result to the attempts that made them, where they are not known."""
    for outcome in outcomes:
        task = story.tasks.get(outcome.task_id)
        if task and task.attempts and outcome.artifact and task.attempts[-1].artifact is None:
            task.attempts[-1].artifact = outcome.artifact.text


def _fill(task: TaskStory, outcome: TaskOutcome) -> None:
    task.state, task.member, task.reason = _STATES[outcome.status.value], outcome.member, outcome.error
    task.returned = outcome.usage
    if outcome.attempts:
        attempt = AttemptStory(outcome.attempts, outcome.member, 0.0, 0.0, outcome.status.value)
        attempt.verdict = outcome.verdict
        attempt.artifact = outcome.artifact.text if outcome.artifact else None
        task.attempts.append(attempt)


def _legend(rows: list[Row]) -> list[tuple[str, str]]:
    """Return the styles of the bars there are, with what they mean."""
    means = {
        "a-ok": "attempt",
        "a-error": "attempt that failed",
        "a-open": "attempt without an end",
        "a-review": "review",
    }
    means |= {f"w-{why}": f"waits for {words}" for why, words in WAITS.items()}
    return [(style, words) for style, words in means.items() if any(f'"{style}"' in row.bar for row in rows)]


def _as_data(rows: list[Row], part: str) -> Markup:
    """Return rows as JSON that can end no script element."""
    found: list[Any] = [[getattr(row, part), row.state, row.words, *row.sums] for row in rows]
    return Markup(json.dumps(found, separators=(",", ":")).replace("<", "\\u003c"))  # noqa: S704 - no `<` is left


@cache
def _asset(name: str) -> str:
    return (resources.files("kairo_team.views") / "report_assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
