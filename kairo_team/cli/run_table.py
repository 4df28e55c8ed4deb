"""Recorded runs for people and programs: the output of `kairo runs` and `kairo show`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from kairo_team._util.counts import count
from kairo_team._util.late_pydantic import adapter
from kairo_team.budget import NO_USAGE, Budget, Usage
from kairo_team.cli.journals import quoted, short_id
from kairo_team.human import HumanRequest
from kairo_team.views.text import aligned, duration, one_line

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen
    from kairo_team.recorded import RecordedCall, RecordedRun
    from kairo_team.results import TaskOutcome
    from kairo_team.views.run_record import CallSum, RunRecord, TaskStanding

INTERRUPTED: Final = "interrupted"
"""The state of a run that can be resumed and whose process is gone."""
SUSPENDED: Final = "suspended"
_HEADS: Final = ("run", "state", "team", "used", "begun", "goal")
COLOURS: Final = {
    "queued": "cyan",
    "running": "cyan",
    "suspended": "yellow",
    "interrupted": "yellow",
    "cancelled": "yellow",
    "completed": "green",
    "degraded": "yellow",
    "given_up": "red",
    "failed": "red",
    "timeout": "red",
}
"""Colours of states of runs and tasks."""
_WORDS: Final = {"completed": "done", "pending": "waits"}
"""Other words for states of tasks, as in the report of a run."""
_MADE: Final = 32
"""Characters of a generated id."""
_PROBLEM: Final = 300
"""Most characters of the reason why a run cannot be read."""
_LONGEST_GOAL: Final = 1_000
_LONGEST: Final = 24
"""Characters of a team's name in the table."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
_MOST_LINES: Final = 20
"""Lines of an output that are shown."""
_MOST_LISTED: Final = 60
"""Tasks, and calls in doubt, that are shown each."""


def age(seconds: float) -> str:
    """Write an age: `12 s`, `5 min`, `3 h`, `40 d`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{max(0, int(seconds))} s"


# ---------------------------------------------------------------- kairo runs


def show_runs(
    runs: Sequence[RecordedRun], waiting: Mapping[str, str], screen: Screen, then: Sequence[str] = ()
) -> None:
    """Print a line for each run; on a terminal, a generated id is abbreviated.

    Below come the reasons why records cannot be read, then `waiting`: why no worker does the waiting work of a run, by
    run id. On a terminal the commands `then` come last.
    """
    for line in run_lines(runs, None if screen.watched else _MADE):
        screen.print_row(line, cuts_last=True)
    for problem in run_problems(runs, waiting):
        screen.print_text()
        screen.print_text(problem)
    if screen.watched:
        show_commands(then, screen, title="next:")


def run_lines(runs: Sequence[RecordedRun], length: int | None = None) -> list[Text]:
    """Return a head and a line for each run.

    `length` is how many characters of a generated id are shown; None: as many as distinguish these runs.
    """
    now = time.time()
    if length is None:
        made = {run.run_id for run in runs if len(run.run_id) == _MADE}
        length = next(most for most in range(8, _MADE + 1) if len({one[:most] for one in made}) == len(made))
    rows: list[tuple[str, ...]] = [_HEADS]
    for run in runs:
        name = run.run_id[:length] if len(run.run_id) == _MADE else run.run_id
        spent = f"{run.usage.tokens:,}" + (f", ${run.usage.dollars}" if run.usage.dollars else "")
        spent += f" + {run.held.tokens:,} held" if run.held.tokens else ""
        used, begun = spent if run.problem is None else "?", f"{age(now - run.started_at)} ago"
        team, goal = one_line(run.team, _LONGEST), one_line(run.goal, _LONGEST_GOAL)
        rows.append((one_line(name), run.state, team, used, begun, goal))
    lines = list(map(Text, aligned(rows)))
    lines[0].stylize("bold")
    state_at = max(len(row[0]) for row in rows) + 2
    for line, (_, state, *_) in zip(lines[1:], rows[1:], strict=True):
        line.stylize(COLOURS.get(state, ""), state_at, state_at + len(state))
    return lines


def run_problems(runs: Sequence[RecordedRun], waiting: Mapping[str, str]) -> list[str]:
    """Return sentences on why records cannot be read, and on why runs wait, each reason once."""
    unread = [run.problem for run in runs if run.problem is not None]
    return [
        *(f"its records cannot be read: {one_line(problem, _PROBLEM)}" for problem in unread),
        *(
            f"{count(number, 'run')} {'waits' if number == 1 else 'wait'}: {problem}"
            for problem, number in Counter(waiting.values()).items()
        ),
    ]


def runs_document(runs: Sequence[RecordedRun], waiting: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of `kairo runs`; `waits` is why no worker does a run's waiting work, or null."""
    return {"runs": [run_document(run) | {"waits": waiting.get(run.run_id)} for run in runs]}


def run_document(run: RecordedRun) -> dict[str, Any]:
    """Return the fields of a run, for a document."""
    return run._asdict() | {
        "source": dict(run.source),
        "usage": _as_json(run.usage),
        "held": _as_json(run.held),
        "started_at": _as_time(run.started_at),
        "updated_at": _as_time(run.updated_at),
    }


def _as_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _as_json(value: Usage | Budget) -> Any:
    return adapter(type(value)).dump_python(value, mode="json")


# ---------------------------------------------------------------- kairo show


def show_record(
    record: RunRecord, go_on: Sequence[str], screen: Screen, waits: str | None = None, then: Sequence[str] = ()
) -> None:
    """Print the state of a run; the command that resumes it comes last, or what to do with a run that has ended.

    `waits` is why no worker continues it.
    """
    _show_head(record, screen)
    if waits is not None:
        screen.print_indented(f"it waits: {waits}")
    _show_output(record, screen)
    _show_tasks(record.tasks, screen, record.error or "")
    _show_calls(record.calls, screen)
    _show_doubts(record.in_doubt, screen)
    for question in record.questions:
        show_question(question, record.run.run_id, screen)
    show_commands(go_on, screen)
    show_commands(then, screen, title="next:")


def _show_head(record: RunRecord, screen: Screen) -> None:
    run, now = record.run, time.time()
    line = Text(f"{one_line(run.run_id)}  ")
    line.append(run.state.upper(), style=f"bold {COLOURS.get(run.state, '')}")
    screen.show(line, soft_wrap=True)
    screen.print_indented(f"{run.team}: {run.goal}")
    if run.forked_from is not None:
        screen.print_indented(f"a fork of run {run.forked_from}")
    touched = age(now - run.updated_at)
    screen.print_indented(
        f"begun {age(now - run.started_at)} ago, last written {touched} ago, worked {run.seconds:.1f} s"
    )
    held = f"; held for calls under way: {f'{run.held}'.removeprefix('0 tokens, ')}" if run.held != NO_USAGE else ""
    screen.print_indented(f"used {run.usage}{held}{_limits(record.budget)}")
    if record.set_aside:
        screen.print_indented(record.set_aside)
    if record.error and run.state != SUSPENDED:  # its questions say more
        screen.print_indented(record.error)


def _limits(budget: Budget) -> str:
    found = [(one.name.replace("_", " "), getattr(budget, one.name)) for one in fields(budget)]
    limits = [f"${limit}" if name == "dollars" else f"{limit:,} {name}" for name, limit in found if limit is not None]
    return f"; limits: {', '.join(limits)}" if limits else "; no limit"


def _show_output(record: RunRecord, screen: Screen) -> None:
    """Print the beginning of the output, or of the partial output."""
    result = record.result
    text = None if result is None else result.output or result.partial_output
    if result is None or text is None:
        return
    screen.print_head("Output" if result.output else "Partial output")
    lines = text.rstrip("\n").split("\n")
    screen.print_barred("\n".join(lines[:_MOST_LINES]))
    if len(lines) > _MOST_LINES:
        more = count(len(lines) - _MOST_LINES, "more line")
        screen.print_text(f"  and {more} (kairo show {quoted(record.run.run_id)} --output has them)", "dim")


def _show_tasks(tasks: Sequence[TaskStanding], screen: Screen, shown: str) -> None:
    """Print the tasks, each cause once: not those in `shown`."""
    if not tasks:
        return
    screen.print_head("Tasks")
    longest = max(len(one_line(task.task_id)) for task in tasks)
    # Where not all are listed, tasks without success come first.
    few = len(tasks) <= _MOST_LISTED
    listed = tasks if few else sorted(tasks, key=lambda task: task.status in _WORDS)
    for task in listed[:_MOST_LISTED]:
        screen.print_row(_task_line(task, longest))
        cause = None if task.outcome is None or task.status == SUSPENDED else task.outcome.error
        if cause and cause not in shown:
            screen.print_indented(cause, 6, "dim")
            shown += f"\n{cause}"
    screen.print_more(len(tasks) - _MOST_LISTED, "task")


def took(outcome: TaskOutcome) -> str:
    """Return how long a task was worked on, or "" if it was not."""
    return duration(outcome.usage.seconds) if outcome.usage.seconds else ""


def _task_line(task: TaskStanding, longest: int) -> Text:
    line = Text(f"  {one_line(task.task_id):{longest}}  ")
    line.append(f"{_WORDS.get(task.status, task.status):11}", style=COLOURS.get(task.status, ""))
    outcome = task.outcome
    tried = count(outcome.attempts, "attempt") if outcome is not None and outcome.attempts else ""
    spent = count(outcome.usage.tokens, "token") if outcome is not None and outcome.usage.tokens else ""
    lasted = took(outcome) if outcome is not None else ""
    line.append(f"  {tried:11}  {spent:>13}  {lasted:>8}  {one_line(task.member or '')}")
    line.rstrip()
    if task.waits_for:
        begun = task.status != "pending" or (outcome is not None and outcome.attempts > 0)
        line.append(f"{'  waits' if begun else ''} for {one_line(task.waits_for)}", style="dim")
    return line


def _show_calls(calls: Sequence[CallSum], screen: Screen) -> None:
    if not calls:
        return
    screen.print_head("Calls")
    longest = max(len(one_line(one.name)) for one in calls)
    for one in calls:
        doubt = f", {one.in_doubt} in doubt" if one.in_doubt else ""
        doubt += f", {one.under_way} under way" if one.under_way else ""
        spent = f"  {one.usage}" if one.what == "model" else ""
        line = f"  {one.what:5}  {one_line(one.name):{longest}}  {count(one.calls, 'call')}{doubt}{spent}"
        screen.print_row(Text(line.rstrip()))


def _show_doubts(calls: Sequence[RecordedCall], screen: Screen) -> None:
    if not calls:
        return
    screen.print_head("In doubt: sent, but no answer was seen; charged in full")
    for one in calls[:_MOST_LISTED]:
        spent = f": {one.usage}" if one.usage.tokens else ""
        where = f" in task {one.task_id!r}" if one.task_id is not None else ""
        screen.print_indented(f"{one.what} {one.name}{where}, sent at {_as_time(one.sent_at)}{spent}")
    screen.print_more(len(calls) - _MOST_LISTED, "call")


def show_question(question: HumanRequest, run_id: str, screen: Screen) -> None:
    """Print a question, with a bar before each line that a member wrote."""
    screen.print_head(f"Question {one_line(short_id(question, run_id))}")
    screen.print_indented(question.text)
    if question.subject:
        screen.print_barred(question.subject)
    for finding in question.findings:
        screen.print_indented(f"- {finding.observed or finding.id}")
    for answer in ("approve", "revise", "reject"):
        if answer in question.consequences:
            screen.print_indented(f"{answer}: {question.consequences[answer]}")


def show_questions(questions: Sequence[HumanRequest], answers: Sequence[str], place: str, screen: Screen) -> None:
    """Print the oldest question with the command that answers it, then a line for each other one."""
    if not questions:
        screen.print_text(f"no question is open in {place}")
        return
    oldest, *others = questions
    screen.print_text(f"{count(len(questions), 'open question')}; the oldest, of run {one_line(oldest.run_id)}:")
    show_question(oldest, oldest.run_id, screen)
    if others:
        screen.print_head("Then")
        for one in others[:_MOST_LISTED]:
            screen.print_indented(f"{one.run_id} {short_id(one, one.run_id)}: {one.text}")
        screen.print_more(len(others) - _MOST_LISTED, "question")
    show_commands(answers, screen, title="answer the oldest with approve, revise, reject or defer:")


def questions_document(questions: Sequence[HumanRequest]) -> dict[str, Any]:
    """Return the document of `kairo questions`."""
    return {"questions": [adapter(HumanRequest).dump_python(one, mode="json") for one in questions]}


def show_commands(commands: Sequence[str], screen: Screen, *, title: str | None = None) -> None:
    """Print the commands that continue a run, each in one line, so that it can be copied."""
    if not commands:
        return
    asks = (
        "answer with approve, revise, reject or defer, then continue with:" if len(commands) > 1 else "continue with:"
    )
    screen.print_text()
    screen.print_text(title or asks)
    for one in commands:
        screen.show(Text(f"  {one}"), soft_wrap=True)


def record_document(record: RunRecord, go_on: Sequence[str], waits: str | None = None) -> dict[str, Any]:
    """Return the document of `kairo show`: a run's fields in `kairo runs`, and its state in detail."""
    return run_document(record.run) | {
        "budget": _as_json(record.budget),
        "set_aside": record.set_aside,
        "error": record.error,
        "tasks": [_task(one) for one in record.tasks],
        "calls": [one._asdict() | {"usage": _as_json(one.usage)} for one in record.calls],
        "in_doubt": [
            asdict(one) | {"usage": _as_json(one.usage), "held": _as_json(one.held), "sent_at": _as_time(one.sent_at)}
            for one in record.in_doubt
        ],
        "questions": [adapter(HumanRequest).dump_python(one, mode="json") for one in record.questions],
        "waits": waits,
        "go_on": list(go_on),
    }


def _task(task: TaskStanding) -> dict[str, Any]:
    outcome = task.outcome
    return {
        "task_id": task.task_id,
        "status": task.status,
        "member": task.member,
        "waits_for": task.waits_for or None,
        "attempts": outcome.attempts if outcome is not None else None,
        "usage": _as_json(outcome.usage) if outcome is not None else None,
        "error": outcome.error if outcome is not None else None,
    }
