"""One task of a recorded run for people and programs: what each attempt made, and what its review said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kairo_team.views.report_tasks import task_details
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen
    from kairo_team.views.run_story import RunStory

_MOST_LINES: Final = 20
"""Lines of what an earlier attempt made that are shown."""


def show_task(story: RunStory, task_id: str, screen: Screen) -> None:
    """Print a task: its attempts with their findings, its questions, and the whole output."""
    task = task_details(story, story.tasks[task_id])
    screen.print_text(f"{one_line(story.run_id)}  task {one_line(task_id)}  {task['state'].upper()}", "bold")
    screen.print_indented(" · ".join(filter(None, (task["member"], task["cost"]))))
    for words in (task["description"], task["facts"], task["reason"]):
        if words:
            screen.print_indented(words)
    for attempt in task["attempts"]:
        _show_attempt(task, attempt, screen)
    for asked in task["questions"]:
        screen.print_head("Question to a person")
        screen.print_indented(asked["text"])
        screen.print_indented(asked["answer"])
    if task["made"]:
        screen.print_head(f"Output of attempt {task['made']['number']}")
        screen.print_barred(task["made"]["text"])
        for words in (task["made"]["cut"], *(one["words"] for one in task["made"]["files"])):
            if words:
                screen.print_indented(words)


def _show_attempt(task: Mapping[str, Any], attempt: Mapping[str, Any], screen: Screen) -> None:
    review = f", review: {attempt['verdict']}" if attempt["verdict"] else ""
    screen.print_head(f"Attempt {attempt['number']}: {attempt['status'].replace('_', ' ')}{review}")
    for words in (attempt["facts"], attempt["error"], attempt["feedback"]):
        if words and words != task["reason"]:
            screen.print_indented(words)
    for words in (*attempt["findings"], *_open_criteria(task, attempt)):
        screen.print_indented(f"- {words}")
    if attempt["text"]:
        lines = attempt["text"].rstrip("\n").split("\n")
        screen.print_barred("\n".join(lines[:_MOST_LINES]))
        screen.print_more(len(lines) - _MOST_LINES, "line")


def _open_criteria(task: Mapping[str, Any], attempt: Mapping[str, Any]) -> Iterator[str]:
    """Yield the criteria that an attempt did not meet, but for those that a finding is about."""
    if attempt["number"] not in task["rounds"]:
        return
    place = task["rounds"].index(attempt["number"])
    for name, cells in task["criteria"]:
        cell = cells[place]
        is_told = any(finding.startswith(name) for finding in attempt["findings"])
        if cell["kind"] in ("failed", "unknown") and not is_told:
            yield f"{name}: {cell['mark']}" + (f": {cell['reason']}" if cell["reason"] else "")


def task_document(story: RunStory, task_id: str) -> dict[str, Any]:
    """Return the document of `kairo show --task`."""
    task = task_details(story, story.tasks[task_id])
    told = ("number", "status", "verdict", "feedback", "findings", "error")
    made = task["made"]
    attempts = [{name: one[name] for name in told} | {"artifact": one["text"] or None} for one in task["attempts"]]
    for one in attempts:
        if made is not None and one["number"] == made["number"]:
            one["artifact"] = made["text"]
    return {
        "run_id": story.run_id,
        "task_id": task_id,
        "state": task["state"],
        "member": task["member"] or None,
        "description": task["description"],
        "depends_on": list(story.tasks[task_id].planned.depends_on),
        "error": task["reason"],
        "attempts": attempts,
        "questions": task["questions"],
    }


def output_of_task(story: RunStory, task_id: str) -> str | None:
    """Return the whole text of what a task made last; None if it made none that is recorded."""
    return next((one.artifact for one in reversed(story.tasks[task_id].attempts) if one.artifact), None)
