"""`kairo plugins`: the plug-ins that can be named, their sources and their problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from rich.text import Text

from kairo_team._util.counts import count
from kairo_team.cli.exit_codes import NOT_MET, list_exit_codes
from kairo_team.cli.kit_parts import document_of, parts_of, show_parts
from kairo_team.cli.kit_runs import KitRun, run_kit
from kairo_team.cli.options import JsonOption, desk_of
from kairo_team.cli.refusal import refusing
from kairo_team.plugins import KINDS, OURS, Plugin, examine, installed, shipped_kits, unreadable
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.cli.streams import Screen

_GUIDE: Final = "docs/extending.md"

plugins_app = typer.Typer(add_completion=False, rich_markup_mode=None)


class _Found(NamedTuple):
    """One plug-in with its problem, or a note."""

    plugin: Plugin
    problem: str | None
    note: str = ""
    """What --check could not find out."""


@plugins_app.command(epilog=list_exit_codes("listed", {NOT_MET: "--check found something wrong"}))
def plugins(
    context: typer.Context,
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", help=f"Only plug-ins of one point: {', '.join(KINDS)}.")
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Import each plug-in, make it if it needs no options, and check its shape.")
    ] = False,
    kit: Annotated[
        bool,
        typer.Option(
            "--kit",
            help="List what the test class of each contract kit writes, and the clauses. With --check: run the kits "
            "that packages ship.",
        ),
    ] = False,
    json: JsonOption = False,
) -> int:
    """List the plug-ins that files, options and configurations can name: built-in ones and installed ones.

    Without --check no package is imported. With --check the code of each package runs.
    """
    desk = desk_of(context, json=json)
    with refusing(ValueError):
        there = installed(kind)
    if kit and not check:
        return _list_kits([kind] if kind else [*KINDS], desk)
    found = [_examined(one, desk) if check else _Found(one, one.problem) for one in there]
    unread = unreadable()
    runs = _run_kits(there, desk) if kit else []
    found = [_with_kit(one, runs) if kit else one for one in found]
    problems = [*(one.problem for one in found), *(run.problem for run in runs)]
    wrong = len(unread) + sum(one is not None for one in problems)
    code = NOT_MET if check and wrong else 0
    kinds = list(KINDS) if kind is None else [kind]
    document = {"points": _points(kinds), "plugins": [_entry(one) for one in found], "unreadable": unread}
    kits = {"kits": [run.entry for run in runs]} if kit else {}
    desk.present(document | kits, lambda screen: _show(kinds, found, unread, runs, screen), code)
    if check:
        checked = count(len(found), "plug-in")
        desk.print_notice(f"{checked} checked: {count(wrong, 'problem') if wrong else 'nothing is wrong'}")
    return code


def _run_kits(there: Sequence[Plugin], desk: Desk) -> list[KitRun]:
    """Run the kits of the packages that publish these plug-ins."""
    packages = {one.distribution for one in there}
    runs: list[KitRun] = []
    for kit in shipped_kits():
        if kit.distribution in packages:
            desk.print_notice(f"running the kits of {kit.distribution}")
            runs.append(run_kit(kit))
    return runs


def _with_kit(found: _Found, runs: Sequence[KitRun]) -> _Found:
    """Add a note to a plug-in whose package ships no kit of its contract."""
    plugin, point = found.plugin, KINDS[found.plugin.kind]
    contracts = {
        report["contract"] for run in runs if run.kit.distribution == plugin.distribution for report in run.reports
    }
    if plugin.distribution == OURS or point.kit is None or point.contract in contracts:
        return found
    missing = f"its package ships no {point.kit}"
    return found._replace(note=f"{found.note}; {missing}" if found.note else missing)


def _list_kits(kinds: Sequence[str], desk: Desk) -> int:
    """Show what each kit asks of its test class."""
    parts = {kind: parts_of(KINDS[kind]) for kind in kinds}
    points = [point | {"asks": document_of(parts[point["kind"]])} for point in _points(kinds)]

    def show(screen: Screen) -> None:
        for kind in kinds:
            screen.show(Text(_head(kind), style="bold"), **screen.uncut)
            show_parts(parts[kind], screen)

    return desk.present({"points": points}, show)


def _examined(plugin: Plugin, desk: Desk) -> _Found:
    try:
        return _Found(plugin, plugin.problem, examine(plugin))
    except ValueError as error:
        return _Found(plugin, str(error))
    except KeyboardInterrupt:
        desk.print_notice(f"interrupted while {plugin.full_name} was imported from {plugin.target}")
        raise


def _points(kinds: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "contract": point.contract,
            "version": point.promise and point.promise.version,
            "stability": point.promise and point.promise.stability,
            "kit": point.kit,
            "group": point.group,
        }
        for kind, point in ((kind, KINDS[kind]) for kind in kinds)
    ]


def _entry(found: _Found) -> dict[str, Any]:
    plugin = found.plugin
    return plugin._asdict() | {
        "full_name": plugin.full_name,
        "built_in": plugin.distribution == OURS,
        "problem": found.problem,
        "note": found.note or None,
    }


def _show(
    kinds: Sequence[str], found: Sequence[_Found], unread: Sequence[str], runs: Sequence[KitRun], screen: Screen
) -> None:
    """Print a table for each plug-in point, with a problem below its plug-in's line."""
    rows = [(*_cells(one.plugin), one) for one in found]
    widths = [max((len(row[place]) for row in rows), default=0) for place in (0, 1)]
    for kind in kinds:
        screen.show(Text(_head(kind), style="bold"), **screen.uncut)
        own = [row for row in rows if row[-1].plugin.kind == kind]
        for name, source, target, one in own:
            screen.print_row(Text(f"  {name:{widths[0]}}  {source:{widths[1]}}  {target}"))
            if one.problem is not None:
                screen.print_indented(f"problem: {one.problem}", 4, "red")
            elif one.note:
                screen.print_indented(f"note: {one.note}", 4)
        if not own:
            screen.print_text("  none")
    for run in runs:
        run.show(screen)
    for sentence in unread:
        screen.print_indented(f"problem: {sentence}", 0, "red")
    screen.print_text(f"How to publish one, and to test it with its kit of kairo_team.tck: {_GUIDE}")


def _head(kind: str) -> str:
    point = KINDS[kind]
    return f"{kind}: contract {point.contract}{point.mark}, kit {point.kit or '-'}, entry points {point.group}"


def _cells(plugin: Plugin) -> tuple[str, str, str]:
    source = "built in" if plugin.distribution == OURS else f"{plugin.distribution} {plugin.version}"
    return one_line(plugin.name), one_line(source), one_line(plugin.target)
