"""What a resumed run takes from its records: retries, other members, seniors, new plans, agents' own loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import ScriptedAgent, ScriptedModel
from tests.human import APPROVE, REJECT, REVISE, AsksFirst, Gate, LeavesOpen, Office, statuses
from tests.team_machine_checks import comparable

pytestmark = pytest.mark.anyio

SLOWLY = FailurePolicy(retries=2, backoff=10.0)


async def test_retries_are_neither_made_nor_waited_for_again() -> None:
    agent = ScriptedAgent([OSError("busy"), OSError("busy"), "text"])
    desk = Office({"m": agent}, gate=kt.DeferGate(), evaluator=LeavesOpen("t"), failure_policy=SLOWLY)
    first = await desk.run([kt.Task("t", "do")])
    assert first.duration > 10
    desk.answer(APPROVE)
    second = await desk.resume()
    assert (second.output, second["t"].attempts) == ("text", 3)
    assert second.duration < 1
    agent.assert_complete()


async def test_a_task_stays_with_the_member_it_was_handed_to() -> None:
    broken, good = ScriptedAgent([OSError("busy")]), ScriptedAgent(["text"])
    policy = FailurePolicy(retries=0)
    desk = Office({"a": broken, "b": good}, gate=kt.DeferGate(), evaluator=LeavesOpen("t"), failure_policy=policy)
    first = await desk.run([kt.Task("t", "do")])
    assert (first.status, first["t"].member) == (kt.TeamStatus.SUSPENDED, "b")
    desk.answer(APPROVE)
    second = await desk.resume()
    assert (second.output, second["t"].member, second["t"].attempts) == ("text", "b", 2)


async def test_the_seniors_attempt_is_not_made_again() -> None:
    unsure = kt.EvaluationVerdict.escalate(kt.Cause.LOW_CONFIDENCE, "hard to say")
    senior = ScriptedAgent(["hers"])
    member = kt.Member("m", ScriptedAgent(["his"]), senior=kt.Member("chief", senior))
    desk = Office({"m": member}, gate=kt.DeferGate(), evaluator=LeavesOpen("t", verdict=unsure))
    await desk.run([kt.Task("t", "do")])
    (question,) = desk.runtime.pending("r")
    assert (question.subject, question.member) == ("hers", "chief")
    desk.answer(APPROVE)
    assert (await desk.resume()).output == "hers"


async def test_a_new_plan_made_before_the_question_is_not_made_again() -> None:
    plans: list[str] = []

    class Planner:
        async def plan(self, request: kt.TeamExecutionRequest, team: kt.Team, context: Any) -> kt.TaskGraph:
            plans.append("plan")
            if request.plan is None:
                return kt.TaskGraph([kt.Task("bad", "do", member="bad"), kt.Task("t", "do", depends_on=["bad"])])
            return kt.TaskGraph([*request.plan.tasks, kt.Task("new", "do", member="good")])

    good, bad = ScriptedAgent(["text"]), ScriptedAgent([OSError("no")])
    desk = Office(
        {"good": good, "bad": bad},
        gate=kt.DeferGate(), evaluator=LeavesOpen("new"), planner=Planner(), replan=True,
    )  # fmt: skip
    first = await desk.run(risk_profile=kt.RiskProfile.LOW)
    assert (first.status, statuses(first)) == (
        kt.TeamStatus.SUSPENDED, {"bad": "failed", "t": "skipped", "new": "suspended"}
    )  # fmt: skip
    desk.answer(APPROVE)
    second = await desk.resume()
    assert (second.output, plans) == ("text", ["plan", "plan"])


@pytest.mark.parametrize("policy", [FailurePolicy(), FailurePolicy(retries=0)], ids=["default", "once"])
async def test_an_agent_with_a_loop_of_its_own_goes_on_where_it_waited(policy: FailurePolicy) -> None:
    paid: list[int] = []

    @kt.tool(side_effect="write")
    async def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return f"paid {amount}"

    calls = [kt.ToolCall("1", "pay", {"amount": 5}), kt.ToolCall("2", "pay", {"amount": 7})]
    model = ScriptedModel([kt.ModelResponse("", calls[:1]), kt.ModelResponse("", calls[1:]), "all is paid"])
    agent = kt.MiniAgent(model, tools=[pay])
    desk = Office({"m": agent}, gate=kt.DeferGate(), guard=AsksFirst("pay"), failure_policy=policy)
    result = await desk.run([kt.Task("t", "do")], budget=kt.Budget(loops=3, tool_calls=2))
    for sessions, amount in enumerate([5, 7]):
        assert (result.status, len(paid), len(model.calls)) == (kt.TeamStatus.SUSPENDED, sessions, sessions + 1)
        (question,) = desk.runtime.pending("r")
        assert question.subject == f"pay(amount={amount})"
        desk.answer(APPROVE)
        result = await desk.resume()
    assert (result.status, result.output, paid) == (kt.TeamStatus.COMPLETED, "all is paid", [5, 7])
    assert (result.usage.loops, result.usage.tool_calls, len(model.calls)) == (3, 2, 3)


async def test_a_directive_and_a_cancelled_task_hold_over_sessions() -> None:
    seen: list[Any] = []

    async def work(assignment: kt.Assignment) -> str:
        seen.append((assignment.task.id, tuple(assignment.directives)))
        if assignment.task.id == "first":
            desk.runtime.runs["r"].steer("shorter")
            desk.runtime.runs["r"].cancel_task("never", "not wanted")
        return "text"

    desk = Office({"m": work}, gate=Gate(kt.HumanDecision.defer()), evaluator=LeavesOpen("asked"))
    plan = [kt.Task("first", "do"), kt.Task("asked", "do", depends_on=["first"])]
    plan += [kt.Task("then", "do", depends_on=["asked"]), kt.Task("never", "do", depends_on=["asked"])]
    await desk.run(plan, risk_profile=kt.RiskProfile.LOW)
    desk.answer(APPROVE)
    result = await desk.resume()
    assert statuses(result) == {"first": "completed", "asked": "completed", "then": "completed", "never": "skipped"}
    assert seen[-1] == ("then", ("shorter",))


@pytest.mark.parametrize("decision", [APPROVE, REVISE, REJECT, None])
async def test_a_task_cancelled_before_it_got_a_recorded_decision_is_cancelled_again(
    decision: kt.HumanDecision | None,
) -> None:
    """The decision comes after 1 second, and the task waits for its slot until it is cancelled at 5 seconds."""
    journal, called = MemoryRecords(), list[str]()
    config: dict[str, Any] = {"risk_profile": kt.RiskProfile.LOW, "max_parallel_tasks": 1}

    class Recorded(kt.Runtime):
        def journal_for(self, run_id: str) -> MemoryRecords:
            return journal

    class Slow:
        async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
            called.append("gate")
            await anyio.sleep(1)
            return decision

    async def work(assignment: kt.Assignment) -> str:
        called.append(assignment.task.id)
        if assignment.task.id == "other":
            await anyio.sleep(5)
            desk.runtime.runs["r"].cancel_task("asked", "not wanted")
            await anyio.sleep(5)
        return "text"

    desk = Office({"m": work}, evaluator=LeavesOpen("asked"))
    desk.runtime = Recorded(gate=Slow(), subscribers=[desk.recorder])
    plan = [kt.Task("asked", "do", weight=2), kt.Task("other", "do")]
    result = await desk.run(plan, **config)
    assert statuses(result) == {"asked": "cancelled", "other": "completed"}
    assert called == ["asked", "gate", "other"]
    request = kt.TeamExecutionRequest("Do it.", plan=kt.TaskGraph(plan), config=kt.TeamConfig(**config), run_id="r")
    again = await desk.coordinator.execute(request, replace(desk.team, runtime=Recorded(gate=Slow())))
    assert comparable(again) == comparable(result)
    assert called == ["asked", "gate", "other"]
