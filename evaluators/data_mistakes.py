"""Mistakes in data that people write: where each is, and the sentence on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from kairo_team.evaluators.data_files import Place

LineOf = Callable[[Place], int | None]
MOST: Final = 50
"""Mistakes that are listed; there may be more."""


class Mistake(NamedTuple):
    """One thing that is wrong in data."""

    path: Place
    says: str
    key: str | None = None
    """A key of the mapping there that it is about: its line is the mistake's."""
    of_fields: bool = False
    """It is about fields that do not fit together, the first that was found."""

    def line(self, line_of: LineOf) -> int:
        """Return where it is in a file, from 1; 0: not known."""
        return line_of(self.path if self.key is None else (*self.path, self.key)) or 0


def sentences(mistakes: Sequence[Mistake], name: str, line_of: LineOf) -> Iterator[str]:
    """Yield a sentence for each mistake, in the order of their lines; `name` is what they call the data."""
    placed = sorted((one.line(line_of), [(isinstance(step, str), step) for step in one.path], n, one)
                    for n, one in enumerate(mistakes))  # fmt: skip
    for line, _, _, one in placed[:MOST]:
        where = f"{name}, line {line}: " if line else f"{name}: "
        yield f"{where}{_shown(one.path)}{' ' if one.path else ''}{one.says}"
    if len(placed) > MOST:
        yield f"{name}: and {len(placed) - MOST} more mistakes"


def _shown(path: Place) -> str:
    named = (isinstance(step, str) and step.replace("-", "_").isidentifier() for step in path)
    steps = (f".{step:.80}" if plain else f"[{step!r:.80}]" for step, plain in zip(path, named, strict=True))
    return "".join(steps).removeprefix(".")


def unknown_key(key: str, takes: Sequence[str]) -> str:
    """Say that a mapping does not take a key, what it takes, and which key is the nearest."""
    near = get_close_matches(key, takes, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"takes no {key!r:.80}; {hint}it takes {', '.join(takes)}"
