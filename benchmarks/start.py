"""How long a program takes that a person waits for, against `python -c "import pydantic, anyio"`.

python -m benchmarks.start
"""

from __future__ import annotations

from functools import partial

from benchmarks.import_time import children_seconds, start
from benchmarks.table import Row, compare, draw

REPEATS = 9
UNIT = "import pydantic, anyio"
_TEAM = "import kairo_team as kt; kt.run_sync(kt.Team('t', [kt.Member('m', lambda task: 'said')]), 'goal').check()"
_AGENT = "import asyncio; from benchmarks.peers.turns.kairo_team import alone; asyncio.run(alone())"
_PROGRAMS = {
    UNIT: ["-c", UNIT],
    "the first run of a team of functions": ["-c", _TEAM],
    "the first run of an agent with a tool": ["-c", _AGENT],
    "kairo --help": ["-m", "kairo_team.cli", "--help"],
}
_MOST = {
    "the first run of a team of functions": 4.8,
    "the first run of an agent with a tool": 7.2,
    "kairo --help": 1.5,
}


def measure() -> list[Row]:
    """Measure the processor time of whole programs, the interpreter's own start in it."""
    works = {name: partial(start, *arguments) for name, arguments in _PROGRAMS.items()}
    for work in works.values():
        work()  # writes the bytecode
    times = compare(works, REPEATS, children_seconds)
    unit = times[UNIT].seconds
    return [
        Row(f"{name}, against {UNIT}", times[name].seconds / unit, most, f"{times[name].seconds * 1e3:.0f} ms")
        for name, most in _MOST.items()
    ]


if __name__ == "__main__":
    print(draw(measure()))
