"""`kairo report`: one HTML file that shows a run, from its journal or from a file of its events."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kairo_team.cli.databases import any_place_of
from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.journals import answer_words, command, find_run, go_on_commands, opened, quoted
from kairo_team.cli.options import DatabaseOption, JournalOption, desk_of
from kairo_team.cli.outputs import write_output
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.views.json_lines import read_events
from kairo_team.views.progress import RowState
from kairo_team.views.recorded_report import page_of_run
from kairo_team.views.report_html import render_report
from kairo_team.views.report_page import Known
from kairo_team.views.run_story import RunStory

if TYPE_CHECKING:
    from kairo_team.recorded import RecordedRun
    from kairo_team.views.other_journals import Book

_FORKED: Final = ("degraded", "failed", "timeout", "cancelled")
_MOST_NAMED: Final = 5
_BAD: Final = (RowState.FAILED, RowState.CANCELLED, RowState.SKIPPED)

report_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@report_app.command(epilog=list_exit_codes("written"))
def report(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN|EVENTS.jsonl", help="A recorded run, or a file of events.")],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write; an existing file is replaced.")
    ] = Path("report.html"),
    run_id: Annotated[
        str | None, typer.Option("--run-id", metavar="ID", help="Which run of a file that has several.")
    ] = None,
    journal: JournalOption = None,
    database: DatabaseOption = None,
) -> int:
    """Write a run as one HTML file that opens from disk and needs no network."""
    desk = desk_of(context)
    file = Path(run)
    for source in (file, None if journal is None else Path(journal)):
        if source is not None and output.exists() and source.exists() and output.samefile(source):
            raise Refusal(f"--output {str(output)!r} is what the report is made from: give another path")
    if file.is_file():
        with _without_collector():
            page = _page_of_file(file, run_id)
    elif any_place_of(journal, database) is None:
        raise Refusal(
            f"there is no file {run!r}: give a file of events, which kairo run --events writes, or a recorded run with "
            "--journal runs.db"
        )
    elif run_id is not None:
        raise Refusal(f"--run-id is for a file of events, and {run!r} is not a file")
    else:
        with opened(journal, database) as book, _without_collector():
            page = report_of_run(book, find_run(book, run))
    write_output("--output", output, page)
    desk.screen.print_text(f"written: {output}")
    return 0


@contextmanager
def _without_collector() -> Generator[None]:
    """Search for no garbage in the block: a report makes much, drops little, and takes half as long without."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# ---------------------------------------------------------------- a file of events


def _page_of_file(file: Path, run_id: str | None) -> str:
    stories: dict[str, RunStory] = defaultdict(RunStory)
    with refusing(OSError, ValueError, about=f"{file} is not a file of events: "):
        for event in read_events(file):
            stories[event.run_id].take(event)
    if not stories:
        raise Refusal(f"{file} has no events")
    outermost = [name for name, story in stories.items() if story.within is None or story.within[0] not in stories]
    outermost = outermost or list(stories)[:1]
    if run_id is None and len(outermost) > 1:
        named = ", ".join(map(quoted, outermost[:_MOST_NAMED]))
        raise Refusal(f"{file} has {len(outermost):,} runs: name one with --run-id, such as {named}")
    if run_id is not None and run_id not in stories:
        raise Refusal(f"{file} has no run {run_id!r}; it has {', '.join(map(quoted, list(stories)[:_MOST_NAMED]))}")
    story = stories[run_id or outermost[0]]
    name = quoted(story.run_id)
    waiting = story.ended is None or story.ended.state in ("suspended", "interrupted")
    inside = _runs_inside(story, stories)
    asked = [one.question for any_run in (story, *inside) for one in any_run.questions if one.is_open]
    answers = [f"kairo {' '.join(words)} --journal FILE" for words in answer_words(story.run_id, asked)]
    known = Known(commands=(*answers, f"kairo resume {name} --journal FILE") if waiting else ())
    return render_report(story, known, inside)


def _runs_inside(story: RunStory, stories: dict[str, RunStory]) -> list[RunStory]:
    """Return the runs inside a run, at any depth, in the order they began."""
    known = {story.run_id}
    found: list[RunStory] = []
    for one in stories.values():  # a run begins after the one around it
        if one.within is not None and one.within[0] in known and one.run_id not in known:
            known.add(one.run_id)
            found.append(one)
    return found


# ---------------------------------------------------------------- a recorded run


def report_of_run(book: Book, run: RecordedRun) -> str:
    """Return the page of a recorded run, with the commands that continue it."""

    def commands(story: RunStory) -> tuple[str, ...]:
        """Continue the run, or fork it before its first bad task; else show it."""
        name = quoted(run.run_id)
        bad = next((task.id for task in story.tasks.values() if task.state in _BAD), None)
        if run.state in _FORKED and bad is not None:
            return (command("fork", name, "--before", quoted(bad), journal=book),)
        return tuple(go_on_commands(book, run)) or (command("show", name, journal=book),)

    return page_of_run(book, run, commands)
