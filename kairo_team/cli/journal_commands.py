"""The commands on recorded runs: list, show, resume, answer, cancel, fork, forget and follow them."""

from __future__ import annotations

import json as json_module
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count as count_from
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kairo_team._util.counts import count
from kairo_team._util.masking import masked
from kairo_team._util.mistakes import did_you_mean
from kairo_team.budget import Budget
from kairo_team.cli.budgets import limited
from kairo_team.cli.compare import both_document, show_both
from kairo_team.cli.databases import any_place_of
from kairo_team.cli.exit_codes import EXIT_CODES, list_exit_codes
from kairo_team.cli.job import GoOn
from kairo_team.cli.journals import (
    command,
    commands_for,
    coverage_of_run,
    find_question,
    find_run,
    go_on_commands,
    next_commands,
    opened,
    place_name,
    quoted,
    short_id,
    until_reached,
    why_waiting,
    worker_command,
)
from kairo_team.cli.numbers import plain_number, whole_number
from kairo_team.cli.options import (
    BudgetOption,
    ContentOption,
    DatabaseOption,
    EngineOption,
    EventsOption,
    JournalOption,
    JsonOption,
    ModelOption,
    RunArgument,
    desk_of,
)
from kairo_team.cli.refusal import Refusal, explain
from kairo_team.cli.run_table import (
    questions_document,
    record_document,
    runs_document,
    show_commands,
    show_question,
    show_questions,
    show_record,
    show_runs,
)
from kairo_team.cli.sources import loaded_again, on_cluster, refuse_model, send_again
from kairo_team.cli.streams import silence
from kairo_team.cli.task_view import output_of_task, show_task, task_document
from kairo_team.durable.journal import SqliteJournal
from kairo_team.errors import RunExists, known
from kairo_team.human import HumanDecision
from kairo_team.recorded import ENDED, STATES, RecordedRun
from kairo_team.views.other_journals import record_of
from kairo_team.views.recorded_report import add_result, recorded_story
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.views.other_journals import Book

_ACTIONS: Final = ("approve", "revise", "reject", "defer")
_LOOK: Final = 0.25
"""Seconds between two reads of new events."""
_LOOKS: Final = 4
"""Reads of events after which the run's state is read too, which costs more."""
_SURE: Final = 5
"""Reads of its state, one after the other, after which a followed run counts as interrupted: while its process connects
again, the run looks so too."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DONE: Final = list_exit_codes("done")

journal_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@journal_app.command(epilog=_DONE)
def runs(
    context: typer.Context,
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help=f"Only runs that are {', '.join(STATES)}.")] = None,
    team: Annotated[str | None, typer.Option(metavar="TEAM", help="Only runs of this team.")] = None,
    json: JsonOption = False,
) -> int:
    """List the recorded runs, the newest first."""
    desk = desk_of(context, json=json)
    if state is not None and state not in STATES:
        raise Refusal(f"--state is one of {known(STATES)}, not {state!r}")
    with opened(journal, database) as book:
        found = book.runs(state=state, team=team)
        if found or json:
            waiting = why_waiting(book, found)
            then = commands_for(book, found)
            desk.present(runs_document(found, waiting), lambda screen: show_runs(found, waiting, screen, then))
        else:
            chosen = "" if state is team is None else ", or none of the chosen ones"
            desk.screen.print_text(f"no run is recorded in {place_name(book)}{chosen}")
    return 0


@journal_app.command(epilog=_DONE)
def show(
    context: typer.Context,
    run: RunArgument,
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Show this task: each attempt, its findings, and what it made.")
    ] = None,
    output: Annotated[
        bool, typer.Option("--output", help="Print the whole output of the run, or of the task, and nothing else.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Show the state of a recorded run: tasks, calls, open questions, and the command that resumes it."""
    desk = desk_of(context)
    if json and output:
        raise Refusal("--output prints a text and --json a document: leave one of them out")
    desk.begin(json=json)
    if task is not None or output:
        return _show_part(desk, run, task, journal, database, output=output)
    with opened(journal, database) as book:
        record = record_of(book, find_run(book, run))
        coverage = coverage_of_run(book, record.run)
        go_on = go_on_commands(book, record.run, coverage)
        then = next_commands(book, record)
        if coverage.needs_worker:
            go_on = [worker_command(book, record.run), *go_on]
    waits = coverage.problem
    return desk.present(
        record_document(record, go_on, waits), lambda screen: show_record(record, go_on, screen, waits, then)
    )


def _show_part(
    desk: Desk, run: str, task: str | None, journal: str | None, database: str | None, *, output: bool
) -> int:
    with opened(journal, database) as book:
        found = find_run(book, run)
        story = recorded_story(book, found.run_id)
        story.run_id, known = found.run_id, add_result(book, found.run_id, story)
        if task is not None and task not in story.tasks:
            there = command("show", quoted(found.run_id), journal=book)
            near = did_you_mean(task, story.tasks)
            raise Refusal(f"run {found.run_id} has no task {task!r}: {near}{there} lists its tasks")
    if task is not None and not output:
        return desk.present(task_document(story, task), lambda screen: show_task(story, task, screen))
    text = known.output if task is None else output_of_task(story, task)
    if text is None:
        raise Refusal(f"{f'task {task}' if task else f'run {found.run_id}'} has no output that is recorded")
    desk.screen.print_text(masked(text).rstrip("\n"))
    return 0


@journal_app.command(epilog=_DONE)
def compare(
    context: typer.Context,
    run: RunArgument,
    other: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="The other run; default: the run of its team before it.")
    ] = None,
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """Show two recorded runs side by side, task by task; tasks that ended differently come first."""
    desk = desk_of(context, json=json)
    with opened(journal, database) as book:
        second = find_run(book, run)
        if other is not None:
            first = find_run(book, other)
        else:
            runs = [one for one in book.runs(team=second.team) if one.parent is None]
            earlier = [one for one in runs if one.started_at < second.started_at]
            if not earlier:
                raise Refusal(f"no run of team {second.team!r} began before run {second.run_id}: name the other run")
            first = max(earlier, key=lambda one: one.started_at)
        records = [record_of(book, first), record_of(book, second)]
    return desk.present(both_document(records), lambda screen: show_both(records, screen))


@journal_app.command(epilog=_DONE)
def questions(
    context: typer.Context,
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """List the open questions of all runs: the oldest first, with the command that answers it, deferred ones last."""
    desk = desk_of(context, json=json)
    with opened(journal, database) as book:
        found = book.pending()
        place = place_name(book)
        answers = [
            command("answer", quoted(one.run_id), quoted(short_id(one, one.run_id)), "approve", journal=book)
            for one in found[:1]
        ]
    return desk.present(questions_document(found), lambda screen: show_questions(found, answers, place, screen))


@journal_app.command(epilog=EXIT_CODES)
def resume(
    context: typer.Context,
    run: RunArgument,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE[:TEAM]", help="The file of its team; default: the one it was started from."),
    ] = None,
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    engine: EngineOption = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also from a live process, which can then record nothing more.")
    ] = False,
    allow_change: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What may have changed since it began; may be repeated.")
    ] = None,
    by_workers: Annotated[
        bool, typer.Option("--by-workers", help="Send a submitted run that was given up to its workers again.")
    ] = False,
    budget: BudgetOption = None,
    model: ModelOption = None,
    events: EventsOption = None,
    content: ContentOption = None,
    json: JsonOption = False,
) -> int:
    """Resume a run that is suspended, or whose process is gone: nothing that was finished is done again.

    A team without its own gate waits for answers to its questions: `kairo answer` gives them. With a database,
    `kairo worker`s make the attempts; a submitted run is resumed by workers alone.
    """
    desk = desk_of(context, json=json)
    place = any_place_of(journal, database)
    refuse_model(place, model)
    with opened(journal, database) as book:
        found = find_run(book, run)
        _refuse_ended(book, found)
        if by_workers:
            if file or budget or model or allow_change or take_over:
                raise Refusal("--by-workers sends the run as it is: leave out FILE and the other options")
            send_again(found, place, engine)
            desk.screen.print_text(f"run {found.run_id} is sent to its workers again")
            return 0
        coverage = coverage_of_run(book, found)
        if coverage.by_workers:
            waits = f", but it waits: {coverage.problem}" if coverage.problem else ""
            raise Refusal(f"run {found.run_id} was submitted: workers resume it by themselves{waits}")
        if found.state == "running" and not take_over:
            stop = command("cancel", quoted(found.run_id), journal=book)
            raise Refusal(
                f"run {found.run_id} is running in another process: stop it there and resume it then, or take it from "
                f"that process with --take-over; {stop} ends it for good"
            )
        how = GoOn(take_over, tuple(allow_change or ()))
        with (
            loaded_again(found, book, file, budget, model, how) as job,
            on_cluster(job, place, engine) as kept,
        ):
            return desk.run(kept, events, content)


@journal_app.command(epilog=_DONE)
def answer(
    context: typer.Context,
    run: RunArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[QUESTION] approve|revise|reject|defer", help="The question, if several are open; the answer."
        ),
    ],
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    text: Annotated[str, typer.Option(metavar="TEXT", help="What to change, or why not.")] = "",
) -> int:
    """Answer an open question of a recorded run.

    A deferred question stays open, behind the others, and a run that waits for it ends suspended.
    """
    desk = desk_of(context)
    *named, action = words
    if len(named) > 1 or action not in _ACTIONS:
        raise Refusal(
            f"the answer is {', '.join(_ACTIONS)}, after the question if one is named, not {' '.join(words)!r}"
        )
    try:
        decision = HumanDecision(action, text)  # type: ignore[arg-type]  # one of them
    except ValueError as error:
        raise Refusal(f"{explain(error)}: say it with --text") from None
    with opened(journal, database) as book:
        found = find_run(book, run)
        question = find_question(book.pending(found.run_id), found.run_id, named[0] if named else None)
        book.answer(question.id, decision, by="kairo answer")
        coverage = coverage_of_run(book, found)
        left = go_on_commands(book, found, coverage)
        by_workers = not left and coverage.by_workers
    show_question(question, found.run_id, desk.screen)
    desk.screen.print_head(f"answered: {action}" + (f", {one_line(text)}" if text else ""))
    if by_workers:
        desk.screen.print_text("a worker resumes the run")
    show_commands(left, desk.screen)
    return 0


@journal_app.command(epilog=_DONE)
def cancel(
    context: typer.Context,
    run: RunArgument,
    *,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="End this task alone; a run at work continues.")
    ] = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """End a recorded run for good: it cannot be resumed. A run in another process ends within seconds.

    With --task one task is ended, with what it grew into; tasks that cannot do without it are skipped.
    """
    desk = desk_of(context)
    with opened(journal, database) as book:
        found = find_run(book, run)
        _refuse_ended(book, found)
        if task is not None:
            book.cancel_task(found.run_id, task, "cancelled by kairo cancel")
            desk.screen.print_text(f"task {one_line(task)} of run {found.run_id} is cancelled; the run continues")
            return 0
        book.cancel(found.run_id, "cancelled by kairo cancel")
    ends = "ends within seconds" if found.state == "running" else "is cancelled"
    desk.screen.print_text(f"run {found.run_id} {ends}")
    return 0


@journal_app.command("top-up", epilog=_DONE)
def top_up(
    context: typer.Context,
    run: RunArgument,
    *,
    add: Annotated[str, typer.Option(metavar="LIMITS", help="How much more, such as tokens=5,000,dollars=0.05.")],
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """Raise the limits of a run that is at work in another process; tasks that wait for budget try again.

    A run that no process has gets its new limits by `kairo resume RUN --budget LIMITS`.
    """
    desk = desk_of(context)
    more = limited(Budget(), add, "--add")
    if more == Budget():
        raise Refusal("--add says how much more, such as tokens=5,000: a limit is not removed while a run is at work")
    with opened(journal, database) as book:
        found = find_run(book, run)
        _refuse_ended(book, found)
        if found.state != "running":
            again = command("resume", quoted(found.run_id), "--budget", "LIMITS", journal=book)
            raise Refusal(f"run {found.run_id} is {found.state}, and no process has it: {again} sets its limits")
        book.top_up(found.run_id, more, by="kairo top-up")
    desk.screen.print_text(f"the budget of run {found.run_id} is raised: {one_line(add)} more")
    return 0


@journal_app.command(epilog=_DONE)
def steer(
    context: typer.Context,
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the members must heed from now on.")],
    *,
    task: Annotated[str | None, typer.Option(metavar="TASK", help="Tell the member of this task alone.")] = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """Give a directive to a run that is at work in another process: members see it at their next turn."""
    desk = desk_of(context)
    with opened(journal, database) as book:
        found = find_run(book, run)
        _refuse_ended(book, found)
        book.steer(found.run_id, text, task, by="kairo steer")
    desk.screen.print_text(f"run {found.run_id} has the directive" + (f" for task {one_line(task)}" if task else ""))
    return 0


def _refuse_ended(book: Book, run: RecordedRun) -> None:
    if run.state in ENDED:
        there = command("show", quoted(run.run_id), journal=book)
        raise Refusal(f"run {run.run_id} has ended: {run.state}; {there} shows it")


@journal_app.command(epilog=_DONE)
def fork(
    context: typer.Context,
    run: RunArgument,
    *,
    before: Annotated[
        str | None, typer.Option(metavar="TASK", help="Leave out what this task did, and what depends on it.")
    ] = None,
    after: Annotated[
        int | None,
        whole_number("Leave out all records after the event of this number.", 0),
    ] = None,
    new_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The new run's id; default: one that is made.")
    ] = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """Make a new run from an earlier point of a recorded one, which stays as it is; kept work is not paid again."""
    desk = desk_of(context)
    point = after if before is None else before
    if point is None or (before is not None and after is not None):
        raise Refusal("name the point: kairo fork RUN --before TASK, or --after N with the number of an event")
    with opened(journal, database) as book:
        found = find_run(book, run)
        try:
            made = find_run(book, book.fork(found.run_id, before=point, new_id=new_id))
        except RunExists as error:
            raise Refusal(f"run {error.run_id!r} is recorded already: give --new-id another id") from None
        except ValueError as error:
            raise Refusal(explain(error)) from None
        go_on = go_on_commands(book, made)
    desk.screen.print_text(f"run {made.run_id} is a fork of run {found.run_id}")
    show_commands(go_on, desk.screen)
    if isinstance(book, SqliteJournal) and go_on:
        desk.screen.print_text(
            "  --model NAME and --budget LIMITS continue it with another model and other limits", "dim"
        )
    return 0


@journal_app.command(epilog=_DONE)
def forget(
    context: typer.Context,
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="A run's id, or its beginning.")] = None,
    *,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="All runs that ended this long ago, such as 30d, 12h or 90m.")
    ] = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """Delete a recorded run that no process has, or all runs that ended long ago."""
    desk = desk_of(context)
    if (run is None) == (older_than is None):
        raise Refusal("name a run, or give an age: kairo forget RUN, or kairo forget --older-than 30d")
    seconds = None if older_than is None else read_age(older_than, "--older-than")
    with opened(journal, database) as book:
        name = None if run is None else find_run(book, run).run_id
        number = book.forget(name, older_than=seconds)
    desk.screen.print_text(f"forgotten: {count(number, 'run')}")
    return 0


def read_age(text: str, option: str) -> float:
    """Read `30d`, `12h`, `90m` or `45s` as seconds; `option` names the age in errors."""
    unit = _UNITS.get(text[-1:])
    try:
        amount = float(plain_number(text[:-1]))
    except ValueError:
        amount = -1.0
    if unit is None or not 0 <= amount < float("inf"):
        raise Refusal(f"{option} is a number with d, h, m or s, such as 30d, not {text!r}")
    return amount * unit


@journal_app.command(epilog=_DONE)
def events(
    context: typer.Context,
    run: RunArgument,
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until the run ends.")] = False,
    after: Annotated[int, whole_number("Only events with a number above this one.", 0)] = 0,
) -> int:
    """Print the events of a recorded run as JSON Lines."""
    tell = desk_of(context).print_notice
    with opened(journal, database) as book:
        run_id = find_run(book, run).run_id
        try:
            if follow:
                _follow_events(book, run_id, after, tell)
            else:
                deque(_print_events(book, run_id, after), maxlen=0)
        except BrokenPipeError:  # the reader has gone
            silence(sys.stdout)
    return 0


def _print_events(journal: Book, run_id: str, after: int) -> Iterator[int]:
    """Print the events after this number, and yield the number of each."""
    for event in journal.events_after(run_id, after):
        print(json_module.dumps(json_module.loads(event.to_json())))  # all of it ASCII: safe for a terminal
        yield event.seq
    sys.stdout.flush()


def _follow_events(journal: Book, run_id: str, after: int, tell: Callable[[str], object]) -> None:
    """Print the events of a run until no more come; wait for a database that cannot be reached."""
    interrupted = 0

    def print_more() -> None:
        nonlocal after
        for number in _print_events(journal, run_id, after):
            after = number  # at once: the connection may break before the next one

    for look in count_from(0):
        state = None
        if look % _LOOKS == 0:
            state = until_reached(partial(_state_of, journal, run_id), tell)
            interrupted = interrupted + 1 if state == "interrupted" else 0
        until_reached(print_more, tell)  # after the state, so that none is missed
        if interrupted > _SURE or state not in (None, "queued", "running", "interrupted"):
            return
        time.sleep(_LOOK)


def _state_of(journal: Book, run_id: str) -> str:
    """Return the state of a run; an interrupted one that a worker takes up by itself is queued."""
    run = journal.show(run_id)
    return "queued" if run.state == "interrupted" and coverage_of_run(journal, run).by_workers else run.state
