"""Numbers as people write them: `5,000` wherever a command takes a number."""

from __future__ import annotations

import re
from typing import Any, Final

import typer

_GROUPED: Final = re.compile(r"([^\d,]*)([0-9]{1,3}(?:,[0-9]{3})+)(\.[0-9]*)?")
BETWEEN: Final = re.compile(r",(?!\d{3}(?:\D|$))")
"""A comma of a list, and none inside a number."""


def plain_number(text: str) -> str:
    """Return a number without the commas between its thousands; any other text unchanged."""
    found = _GROUPED.fullmatch(text)
    return text if found is None else f"{found[1]}{found[2].replace(',', '')}{found[3] or ''}"


def whole_number(words: str, least: int, most: int | None = None) -> Any:
    """Return an option that takes a whole number; `words` are its help."""
    allowed = f"from {least:,}" if most is None else f"from {least:,} to {most:,}"

    def read(value: Any) -> int:
        text = plain_number(str(value))
        # `int` would take other digits, and underscores.
        if not re.fullmatch("-?[0-9]{1,30}", text) or not least <= int(text) <= (int(text) if most is None else most):
            raise typer.BadParameter(f"{str(value)!r:.80} is not a whole number {allowed}")
        return int(text)

    return typer.Option(metavar="N", parser=read, help=words)


def seconds(words: str, least: float = 0) -> Any:
    """Return an option that takes a number of seconds; `words` are its help."""

    def read(value: Any) -> float:
        try:
            found = float(plain_number(str(value)))
        except ValueError:
            found = -1.0
        if not least <= found < float("inf"):
            raise typer.BadParameter(f"{str(value)!r:.80} is not a number of seconds from {least:g}")
        return found

    return typer.Option(metavar="SECONDS", parser=read, help=words)
