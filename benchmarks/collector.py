"""What Python's garbage collector costs in a large run, with its usual thresholds and with others.

    python -m benchmarks.collector

Each figure comes from processes of their own, which take turns: the collector's cost depends on all objects that there
are. Printed is the processor time of a task, the median of the rounds.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Final

from benchmarks.deadlines import run_to_the_deadline
from benchmarks.overhead import layered_plan, nothing, run_team
from kairo_team.testing import run_in_virtual_time

ROUNDS: Final = 5
TASKS: Final = 20_000


def usual() -> None:
    """Change nothing."""


def frozen() -> None:
    """Let the collector pass over what is there before the run, such as modules and the plan."""
    gc.collect()
    gc.freeze()


SETTINGS: Final[Mapping[str, Callable[[], object]]] = {
    "as Python begins": usual,
    "gc.freeze() before the run": frozen,
    "gc.set_threshold(20_000)": lambda: gc.set_threshold(20_000),
    "gc.set_threshold(50_000, 20, 100)": lambda: gc.set_threshold(50_000, 20, 100),
    "gc.disable()": gc.disable,
}


def graph(setting: Callable[[], object]) -> float:
    """Run ten layers of tasks; return the seconds of processor time that a task takes."""
    import kairo_team as kt

    team, plan = kt.Team("idlers", [kt.Member("idler", nothing)]), layered_plan(TASKS)
    setting()
    began = time.process_time()
    run_team(team, plan)
    return (time.process_time() - began) / TASKS


def stop(setting: Callable[[], object]) -> float:
    """Stop a run in which all tasks are in flight; return the seconds of processor time that a task takes."""
    setting()
    began = time.process_time()
    run_in_virtual_time(run_to_the_deadline, TASKS)
    return (time.process_time() - began) / TASKS


WORKS: Final[Mapping[str, Callable[[Callable[[], object]], float]]] = {"a graph": graph, "a stop": stop}


def measured(work: str, setting: str) -> float:
    """Measure one kind of work under one setting in a process of its own."""
    ask = [sys.executable, "-m", "benchmarks.collector", work, setting]
    return float(subprocess.run(ask, check=True, capture_output=True, text=True).stdout)  # noqa: S603 - this program


def main() -> None:
    """Measure, and print a table."""
    print(f"| microseconds a task of {TASKS:,} | {' | '.join(WORKS)} |\n| --- |{' ---: |' * len(WORKS)}")
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for setting in SETTINGS:
            for work in WORKS:
                found.setdefault((setting, work), []).append(measured(work, setting))
    for setting in SETTINGS:
        cells = (f"{median(found[setting, work]) * 1e6:.0f}" for work in WORKS)
        print(f"| `{setting}` | {' | '.join(cells)} |" if "gc." in setting else f"| {setting} | {' | '.join(cells)} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(WORKS[sys.argv[1]](SETTINGS[sys.argv[2]]))
    else:
        main()
