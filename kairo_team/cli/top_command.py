"""`kairo top`: the workers and the open runs of a journal or a database, live in a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from kairo_team._util.counts import count
from kairo_team._util.terminal import clean
from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.journals import existing, made, place_name, why_waiting
from kairo_team.cli.numbers import seconds
from kairo_team.cli.options import DatabaseOption, FileJournalOption, JsonOption, desk_of
from kairo_team.cli.refusal import explain
from kairo_team.cli.run_table import age, run_document, run_lines, run_problems
from kairo_team.errors import JournalError
from kairo_team.recorded import STATES
from kairo_team.views.standing import JournalStanding, StandingWorker, read_standing
from kairo_team.views.text import aligned, one_line

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen
    from kairo_team.durable.sql_journal import SqlJournal

_HEADS: Final = ("worker", "state", "team", "attempts", "runs", "up", "where")
_STYLES: Final = {"draining": "yellow", "silent": "yellow", "dead": "red"}
_SHORT: Final = 8
"""Characters of a worker's id."""
_LONGEST: Final = 24
"""Characters of a team's name."""
_MOST: Final = 200
"""Runs that are shown where the output has no height."""

top_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@top_app.command(epilog=list_exit_codes("shown, or ended by Ctrl-C"))
def top(
    context: typer.Context,
    *,
    every: Annotated[float, seconds("Time between two looks at the journal.", 0.2)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as where the output is not a terminal.")] = False,
    journal: FileJournalOption = None,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """Show the workers and open runs of a journal or a database, live in a terminal until Ctrl-C.

    Workers are shown with the attempts and runs that they work on, and runs with their usage and why they wait. Where
    the output is not a terminal, everything is printed once. No prompt and no reply is shown.
    """
    desk = desk_of(context, json=json)
    with made(existing(journal, database)) as book:
        if not json and not once and desk.screen.live:
            return _follow(book, every, desk.screen)
        found = read_standing(book)
        waiting = why_waiting(book, found.runs)
    lines = _lines(place_name(book), found, waiting, length=None, most=_MOST)

    def show(screen: Screen) -> None:
        for line in lines:
            screen.show(line, **(screen.uncut if line.overflow is None or not screen.watched else {}))

    return desk.present(_document(found, waiting), show)


def _follow(book: SqlJournal, every: float, screen: Screen) -> int:
    """Show workers and runs until Ctrl-C, or until the reader has gone."""
    with suppress(KeyboardInterrupt), Live(console=screen, screen=True, auto_refresh=False) as live:
        while screen.lost is None:
            live.update(Group(*_look(book, screen)), refresh=True)
            time.sleep(every)
    return 0


def _look(book: SqlJournal, screen: Screen) -> list[Text]:
    try:
        found = read_standing(book)
        waiting = why_waiting(book, found.runs)
    except JournalError as error:  # the next look may succeed
        return [Text(one_line(explain(error)), style="red")]
    lines = _lines(place_name(book), found, waiting, length=_SHORT, most=max(1, screen.height - len(found.workers) - 6))
    for line in lines:
        if line.overflow is None:
            line.no_wrap, line.overflow = True, "ellipsis"
    return lines[: screen.height]


def _lines(
    place: str, found: JournalStanding, waiting: Mapping[str, str], *, length: int | None, most: int
) -> list[Text]:
    """Return the lines; `length` abbreviates generated ids, and `most` runs are shown.

    A sentence folds at the edge of a terminal, because its end may be a command; the row of a table is cut.
    """
    now = time.time()
    lines = [Text(f"{one_line(place)}, {time.strftime('%H:%M:%S', time.localtime(now))}", style="bold")]
    lines.append(Text(_summary(found), overflow="fold"))
    if found.workers:
        lines += [Text(), *_worker_lines(found.workers, now)]
    if found.runs:
        lines += [Text(), *run_lines(found.runs[:most], length)]
    if len(found.runs) > most:
        lines.append(Text(f"and {count(len(found.runs) - most, 'more open run')}: kairo runs lists them", style="dim"))
    for problem in run_problems(found.runs, waiting):
        lines += [Text(), Text(clean(problem), overflow="fold")]
    return lines


def _summary(found: JournalStanding) -> str:
    said = [f"{found.states[state]:,} {state}" for state in STATES if state in found.states] or ["no run"]
    for kind, (number, oldest) in found.waiting.items():
        wait = "waits for a worker" if number == 1 else "wait for a worker"
        said.append(f"{count(number, kind)} {wait}, the oldest for {age(oldest)}")
    if found.questions:
        said.append(count(found.questions, "open question"))
    if found.in_doubt:
        said.append(f"{count(found.in_doubt, 'call')} in doubt")
    return "; ".join([", ".join(said[: len(found.states) or 1]), *said[len(found.states) or 1 :]])


def _worker_lines(workers: Sequence[StandingWorker], now: float) -> list[Text]:
    rows: list[tuple[str, ...]] = [_HEADS]
    for one in workers:
        members = "" if one.members is None else f" ({one_line(', '.join(one.members), _LONGEST)})"
        team = one_line(one.team, _LONGEST) + members
        attempts = f"{one.attempts} of {one.concurrency}"
        where = one_line(f"process {one.pid} on {one.host}")
        rows.append((one.id[:_SHORT], one.state, team, attempts, str(one.runs), age(now - one.started_at), where))
    lines = list(map(Text, aligned(rows)))
    lines[0].stylize("bold")
    for line, one in zip(lines[1:], workers, strict=True):
        line.stylize(_STYLES.get(one.state, ""))
    return lines


def _document(found: JournalStanding, waiting: Mapping[str, str]) -> dict[str, object]:
    return {
        "states": dict(found.states),
        "waiting": {kind: {"units": number, "oldest": oldest} for kind, (number, oldest) in found.waiting.items()},
        "questions": found.questions,
        "in_doubt": found.in_doubt,
        "workers": [asdict(one) for one in found.workers],
        "runs": [run_document(run) | {"waits": waiting.get(run.run_id)} for run in found.runs],
    }
