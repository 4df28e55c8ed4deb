"""Measure on the embedded model whether revising helps; print the tables and draw the picture.

Rows in the file of results are not measured again; the file of this folder has all of them. `--results` names another
file, which is made when it is not there; the picture is then drawn beside it.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from benchmarks.revising.instructions import INSTRUCTIONS
from benchmarks.revising.picture import draw
from benchmarks.revising.rows import measure_all, read
from benchmarks.revising.tables import tables
from kairo_team.models.local import LocalModel

RESULTS: Final = Path(__file__).with_name("results.jsonl")
PICTURE: Final = RESULTS.parent.parent.parent / "docs" / "revising.svg"
RUNS: Final = 2


def main() -> None:
    """Measure the missing rows, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.revising", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the measured rows are kept")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs, each with seeds of its own")
    asked = parser.parse_args()
    results: Path = asked.results
    anyio.run(partial(measure_all, INSTRUCTIONS, LocalModel(), asked.runs, results))
    rows = read(results)
    print("\n".join(tables(rows)))
    picture = PICTURE if results.resolve() == RESULTS.resolve() else results.with_suffix(".svg")
    picture.write_text(draw(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
