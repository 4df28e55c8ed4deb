"""Print the places in the code's texts and in the docs whose English may have to be read twice; `--list` shows each.

    python -m scripts.plain_english [--list] [PATH...]

A text is a docstring, a comment or a message. A place is one to look at: some are right as they are.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CODE = tuple(ROOT / room for room in ("kairo_team", "coordinators", "evaluators", "examples", "tck"))
DOCS = (ROOT / "docs", ROOT / "README.md")
COPIED = {ROOT / "docs/kits.md"}
"""Pages with the texts of the code, which count there."""
SUFFIXES = {".py", ".md", ".j2"}
MIN_LENGTH = 25
"""Shorter strings are names and keys rather than sentences."""

PATTERNS = {
    "'no' for 'not a'": r"\b(?:is|are|was|were|be)\s+no\s+(?!longer\b|more than\b|less than\b|fewer\b|need\b|doubt\b)"
    r"\w+|\b(?:is|are) none\b",
    "stands": r"\b(?:stands?|stood|standing)\b",
    "told": r"\b(?:told|tells?|telling)\b|\b(?:is|are) said\b",
    "anew": r"\banew\b|\bmade again\b",
    "beside": r"\bbeside\b(?! the point)",
    "somebody": r"\b(?:somebody|nobody|anybody|whoever|whomever)\b",
    "that of": r"\b(?:that|those) of\b|\b(?:of|to|for|in) (?:it|them|these|those)\b[.,;]",
    "what as a noun": r"(?:^|[.;:]\s+|, )[Ww]hat (?:\w+ ){0,2}"
    r"(?:is|was|are|were|has|had|came|comes|lacks?|ended|ends|begins?|waits?)\b",
    "goes on": r"\bgo(?:es)? on\b|\bwent on\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "dearest": r"\bdear(?:er|est|ly)?\b",
    "pronoun first": r"^(?:It|Its|They|Their|Of|In it|As|By) ",
    "is to be": r"\b(?:is|are|was|were) to be\b",
    "metaphors": r"\b(?:leash|reaper|beats?|letters?|mailbox|wanting|lack(?:s|ing)?|lend(?:s|er)?|lent)\b",
}


class Place(NamedTuple):
    """A text, where it begins, and the names of the patterns that it matches."""

    path: Path
    line: int
    text: str
    patterns: list[str]


def _texts_of_code(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = " ".join(node.value.split())
            if len(node.value) > MIN_LENGTH and " " in node.value:
                yield node.lineno, text
    for number, line in enumerate(source.splitlines(), 1):
        found = re.search(r"(?:^|\s)#\s+(.*)", line)
        if found and "noqa" not in line and "type:" not in line:
            yield number, found[1]


def _texts_of_page(source: str) -> Iterator[tuple[int, str]]:
    is_fenced = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced and line.strip():
            yield number, line


def places(roots: Iterable[Path]) -> list[Place]:
    """Return the places in the files below `roots`, by path; a link to a folder is not followed."""
    files = sorted({file for root in roots for file in (root.rglob("*") if root.is_dir() else [root])})
    found: list[Place] = []
    for path in files:
        if path.suffix not in SUFFIXES or not path.is_file() or path in COPIED:
            continue
        source = path.read_text(encoding="utf-8")
        for line, text in (_texts_of_code if path.suffix == ".py" else _texts_of_page)(source):
            names = [name for name, pattern in PATTERNS.items() if re.search(pattern, text)]
            if names:
                found.append(Place(path, line, text, names))
    return found


def main() -> None:
    """Print the count of places in the code and in the docs, or below the paths that are given."""
    words = sys.argv[1:]
    roots = [Path(word).resolve() for word in words if not word.startswith("--")]
    for name, paths in {"given": roots}.items() if roots else {"code": CODE, "docs": DOCS}.items():
        found = places(paths)
        if "--list" in words:
            for place in found:
                where = place.path.relative_to(ROOT) if place.path.is_relative_to(ROOT) else place.path
                print(f"{where}:{place.line}: {', '.join(place.patterns)}: {place.text[:140]}")
        print(f"places to read twice, {name}: {len(found)}")


if __name__ == "__main__":
    main()
