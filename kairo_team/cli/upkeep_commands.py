"""`kairo migrate` and `kairo backup`: the upkeep of a journal or a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kairo_team._util.counts import count
from kairo_team.cli.databases import DatabaseUrl
from kairo_team.cli.exit_codes import NOT_MET, list_exit_codes
from kairo_team.cli.journals import existing, made
from kairo_team.cli.options import DatabaseOption, FileJournalOption, JsonOption, desk_of
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.durable.formats import FORMAT, Format
from kairo_team.durable.journal import copy_file, format_of_file
from kairo_team.errors import JournalError

upkeep_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@upkeep_app.command(
    epilog=list_exit_codes("this version can use the format", {NOT_MET: "the format is older (--check)"})
)
def migrate(
    context: typer.Context,
    *,
    check: Annotated[bool, typer.Option("--check", help="Only say which format it has; change nothing.")] = False,
    journal: FileJournalOption = None,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """Bring the tables of a journal or a database to the format of this version, in one transaction.

    Every command and program does the same when it opens a journal, if its user may change the tables. A format is
    never taken back: make a backup first.
    """
    desk = desk_of(context, json=json)
    place = existing(journal, database)
    before = found = _format_of(place)
    if found.is_old and not check:
        with made(place):
            found = _format_of(place)
    code = NOT_MET if found.is_old else 0
    document = {"format": found.number, "uses": FORMAT, "is_old": found.is_old}
    name = str(place) if isinstance(place, Path) else "the database"
    sentence = f"{name} {_describe_format(before, found)}"
    return desk.present(document, lambda screen: screen.print_text(sentence), code)


@refusing(JournalError)
def _format_of(place: Path | DatabaseUrl) -> Format:
    """Return the format of a journal that this version can use, or can bring to one."""
    if isinstance(place, DatabaseUrl):
        from kairo_team.durable.postgres_database import format_of_database  # its extra may be missing

        found = format_of_database(place.url)
    else:
        found = format_of_file(place)
    found.check(place if isinstance(place, Path) else "the database")
    return found


def _describe_format(before: Format, now: Format) -> str:
    has = f"has format {now.number}" if now.number else "has no tables"
    if now.is_old:
        return f"{has}, and this version uses format {FORMAT}: kairo migrate makes it"
    if before.is_old:
        return f"now {has} (it had {before.number or 'no tables'})"
    if now.number > FORMAT:
        return f"{has}, of kairo-team {now.version}, which this version can use"
    return f"{has}, the one this version uses"


@upkeep_app.command(epilog=list_exit_codes("copied"))
def backup(
    context: typer.Context,
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL", help="The journal to copy, such as runs.db.")],
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="The new file; an existing one is not replaced.")],
) -> int:
    """Copy a journal that may be in use, with all its records, to a file.

    Runs are not disturbed. The copy has what was recorded when the copying began; a run that was running then is
    interrupted in the copy. The copy has the format of the journal. A database in PostgreSQL is copied by pg_dump.
    """
    desk = desk_of(context)
    if not journal.is_file():
        raise Refusal(f"there is no journal {str(journal)!r}: kairo backup JOURNAL COPY copies one")
    with refusing(JournalError):
        # To open the journal would bring it to the format of this version, and its copy too.
        runs = copy_file(journal, copy)
    desk.screen.print_text(f"{journal} is copied to {copy}: {count(runs, 'run')}")
    return 0
