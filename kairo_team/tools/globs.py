"""Compare globs with globs: find out whether a name or a path can match both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

Letters = str
"""The characters that one position of a name may have; "" is any character."""
Name = Sequence[Letters | None]
"""A glob for one name, position by position; None is any number of characters."""

# Private-use characters, which no path or command is expected to have.
ANYTHING: Final = "\ue000"
"""Placeholder in a word for text that only a shell knows, such as a variable's; it may contain `/` and `..`."""
NUMBER: Final = "\ue001"
"""Placeholder in a word for a number that only a shell knows, such as an exit code."""
ANY_NAMES: Final = "**"

WILD: Final = re.compile(f"[*?\\[{ANYTHING}{NUMBER}]")
_TOKEN: Final = re.compile(r"\*+|\[[!^]?(?:\[[:.=][^\]]*\]|.)(?:\[[:.=][^\]]*\]|[^\]])*\]|.", re.DOTALL)
_PLAIN_CLASS: Final = re.compile(r"\[\w+\]", re.ASCII)

_T = TypeVar("_T")


def meet(one: Iterable[_T | None], other: Sequence[_T | None], same: Callable[[_T, _T], bool]) -> bool:
    """Return whether some sequence matches both patterns; None in a pattern is any number of items, or no item.

    `same` returns whether one item can match an item of each pattern. The time is at most proportional to the product
    of the lengths.
    """
    reached = _with_skipped({0}, other)  # positions in `other` that can be reached together with the position in `one`
    for item in one:
        if item is None:
            # Any number of items: every position from the first one on can be reached.
            reached = set(range(min(reached), len(other) + 1))
            continue
        after = {at for at in reached if at < len(other) and other[at] is None}
        for at in reached:
            wanted = other[at] if at < len(other) else None
            if wanted is not None and same(item, wanted):
                after.add(at + 1)
        if not after:
            return False
        reached = _with_skipped(after, other)
    return len(other) in reached


def names_meet(one: Name, other: Name) -> bool:
    """Return whether a name can match both globs."""
    return meet(one, other, _share)


def name_glob(glob: str) -> Name:
    """Parse a glob for one name. A class with ranges or other rules counts as any character."""
    places: list[Letters | None] = []
    for token in _TOKEN.findall(glob):
        if token[0] == "*":
            places.append(None)
        elif token == NUMBER:
            places += ["-0123456789", None]
        elif token == "?" or (len(token) > 1 and not _PLAIN_CLASS.fullmatch(token)):
            places.append("")
        else:
            places.append(token if len(token) == 1 else token[1:-1])
    return places


def loosened(name: Name) -> Name:
    """Replace each position that allows several characters by any number of characters."""
    # The number of characters can change with case and Unicode normalisation.
    return [place if place is not None and len(place) == 1 else None for place in name]


def _share(one: Letters, other: Letters) -> bool:
    return not one or not other or any(letter in other for letter in one)


def _with_skipped(places: set[int], pattern: Sequence[object | None]) -> set[int]:
    """Return the positions, and those after each `None` at them, which may match nothing."""
    found = set(places)
    for at in places:
        ahead = at
        while ahead < len(pattern) and pattern[ahead] is None:
            ahead += 1
            found.add(ahead)
    return found
