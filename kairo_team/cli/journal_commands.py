"""The commands on recorded runs: list, show, resume, answer, cancel, fork, forget and follow them."""

from __future__ import annotations

import json as json_module
import sys
import time
from itertools import count as count_from
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from kairo_team.cli.databases import any_place_of
from kairo_team.cli.exits import EXIT_CODES, exit_codes
from kairo_team.cli.job import GoOn
from kairo_team.cli.journals import (
    command,
    coverage_of_run,
    find_question,
    find_run,
    go_on_commands,
    next_commands,
    opened,
    place_name,
    quoted,
    why_waiting,
    worker_command,
)
from kairo_team.cli.options import (
    BudgetOption,
    ContentOption,
    DatabaseOption,
    EngineOption,
    EventsOption,
    JournalOption,
    JsonOption,
    RunArgument,
)
from kairo_team.cli.refusal import Refusal, explain
from kairo_team.cli.run_table import (
    record_document,
    runs_document,
    show_commands,
    show_question,
    show_record,
    show_runs,
)
from kairo_team.cli.sources import loaded_again, on_cluster
from kairo_team.cli.streams import silence
from kairo_team.errors import RunExists, known
from kairo_team.human import HumanDecision
from kairo_team.recorded import ENDED, STATES, RecordedRun
from kairo_team.views.other_journals import record_of
from kairo_team.views.text import count, one_line

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.views.other_journals import Book

_ACTIONS: Final = ("approve", "revise", "reject", "defer")
_LOOK: Final = 0.25
"""Seconds between two reads of new events."""
_LOOKS: Final = 4
"""Reads of events after which the run's state is read too, which costs more."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DONE: Final = exit_codes("done")

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
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    if state is not None and state not in STATES:
        raise Refusal(f"--state is one of {known(STATES)}, not {state!r}")
    with opened(journal, database) as book:
        found = book.runs(state=state, team=team)
        if found or json:
            waiting = why_waiting(book, found)
            desk.present(runs_document(found, waiting), lambda screen: show_runs(found, waiting, screen))
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
    json: JsonOption = False,
) -> int:
    """Show the state of a recorded run: tasks, calls, open questions, and the command that resumes it."""
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    with opened(journal, database) as book:
        record = record_of(book, find_run(book, run))
        coverage = coverage_of_run(book, record.run)
        go_on = go_on_commands(book, record.run, coverage)
        then = next_commands(book, record)
        if coverage.needs_worker:
            go_on = [worker_command(book, record.run), *go_on]
    waits = coverage.problem
    desk.present(record_document(record, go_on, waits), lambda screen: show_record(record, go_on, screen, waits, then))
    return 0


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
    budget: BudgetOption = None,
    events: EventsOption = None,
    content: ContentOption = None,
    json: JsonOption = False,
) -> int:
    """Resume a run that is suspended, or whose process is gone: nothing that was finished is done again.

    A team without its own gate waits for answers to its questions: `kairo answer` gives them. With a database,
    `kairo worker`s make the attempts; a submitted run is resumed by workers alone.
    """
    desk = cast("Desk", context.obj)
    desk.begin(json=json)
    with opened(journal, database) as book:
        found = find_run(book, run)
        _refuse_ended(book, found)
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
            loaded_again(found, book, file, budget, how) as job,
            on_cluster(job, any_place_of(journal, database), engine) as kept,
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
    desk = cast("Desk", context.obj)
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
    desk.screen.print_text()
    desk.screen.print_text(f"answered: {action}" + (f", {one_line(text)}" if text else ""), "bold")
    if by_workers:
        desk.screen.print_text("a worker resumes the run")
    show_commands(left, desk.screen)
    return 0


@journal_app.command(epilog=_DONE)
def cancel(
    context: typer.Context, run: RunArgument, *, journal: JournalOption = None, database: DatabaseOption = None
) -> int:
    """End a recorded run for good: it cannot be resumed. A run in another process ends within seconds."""
    desk = cast("Desk", context.obj)
    with opened(journal, database) as book:
        found = find_run(book, run)
        _refuse_ended(book, found)
        book.cancel(found.run_id, "cancelled by kairo cancel")
    ends = "ends within seconds" if found.state == "running" else "is cancelled"
    desk.screen.print_text(f"run {found.run_id} {ends}")
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
        int | None, typer.Option(metavar="N", min=0, help="Leave out all records after the event of this number.")
    ] = None,
    new_id: Annotated[
        str | None, typer.Option(metavar="ID", help="The new run's id; default: one that is made.")
    ] = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """Make a new run from an earlier point of a recorded one, which stays as it is; kept work is not paid again."""
    desk = cast("Desk", context.obj)
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
    desk = cast("Desk", context.obj)
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
        amount = float(text[:-1])
    except ValueError:
        amount = -1.0
    if unit is None or not 0 <= amount < float("inf"):
        raise Refusal(f"{option} is a number with d, h, m or s, such as 30d, not {text!r}")
    return amount * unit


@journal_app.command(epilog=_DONE)
def events(
    run: RunArgument,
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until the run ends.")] = False,
    after: Annotated[int, typer.Option(metavar="N", min=0, help="Only events with a number above this one.")] = 0,
) -> int:
    """Print the events of a recorded run as JSON Lines."""
    with opened(journal, database) as book:
        try:
            _print_events(book, find_run(book, run).run_id, after, follow=follow)
        except BrokenPipeError:  # the reader has gone
            silence(sys.stdout)
    return 0


def _print_events(journal: Book, run_id: str, after: int, *, follow: bool) -> None:
    for look in count_from(0):
        ends = not follow or (look % _LOOKS == 0 and journal.show(run_id).state not in ("queued", "running"))
        for event in journal.events_after(run_id, after):  # after the state, so that none is missed
            print(json_module.dumps(json_module.loads(event.to_json())))  # all of it ASCII: safe for a terminal
            after = event.seq
        sys.stdout.flush()
        if ends:
            return
        time.sleep(_LOOK)
