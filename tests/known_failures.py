"""Write down which test and which mutant stand against each known failure.

`python -m tests.known_failures > tests/known_failures.md`. The rows stand in `tests/data/known_failures.tsv`; tests
bear their ids in their names (`test_kf_b03_...`), mutants where they are made.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.mutants.governor import MUTANTS as GOVERNOR_MUTANTS
from tests.mutants.governor import ROWS as GOVERNOR_ROWS
from tests.mutants.test_kit_mutants import MUTANTS as KIT_MUTANTS

HERE = Path(__file__).parent
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
NAMED = re.compile(r"test_kf((?:_[a-z]\d\d)+)_")
MOST_TESTS = 3
"""Tests named in a row; the others are counted."""


class Row(NamedTuple):
    """One known failure and what stands against it."""

    id: str
    happened: str
    required: str
    tests: list[str]
    mutants: list[str]
    """Names, with what rejects them."""


def rows() -> list[Row]:
    """Return the known failures in their order."""
    tests, mutants = tests_by_row(), mutants_by_row()
    lines = (HERE / "data/known_failures.tsv").read_text(encoding="utf-8").splitlines()
    told = [line.split("\t") for line in lines]
    return [Row(row, happened, wanted, tests.pop(row, []), mutants.pop(row, [])) for row, happened, wanted in told]


def tests_by_row() -> dict[str, list[str]]:
    """Return the names of the tests that bear a row's id."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(test_names()):
        named = NAMED.match(name)
        for row in named[1].upper().strip("_").split("_") if named else ():
            found[row].append(name)
    return found


@cache
def test_names() -> frozenset[str]:
    """Return the names of all test functions, contract tests apart."""
    texts = (path.read_text(encoding="utf-8") for path in HERE.rglob("test_*.py"))
    return frozenset(name for text in texts for name in DEFINED.findall(text))


def mutants_by_row() -> dict[str, list[str]]:
    """Return the mutants made from a row, and what rejects them."""
    found: dict[str, list[str]] = defaultdict(list)
    killers = {one.name: one.killed_by[-1].rpartition("::")[2] for one in GOVERNOR_MUTANTS}
    for name, row in GOVERNOR_ROWS.items():
        found[row].append(f"{name} (`{killers[name]}`)")
    for mutant in KIT_MUTANTS:
        for row in mutant.rows:
            found[row].append(f"{mutant.name} ({mutant.kit.contract.__name__} {mutant.clause})")
    return found


def table() -> str:
    """Write the rows down as a Markdown table."""
    all_rows = rows()
    mutated = sum(bool(row.mutants) for row in all_rows)
    return "\n".join(
        [
            "# Known failures, and what stands against each",
            "",
            "Failures seen in released systems of this field, and (U) in an earlier draft of this one's design. Each",
            "has tests that bear its id; a mutant is a small implementation with that failure, and after it stands",
            "what rejects it: a clause of a contract, by its kit, or a test of the governor. Written by",
            "`python -m tests.known_failures > tests/known_failures.md`.",
            "",
            "| id | what happened | required here | tests | mutants |",
            "|---|---|---|---|---|",
            *(line(row) for row in all_rows),
            "",
            f"{len(all_rows)} rows, {mutated} with a mutant. {len(KIT_MUTANTS)} mutants of contracts and",
            f"{len(GOVERNOR_MUTANTS)} of the governor (`tests/governor_mutants.md`); none is alive.",
        ]
    )


def line(row: Row) -> str:
    """Write one row."""
    more = len(row.tests) - MOST_TESTS
    tests = [f"`{name}`" for name in row.tests[:MOST_TESTS]] + ([f"and {more} more"] if more > 0 else [])
    return f"| {row.id} | {row.happened} | {row.required} | {', '.join(tests)} | {', '.join(row.mutants)} |"


if __name__ == "__main__":
    print(table())  # noqa: T201 - it is there to be printed
