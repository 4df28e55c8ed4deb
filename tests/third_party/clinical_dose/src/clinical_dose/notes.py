"""Reading a note, line by line; what is not in the one form of a line is not guessed at."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# No part of it can match what the next part begins with, and numbers are short: its time grows with the line alone.
_LINE: Final = re.compile(
    r"(?P<substance>[^:]+): (?P<amount>[0-9]{1,6}) (?P<unit>[^\s,]+), (?P<times>[0-9]{1,6}) a day \[(?P<row>[^\]\s]+)\]"
)


class Dose(NamedTuple):
    """One line of a note."""

    line: int
    """From 1."""
    substance: str
    amount: int
    unit: str
    times: int
    """A day."""
    row: str
    """The row of the table that it cites."""


def read_note(text: str) -> tuple[list[Dose], list[int]]:
    """Return the doses of a note, and the numbers of the lines that are none."""
    doses: list[Dose] = []
    unread: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINE.fullmatch(line)
        if found:
            substance, amount, unit, times, row = found.groups()
            doses.append(Dose(number, substance, int(amount), unit, int(times), row))
        elif line.strip():
            unread.append(number)
    return doses, unread
