"""The common parts for every library: the graphs, the work, the unit, and the check of the order of all tasks.

The unit is `asyncio.gather` over the same coroutines, timed in the same process and the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from importlib.metadata import version
from statistics import median
from typing import Any, Final

import kairo_team as kt
from benchmarks.makespan import SEED, critical_path, sleepy_plan
from benchmarks.overhead import layered_plan
from benchmarks.table import seconds_of

Graph = Mapping[str, Sequence[str]]
"""What each task depends on, in an order that has every dependency first."""
Work = Callable[[str], Awaitable[None]]
Run = Callable[[], Coroutine[Any, Any, object]]
Build = Callable[[Graph, Work], Run]

ROUNDS: Final = 7
SECONDS: Final = 10.0
"""After this long no other round is begun."""
SLEEPS: Final = 3
WARM_UP: Final = 30


class Wrong(Exception):
    """A library did not run every task once and after all it depends on."""


def of_plan(plan: kt.TaskGraph) -> Graph:
    """Return the dependencies of a plan."""
    return {task.id: tuple(task.depends_on) for task in plan.tasks}


def layers(graph: Graph) -> list[list[str]]:
    """Return the tasks by their distance from the start."""
    depth: dict[str, int] = {}
    found: list[list[str]] = []
    for name, needs in graph.items():
        depth[name] = 1 + max((depth[need] for need in needs), default=-1)
        if depth[name] == len(found):
            found.append([])
        found[depth[name]].append(name)
    return found


def last_of(graph: Graph) -> list[str]:
    """Return the tasks nothing depends on."""
    needed = {need for needs in graph.values() for need in needs}
    return [name for name in graph if name not in needed]


def check(graph: Graph, done: Sequence[str]) -> None:
    """Raise `Wrong` unless every task was done once, after everything it depends on."""
    places = {name: place for place, name in enumerate(done)}
    if len(done) != len(graph) or places.keys() != graph.keys():
        raise Wrong(f"{len(done)} tasks done, {len(places)} of them different, of {len(graph)}")
    early = sum(places[need] > places[name] for name, needs in graph.items() for need in needs)
    if early:
        raise Wrong(f"{early} dependencies were not waited for")


def run_instant(build: Build, tasks: int) -> dict[str, float]:
    """Build and run a graph of tasks that suspend once: microseconds of processor time a task, and in units."""
    _warm_up(build)
    graph, done = of_plan(layered_plan(tasks)), list[str]()

    async def work(name: str) -> None:
        await asyncio.sleep(0)  # every agent that asks a model suspends
        done.append(name)

    async def gather() -> None:
        await asyncio.gather(*map(work, graph))

    began = time.process_time()
    run = build(graph, work)
    building = time.process_time() - began
    print(json.dumps({"building": building}), flush=True)
    bare, taken = _time_in_rounds(gather, run, graph, done)
    figures = {"building": building, "running": median(taken), "bare": median(bare)}
    ratio = median(one / base for one, base in zip(taken, bare, strict=True))
    return {name: seconds / tasks * 1e6 for name, seconds in figures.items()} | {"ratio": ratio}


def _time_in_rounds(unit: Run, run: Run, graph: Graph, done: list[str]) -> tuple[list[float], list[float]]:
    """Return the processor seconds of the unit and of the run, round by round; every run is checked."""
    bare, taken = list[float](), list[float]()
    start = time.monotonic()
    while len(taken) < ROUNDS and time.monotonic() - start < SECONDS:
        bare.append(seconds_of(lambda: asyncio.run(unit()), time.process_time))
        done.clear()
        taken.append(seconds_of(lambda: asyncio.run(run()), time.process_time))
        check(graph, done)
        done.clear()
    return bare, taken


def run_sleeping(build: Build) -> dict[str, float]:
    """Run the graph of `benchmarks.makespan`: seconds of wall clock, and its critical path."""
    _warm_up(build)
    plan, seconds = sleepy_plan(random.Random(SEED))  # noqa: S311 - repeatable, no secret
    graph, done = of_plan(plan), list[str]()

    async def work(name: str) -> None:
        await asyncio.sleep(seconds[name])
        done.append(name)

    run = build(graph, work)
    print(json.dumps({"tasks": len(graph)}), flush=True)
    taken: list[float] = []
    for _ in range(SLEEPS):
        taken.append(seconds_of(lambda: asyncio.run(run()), time.perf_counter))
        check(graph, done)
        done.clear()
    barrier = sum(max(seconds[name] for name in names) for names in layers(graph))
    return {"makespan": median(taken), "path": critical_path(plan, seconds), "layers": barrier}


def _warm_up(build: Build) -> None:
    """Run a small graph first: imports and caches are no cost of a task."""

    async def work(_name: str) -> None:
        return

    asyncio.run(build(of_plan(layered_plan(WARM_UP)), work)())


def main(peer: str, build: Build) -> None:
    """Measure what the command line asks for; the last line printed is the result, as JSON."""
    parser = argparse.ArgumentParser(description=f"What a task costs in a graph run by {peer}.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--tasks", type=int, help="how many tasks that suspend once")
    what.add_argument("--sleeping", action="store_true", help="the graph of 96 sleeping tasks")
    asked = parser.parse_args()
    figures = run_sleeping(build) if asked.sleeping else run_instant(build, asked.tasks)
    print(json.dumps({"peer": peer, "version": version(peer), **figures}))
