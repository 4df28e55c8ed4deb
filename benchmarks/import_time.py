"""How long the import takes, against that of the two libraries every user of ours has."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import partial

from benchmarks.table import Row, compare

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
    times = compare(works, REPEATS, children_seconds)
    rows: list[Row] = []
    for ours, theirs, most in _PAIRS:
        took, unit = (times[name].seconds - times["nothing"].seconds for name in (ours, theirs))
        rows.append(Row(f"{ours}, against {theirs}", took / unit, most, f"{took * 1e3:.0f} ms, {unit * 1e3:.0f} ms"))
    return rows


_CODES = {
    "nothing": "pass",
    "import kairo_team": "import kairo_team",
    "import pydantic, anyio": "import pydantic, anyio",
    "naming a team and run": "import kairo_team as kt; kt.Team, kt.Member, kt.Task, kt.TaskGraph, kt.run",
    "a pydantic dataclass, anyio": "import anyio, pydantic.dataclasses",
}
_PAIRS = [
    ("import kairo_team", "import pydantic, anyio", MOST),
    ("naming a team and run", "a pydantic dataclass, anyio", None),
]
