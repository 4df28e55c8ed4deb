"""What a docstring says of a function and of its parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from docstring_parser import Docstring

_BLANK: Final = re.compile(r"\n\s*\n")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and a description by parameter, of a Google, NumPy, Sphinx or Epydoc docstring.

    A docstring that keeps to none of these styles is its first paragraph alone.
    """
    if not text or not text.strip():
        return "", {}
    from docstring_parser import ParseError, parse  # when the first tool is made: no run without tools needs it

    try:
        found = parse(text)
    except ParseError:
        return _one_line(_BLANK.split(text.strip(), maxsplit=1)[0]), {}
    words = {parameter.arg_name.lstrip("*"): _one_line(parameter.description or "") for parameter in found.params}
    return _first_paragraph(found), {name: said for name, said in words.items() if said}


def _first_paragraph(found: Docstring) -> str:
    first, rest = found.short_description or "", found.long_description or ""
    if not found.blank_after_short_description:
        first = f"{first}\n{_BLANK.split(rest, maxsplit=1)[0]}"
    return _one_line(first)


def _one_line(text: str) -> str:
    return " ".join(text.split())
