"""Who cancels a map or a loop cancels all of it, also what waits for a person."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.errors import NoQuestion
from kairo_team.testing import EventRecorder
from tests.human import LeavesOpen
from tests.test_recorded_steps import Replay

pytestmark = pytest.mark.anyio

SPLIT = kt.Task("split", "List them.")
MEMO = kt.Task("memo", "Write a memo.", depends_on=["split"])
MAP = kt.Task.map("each", "Read it.", over="split", max_items=5)
LOOP = kt.Task(
    "each",
    "Polish it.",
    depends_on=["split"],
    loop=kt.Loop([kt.Task("0001", "Do it."), kt.Task("0002", "Do it."), kt.Task("0003", "Do it.")], max_rounds=2),
)
INNER = [kt.Task("list", "List them."), kt.Task.map("read", "Read it.", over="list", max_items=5)]
NESTED = kt.Task("each", "All.", depends_on=["split"], loop=kt.Loop(INNER, max_rounds=2))
PLANS = {"map": (MAP, "each."), "loop": (LOOP, "each.01."), "nested": (NESTED, "each.01.read.")}


async def work(assignment: kt.Assignment) -> Any:
    """Items 1 and 4 take long, item 2 is ready at once and waits for a person, item 3 takes 2 seconds."""
    name = assignment.task.id.rpartition(".")[2]
    if name in {"split", "list"}:
        return kt.Artifact(json.dumps([1, 2, 3, 4]), [1, 2, 3, 4])
    await anyio.sleep({"0002": 1.0, "memo": 1.0, "0003": 2.0}.get(name, 1_000.0))
    return f"made {name}"


@pytest.mark.parametrize("kind", PLANS)
async def test_third_o53_all_of_it_ends_also_what_waits_for_a_person(kind: str) -> None:
    whole, parts = PLANS[kind]
    recorder, journal = EventRecorder(), MemoryRecords()
    runtime = Replay(journal, subscribers=[recorder])
    team = kt.Team("team", [kt.Member("m", work)], runtime=runtime)
    asked = LeavesOpen(f"{parts}0002", "memo")
    coordinator = ExpertTeamCoordinator(evaluator=asked, gate=kt.DeferGate())
    request = kt.TeamExecutionRequest("go", plan=kt.TaskGraph([SPLIT, MEMO, whole]), run_id="r")
    began = anyio.current_time()
    async with runtime:
        run = await runtime.start(team, request, coordinator=coordinator)
        await anyio.sleep(10)
        run.cancel_task("each", "enough")
        result = await run.result()
        assert anyio.current_time() - began < 20, "parts went on"
        ended = {one.task_id: (one.status.value, one.error) for one in result.outcomes}
        assert ended["each"] == ("cancelled", "enough")
        assert ended[f"{parts}0001"] == ended[f"{parts}0002"] == ("cancelled", "enough")
        assert ended[f"{parts}0003"][0] == "completed"
        assert ended.get(f"{parts}0004", ("cancelled",))[0] == "cancelled"
        assert result.status is kt.TeamStatus.SUSPENDED, "the memo still waits"
        (question,) = runtime.pending("r")
        assert question.task_id == "memo"
        with pytest.raises(NoQuestion):
            runtime.answer(question.id.replace("memo", f"{parts}0002"), kt.HumanDecision.approve())
        runtime.answer(question.id, kt.HumanDecision.approve())
        last = await runtime.resume("r", team, coordinator=coordinator)
    assert (last.status, last.error) == (kt.TeamStatus.FAILED, "task 'each' cancelled: enough")
    statuses = {one.task_id: one.status.value for one in last.outcomes}
    assert statuses == {**{name: status for name, (status, _) in ended.items()}, "memo": "completed"}
    recorder.assert_lawful()
