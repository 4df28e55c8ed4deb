"""How long the import takes, against that of the two libraries every user of ours has."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial

from benchmarks.table import Row, medians

REPEATS = 9
MOST = 1.5


def run_python(code: str) -> None:
    """Run the code in a fresh interpreter."""
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own interpreter and code


def children_seconds() -> float:
    """Return the processor time of all programs started and ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure() -> list[Row]:
    """Measure the import without what the interpreter's own start takes."""
    works = {name: partial(run_python, code) for name, code in _CODES.items()}
    for work in works.values():
        work()  # writes the bytecode
    times = medians(works, REPEATS, children_seconds)
    start = times["nothing"]
    ours, theirs = times["kairo_team"] - start, times["pydantic, anyio"] - start
    note = f"{ours * 1e3:.0f} ms, the others {theirs * 1e3:.0f} ms"
    return [Row("import kairo_team, against import pydantic, anyio", ours / theirs, MOST, note)]


_CODES = {"nothing": "pass", "kairo_team": "import kairo_team", "pydantic, anyio": "import pydantic, anyio"}
