"""What a journal on disk costs: processor time of a task, and the longer wait of a call.

Each figure compares runs with a journal with the same run without one, in turn. Agents suspend; prompts have two
thousand characters and replies three thousand, calls take fifty milliseconds. Alone: `python -m benchmarks.durable`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio

import kairo_team as kt
from benchmarks.overhead import layered_plan, nothing
from benchmarks.table import Clock, Row, Timing, compare, draw, silence_runs
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.testing import FunctionModel

TASKS: Final = 2_000
MOST_TASK: Final = 200.0
"""Microseconds of processor time of a task that does nothing, with a journal."""
WIDE: Final = 400
"""Calls at once."""
MOST_WIDE: Final = 0.5
"""Milliseconds of wall clock for each of them, with every call synced to the disk before it is sent."""
LONG: Final = 20
"""Calls one after the other."""
MOST_LONG: Final = 1.5
"""Milliseconds of wall clock for each of them, with `sync="normal"`."""
PAUSE: Final = 0.05
"""Seconds that a call takes."""
PROMPT: Final = "Explain how the moon pulls the sea, and why. " * 45
REPLY: Final = "The moon pulls the near side of the sea more. " * 65
BUDGET: Final = kt.Budget(tokens=1_000_000_000, dollars=1_000, loops=1_000_000)
REPEATS: Final = 5

Options = Mapping[str, Any]
"""What a journal is made with; None: there is no journal."""
JOURNALS: Final[Mapping[str, Options | None]] = {
    "no journal": None,
    "full": {"sync": "full"},
    "full, no events": {"sync": "full", "events": False},
    "normal": {"sync": "normal"},
}


def models(pause: float = PAUSE) -> Mapping[str, kt.contracts.ChatModel]:
    """Return a model that takes `pause` seconds for a reply of a usual length, each a different one."""
    numbers = count()

    async def answer(_request: kt.ModelRequest) -> str:
        await anyio.sleep(pause)
        return f"{next(numbers)}. {REPLY}"

    return {"m:x": FunctionModel(answer)}


@contextmanager
def runtimes() -> Generator[Mapping[str, kt.Runtime]]:
    """Open each kind of journal in a file of its own, and make a runtime of it: programs do that once."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        found: dict[str, kt.Runtime] = {}
        for name, options in JOURNALS.items():
            journal = None
            if options is not None:
                journal = opened.enter_context(closing(kt.SqliteJournal(folder / f"{name}.db", **options)))
            found[name] = kt.Runtime(models=models(), journal=journal)
        yield found


def run(runtime: kt.Runtime, member: kt.Member, plan: kt.TaskGraph, at_once: int | None = None) -> None:
    """Run a plan, with `at_once` tasks under way at most."""
    config = kt.TeamConfig(budget=BUDGET, max_parallel_tasks=at_once)
    request = kt.TeamExecutionRequest("Work.", plan=plan, config=config)
    anyio.run(TaskDispatchCoordinator().execute, request, kt.Team("workers", [member], runtime=runtime)).check()


def asking(calls: int) -> kt.Member:
    """Return a member that asks a model so often, one call after the other."""

    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        said = ""
        for turn in range(calls):
            message = kt.Message.user(f"{assignment.task.id} {turn} {PROMPT}")
            said = (await context.model("m:x").complete(kt.ModelRequest([message], max_tokens=1_000))).text
        return said

    return kt.Member("asker", ask)


def measure() -> list[Row]:
    """Measure the processor time of tasks, then the wall clock of calls."""
    fan = kt.TaskGraph([kt.Task(f"t{number}", "Ask.") for number in range(WIDE)])
    chain = kt.TaskGraph([kt.Task("t", "Ask.")])
    return [
        *_tasks(),
        *_calls(f"{WIDE} calls at once", asking(1), fan, WIDE, {"full": MOST_WIDE}),
        *_calls(f"{LONG} calls in a row", asking(LONG), chain, LONG, {"normal": MOST_LONG}),
        Row("one sync of this disk", _sync(), None, "of 4 kB appended to a file", "ms"),
    ]


def _compare(member: kt.Member, plan: kt.TaskGraph, clock: Clock) -> dict[str, Timing]:
    """Time the same run without a journal and with each kind of journal; all of them have run before."""
    with runtimes() as found:
        works = {name: partial(run, runtime, member, plan) for name, runtime in found.items()}
        for work in works.values():
            work()
        return compare(works, REPEATS, clock)


def _tasks() -> list[Row]:
    took = _compare(kt.Member("idler", nothing), layered_plan(TASKS), time.process_time)
    plain = took.pop("no journal").seconds / TASKS * 1e6
    rows: list[Row] = []
    for name, timing in took.items():
        note = f"{timing.ratio:.2f} x without a journal, {plain:.0f} us"
        rows.append(Row(f"a no-op task of {TASKS:,}, {name}", timing.seconds / TASKS * 1e6, MOST_TASK, note, "us"))
    return rows


def _calls(what: str, member: kt.Member, plan: kt.TaskGraph, count: int, most: Mapping[str, float]) -> list[Row]:
    took = _compare(member, plan, time.perf_counter)
    plain = took.pop("no journal").seconds
    note = f"more for each, of {plain:.2f} s without a journal"
    return [
        Row(f"{what}, {name}", (timing.seconds - plain) / count * 1e3, most.get(name), note, "ms")
        for name, timing in took.items()
    ]


def _sync() -> float:
    """Return how many milliseconds the disk takes to keep four kilobytes."""
    took: list[float] = []
    with tempfile.TemporaryFile() as file:
        for _ in range(50):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took) * 1e3


if __name__ == "__main__":
    silence_runs()
    began = time.perf_counter()
    print(draw(measure()))
    print(f"\n{time.perf_counter() - began:.0f} s")
