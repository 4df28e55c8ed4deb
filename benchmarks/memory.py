"""How much memory a process has, and how much a run holds at its peak, for each task that does nothing.

The latter is measured by `tracemalloc` in a process of its own. The plan and the team exist before the measurement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import kairo_team as kt
from benchmarks.overhead import layered_plan, nothing, run_team
from benchmarks.table import Row

TASKS = 20_000
MOST = 5.0
"""KB a task; a KB is 1,000 bytes."""


def resident(process: int) -> float | None:
    """Return the megabytes that a process has in memory; None where the system does not show it."""
    shown = Path(f"/proc/{process}/statm")
    if not shown.exists():
        return None
    pages = int(shown.read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak(tasks: int) -> tuple[int, int]:
    """Return the most bytes a run held at once, and the bytes of its plan."""
    team = kt.Team("idlers", [kt.Member("idler", nothing)])
    run_team(team, layered_plan(100))  # loads the lazy imports
    tracemalloc.start()
    plan = layered_plan(tasks)
    planned, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    run_team(team, plan)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most - planned, planned


def measure() -> list[Row]:
    """Measure in another process."""
    command = [sys.executable, "-m", "benchmarks.memory"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603 - our own program
    run, plan = (amount / TASKS / 1_000 for amount in json.loads(done.stdout))
    return [Row(f"memory at the peak, a task of {TASKS:,}", run, MOST, f"and {plan:.2f} KB of the plan", "KB")]


if __name__ == "__main__":
    print(json.dumps(peak(TASKS)))
