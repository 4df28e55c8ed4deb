"""Run `python -m benchmarks.side_by_side`: every program in every situation; see docs/side-by-side.md."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.side_by_side.jobs import JOBS
from benchmarks.side_by_side.libraries import LIBRARIES, Missing, python_for, versions
from benchmarks.side_by_side.lines import written
from benchmarks.side_by_side.situations import Command, all_of
from benchmarks.side_by_side.tables import PAGE, draw, load, record, redraw


def main() -> None:
    """Measure what was asked for, record it, draw the tables of the page anew and print them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kairo-team" / "side-by-side"
    parser = argparse.ArgumentParser(description="Four jobs done with several libraries, in five situations.")
    parser.add_argument("--library", choices=LIBRARIES, action="append", help="only this one; may be repeated")
    parser.add_argument("--job", choices=JOBS, action="append", help="only this one; may be repeated")
    parser.add_argument("--envs", type=Path, default=cache, help="where the environments are kept; %(default)s")
    parser.add_argument("--tables", action="store_true", help="measure nothing: draw what is recorded")
    asked = parser.parse_args()
    if not asked.tables:
        for library in asked.library or LIBRARIES:
            _measure(library, asked.job or list(JOBS), asked.envs.absolute())
    page = PAGE.read_text(encoding="utf-8")
    if (drawn := redraw(page, load())) != page:
        PAGE.write_text(drawn, encoding="utf-8")
    for part in ("libraries", *JOBS):
        print(f"\n{JOBS.get(part, part)}\n\n{draw(part, load())}")


def _measure(library: str, jobs: list[str], envs: Path) -> None:
    try:
        python = python_for(library, envs)
    except Missing as reason:
        print(f"{LIBRARIES[library].name} left out: {reason}", file=sys.stderr)
        return
    for job in jobs:
        module = f"{library}_{job}"
        lines = written(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
        found = all_of(Command(python, f"benchmarks.side_by_side.{module}"), job)
        record(library, versions(library, python), job, lines, found)
        for situation, seen in found.items():
            print(f"{module}, {situation}: {seen}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
