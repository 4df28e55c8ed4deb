"""Dose tables: CSV files of rows that allow a substance in a range of single doses, up to a most for a day."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import os


class Row(NamedTuple):
    """What one row of a table allows, in whole units."""

    substance: str
    unit: str
    least: int
    """Of a single dose."""
    most: int
    """Of a single dose."""
    day: int
    """Most of a whole day."""

    def __str__(self) -> str:
        return f"{self.substance}: {self.least} to {self.most} {self.unit}, at most {self.day} {self.unit} a day"


Table = dict[str, Row]

COLUMNS: Final = ("row", *Row._fields)


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a table; `ValueError` says which line of the file is wrong, and how."""
    file = Path(path)
    table: Table = {}
    for number, cells in _lines(file):
        where = f"{file.name}, line {number}"
        if len(cells) != len(COLUMNS):
            raise ValueError(f"{where}: it must have {len(COLUMNS)} cells, not {len(cells)}")
        name = cells[0]
        if not name or name in table:
            raise ValueError(f"{where}: a row needs a name that no other has, not {name!r}")
        table[name] = _row(where, *cells[1:])
    if not table:
        raise ValueError(f"the dose table {file.name} has no rows")
    _check_units(file.name, table)
    return table


def _lines(file: Path) -> list[tuple[int, list[str]]]:
    """Return the cells of every line that is not blank, with its number, after the columns."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            columns, *lines = [[cell.strip() for cell in line] for line in csv.reader(text, strict=True)] or [[]]
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"the dose table {file.name} cannot be read: {error}") from error
    if tuple(columns) != COLUMNS:
        raise ValueError(f"the dose table {file.name} must have the columns {','.join(COLUMNS)}, not {columns}")
    return [(number, cells) for number, cells in enumerate(lines, 2) if cells]


def _row(where: str, substance: str, unit: str, *amounts: str) -> Row:
    if not substance or not unit:
        raise ValueError(f"{where}: the substance and the unit must not be blank")
    try:
        least, most, day = map(int, amounts)
    except ValueError:
        raise ValueError(f"{where}: least, most and day are whole numbers; take a smaller unit for parts") from None
    if not 0 < least <= most <= day:
        raise ValueError(f"{where}: 0 < least <= most <= day does not hold for {least}, {most}, {day}")
    return Row(substance, unit, least, most, day)


def _check_units(name: str, table: Table) -> None:
    """Raise `ValueError` for a substance in two units: its doses of a day could not be added up."""
    units: dict[str, str] = {}
    for row in table.values():
        if units.setdefault(row.substance, row.unit) != row.unit:
            raise ValueError(
                f"the dose table {name} has {row.substance!r} in two units, {units[row.substance]!r} and {row.unit!r}"
            )
