"""Tools of `OpenAIAgent`: through the pipeline, with their own words, or refused."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import Agent, FunctionTool, Runner, ToolOutputText, function_tool

import kairo_team as kt
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.governance.guardrails import GuardrailPhase
from tests.agents.loops import asyncio_alone
from tests.agents.openai_double import Guard, Permit, Scripted, ask, look, mask, work

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


async def test_a_refused_tool_call_is_a_result_the_model_can_read() -> None:
    permit = Permit(denied="look")
    model = Scripted([ask("look", at="x"), "then not"])
    result, witness = await work(
        Agent("a", model=model, tools=[look]),
        team={"permissions": kt.ToolPermissions(guard=permit)},
        side_effects={"look": "read"},
    )
    assert permit.asked == [("look", {"at": "x"}, "read")]
    assert "not you" in model.calls[1].results[0]
    assert (result.output, result.usage.tool_calls) == ("then not", 0)
    assert witness.output is not None
    assert witness.output.tool_calls_executed == 0


async def test_the_permission_guard_sees_the_tools_of_an_agent_used_as_a_tool() -> None:
    permit = Permit()
    inner = Agent("inner", model=Scripted([ask("look", at="x"), "ok"]), tools=[look])
    outer = Agent("outer", model=Scripted([ask("inner", input="go"), "ok"]), tools=[inner.as_tool("inner", "x")])
    await work(outer, team={"permissions": kt.ToolPermissions(guard=permit)})
    assert [(name, effect) for name, _, effect in permit.asked] == [("inner", "system"), ("look", "system")]


async def test_a_tool_that_is_never_allowed_is_not_offered() -> None:
    model = Scripted(["x"])
    role = kt.Role("m", allowed_tools=["other"])
    team = kt.Team("t", [kt.Member(role, OpenAIAgent(Agent("a", model=model, tools=[look])))])
    await kt.run(team, "g")
    assert model.calls[0].tools == []


async def test_a_tool_that_is_not_offered_may_be_asked_for_all_the_same() -> None:
    role = kt.Role("m", allowed_tools=["other"])
    model = Scripted([ask("look", at="x"), "then not"])
    team = kt.Team("t", [kt.Member(role, OpenAIAgent(Agent("a", model=model, tools=[look])))])
    assert (await kt.run(team, "g")).output == "then not"
    assert "look" in model.calls[1].results[0]


async def test_arguments_a_guardrail_changed_reach_the_tool() -> None:
    model = Scripted([ask("look", at="sk-1"), "ok"])
    guard = Guard(GuardrailPhase.PRE_TOOL, mask("sk-1", "***"))
    await work(Agent("a", model=model, tools=[look]), team={"guardrails": [guard]})
    assert model.calls[1].results == ["saw ***"]


async def test_a_result_stays_what_the_tool_returned_unless_it_is_changed() -> None:
    @function_tool
    async def picture() -> Any:
        """Paint."""
        return ToolOutputText(text="a picture with sk-1")

    for guardrails, wanted in (
        ([], [{"type": "input_text", "text": "a picture with sk-1"}]),
        ([Guard(GuardrailPhase.POST_TOOL, mask("sk-1", "***"))], "a picture with ***"),
    ):
        model = Scripted([ask("picture"), "ok"])
        await work(Agent("a", model=model, tools=[picture]), team={"guardrails": guardrails})
        result = model.calls[1].results[0]
        assert result == wanted if isinstance(wanted, list) else wanted in json.dumps(result)


async def test_a_failing_tool_tells_the_model_what_it_would_have_told_it_and_counts_as_failed() -> None:
    @function_tool(failure_error_function=lambda _context, error: f"sorry: {error}")
    async def broken() -> str:
        """Break."""
        raise ValueError("it fell")

    calls: list[Any] = []
    model = Scripted([ask("broken"), "ok"])
    runtime = kt.Runtime(subscribers=[calls.append])
    await work(Agent("a", model=model, tools=[broken]), team={"runtime": runtime})
    assert model.calls[1].results == ["sorry: it fell"]
    assert [event.outcome for event in calls if event.type == "tool.called"] == ["error"]


async def test_a_tool_whose_errors_are_to_end_the_run_ends_it() -> None:
    async def broken() -> str:
        """Break."""
        raise ValueError("it fell")

    model = Scripted(lambda call: "never" if call.results else ask("broken"))
    tool = function_tool(broken, failure_error_function=None)
    result, _ = await work(Agent("a", model=model, tools=[tool]))
    assert "it fell" in (result.error or "")


async def test_a_slow_tool_ends_at_its_own_timeout() -> None:
    @function_tool(timeout=2.0)
    async def slow() -> str:
        """Sleep."""
        await anyio.sleep(100)
        return "late"

    model = Scripted([ask("slow"), "ok"])
    result, _ = await work(Agent("a", model=model, tools=[slow]))
    assert model.calls[1].results == ["Tool 'slow' timed out after 2 seconds."]
    assert result.duration < 3


@pytest.mark.parametrize(("effect", "most"), [("read", 3), ("write", 1)])
async def test_tools_of_one_turn_that_only_read_run_side_by_side_and_others_one_by_one(effect: Any, most: int) -> None:
    at_work, peak = 0, 0

    @function_tool
    async def use() -> str:
        """Use."""
        nonlocal at_work, peak
        at_work += 1
        peak = max(peak, at_work)
        await anyio.sleep(1)
        at_work -= 1
        return "ok"

    model = Scripted([[ask("use"), ask("use"), ask("use")], "ok"])
    await work(Agent("a", model=model, tools=[use]), side_effects={"use": effect})
    assert peak == most


@pytest.mark.parametrize("arguments", ["{", "[1]", "NaN", '{"at": NaN}', "null", "{" * 5000, ""])
async def test_arguments_that_are_no_json_object_never_reach_the_tool(arguments: str) -> None:
    seen: list[str] = []

    async def invoke(_context: Any, said: str) -> str:
        seen.append(said)
        return "ran"

    tool = FunctionTool("raw", "", {"type": "object", "properties": {}}, invoke, strict_json_schema=False)
    wrong = ask("raw", arguments or " ")
    model = Scripted([wrong, "ok"])
    result, _ = await work(Agent("a", model=model, tools=[tool]))
    assert result.output == "ok"
    assert seen == ([] if arguments else [" "])


@pytest.mark.real_time
async def test_a_plain_function_is_a_tool_as_well_and_cannot_start_a_run_in_a_loop_of_its_own() -> None:
    @function_tool
    def plain() -> str:
        """Do."""
        return str(Runner.run_sync(Agent("x", model=Scripted(["x"])), "x").final_output)

    model = Scripted([ask("plain"), "ok"])
    result, _ = await work(Agent("a", model=model, tools=[plain]))
    assert result.output == "ok"
    assert "An error occurred" in model.calls[1].results[0]
    assert result.usage.tokens == 30
