"""Report mistakes in data that people write: where each is, and a sentence on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from kairo_team._util.mistakes import did_you_mean
from kairo_team.data.files import Place

LineOf = Callable[[Place], int | None]
MOST: Final = 50
"""Most mistakes that are listed."""


class Mistake(NamedTuple):
    """One mistake in data."""

    path: Place
    says: str
    key: str | None = None
    """The key, in the mapping at `path`, that the mistake is about: its line is reported."""
    of_fields: bool = False
    """Whether it is about fields that do not fit together; only the first such mistake is reported."""

    def line(self, line_of: LineOf) -> int:
        """Return the line in a file, from 1; 0: not known."""
        return line_of(self.path if self.key is None else (*self.path, self.key)) or 0


def sentences(mistakes: Sequence[Mistake], name: str, line_of: LineOf) -> Iterator[str]:
    """Yield a sentence for each mistake, in the order of their lines; `name` is the data's name."""
    # Keys and indices may be mixed and do not compare, so each step carries its kind; `n` keeps the order of equals.
    placed = sorted((one.line(line_of), [(isinstance(step, str), step) for step in one.path], n, one)
                    for n, one in enumerate(mistakes))  # fmt: skip
    for line, _, _, one in placed[:MOST]:
        where = f"{name}, line {line}: " if line else f"{name}: "
        yield f"{where}{_show_path(one.path)}{' ' if one.path else ''}{one.says}"
    if len(placed) > MOST:
        yield f"{name}: and {len(placed) - MOST} more mistakes"


def _show_path(path: Place) -> str:
    named = (isinstance(step, str) and step.replace("-", "_").isidentifier() for step in path)
    steps = (f".{step:.80}" if plain else f"[{step!r:.80}]" for step, plain in zip(path, named, strict=True))
    return "".join(steps).removeprefix(".")


def unknown_key(key: str, takes: Sequence[str]) -> str:
    """Return a sentence on an unknown key, with the nearest known key and all that a mapping takes."""
    return f"takes no {key!r:.80}; {did_you_mean(key, takes)}it takes {', '.join(takes)}"
