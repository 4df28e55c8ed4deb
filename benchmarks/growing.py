"""What a task costs that a plan grows into, against the same task of a plan that has it from the start.

Compared are runs of as many tasks with the same dependencies, in turn: hops that a body adds one by one
(`TeamRun.add`), hand-offs and the rounds of a loop with a chain, the items of a map with a fan. A hand-over is the call
of a tool, so the tasks of its chain call one too. Members are `MiniAgent`s: each task is a
governed call of a model that suspends and replies with 2 kB. Tasks have limits on tokens, dollars and loops. With a
journal every step is written, and synced now and then. Alone: `python -m benchmarks.growing`; with `--bare` members are
functions that suspend once, so that the engine's own cost stands alone: these rows have no limit.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

import kairo_team as kt
from benchmarks.table import Row, compare, draw, silence_runs
from kairo_team.contracts import TeamCoordinator
from kairo_team.coordinators import HandoffCoordinator, TaskDispatchCoordinator
from kairo_team.testing import FunctionModel

HOPS: Final = 1_000
ROUNDS: Final = 1_000
ITEMS: Final = 10_000
MOST: Final = 1.2
"""Times the same task of a plan that does not grow."""
BUDGET: Final = kt.Budget(tokens=1_000_000_000, dollars=1_000, loops=1_000_000)
REPEATS: Final = 7

Work = Callable[[], object]


PROSE: Final = "The tide rises twice a day, and where the bay is narrow it rises high. " * 28
"""2 kB of a reply."""
_ROUND: Final = re.compile(r"round:\s*(\d+)")
_NEXT: Final = itertools.count()


async def number(assignment: kt.Assignment, _context: kt.MemberContext) -> kt.Artifact:
    """Suspend once; make what the map and the loop look at."""
    await anyio.lowlevel.checkpoint()
    if assignment.task.id == "split":
        return kt.Artifact("the list", data=list(range(ITEMS)))
    at = assignment.inputs.get("round", 0)
    return kt.Artifact(f"round {at}", data={"round": at})


async def reply(request: kt.ModelRequest) -> kt.ModelResponse:
    """Reply with 2 kB, which name the round that the prompt names; hand over where that is offered."""
    await anyio.lowlevel.checkpoint()
    for tool in request.tools:
        to = tool.parameters["properties"]["to"].get("enum", ["nobody"])[0]
        hand_over = kt.ToolCall("call", tool.name, {"to": to, "message": f"Go on from {next(_NEXT)}."})
        return kt.ModelResponse(PROSE, [hand_over], kt.Usage(600, 500))
    found = _ROUND.search(request.messages[-1].text)
    text = json.dumps({"round": int(found[1]) if found else 0, "text": PROSE})
    return kt.ModelResponse(text, usage=kt.Usage(600, 500))


@kt.tool(side_effect="read", ends="answer")
async def tell(to: str, message: str) -> str:
    """Tell somebody, which ends the work."""
    return f"{to}: {message} {PROSE}"


def agent(*tools: object) -> kt.MiniAgent:
    """Return an agent that asks the model."""
    return kt.MiniAgent(FunctionModel(reply, name="m"), tools=tools)


Case = Mapping[str, tuple[Sequence[kt.Member], TeamCoordinator, kt.TaskGraph | None]]
"""The members, the coordinator and the plan of a run whose plan does not grow, and of one whose plan does."""
BARE: Final = [kt.Member("worker", number), kt.Member("clerk", number)]
REAL: Final = [kt.Member("worker", agent()), kt.Member("clerk", number)]


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


def play(
    runtime: kt.Runtime,
    members: Sequence[kt.Member],
    coordinator: TeamCoordinator,
    plan: kt.TaskGraph | None,
    tasks: int,
) -> None:
    """Run it once."""
    request = kt.TeamExecutionRequest("Work.", plan=plan, config=kt.TeamConfig(budget=BUDGET))
    result = anyio.run(coordinator.execute, request, kt.Team("workers", members, runtime=runtime)).check()
    done = sum(outcome.attempts for outcome in result.outcomes)
    assert done == tasks, f"{done} attempts of {tasks}"


def chain(tasks: int) -> list[kt.Task]:
    """Return tasks one after the other."""
    return [
        kt.Task(f"t{at}", "Do it.", member="worker", depends_on=[f"t{at - 1}"] if at else []) for at in range(tasks)
    ]


def hops(members: Sequence[kt.Member]) -> Case:
    """Return a chain that is planned, and one that is added task by task."""
    tasks = chain(HOPS)
    return {"plain": (members, Hops(tasks, grows=False), None), "grown": (members, Hops(tasks, grows=True), None)}


def hand_offs(_members: Sequence[kt.Member]) -> Case:
    """Return a chain whose members call a tool that ends their work, and as many turns that end with a hand-over.

    What came before the last turn is left out, so that the prompts of both are about as long.
    """
    telling, handing = [kt.Member("worker", agent(tell))], [kt.Member("worker", agent()), kt.Member("other", agent())]
    routes = {"worker": ["other"], "other": ["worker"]}
    grown = HandoffCoordinator(max_hops=HOPS - 1, routes=routes, max_characters=200)
    return {
        "plain": (telling, TaskDispatchCoordinator(), kt.TaskGraph(chain(HOPS))),
        "grown": (handing, grown, None),
    }


def rounds(members: Sequence[kt.Member]) -> Case:
    """Return a chain, and a loop of as many rounds."""
    until = {"from": "write", "field": "round", "equals": ROUNDS}
    loop = kt.Loop([kt.Task("write", "Do it.", member="worker")], until=until, max_rounds=ROUNDS)
    grown = kt.TaskGraph([kt.Task("polish", "Do it.", loop=loop)])
    board = TaskDispatchCoordinator()
    return {"plain": (members, board, kt.TaskGraph(chain(ROUNDS))), "grown": (members, board, grown)}


def items(members: Sequence[kt.Member]) -> Case:
    """Return a fan, and a map over as many items."""
    split, board = kt.Task("split", "List.", member="clerk"), TaskDispatchCoordinator()
    fan = [
        kt.Task(f"read.{at:05}", "Do it.", member="worker", inputs={"item": at - 1, "number": at}, depends_on=["start"])
        for at in range(1, ITEMS + 1)
    ]
    start = kt.Task("start", "Begin.", member="clerk", depends_on=["split"])
    names = [task.id for task in fan]
    plain = kt.TaskGraph([split, start, *fan, kt.Task("gather", "Join.", member="clerk", depends_on=names)])
    grown = [split, start, kt.Task.map("read", "Do it.", over="split", member="worker", max_items=ITEMS)]
    gather = kt.Task("gather", "Join.", member="clerk", depends_on=["read", "start"])
    return {"plain": (members, board, plain), "grown": (members, board, kt.TaskGraph([*grown, gather]))}


CASES: Final = {
    f"{HOPS:,} hops, each added by the last": (hops, HOPS, REPEATS),
    f"{HOPS:,} hand-offs": (hand_offs, HOPS, REPEATS),
    f"a loop of {ROUNDS:,} rounds": (rounds, ROUNDS, REPEATS),
    f"a map over {ITEMS:,} items": (items, ITEMS + 3, 3),
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


def measure(members: Sequence[kt.Member] = REAL) -> list[Row]:
    """Measure each case without a journal and with one."""
    with runtimes() as found:
        return [
            _row(f"{what}, {name}", members, runtime, *case)
            for what, case in CASES.items()
            if members is REAL or case[0] is not hand_offs
            for name, runtime in found.items()
        ]


def _row(
    what: str,
    members: Sequence[kt.Member],
    runtime: kt.Runtime,
    case: Callable[[Sequence[kt.Member]], Case],
    tasks: int,
    repeats: int,
) -> Row:
    works: dict[str, Work] = {name: partial(play, runtime, *how, tasks) for name, how in case(members).items()}
    for work in works.values():
        work()
    took = compare(works, repeats)
    plain, grown = (took[name].seconds / tasks * 1e6 for name in ("plain", "grown"))
    return Row(
        what, took["grown"].ratio, MOST if members is REAL else None, f"{grown:.0f} us a task instead of {plain:.0f}"
    )


if __name__ == "__main__":
    silence_runs()
    began = time.perf_counter()
    rows = measure(BARE if "--bare" in sys.argv else REAL)
    print(draw(rows))
    print(f"\n{time.perf_counter() - began:.0f} s")
    sys.exit(any(row.verdict == "OVER" for row in rows))
