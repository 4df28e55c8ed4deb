"""A retry that a worker makes does not silently repeat what an earlier attempt, made by another worker, changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.artifacts import DoneCall
from kairo_team.cluster.worker import Worker
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.events import ToolCalled
from kairo_team.gates import CallbackGate
from kairo_team.testing import EventRecorder
from kairo_team.tools import as_tool
from tests.cluster.stage import Crew, crew, execute, new_database, until
from tests.cluster.test_lost_deliveries import bury, still

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

AGAIN = "attempt 1 at this task made the same call, and its result was: sent to ann"


class Post:
    """A tool that sends, what it sent, and what came of each call."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.results: list[str] = []

    async def send(self, to: str) -> str:
        """Send it."""
        self.sent.append(to)
        return f"sent to {to}"

    async def use(self, context: kt.MemberContext) -> str:
        """Send to ann, as a member."""
        tool = as_tool(kt.tool(name="send", side_effect="write")(self.send))
        self.results.append((await context.tool(tool)(to="ann")).text)
        return self.results[-1]


class Shift:
    """Workers of which each makes one attempt; `post` is used in each, and the first attempt fails after that."""

    def __init__(self) -> None:
        self.post = Post()
        self.told: list[Sequence[DoneCall]] = []
        self.workers: list[Worker] = []
        self.crew: Crew
        self.team: kt.Team

    async def clerk(self, assignment: kt.Assignment, context: kt.MemberContext) -> str:
        """Send to ann."""
        self.told.append(assignment.done)
        return await self.fail_once(await self.post.use(context))

    async def fail_once(self, said: str) -> str:
        if len(self.workers) == 1:
            self.workers[0].stop()
            self.begin_worker()
            raise OSError("the pen broke")
        return said

    def begin_worker(self) -> None:
        self.workers.append(Worker(self.crew.new_cluster(), self.team))
        self.crew.group.start_soon(self.workers[-1].run)

    async def work(self, agent: Any = None, *, policy: FailurePolicy | None = None, **runtime: Any) -> kt.TeamResult:
        """Run one task; its member is the clerk."""
        self.team = kt.Team("desk", [kt.Member("clerk", agent or self.clerk)], runtime=kt.Runtime())
        coordinator = TaskDispatchCoordinator(failure_policy=policy or FailurePolicy(backoff=0))
        request = kt.TeamExecutionRequest("Tell ann.", plan=kt.TaskGraph([kt.Task("one", "Tell ann.")]), run_id="r")
        async with crew(new_database("procrastinate")) as self.crew:
            self.begin_worker()
            here = kt.Runtime(engine=self.crew.here, **runtime)
            with anyio.fail_after(60):
                return await kt.run(replace(self.team, runtime=None), request, runtime=here, coordinator=coordinator)


class FailsOnce:
    """Lets a team work, and fails after its first attempt."""

    own_loop = True

    def __init__(self, agent: TeamAgent, shift: Shift) -> None:
        self._agent = agent
        self._fail_once = shift.fail_once

    async def run(self, assignment: kt.Assignment, context: kt.MemberContext) -> Any:
        output = await self._agent.run(assignment, context)
        await self._fail_once("")
        return output


async def test_third_o14_another_worker_does_not_repeat_a_write_and_is_told_what_was_done() -> None:
    shift, recorder = Shift(), EventRecorder()
    result = await shift.work(subscribers=[recorder])
    assert (result.status, shift.post.sent, len(shift.workers)) == ("completed", ["ann"], 2)
    assert shift.told[0] == ()
    [done] = shift.told[1]
    assert (done.attempt, done.tool, done.arguments, done.result) == (1, "send", '{"to": "ann"}', "sent to ann")
    assert shift.post.results[1] == f"this needs the approval of a human, and the run has no gate: {AGAIN}"
    assert [one.refused_by for one in recorder.of(ToolCalled) if one.outcome == "refused"] == ["repeated-write"]


@pytest.mark.parametrize(("approved", "sent"), [(True, ["ann", "ann"]), (False, ["ann"])])
async def test_third_o14_a_person_decides_whether_another_worker_repeats_it(approved: bool, sent: list[str]) -> None:
    asked: list[str] = []

    async def decide(question: kt.HumanRequest) -> kt.HumanDecision:
        asked.append(question.text)
        return kt.HumanDecision.approve() if approved else kt.HumanDecision.reject("once is enough")

    shift = Shift()
    await shift.work(gate=CallbackGate(decide))
    assert (asked, shift.post.sent) == ([f"may 'clerk' call 'send'? {AGAIN}"], sent)


async def test_third_o14_the_policy_lets_another_worker_repeat_it() -> None:
    shift = Shift()
    result = await shift.work(policy=FailurePolicy(backoff=0, repeat_writes="allow"))
    assert (result.status, shift.post.sent) == ("completed", ["ann", "ann"])
    assert [call.tool for call in shift.told[1]] == ["send"], "it is told all the same"


async def test_third_o14_a_team_inside_a_task_does_not_repeat_it_at_another_worker() -> None:
    shift = Shift()

    async def tell(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return await shift.post.use(context)

    plan = kt.TaskGraph([kt.Task("inner", "Tell ann.")])
    inner = TeamAgent(kt.Team("inner", [kt.Member("clerk", tell)]), plan=plan)
    result = await shift.work(FailsOnce(inner, shift))
    assert (result.status, shift.post.sent, len(shift.workers)) == ("completed", ["ann"], 2)
    assert AGAIN in shift.post.results[1]


UNDER_WAY = "SELECT 1 FROM unit WHERE step = 'attempt:1:one:1' AND fence = 1 AND state <> 'done'"


@pytest.mark.parametrize("ends", [True, False], ids=["answered", "in doubt"])
@pytest.mark.parametrize("deliveries", [1, 2], ids=["given up", "made anew"])
async def test_third_o14_what_a_lost_worker_did_is_not_repeated_by_the_next_attempt(
    deliveries: int, ends: bool
) -> None:
    """It dies during a call, or after it, and with it the attempt; or that fails where it is made anew."""
    post, told, taken = Post(), list[Sequence[DoneCall]](), anyio.Event()

    async def send(to: str) -> str:
        """Send it."""
        post.sent.append(to)
        if not ends:
            await die()
        return f"sent to {to}"

    async def die() -> None:
        taken.set()
        await anyio.sleep_forever()

    async def clerk(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        told.append(assignment.done)
        tool = as_tool(kt.tool(name="send", side_effect="write")(send))
        post.results.append((await context.tool(tool)(to="ann")).text)
        if len(told) == 1:
            await die()
        if len(told) == deliveries:
            raise OSError("the pen broke")
        return post.results[-1]

    team = kt.Team("desk", [kt.Member("clerk", clerk)], runtime=kt.Runtime())
    request = kt.TeamExecutionRequest("Tell ann.", plan=kt.TaskGraph([kt.Task("one", "Tell ann.")]), run_id="r")
    coordinator = TaskDispatchCoordinator(failure_policy=FailurePolicy(backoff=0))
    async with crew(new_database("procrastinate"), max_deliveries=deliveries) as cast:
        lost = cast.add_worker(team)
        async with kt.Runtime(engine=cast.here) as runtime:
            run = await runtime.start(replace(team, runtime=None), request, coordinator=coordinator)
            with anyio.fail_after(60):
                await taken.wait()
                still(lost)
                await bury(cast, lost)
                await until(lambda: not execute(cast.url, UNDER_WAY))
                cast.add_worker(team)
                result = await run.result()
    assert (result.status, post.sent, len(told)) == ("completed", ["ann"], deliveries + 1), result.error
    [done] = told[-1]
    assert (done.attempt, done.tool, done.result) == (1, "send", "sent to ann" if ends else None)
    what = "its result was: sent to ann" if ends else "it is unknown whether it was done"
    assert post.results[-1].endswith(f"attempt 1 at this task made the same call, and {what}")
