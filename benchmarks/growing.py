"""What a task costs that a plan grows into, against the same task of a plan that has it from the start.

Compared are runs of as many tasks with the same dependencies, in turn: hops that a body adds one by one (`TeamRun.add`)
and the rounds of a loop with a chain, the items of a map with a fan. Agents suspend, tasks have limits on tokens,
dollars and loops. With a journal every step is written, and synced now and then. Alone: `python -m benchmarks.growing`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

import kairo_team as kt
from benchmarks.table import Row, compare, draw, silence_runs
from kairo_team.coordinators import TaskDispatchCoordinator

HOPS: Final = 1_000
ROUNDS: Final = 1_000
ITEMS: Final = 10_000
MOST: Final = 1.2
"""Times the same task of a plan that does not grow."""
BUDGET: Final = kt.Budget(tokens=1_000_000_000, dollars=1_000, loops=1_000_000)
REPEATS: Final = 7

Work = Callable[[], object]


async def number(assignment: kt.Assignment, _context: kt.MemberContext) -> kt.Artifact:
    """Suspend once; make what the map and the loop look at."""
    await anyio.lowlevel.checkpoint()
    if assignment.task.id == "split":
        return kt.Artifact("the list", data=list(range(ITEMS)))
    at = assignment.inputs.get("round", 0)
    return kt.Artifact(f"round {at}", data={"round": at})


TEAM: Final = [kt.Member("worker", number)]


class Hops:
    """Makes one attempt at each task; the plan is there from the start, or each task adds the next one."""

    def __init__(self, tasks: list[kt.Task], *, grows: bool) -> None:
        self._tasks = tasks
        self._grows = grows
        self._next = dict(zip((task.id for task in tasks), tasks[1:], strict=False))

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        """Run the tasks."""
        async with kt.TeamRun.open(request, team) as run:
            first = kt.TaskGraph(self._tasks[:1] if self._grows else self._tasks)
            async for task in run.ready(await run.plan(first)):
                run.go(self._hop, run, task)
        return run.result

    async def _hop(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        following = self._next.get(task.id)
        if self._grows and following is not None:
            await run.add(lambda: [following])
        run.accept(task, attempt)


def play(runtime: kt.Runtime, coordinator: kt.contracts.TeamCoordinator, plan: kt.TaskGraph | None, tasks: int) -> None:
    """Run it once."""
    request = kt.TeamExecutionRequest("Work.", plan=plan, config=kt.TeamConfig(budget=BUDGET))
    result = anyio.run(coordinator.execute, request, kt.Team("workers", TEAM, runtime=runtime)).check()
    done = sum(outcome.attempts for outcome in result.outcomes)
    assert done == tasks, f"{done} attempts of {tasks}"


def chain(tasks: int) -> list[kt.Task]:
    """Return tasks one after the other."""
    return [kt.Task(f"t{at}", "Do it.", depends_on=[f"t{at - 1}"] if at else []) for at in range(tasks)]


def hops() -> Mapping[str, tuple[kt.contracts.TeamCoordinator, kt.TaskGraph | None]]:
    """Return a chain that is planned, and one that is added task by task."""
    tasks = chain(HOPS)
    return {"plain": (Hops(tasks, grows=False), None), "grown": (Hops(tasks, grows=True), None)}


def rounds() -> Mapping[str, tuple[kt.contracts.TeamCoordinator, kt.TaskGraph | None]]:
    """Return a chain, and a loop of as many rounds."""
    until = {"from": "write", "field": "round", "equals": ROUNDS}
    loop = kt.Loop([kt.Task("write", "Do it.")], until=until, max_rounds=ROUNDS)
    grown = kt.TaskGraph([kt.Task("polish", "Do it.", loop=loop)])
    board = TaskDispatchCoordinator()
    return {"plain": (board, kt.TaskGraph(chain(ROUNDS))), "grown": (board, grown)}


def items() -> Mapping[str, tuple[kt.contracts.TeamCoordinator, kt.TaskGraph | None]]:
    """Return a fan, and a map over as many items."""
    split, board = kt.Task("split", "List."), TaskDispatchCoordinator()
    fan = [kt.Task(f"read.{at:05}", "Do it.", depends_on=["split"]) for at in range(1, ITEMS + 1)]
    plain = kt.TaskGraph([split, *fan, kt.Task("gather", "Join.", depends_on=[task.id for task in fan])])
    grown = [split, kt.Task.map("read", "Do it.", over="split", max_items=ITEMS)]
    gather = kt.Task("gather", "Join.", depends_on=["read"])
    return {"plain": (board, plain), "grown": (board, kt.TaskGraph([*grown, gather]))}


CASES: Final = {
    f"{HOPS:,} hops, each added by the last": (hops, HOPS, REPEATS),
    f"a loop of {ROUNDS:,} rounds": (rounds, ROUNDS, REPEATS),
    f"a map over {ITEMS:,} items": (items, ITEMS + 2, 3),
}
"""What grows, how many attempts that takes, and how often it is timed."""


@contextmanager
def runtimes() -> Generator[Mapping[str, kt.Runtime]]:
    """Make a runtime without a journal, and one with a journal in a file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(kt.SqliteJournal(Path(folder) / "runs.db", sync="normal")) as journal,
    ):
        yield {"no journal": kt.Runtime(), "journal": kt.Runtime(journal=journal)}


def measure() -> list[Row]:
    """Measure each case without a journal and with one."""
    with runtimes() as found:
        return [
            _row(f"{what}, {name}", runtime, *case) for what, case in CASES.items() for name, runtime in found.items()
        ]


def _row(
    what: str,
    runtime: kt.Runtime,
    case: Callable[[], Mapping[str, tuple[kt.contracts.TeamCoordinator, kt.TaskGraph | None]]],
    tasks: int,
    repeats: int,
) -> Row:
    works: dict[str, Work] = {name: partial(play, runtime, *how, tasks) for name, how in case().items()}
    for work in works.values():
        work()
    took = compare(works, repeats)
    plain, grown = (took[name].seconds / tasks * 1e6 for name in ("plain", "grown"))
    return Row(what, took["grown"].ratio, MOST, f"{grown:.0f} us a task instead of {plain:.0f}")


if __name__ == "__main__":
    silence_runs()
    began = time.perf_counter()
    rows = measure()
    print(draw(rows))
    print(f"\n{time.perf_counter() - began:.0f} s")
    sys.exit(any(row.verdict == "OVER" for row in rows))
