"""Another library's agent, with its own MCP client, uses the tools of a governed address."""

from __future__ import annotations

import pytest

pytest.importorskip("mcp", reason="tools over MCP need the extra mcp")
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI

import kairo_team as kt
from kairo_team.testing import FunctionModel
from tests.agents.loops import asyncio_alone

anyio_backend = asyncio_alone
pytestmark = pytest.mark.real_time

USED = kt.Usage(10, 5)


async def test_an_agent_of_the_openai_agents_sdk_uses_the_tools() -> None:
    calls: list[str] = []

    def answer(request: kt.ModelRequest) -> kt.ModelResponse:
        results = [one.text for one in request.messages if one.role == "tool"]
        if results:
            return kt.ModelResponse(f"It is {results[-1]}.", usage=USED, model="m")
        return kt.ModelResponse("", [kt.ToolCall("c", request.tools[0].name, {"at": "sea"})], USED, "m")

    @kt.tool(side_effect="read")
    def look(at: str) -> str:
        """Look at something."""
        calls.append(at)
        return f"a {at}"

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async with (
            context.address(FunctionModel(answer), tools=[look]) as address,
            AsyncOpenAI(base_url=address.openai, api_key=address.key) as client,
            MCPServerStreamableHttp({"url": address.mcp, "headers": address.headers}) as server,
        ):
            chat = OpenAIChatCompletionsModel("m", client)
            agent = Agent(name="a", model=chat, mcp_servers=[server])
            config = RunConfig(tracing_disabled=True)
            return str((await Runner.run(agent, "What is there?", run_config=config)).final_output)

    result = await kt.run(kt.Team("t", [kt.Member("m", member)]), "Look.")
    assert result.error is None
    assert "a sea" in str(result.output)
    assert calls == ["sea"]
    assert result.usage.tokens == 30
