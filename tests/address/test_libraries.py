"""Agents of other libraries in a function member, with nothing changed but the address of their model."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from agents import Agent as TheirAgent
from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner, function_tool
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.openai import OpenAIResponsesModel as PydanticResponses
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

import kairo_team as kt
from kairo_team.addresses import ModelAddress
from kairo_team.testing import FunctionModel
from tests.address.stage import Use, work
from tests.agents.loops import asyncio_alone

anyio_backend = asyncio_alone
pytestmark = pytest.mark.real_time

USED = kt.Usage(10, 5)


def looks_then_answers(request: kt.ModelRequest) -> kt.ModelResponse:
    """Ask for the tool until its result is there."""
    results = [one.text for one in request.messages if one.role == "tool"]
    if results:
        return kt.ModelResponse(f"It is {results[-1]}.", usage=USED, model="m")
    return kt.ModelResponse("", [kt.ToolCall("c", request.tools[0].name, {"at": "sea"})], USED, "m")


def never_content(request: kt.ModelRequest) -> kt.ModelResponse:
    """Ask for the tool again and again."""
    return kt.ModelResponse("", [kt.ToolCall("c", request.tools[0].name, {"at": "sea"})], USED, "m")


def look(at: str) -> str:
    """Look at something."""
    return f"a {at}"


async def pydantic_ai_at(kind: str, address: ModelAddress) -> str:
    async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
        wire = OpenAIChatModel if kind == "chat" else PydanticResponses
        return await pydantic_ai(wire("m", provider=OpenAIProvider(openai_client=client)), streamed=kind == "chat")


async def pydantic_ai_anthropic(address: ModelAddress) -> str:
    async with AsyncAnthropic(base_url=address.anthropic, api_key=address.key) as client:
        return await pydantic_ai(AnthropicModel("m", provider=AnthropicProvider(anthropic_client=client)))


async def pydantic_ai(model: Model[Any], *, streamed: bool = False) -> str:
    agent = PydanticAgent(model, tools=[look])
    if streamed:
        async with agent.run_stream("What is there?") as stream:
            return str(await stream.get_output())
    return (await agent.run("What is there?")).output


async def agents_sdk_at(kind: str, address: ModelAddress) -> str:
    async with AsyncOpenAI(base_url=address.openai, api_key=address.key) as client:
        return await agents_sdk(kind, client)


async def agents_sdk(kind: str, client: AsyncOpenAI) -> str:
    model = (OpenAIChatCompletionsModel if kind == "chat" else OpenAIResponsesModel)("m", client)
    agent = TheirAgent(name="a", model=model, tools=[function_tool(look)])
    config = RunConfig(tracing_disabled=True)
    if kind == "chat":
        return str((await Runner.run(agent, "What is there?", run_config=config, max_turns=100)).final_output)
    run = Runner.run_streamed(agent, "What is there?", run_config=config, max_turns=100)
    async for _ in run.stream_events():
        pass
    return str(run.final_output)


async def anthropic_at(address: ModelAddress) -> str:
    """A loop around the Anthropic client, as its documentation shows it."""
    tools: Any = [{"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}]
    messages: list[Any] = [{"role": "user", "content": "What is there?"}]
    async with AsyncAnthropic(base_url=address.anthropic, api_key=address.key) as client:
        while True:
            reply = await client.messages.create(model="m", max_tokens=50, tools=tools, messages=messages)
            if reply.stop_reason != "tool_use":
                return "".join(block.text for block in reply.content if block.type == "text")
            calls = [block for block in reply.content if block.type == "tool_use"]
            results = [{"type": "tool_result", "tool_use_id": call.id, "content": look("sea")} for call in calls]
            messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]


AGENTS: dict[str, Use] = {
    "pydantic-ai chat, streamed": partial(pydantic_ai_at, "chat"),
    "pydantic-ai responses": partial(pydantic_ai_at, "responses"),
    "pydantic-ai anthropic": pydantic_ai_anthropic,
    "openai-agents chat": partial(agents_sdk_at, "chat"),
    "openai-agents responses, streamed": partial(agents_sdk_at, "responses"),
    "anthropic": anthropic_at,
}


@pytest.mark.parametrize("name", AGENTS)
async def test_its_tools_work_and_its_usage_is_the_servers_count(name: str) -> None:
    model = FunctionModel(looks_then_answers)
    result, raised = await work(AGENTS[name], model)
    assert raised == []
    assert result.output == "It is a sea."
    assert (result.usage.tokens, len(model.calls)) == (30, 2)


@pytest.mark.parametrize("name", AGENTS)
async def test_its_attempt_ends_halted_at_the_limit(name: str) -> None:
    model = FunctionModel(never_content)
    result, raised = await work(AGENTS[name], model, kt.Budget(tokens=100))
    assert len(raised) == 1
    assert result.usage.tokens == 15 * len(model.calls) <= 100
    assert "halted: token_budget_exceeded" in (result.error or "")
