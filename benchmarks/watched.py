"""What a run pays for being recorded and watched: its events are kept in a journal, and another process follows them.

Each task asks a model once; prompts have two thousand characters and replies three thousand, and a call takes fifty
milliseconds. What events and the follower cost is measured against the same run with a journal without events; what
all of it costs, against the run alone. Alone: `python -m benchmarks.watched [TASKS]`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import kairo_team as kt
from benchmarks.durable import asking, models, run
from benchmarks.overhead import layered_plan
from benchmarks.table import Row, compare, draw, silence_runs

TASKS: Final = 20_000
MOST: Final = 1.5
"""Times the same run, recorded without events."""
REPEATS: Final = 1

FOLLOW: Final = """
import sys, time
import kairo_team as kt
journal, seen = kt.SqliteJournal(sys.argv[1]), dict()
print("ready", flush=True)
while True:
    for run in journal.runs():
        for event in journal.events_after(run.run_id, seen.get(run.run_id, 0)):
            seen[run.run_id] = event.seq
    time.sleep(0.2)
"""
"""What the follower does: it reads the new events of every run, five times a second."""


@contextmanager
def followed(path: Path) -> Generator[None]:
    """Have another process follow a journal."""
    with subprocess.Popen([sys.executable, "-c", FOLLOW, str(path)], stdout=subprocess.PIPE) as follower:  # noqa: S603 - our own
        try:
            assert follower.stdout is not None
            follower.stdout.readline()
            yield
        finally:
            follower.kill()


@contextmanager
def works(tasks: int) -> Generator[Mapping[str, Callable[[], None]]]:
    """Return the run alone, recorded without events, and with events that another process follows."""
    member, plan = asking(1), layered_plan(tasks)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        quiet = opened.enter_context(closing(kt.SqliteJournal(folder / "quiet.db", events=False)))
        watched = opened.enter_context(closing(kt.SqliteJournal(folder / "watched.db")))
        opened.enter_context(followed(folder / "watched.db"))
        journals = {"alone": None, "recorded": quiet, "watched": watched}
        runtimes = {name: kt.Runtime(models=models(), journal=journal) for name, journal in journals.items()}
        yield {name: partial(run, runtime, member, plan) for name, runtime in runtimes.items()}


def measure(tasks: int = TASKS) -> list[Row]:
    """Measure the processor time of the run's process."""
    with works(tasks) as found:
        took = compare(found, REPEATS)
    alone, recorded, watched = (took[name].seconds / tasks * 1e6 for name in ("alone", "recorded", "watched"))
    what = f"{tasks:,} tasks with a call each, recorded and followed"
    return [
        Row(f"{what}, to recorded without events", watched / recorded, MOST, f"{recorded:.0f} us a task"),
        Row(f"{what}, to not recorded", watched / alone, None, f"{alone:.0f} us a task; {MOST} x is the aim"),
    ]


if __name__ == "__main__":
    silence_runs()
    print(draw(measure(int(sys.argv[1]) if len(sys.argv) > 1 else TASKS)))
