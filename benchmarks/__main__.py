"""Run every benchmark and print one table; the exit code is 1 when a limit is not kept."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from importlib.util import find_spec

from benchmarks import (
    contention,
    deadlines,
    durable,
    expert,
    fanout,
    growing,
    import_time,
    makespan,
    memory,
    overhead,
    report,
    start,
    starving,
    tools,
    watched,
)
from benchmarks.table import Row, draw, silence_runs


def governor_rows() -> list[Row]:
    """Take the governor's own rows, where they are."""
    if find_spec("benchmarks.governor") is None:
        return []
    found = import_module("benchmarks.governor").rows()
    return [Row(name, ratio, limit) for name, ratio, limit in found]


def main() -> int:
    """Measure, print, judge."""
    silence_runs()
    began = time.perf_counter()
    rows = [*overhead.measure(), *expert.measure(), *memory.measure(), *makespan.measure()]
    rows += [
        *deadlines.measure(),
        *import_time.measure(),
        *start.measure(),
        *governor_rows(),
        *contention.measure(),
        *tools.rows(),
    ]
    rows += [*durable.measure(), *watched.measure(), *growing.measure(), *report.measure()]
    print(draw(rows))
    over = sum(row.verdict == "OVER" for row in rows)
    print("\nDocuments refused under a budget:\n", *fanout.table(), sep="\n")
    print("\nTasks done of more than a budget can carry:\n", *starving.table(), sep="\n")
    print(f"\n{len(rows) - over} ok, {over} over, {time.perf_counter() - began:.0f} s, Python {sys.version.split()[0]}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
