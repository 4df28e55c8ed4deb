"""Defaults of options: the table `[tool.kairo]` of pyproject.toml in the working directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

from kairo_team._util.database_url import has_password
from kairo_team.cli.commands import COMMANDS
from kairo_team.cli.refusal import Refusal
from kairo_team.data.mistakes import Mistake, unknown_key

FILE: Final = "pyproject.toml"
TABLE: Final = ("tool", "kairo")
_PLACES: Final = {"journal": "KAIRO_JOURNAL", "database": "KAIRO_DATABASE"}
"""Options that name where runs are recorded, and the environment variable of each."""
OPTIONS: Final[Mapping[str, Sequence[str]]] = {
    "journal": tuple(COMMANDS),
    "database": tuple(COMMANDS),
    "engine": ("run", "resume", "worker", "submit", "serve"),
    # A resumed run keeps the limits it has, and a demo or a case of an eval is not a run like others.
    "budget": ("run", "check", "submit", "serve"),
    "content": ("run", "resume"),
    "events": ("run", "resume"),
}
"""Options that the table may set, and the commands for which each counts."""


def defaults(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the options of each command that are set in the table; the command line and the environment win.

    Raises `Refusal` with a sentence for each mistake.
    """
    file = Path(FILE)
    if not file.is_file() or b"kairo" not in file.read_bytes():
        return {}
    from kairo_team.data.files import read_data
    from kairo_team.data.mistakes import sentences

    try:
        data = read_data(file)
    except ValueError as error:
        raise Refusal(str(error)) from None
    table = data.value.get("tool", {}).get("kairo", {})
    if mistakes := list(_mistakes(table)):
        raise Refusal(*sentences(mistakes, FILE, data.line_of))
    chosen = dict(table)
    given = {word.partition("=")[0] for word in arguments}
    if any(f"--{option}" in given or os.environ.get(variable) for option, variable in _PLACES.items()):
        for option in (*_PLACES, "engine"):  # a place of the command line or the environment replaces the table's
            chosen.pop(option, None)
    return {
        command: {option: value for option, value in chosen.items() if command in OPTIONS[option]}
        for command in COMMANDS
    }


def _mistakes(table: Any) -> Iterator[Mistake]:
    if not isinstance(table, Mapping):
        yield Mistake(TABLE, f"must be a table, not {type(table).__name__}")
        return
    options = cast("Mapping[str, Any]", table)
    for name, value in options.items():
        if name not in OPTIONS:
            yield Mistake(TABLE, unknown_key(name, [*OPTIONS]), name)
        elif not isinstance(value, str) or not value.strip():
            yield Mistake((*TABLE, name), f"must be a string as behind --{name}, not {value!r:.80}")
        elif (says := _problem_of_value(name, value)) is not None:
            yield Mistake((*TABLE, name), says)
    if {"journal", "database"} <= options.keys():
        yield Mistake(TABLE, "has a journal and a database: runs are recorded in one place, so keep one", "database")
    if "engine" in options and "database" not in options:
        yield Mistake(TABLE, "has an engine and no database: add database, or leave the engine out", "engine")


def _problem_of_value(name: str, value: str) -> str | None:
    """Return what is wrong with the value of an option, else None; a password is never shown."""
    if name == "database" and has_password(value):
        return "has a password: write env:NAME or file:PATH, which have the URL"
    if name == "budget":
        from kairo_team.cli.budgets import parse_limits

        try:
            parse_limits(value)
        except Refusal as error:
            return f"is not valid: {error}"
    allowed: tuple[str, ...] = ()
    if name == "engine":
        from kairo_team.cluster.delivery import EngineName

        allowed = get_args(EngineName)
    elif name == "content":
        from kairo_team.engine.work.runtime import ContentMode

        allowed = get_args(ContentMode)
    return (
        f"must be one of {', '.join(map(repr, allowed))}, not {value!r:.80}"
        if allowed and value not in allowed
        else None
    )
