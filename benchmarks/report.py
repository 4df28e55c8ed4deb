"""What `kairo report` takes for a large run, from a file of its events: processor time and memory at the peak.

Each task asks a model once. The program is measured as a whole, its start included. Alone:
`python -m benchmarks.report [TASKS]`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

import kairo_team as kt
from benchmarks.durable import asking, models, run
from benchmarks.overhead import layered_plan
from benchmarks.table import Row, draw, silence_runs
from kairo_team.views.json_lines import JsonLines

TASKS: Final = 10_000
MOST: Final = 120.0
"""MB at the peak; a MB is 1,000,000 bytes."""
REPEATS: Final = 3
AT_ONCE: Final = 128

_MEASURED: Final = """
import json, os, resource, subprocess, sys
subprocess.run([sys.executable, "-m", "kairo_team.cli", "report", *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)]))
"""
"""Each measurement has its own process: a process knows only the memory of its largest child."""


def measure(tasks: int = TASKS) -> list[Row]:
    """Measure the command in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        events, page = Path(folder) / "events.jsonl", Path(folder) / "report.html"
        with JsonLines(events) as lines:
            runtime = kt.Runtime(models=models(0.0), subscribers=[lines])
            run(runtime, asking(1), layered_plan(tasks), AT_ONCE)
        _used(str(events), "-o", str(page))  # writes the bytecode
        found = [_used(str(events), "-o", str(page)) for _ in range(REPEATS)]
        size = page.stat().st_size
    what = f"kairo report of {tasks:,} tasks"
    return [
        Row(f"{what}: processor time", median(one for one, _ in found), None, f"a page of {size / 1e6:.1f} MB", "s"),
        Row(f"{what}: memory at the peak", max(most for _, most in found) / 1e6, MOST, "of the whole process", "MB"),
    ]


def _used(*arguments: str) -> tuple[float, int]:
    command = [sys.executable, "-c", _MEASURED, *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)  # noqa: S603 - our own
    seconds, most = json.loads(done.stdout)
    return seconds, most


if __name__ == "__main__":
    silence_runs()
    print(draw(measure(int(sys.argv[1]) if len(sys.argv) > 1 else TASKS)))
