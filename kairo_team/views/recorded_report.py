"""A recorded run as a story and as a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.budget import Budget
from kairo_team.views.other_journals import Book, OtherJournal
from kairo_team.views.report_html import add_outcomes, known_of_result, render_report
from kairo_team.views.report_page import Known
from kairo_team.views.run_record import (
    recorded_attempts,
    recorded_events,
    recorded_limits,
    recorded_result,
    runs_inside,
)
from kairo_team.views.run_story import RunStory, TaskStory, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kairo_team.recorded import RecordedRun
    from kairo_team.results import Attempt


def page_of_run(book: Book, run: RecordedRun, commands: Callable[[RunStory], tuple[str, ...]]) -> str:
    """Return the report of a recorded run; `commands` returns the commands that continue it."""
    story = recorded_story(book, run.run_id)
    story.run_id, story.team, story.goal = run.run_id, story.team or run.team, story.goal or run.goal
    inside: dict[str, RunStory] = {}
    for one in () if isinstance(book, OtherJournal) else runs_inside(book, run.run_id):
        inside[one.run_id] = recorded_story(book, one.run_id)
        inside[one.run_id].run_id, inside[one.run_id].within = one.run_id, (one.parent, one.task_id)
    known = add_result(book, run.run_id, story)._replace(state=run.state, commands=commands(story))
    return render_report(story, known, list(inside.values()))


def add_result(book: Book, run_id: str, story: RunStory) -> Known:
    """Add what the result has to the story, and return what else is known; the result itself is not kept."""
    if isinstance(book, OtherJournal):
        limits, result = Budget(story.tokens_given, dollars=story.dollars_given), book.result(run_id)
    else:
        lacks = {task.id for task in story.tasks.values() if task.attempts and task.attempts[-1].artifact is None}
        limits, result = recorded_limits(book, run_id), recorded_result(book, run_id, lacks)
    if result is None:
        return Known(limits=limits)
    add_outcomes(story, result.outcomes)
    return known_of_result(result)._replace(limits=limits)


def recorded_story(book: Book, run_id: str) -> RunStory:
    """Return a run's story from its events, with the recorded artifacts of its attempts."""
    if isinstance(book, OtherJournal):
        return book.story(run_id)
    story = tell(recorded_events(book, run_id))
    for made in recorded_attempts(book, run_id):
        if made.task_id in story.tasks:
            add_attempts(story.tasks[made.task_id], [made])
    return story


def add_attempts(task: TaskStory, attempts: Iterable[Attempt]) -> None:
    """Add recorded artifacts to the attempts of a task; an artifact of its events stays."""
    made = {one.number: one.artifact for one in attempts if one.artifact is not None}
    for attempt in task.attempts:
        artifact = made.get(attempt.number)
        if artifact is not None and attempt.artifact is None:
            attempt.artifact, attempt.files = artifact.text, artifact.files
