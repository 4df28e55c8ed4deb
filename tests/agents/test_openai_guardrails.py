"""Guardrails around `OpenAIAgent`, and the library's own."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import Agent, GuardrailFunctionOutput, function_tool, input_guardrail, output_guardrail

import kairo_team as kt
from kairo_team.errors import GuardrailDenied
from kairo_team.governance.guardrails import GuardrailPhase
from tests.agents.loops import asyncio_alone
from tests.agents.openai_double import Guard, Scripted, ask, deny, look, mask, work

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


async def test_what_a_guardrail_changes_before_the_model_the_model_gets_changed() -> None:
    model = Scripted([["about tides", ask("look", at="tides")], "done"])
    guard = Guard(GuardrailPhase.PRE_MODEL, mask("tides", "waves"))
    await work(Agent("a", instructions="On tides.", model=model, tools=[look]), team={"guardrails": [guard]})
    assert "tides" not in model.calls[0].text + model.calls[1].text
    assert model.calls[0].system == "On waves."
    assert model.calls[1].results == ["saw waves"]


async def test_what_a_guardrail_changes_in_a_reply_the_library_gets_changed() -> None:
    model = Scripted([["look at sk-1", ask("look", at="sk-1")], "the key is sk-1"])
    guard = Guard(GuardrailPhase.POST_MODEL, mask("sk-1", "***"))
    result, _ = await work(Agent("a", model=model, tools=[look]), team={"guardrails": [guard]})
    assert result.output == "the key is ***"
    assert model.calls[1].results == ["saw ***"]
    assert "sk-1" not in model.calls[1].text


async def test_a_reply_that_is_denied_is_charged_and_none_of_its_tools_run() -> None:
    ran: list[str] = []

    @function_tool
    async def act() -> str:
        """Act."""
        ran.append("ran")
        return "done"

    model = Scripted([["bad", ask("act")]])
    guard = Guard(GuardrailPhase.POST_MODEL, deny)
    result, witness = await work(Agent("a", model=model, tools=[act]), team={"guardrails": [guard]})
    assert type(witness.raised) is GuardrailDenied
    assert (ran, result.usage.tokens) == ([], 15)


async def test_a_streamed_reply_inside_a_tool_is_heard_only_as_the_guardrails_leave_it() -> None:
    heard: list[str] = []

    async def hear(event: Any) -> None:
        heard.append(str(event["event"]))

    inner = Agent("inner", model=Scripted(["the key is sk-1"]))
    tool = inner.as_tool("inner", "x", on_stream=hear)
    outer = Scripted([ask("inner", input="go"), "done"])
    guard = Guard(GuardrailPhase.POST_MODEL, mask("sk-1", "***"))
    await work(Agent("outer", model=outer, tools=[tool]), team={"guardrails": [guard]})
    assert outer.calls[1].results == ["the key is ***"]
    assert heard
    assert "sk-1" not in "".join(heard)


async def test_the_librarys_own_guardrails_work_and_block() -> None:
    @input_guardrail
    async def never(_context: Any, _agent: Any, _input: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    @output_guardrail
    async def nor_this(_context: Any, _agent: Any, _output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    inward: dict[str, Any] = {"input_guardrails": [never]}
    outward: dict[str, Any] = {"output_guardrails": [nor_this]}
    for options, name in ((inward, "never"), (outward, "nor_this")):
        result, witness = await work(Agent("a", model=Scripted(["a secret"]), **options))
        assert witness.output is not None
        assert (witness.output.status, witness.output.text) == (kt.AgentStatus.BLOCKED, "")
        assert name in (witness.output.error or "")
        assert "a secret" not in repr(result)
