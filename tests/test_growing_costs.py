"""Growth costs what is new: an addition to a large plan takes as many steps as one to a small plan."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

import kairo_team as kt
from kairo_team.testing import EventRecorder, run_in_virtual_time, virtual_time_backends

pytestmark = pytest.mark.sampled("anyio_backend")

FEW, MANY = 40, 160
LIBRARY = str(Path(kt.__file__).parent)
TESTING = str(Path(LIBRARY) / "testing")
Watch = Literal["nobody", "a subscriber", "a journal"]


class Rounds:
    """Each task of a round adds the next round: `width` tasks that depend on it."""

    def __init__(self, rounds: int, width: int) -> None:
        self.rounds = rounds
        self.width = width

    def tasks(self, number: int) -> list[kt.Task]:
        before = [f"r{number - 1}-0"] if number else []
        return [kt.Task(f"r{number}-{place}", "do", depends_on=before) for place in range(self.width)]

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            async for task in run.ready(await run.plan(lambda: kt.TaskGraph(self.tasks(0)))):
                run.go(self.body, run, task)
        return run.result

    async def body(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1)
        number, place = map(int, task.id[1:].split("-"))
        if not place and number + 1 < self.rounds:
            await run.add(lambda: self.tasks(number + 1))
        run.accept(task, attempt)


async def work(assignment: kt.Assignment, _context: kt.MemberContext) -> kt.Artifact:
    number = assignment.inputs.get("round", assignment.inputs.get("number", 0))
    return kt.Artifact(f"made {assignment.task.id}", data={"round": number, "list": assignment.inputs.get("list")})


def calls_of(work: Callable[[], Any], backend: str) -> int:
    """Count the calls of the library's functions that a run takes: the same on a fast and on a slow machine.

    Not those of event loops and their clocks, which look anew for as long as a journal's thread writes.
    """
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event == "call":
            file = frame.f_code.co_filename
            calls += file.startswith(LIBRARY) and not file.startswith(TESTING)

    before = sys.getprofile()
    gc.disable()  # what it would find is other tests'
    sys.setprofile(count)
    try:
        result = run_in_virtual_time(work, backend=backend)
    finally:
        sys.setprofile(before)
        gc.enable()
    assert result.status is kt.TeamStatus.COMPLETED
    return calls


def calls_of_rounds(rounds: int, width: int, watch: Watch, folder: Path, backend: str) -> int:
    async def run() -> kt.TeamResult:
        journal = kt.SqliteJournal(folder / f"{rounds}.db") if watch == "a journal" else None
        subscribers = [EventRecorder()] if watch == "a subscriber" else []
        runtime = kt.Runtime(journal=journal, subscribers=subscribers)
        request = kt.TeamExecutionRequest("g", config=kt.TeamConfig(budget=kt.Budget(tokens=10**9)))
        result = await Rounds(rounds, width).execute(request, kt.Team("t", [kt.Member("a", work)], runtime=runtime))
        assert len(result.outcomes) == rounds * width
        if journal is not None:
            journal.close()
        return result

    return calls_of(run, backend)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("width", "watch", "backend"),  # every two of them together
    [
        (1, "nobody", "asyncio"),
        (2, "nobody", "trio"),
        (1, "a subscriber", "trio"),
        (2, "a subscriber", "asyncio"),
        (1, "a journal", "asyncio"),
        (2, "a journal", "trio"),
    ],
)
def test_an_addition_takes_as_many_steps_in_a_large_plan_as_in_a_small_one(
    width: int, watch: Watch, backend: str, tmp_path: Path
) -> None:
    calls_of_rounds(2, width, watch, tmp_path, backend)  # what is imported and compiled once
    few = calls_of_rounds(FEW, width, watch, tmp_path, backend)
    many = calls_of_rounds(MANY, width, watch, tmp_path, backend)
    assert many / few <= 1.1 * MANY / FEW, "quadratic would be four times as much"


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_a_round_of_a_loop_takes_as_many_steps_as_any_other(backend: str) -> None:
    def calls_of_loop(rounds: int) -> int:
        until = {"from": "write", "field": "round", "equals": rounds}
        loop = kt.Loop([kt.Task("write", "do")], until=until, max_rounds=1_000)
        plan = kt.TaskGraph([kt.Task("polish", "do", loop=loop)])
        return calls_of(lambda: kt.run(kt.Team("t", [kt.Member("a", work)]), "g", plan=plan), backend)

    calls_of_loop(2)
    few, many = calls_of_loop(FEW), calls_of_loop(MANY)
    assert many / few <= 1.1 * MANY / FEW


@pytest.mark.parametrize("backend", virtual_time_backends)
def test_an_item_of_a_map_takes_as_many_steps_as_any_other(backend: str) -> None:
    def calls_of_map(items: int) -> int:
        plan: Sequence[kt.Task] = [
            kt.Task("split", "do", inputs={"list": list(range(items))}),
            kt.Task.map("read", "do", over="pick", max_items=1_000),
            kt.Task("pick", "do", depends_on=["split"]),
            kt.Task("gather", "do", depends_on=["read"]),
        ]

        async def pick(assignment: kt.Assignment, context: kt.MemberContext) -> kt.Artifact:
            if assignment.task.id == "pick":
                data: Any = assignment.upstream["split"].data
                return kt.Artifact("the list", data=data["list"])
            return await work(assignment, context)

        team = kt.Team("t", [kt.Member("a", pick)])
        return calls_of(lambda: kt.run(team, "g", plan=kt.TaskGraph(plan)), backend)

    calls_of_map(2)
    few, many = calls_of_map(FEW), calls_of_map(MANY)
    assert many / few <= 1.1 * MANY / FEW
