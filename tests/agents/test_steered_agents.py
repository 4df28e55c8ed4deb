"""Directives reach agents of every library at their next model call, and the prompts of later tasks."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.governance import GuardrailDecision
from tests.agents.rigs import Ask, Reply, Rig, RigTool, each_rig


async def look(text: str) -> str:
    return f"found {text}"


@pytest.mark.parametrize("rig_type", each_rig())
async def test_a_member_at_work_sees_a_directive_at_its_next_turn(rig_type: type[Rig]) -> None:
    """The turn at which it was given has been asked already; those after it, and later tasks, have it once each."""

    def answer(number: int) -> Reply:
        """Be steered in the middle of a call."""
        run = runtime.runs["r"]
        if number == 0:
            run.steer("Say it in French.")
            run.steer("Not for you.", "two")
        if number == 1:
            run.steer("And in capitals.", "one")
        return Reply("I will look.", [Ask("look", "it")]) if number < 2 else Reply("done")

    rig = rig_type(answer, [RigTool("look", look)])
    plan = kt.TaskGraph([kt.Task("one", "Do it."), kt.Task("two", "Do it.", depends_on=["one"])])
    async with kt.Runtime() as runtime:
        team = kt.Team("team", [kt.Member(kt.Role("worker", "Be brief."), rig.agent())])
        request = kt.TeamExecutionRequest("goal", plan=plan, run_id="r")
        result = await (await runtime.start(team, request, coordinator=TaskDispatchCoordinator())).result()
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    said = [asked.text for asked in rig.asked]
    assert [text.count("Say it in French.") for text in said] == [0, 1, 1, 1]
    assert [text.count("And in capitals.") for text in said] == [0, 0, 1, 0]
    assert [text.count("Not for you.") for text in said] == [0, 0, 0, 1]
    assert [text.count("found it") for text in said] == [0, 1, 2, 0], "nothing else of what is said is lost"


@pytest.mark.parametrize("rig_type", each_rig())
async def test_a_directive_is_seen_by_guardrails(rig_type: type[Rig]) -> None:
    seen: list[str] = []

    class Watch:
        async def evaluate(self, context: Any) -> GuardrailDecision:
            seen.append(context.payload.text)
            return GuardrailDecision.allow()

    def answer(number: int) -> Reply:
        if number:
            return Reply("done")
        runtime.runs["r"].steer("Tell all.")
        return Reply("I will look.", [Ask("look", "it")])

    rig = rig_type(answer, [RigTool("look", look)])
    async with kt.Runtime() as runtime:
        team = kt.Team("team", [kt.Member("worker", rig.agent())], guardrails=[Watch()])
        request = kt.TeamExecutionRequest("goal", plan=kt.TaskGraph([kt.Task("one", "Do it.")]), run_id="r")
        await (await runtime.start(team, request)).result()
    assert any("Tell all." in text for text in seen)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_graph_whose_model_is_only_followed_is_not_disturbed_by_a_directive() -> None:
    """What is said to such a model cannot be added to: tasks that begin later have it."""
    langgraph = pytest.importorskip("tests.agents.rig_langgraph", reason="langgraph is not installed")

    def answer(number: int) -> Reply:
        if number == 0:
            runtime.runs["r"].steer("Say it in French.")
        return Reply("done") if number else Reply("I will look.", [Ask("look", "it")])

    rig = langgraph.LangGraphRig(answer, [RigTool("look", look)])
    agent = langgraph.LangGraphAgent(langgraph.graph_of(langgraph.RigModel(rig=rig, max_tokens=50), rig.tools))
    plan = kt.TaskGraph([kt.Task("one", "Do it."), kt.Task("two", "Do it.", depends_on=["one"])])
    async with kt.Runtime() as runtime:
        team = kt.Team("team", [kt.Member("worker", agent)])
        result = await (await runtime.start(team, kt.TeamExecutionRequest("goal", plan=plan, run_id="r"))).result()
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert ["Say it in French." in asked.text for asked in rig.asked] == [False, False, True]
