"""`kairo budget`: the accounts of a journal or a database, which are budgets over many runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from kairo_team.budget import Budget
from kairo_team.cli.databases import DATABASE, place_of
from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.journals import made
from kairo_team.cli.numbers import plain_number, whole_number
from kairo_team.cli.options import DatabaseOption, FileJournalOption, JsonOption, desk_of
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.views.text import aligned

if TYPE_CHECKING:
    from decimal import Decimal

    from kairo_team.cli.streams import Screen
    from kairo_team.durable.accounts import Account
    from kairo_team.durable.windows import Every, Window

_HEADS: Final = ("account", "under", "runs", "tokens", "set aside", "dollars", "set aside", "window")

account_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@account_app.command(epilog=list_exit_codes("done"))
def budget(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The account; default: show all, change none.")
    ] = None,
    *,
    tokens: Annotated[int | None, whole_number("The limit in tokens for all its runs together.", 0)] = None,
    dollars: Annotated[str | None, typer.Option(metavar="X", help="The limit in US dollars, such as 12.50.")] = None,
    parent: Annotated[
        str | None, typer.Option(metavar="NAME", help="The account above it: its charges count there too.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="WINDOW", help="Let the limits hold for one hour, day, week or month, from now on."),
    ] = None,
    tz: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="The time zone of the windows, such as Europe/Oslo; default: UTC."),
    ] = None,
    journal: FileJournalOption = None,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """Set the budget of an account, which limits all runs charged to it, or show what is used and set aside.

    An account is made when it is first set. Limits that are not given stay as they are. `kairo run --account NAME`,
    `kairo submit --account NAME` and the journal's own `account=` charge runs to an account.
    """
    desk = desk_of(context, json=json)
    changes = any(one is not None for one in (tokens, dollars, parent, every, tz))
    if name is None and changes:
        raise Refusal("name the account to set: kairo budget NAME --tokens 1000000")
    place = place_of(journal, database)
    if place is None:
        raise Refusal(f"this command needs the place of the accounts: give --journal or --database, or set {DATABASE}")
    with made(place) as book:
        if name is not None and changes:
            with refusing(ValueError):
                limit = Budget(tokens, None if dollars is None else plain_number(dollars).removeprefix("$"))
                book.set_account(name, limit, parent=parent, every=cast("Every | None", every), tz=tz)
        found = book.accounts()
    if name is not None:
        found = tuple(one for one in found if one.name == name)
        if not found:
            raise Refusal(f"there is no account {name!r}: kairo budget NAME --tokens N --dollars X makes one")
    return desk.present(_document(found), lambda screen: _show(found, screen))


def _document(accounts: Sequence[Account]) -> dict[str, object]:
    rows = [
        {
            "name": one.name,
            "parent": one.parent,
            "runs": one.runs,
            "limit": _amounts(one.limit),
            "used": _amounts(one.used),
            "set_aside": _amounts(one.set_aside),
            "left": _amounts(one.left),
            "window": None if one.window is None else _window(one.window),
        }
        for one in accounts
    ]
    return {"accounts": rows}


def _amounts(amounts: Any) -> dict[str, object]:
    """Return tokens, and dollars as text, which is exact."""
    return {"tokens": amounts.tokens, "dollars": None if amounts.dollars is None else f"{amounts.dollars:f}"}


def _window(window: Window) -> dict[str, str]:
    moments = {"since": window.since.isoformat(), "until": window.until.isoformat()}
    return {"every": window.every, "tz": window.tz, **moments}


def _show(accounts: Sequence[Account], screen: Screen) -> None:
    if not accounts:
        screen.print_text("there is no account: kairo budget NAME --tokens N --dollars X makes one")
        return
    for number, line in enumerate(aligned([_HEADS, *map(_row, accounts)])):
        screen.print_text(line, "" if number else "bold")


def _row(one: Account) -> tuple[str, ...]:
    used, aside, limit = one.used, one.set_aside, one.limit
    return (
        one.name,
        one.parent or "",
        str(one.runs),
        _used_of_limit(f"{used.tokens:,}", None if limit.tokens is None else f"{limit.tokens:,}"),
        f"{aside.tokens:,}",
        _used_of_limit(_money(used.dollars), None if limit.dollars is None else _money(limit.dollars)),
        _money(aside.dollars),
        "" if one.window is None else str(one.window),
    )


def _used_of_limit(used: str, limit: str | None) -> str:
    return used if limit is None else f"{used} of {limit}"


def _money(amount: Decimal) -> str:
    return f"${amount:,f}"
