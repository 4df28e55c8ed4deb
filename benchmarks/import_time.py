"""How long the import takes, against that of the two libraries every user of ours has."""

from __future__ import annotations

import atexit
import os
import resource
import subprocess
import sys
import tempfile
from functools import cache, partial

from benchmarks.table import Row, compare

REPEATS = 9
MOST = 1.5


def start(*arguments: str) -> None:
    """Run a fresh interpreter to its end; it keeps its bytecode, also where the caller's environment forbids that."""
    with_bytecode = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": _bytecode()}
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=with_bytecode)  # noqa: S603 - our own programs


@cache
def _bytecode() -> str:
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return folder.name


def run_python(code: str) -> None:
    """Run the code in a fresh interpreter."""
    start("-c", code)


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
