"""`kairo pause`, `unpause` and `queue`: which submitted runs begin, and how many are at work at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from kairo_team.cli.databases import database_of
from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.journals import made
from kairo_team.cli.numbers import whole_number
from kairo_team.cli.options import DatabaseOption, JsonOption, desk_of
from kairo_team.cli.refusal import Refusal
from kairo_team.cluster.queues import RunQueue, queue_name, read_queues, set_queue, without_runs
from kairo_team.views.text import aligned, one_line

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.cli.streams import Screen

Queue = Annotated[
    str, typer.Argument(metavar="QUEUE", help="A team's name, or team:NAME; account:NAME; or all, for every run.")
]
_HEADS = ("queue", "runs", "limit", "at work", "waiting")
_DONE = list_exit_codes("done")

queue_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@queue_app.command(epilog=_DONE)
def pause(context: typer.Context, queue: Queue, *, database: DatabaseOption = None) -> int:
    """Let no further submitted run of a queue begin, until `kairo unpause`; runs at work continue."""
    desk = desk_of(context)
    note = _change(queue, database, paused=True)
    desk.screen.print_text(f"queue {queue_name(queue)} is paused: its runs wait")
    _say(note, desk)
    return 0


@queue_app.command(epilog=_DONE)
def unpause(context: typer.Context, queue: Queue, *, database: DatabaseOption = None) -> int:
    """Let the submitted runs of a paused queue begin again, the highest priority first."""
    desk = desk_of(context)
    note = _change(queue, database, paused=False)
    desk.screen.print_text(f"queue {queue_name(queue)} is unpaused")
    _say(note, desk)
    return 0


@queue_app.command(epilog=_DONE)
def queue(
    context: typer.Context,
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="The queue to set the limit of; default: show all queues.")
    ] = None,
    *,
    limit: Annotated[int | None, whole_number("How many of its runs are at work at once; others wait.", 1)] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Let all its runs be at work at once.")] = False,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """Show the queues of submitted runs, or set how many runs of a team, an account or all are at work at once.

    Runs above the limit wait and are not refused. A run that waits for a person does not count.
    """
    desk = desk_of(context, json=json)
    if limit is not None and no_limit:
        raise Refusal("--limit and --no-limit exclude each other")
    if queue is None and (limit is not None or no_limit):
        raise Refusal("name the queue: kairo queue QUEUE --limit N")
    note = ""
    if queue is not None and (limit is not None or no_limit):
        note = _change(queue, database, limit="none" if no_limit else limit)
    with made(database_of(database)) as book, book.database.reading() as connection:
        found = read_queues(connection)
    if queue is not None:
        found = [one for one in found if one.name == queue_name(queue)]
    desk.present({"queues": [asdict(one) for one in found]}, lambda screen: _show(found, queue, screen))
    _say(note, desk)
    return 0


def _change(
    name: str,
    database: str | None,
    *,
    paused: bool | None = None,
    limit: int | Literal["none"] | None = None,
) -> str:
    """Change a queue, and return a sentence if its team is unknown: a team may be paused before its first run."""
    with made(database_of(database)) as book, book.database.writing() as connection:
        set_queue(connection, name, paused=paused, limit=limit)
        return without_runs(connection, name)


def _say(note: str, desk: Desk) -> None:
    if note:
        desk.screen.print_text(note)


def _show(queues: Sequence[RunQueue], asked: str | None, screen: Screen) -> None:
    if not queues:
        screen.print_text("no run is queued or at work" if asked is None else f"queue {queue_name(asked)} has no limit")
        return
    for number, line in enumerate(aligned([_HEADS, *map(_row, queues)])):
        screen.print_row(Text(line, style="" if number else "bold"))


def _row(one: RunQueue) -> tuple[str, ...]:
    limit = "none" if one.limit is None else str(one.limit)
    return (one_line(one.name), "paused" if one.paused else "begin", limit, str(one.at_work), str(one.held))
