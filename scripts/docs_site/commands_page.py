"""The reference of the command line, written from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from kairo_team.cli.app import app
from scripts.docs_site.pages import Page

_HEAD = """# Commands

Every command of `kairo` (extra `cli`), as `kairo COMMAND --help` describes it."""


def page() -> Page:
    """Write the page."""
    command = typer.main.get_command(app)
    parts = list(_described(command, typer.Context(command, info_name="kairo")))
    return Page("reference/commands.md", "\n\n".join([_HEAD, *parts]))


def _described(command: Any, context: typer.Context) -> Iterator[str]:
    """Describe a command, then those below it. The types of a command are not public in typer."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [one for one in (each.get_help_record(context) for each in command.get_params(context)) if one]
    rows = [f"| `{_cell(names)}` | {_escaped(_cell(said))} |" for names, said in records]
    table = ["| argument or option | meaning |\n|---|---|\n" + "\n".join(rows)] if rows else []
    parts = [f"## {context.command_path}", f"```text\n{usage}\n```", _escaped(command.help or ""), *table]
    yield "\n\n".join([*parts, *([_escaped(command.epilog)] if command.epilog else [])])
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _described(below, typer.Context(below, info_name=name, parent=context))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r" <(str|list\[str\])>$", "", text)).strip().replace("|", "\\|")


def _escaped(text: str) -> str:
    return re.sub(r"([<>*_])", r"\\\1", text.replace("\b", "")).strip()
