"""What a docstring says of a function and of its parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from docstring_parser import Docstring

_BLANK: Final = re.compile(r"\n\s*\n")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and a description by parameter, of a Google, NumPy, Sphinx or Epydoc docstring.

    The style that describes the most parameters is taken. A docstring that keeps to none of these styles is its first
    paragraph alone; no text is an error.
    """
    if not text or not text.strip():
        return "", {}
    readings = _readings(text)
    if not readings:
        return _one_line(_BLANK.split(text.strip(), maxsplit=1)[0]), {}
    found = max(readings, key=lambda reading: (len(reading.params), len(reading.meta)))
    words = {
        name.strip().lstrip("*"): _one_line(parameter.description or "")
        for parameter in found.params
        for name in parameter.arg_name.split(",")  # NumPy describes several parameters at once: `x, y : int`
    }
    return _first_paragraph(found), {name: said for name, said in words.items() if said}


def _readings(text: str) -> list[Docstring]:
    """Return what the text is in each style that can read it.

    The parser's own choice is not used: it counts a role at the start of a line (`:class:`) as much as a parameter.
    """
    from docstring_parser import DocstringStyle, parse  # when the first tool is made: no run without tools needs it

    found: list[Docstring] = []
    for style in (DocstringStyle.REST, DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.EPYDOC):
        try:
            found.append(parse(text, style))
        except Exception:  # noqa: BLE001, S112 - the parser raises more than its ParseError; a text is no error
            continue
    return found


def _first_paragraph(found: Docstring) -> str:
    first, rest = found.short_description or "", found.long_description or ""
    if not found.blank_after_short_description:
        first = f"{first}\n{_BLANK.split(rest, maxsplit=1)[0]}"
    return _one_line(first)


def _one_line(text: str) -> str:
    return " ".join(text.split())
