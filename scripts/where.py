"""Print where each behaviour is in the code: `python -m scripts.where [WORD...]`.

The rows are those of docs/architecture.md. With words, only the rows that contain all of them are printed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "architecture.md"
_ROW: Final = re.compile(
    r"^\| (?P<question>[^|]+\?) \| `(?P<file>[^`]+\.py)` \| `(?P<name>[\w.]+)` \| `(?P<test>[^`]+)` \|$", re.MULTILINE
)


class Row(NamedTuple):
    """One row of the page."""

    question: str
    file: str
    name: str
    """A function or a class; with a dot, a method."""
    test: str
    """A test that calls it, as pytest names it, without `tests/`."""


def rows() -> list[Row]:
    """Return the rows of the page, in its order."""
    return [Row(**one.groupdict()) for one in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]


def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the functions and classes of a module with their lines; what is in a class has its name and a dot."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node.lineno
        if isinstance(node, ast.ClassDef):
            yield from definitions(node.body, f"{prefix}{node.name}.")


def line_of(row: Row) -> int | None:
    """Return the line of a row's name in its file; None if the file does not define it."""
    path = ROOT / row.file
    found = dict(definitions(ast.parse(path.read_text(encoding="utf-8")).body)) if path.is_file() else {}
    return found.get(row.name)


def main(words: list[str]) -> int:
    """Print the rows that contain all the words; return 1 if there is none."""
    found = [row for row in rows() if all(word.lower() in " ".join(row).lower() for word in words)]
    for row in found:
        print(f"Where {row.question}\n    {row.file}:{line_of(row)}  {row.name}  (tests/{row.test})")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
