"""What a docstring says of a function and of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Final

_GOOGLE: Final = re.compile(r"(?:Args|Arguments|Parameters|Params):\s*")
_GOOGLE_ITEM: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_NUMPY: Final = re.compile(r"(?:Other )?Parameters\s*")
_NUMPY_ITEM: Final = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?()")
_SPHINX_ITEM: Final = re.compile(r":param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_UNDERLINE: Final = re.compile(r"-{3,}\s*")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the first paragraph, and a description by parameter, of a Google, NumPy or Sphinx docstring."""
    lines = inspect.cleandoc(text or "").splitlines()
    parameters = dict(_sphinx(lines))
    for number, line in enumerate(lines):
        if _GOOGLE.fullmatch(line):
            parameters |= dict(_google(lines[number + 1 :]))
        elif _NUMPY.fullmatch(line) and number + 1 < len(lines) and _UNDERLINE.fullmatch(lines[number + 1]):
            parameters |= dict(_numpy(lines[number + 2 :]))
    return _first_paragraph(lines), {name: words for name, words in parameters.items() if words}


def _first_paragraph(lines: Sequence[str]) -> str:
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _GOOGLE.fullmatch(line) or _NUMPY.fullmatch(line) or line.startswith(":"):
            break
        paragraph.append(line.strip())
    return " ".join(paragraph)


def _google(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Read `name (type): words` lines, all equally indented; what is indented deeper goes on with the one above."""
    block = _indented(lines)
    indent = min((_indent(line) for line in block), default=0)
    return _items([line[indent:] for line in block], _GOOGLE_ITEM)


def _numpy(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Read `name : type` lines, each with its words indented below, up to the next underlined heading."""
    ends = [number for number, line in enumerate(lines) if _UNDERLINE.fullmatch(line)]
    return _items([line for line in lines[: ends[0] - 1 if ends else None] if line.strip()], _NUMPY_ITEM)


def _sphinx(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Read `:param type name: words` lines; what is indented below goes on."""
    for number, line in enumerate(lines):
        if line.startswith(":param"):
            yield from _items([line, *_indented(lines[number + 1 :], blank_ends=True)], _SPHINX_ITEM)


def _indented(lines: Sequence[str], *, blank_ends: bool = False) -> list[str]:
    """Return the indented lines at the beginning, without blank ones, which end them only if asked to."""
    block: list[str] = []
    for line in lines:
        if line.strip() and line.startswith((" ", "\t")):
            block.append(line)
        elif line.strip() or blank_ends:
            break
    return block


def _items(lines: Sequence[str], item: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Read items that begin at the left edge, each with the indented lines below it."""
    name, words = "", list[str]()
    for line in lines:
        found = None if line.startswith((" ", "\t")) else item.fullmatch(line)
        if found:
            yield name, " ".join(filter(None, words))
            name, words = found[1], [found[2].strip()]
        else:
            words.append(line.strip())
    yield name, " ".join(filter(None, words))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
