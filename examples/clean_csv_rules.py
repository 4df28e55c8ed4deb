"""The rules for a file of readings of a river: its columns, the allowed cells, and the criteria of a clean table.

Plain code decides here. `examples/clean_csv.py` has the team.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel

import kairo_team as kt


@dataclass(frozen=True)
class Field:
    """A column of the clean table."""

    kind: Literal["text", "date", "number"]
    low: float = 0
    high: float = 0
    """The range of a number, both ends included."""
    signs: str = "(?!)"
    """A heading that this pattern matches certainly means the field."""


FIELDS: Final = {
    "station": Field("text", signs="gauge|station|site"),
    "date": Field("date"),
    "temperature": Field("number", -1, 35, "°C|temp"),
    "ph": Field("number", 3, 11, r"\bpH\b"),
    "oxygen": Field("number", 0, 20, r"\bO2\b|oxygen"),
    "conductivity": Field("number", 20, 3_000, "[µu]S/cm"),
    "nitrate": Field("number", 0, 60, r"\bNO3\b|nitrate"),
    "turbidity": Field("number", 0, 400, r"\bNTU\b|turbid"),
    "remark": Field("text"),
}
"""The domain: degrees Celsius, pH, mg/l, µS/cm, mg/l, NTU."""
OTHER: Final = "other"
"""A column without a known name; it keeps its heading and its cells."""
NOTHING: Final = {"", "-", "?", "n/a"}
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Row(NamedTuple):
    """A line of the file."""

    line: int
    cells: tuple[str, ...]


class Change(NamedTuple):
    """The change of a cell; of a line if `column` is empty."""

    line: int
    column: str
    before: str
    after: str
    why: str


class Doubt(BaseModel):
    """A value that cannot be true. Its cell is empty in the clean table."""

    line: int
    column: str
    before: str
    causes: list[str]


class Table(BaseModel):
    """The clean table, and everything that was done to get it."""

    columns: list[str]
    rows: list[Row]
    dropped: list[tuple[int, str]]
    changes: list[Change]
    doubts: list[Doubt]
    twice: list[tuple[int, int]]
    """Lines of the same station and day that differ; both are kept."""


# ---------------------------------------------------------------- the file


def read_file(content: bytes) -> tuple[list[str], list[Row], list[int]]:
    """Return the headings, the rows, and the numbers of lines that are not UTF-8, which are read as Windows-1252."""
    texts: list[str] = []
    foreign: list[int] = []
    # Spreadsheets begin a file with this mark of UTF-8.
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        try:
            texts.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            texts.append(line.decode("cp1252", "replace"))
            foreign.append(number)
    reader = csv.reader(texts, delimiter=";" if texts and ";" in texts[0] else ",")
    headings = [heading.strip() for heading in next(reader, list[str]())]
    rows = [Row(reader.line_num, (*cells, *[""] * (len(headings) - len(cells)))) for cells in reader]
    return headings, rows, foreign


def fitting(values: Sequence[str]) -> list[str]:
    """Return the fields that nine in ten of the values fit; a station is never left out."""
    told = [value for value in values if value.strip() not in NOTHING]
    blank = len(told) < 0.9 * len(values)
    fits = {name: sum(bool(clean_cell(name, value)[0]) for value in told) for name in FIELDS}
    exact = [name for name, one in FIELDS.items() if one.kind != "text" and fits[name] >= 0.9 * len(told) > 0]
    return exact or (["remark"] if blank else ["station", "remark"])


def decided(headings: Sequence[str], rows: Sequence[Row]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the columns that code can name, and for each other column its possible fields."""
    may_be = {heading: fitting([row.cells[place] for row in rows]) for place, heading in enumerate(headings)}
    names: dict[str, str] = {}
    for heading, fields in may_be.items():
        signed = [name for name in fields if re.search(FIELDS[name].signs, heading, re.IGNORECASE)]
        certain = signed or [name for name in fields if FIELDS[name].kind != "number"]
        if len(certain) == 1 and certain[0] not in names.values():
            names[heading] = certain[0]
    free = [name for name in FIELDS if name not in names.values()]
    return names, {
        heading: [name for name in fields if name in free] for heading, fields in may_be.items() if heading not in names
    }


# ---------------------------------------------------------------- a cell


def clean_cell(field: str, text: str) -> tuple[str, str, list[str]]:
    """Return the clean value, why it was changed, and possible causes if the value cannot be true."""
    bare = " ".join(text.split())
    if field == OTHER:
        return text, "", []
    if bare.lower() in NOTHING:
        return "", "nothing was measured" if bare else "", []
    if FIELDS[field].kind == "text":
        return bare, "spaces" if bare != text else "", []
    return _date(bare) if FIELDS[field].kind == "date" else _number(field, bare)


def _date(text: str) -> tuple[str, str, list[str]]:
    # With slashes, the day or the month may come first: the date is sure only if one reading is possible.
    if re.fullmatch(r"\d{1,2}/\d{1,2}/\d{4}", text):
        found = {day for form in ("%d/%m/%Y", "%m/%d/%Y") if (day := _day(text, form))}
    else:
        found = {day for form in ("%Y-%m-%d", "%d.%m.%Y", "%d %b %Y") if (day := _day(text, form))}
    if len(found) != 1:
        return "", "", ["day and month exchanged" if found else "no such day"]
    value = found.pop().isoformat()
    return value, "form of the date" if value != text else "", []


def _day(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form).date()  # noqa: DTZ007 - a day has no time zone
    except ValueError:
        return None


def _number(field: str, text: str) -> tuple[str, str, list[str]]:
    one, match = FIELDS[field], re.fullmatch(r"(-?\d+)(?:[.,](\d+))?( ?\D*)", text)
    if match is None:
        below = re.fullmatch(r"< ?[\d.,]+", text)
        return "", "", ["a value too small to measure" if below else "a word in place of a number"]
    value = match[1] + (f".{match[2]}" if match[2] else "")
    number = float(value)
    if not one.low <= number <= one.high:
        return "", "", _causes(field, number, whole=match[2] is None) or ["a value out of range"]
    why = "decimal comma" if "," in text else "unit" if match[3] else ""
    return value, why, []


def _causes(field: str, number: float, *, whole: bool) -> list[str]:
    """Return possible causes of a number that is out of range."""
    one = FIELDS[field]
    possible = {
        "a lost decimal point": whole and any(one.low <= number / power <= one.high for power in (10, 100)),
        "degrees Fahrenheit": field == "temperature" and one.low <= (number - 32) / 1.8 <= one.high,
        "a stand-in for nothing": bool(re.fullmatch(r"-?9{2,}", f"{number:.0f}")),
        "percent": field == "oxygen" and 50 <= number <= 150,  # noqa: PLR2004 - of saturation
        "millisiemens": field == "conductivity" and one.low <= number * 1_000 <= one.high,
    }
    return [cause for cause, holds in possible.items() if holds]


# ---------------------------------------------------------------- the table


def clean_table(headings: Sequence[str], rows: Sequence[Row], names: Mapping[str, str]) -> Table:
    """Clean every cell, drop duplicate lines, and record every change."""
    columns = [heading if names[heading] == OTHER else names[heading] for heading in headings]
    kinds = [names[heading] for heading in headings]
    table = Table(columns=columns, rows=[], dropped=[], changes=[], doubts=[], twice=[])
    spelling = _spellings(row.cells[kinds.index("station")] for row in rows) if "station" in kinds else {}
    seen: dict[tuple[str, ...], int] = {}
    for row in rows:
        if not any(cell.strip() for cell in row.cells) or row.cells == tuple(headings):
            table.dropped.append((row.line, "the headings again" if any(row.cells) else "an empty line"))
            continue
        cells, changes, doubts = _clean_row(row, columns, kinds, spelling)
        # A doubtful cell is empty by now, so lines that differ may look the same.
        if cells in seen and not doubts:
            table.dropped.append((row.line, f"the same as line {seen[cells]}"))
            continue
        seen.setdefault(cells, row.line)
        table.rows.append(Row(row.line, cells))
        table.changes += changes
        table.doubts += doubts
    _find_twice(table)
    return table


def _clean_row(
    row: Row, columns: Sequence[str], kinds: Sequence[str], spelling: Mapping[str, str]
) -> tuple[tuple[str, ...], list[Change], list[Doubt]]:
    cells: list[str] = []
    changes: list[Change] = []
    doubts: list[Doubt] = []
    for column, kind, before in zip(columns, kinds, row.cells, strict=True):
        after, why, causes = clean_cell(kind, before)
        if kind == "station" and (usual := spelling.get(after.casefold(), after)) != after:
            after, why = usual, "spelling"
        if causes:
            doubts.append(Doubt(line=row.line, column=column, before=before, causes=causes))
        if after != before:
            changes.append(Change(row.line, column, before, after, " or ".join(causes) or why or "spaces"))
        cells.append(after)
    return tuple(cells), changes, doubts


def _spellings(stations: Iterator[str]) -> dict[str, str]:
    """Return how each station is spelled most often."""
    usual: dict[str, str] = {}
    for name, _ in Counter(" ".join(one.split()) for one in stations).most_common():
        usual.setdefault(name.casefold(), name)
    return usual


def _find_twice(table: Table) -> None:
    if {"station", "date"} <= set(table.columns):
        first: dict[tuple[str, str], int] = {}
        for row in table.rows:
            key = row.cells[table.columns.index("station")], row.cells[table.columns.index("date")]
            if all(key) and first.setdefault(key, row.line) != row.line:
                table.twice.append((first[key], row.line))


# ---------------------------------------------------------------- the rubric of the table


def rows_explained(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """Keep every line of the file, or say why it was dropped."""
    table = artifact.data_as(Table)
    told = Counter([row.line for row in table.rows] + [line for line, _ in table.dropped])
    wrong = sorted(line for line, _ in context.task.inputs["rows"] if told[line] != 1)
    strange = sorted(set(told) - {line for line, _ in context.task.inputs["rows"]})
    return not (wrong or strange) or f"lines {(wrong or strange)[:5]} are not kept once, and not explained"


def typed(artifact: kt.Artifact) -> bool | str:
    """Make each cell a number, a date of ISO 8601, a text without spaces around it, or empty."""
    forms = {"number": r"-?\d+(\.\d+)?", "date": r"\d{4}-\d\d-\d\d", "text": r"\S(.*\S)?"}
    wrong = [
        f"line {line}, {column}: {cell!r}"
        for line, column, cell in _cells(artifact.data_as(Table))
        if column in FIELDS and cell and not re.fullmatch(forms[FIELDS[column].kind], cell)
    ]
    return not wrong or f"not of its type: {'; '.join(wrong[:5])}"


def in_range(artifact: kt.Artifact) -> bool | str:
    """Keep no number that a river cannot have."""
    wrong = [
        f"line {line}, {column}: {cell}"
        for line, column, cell in _cells(artifact.data_as(Table))
        if column in FIELDS and FIELDS[column].kind == "number" and cell
        if not FIELDS[column].low <= float(cell) <= FIELDS[column].high
    ]
    return not wrong or f"out of range: {'; '.join(wrong[:5])}"


def nothing_invented(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """Take each value from the cell of the file, and from nowhere else."""
    table, source = artifact.data_as(Table), _source(context)
    wrong = [
        f"line {line}, {column}: {cell!r} from {source.get((line, place), '')!r}"
        for line, place, column, cell in _places(table)
        if cell and not _is_from(column, cell, source.get((line, place), ""))
    ]
    return not wrong or f"invented: {'; '.join(wrong[:5])}"


def changes_told(artifact: kt.Artifact, context: kt.EvaluationContext) -> bool | str:
    """List each cell that is not as it was."""
    table, source = artifact.data_as(Table), _source(context)
    told = {(change.line, change.column, change.before, change.after) for change in table.changes}
    wrong = [
        f"line {line}, {column}"
        for line, place, column, cell in _places(table)
        if (before := source.get((line, place), "")) != cell and (line, column, before, cell) not in told
    ]
    return not wrong or f"changed and not told: {'; '.join(wrong[:5])}"


TABLE_CHECKS: Final = (rows_explained, typed, in_range, nothing_invented, changes_told)


def _source(context: kt.EvaluationContext) -> dict[tuple[int, int], str]:
    rows: Any = context.task.inputs["rows"]
    return {(line, place): cell for line, cells in rows for place, cell in enumerate(cells)}


def _places(table: Table) -> Iterator[tuple[int, int, str, str]]:
    for row in table.rows:
        for place, (column, cell) in enumerate(zip(table.columns, row.cells, strict=True)):
            yield row.line, place, column, cell


def _cells(table: Table) -> Iterator[tuple[int, str, str]]:
    return ((line, column, cell) for line, _, column, cell in _places(table))


def _is_from(column: str, cell: str, before: str) -> bool:
    """Return whether a clean value says the same as the file's cell."""
    kind = FIELDS[column].kind if column in FIELDS else "text"
    if kind == "number":
        return re.findall(r"-?\d+(?:\.\d+)?", before.replace(",", ".")) == [cell]
    if kind == "text":
        return cell.casefold().split() == before.casefold().split()
    year, month, day = map(int, cell.split("-"))
    said = [int(part) for part in re.findall(r"\d+", before)]
    said += [number for number, name in enumerate(MONTHS, 1) if name in before.lower()]
    # Sorted, because the file has its own order of day and month.
    return sorted(said) == sorted([year, month, day])


if __name__ == "__main__":
    print("These are the rules of another example. How to use them: python -m kairo_team.examples.clean_csv")
