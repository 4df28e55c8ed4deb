"""`OpenAIAgent` and what runs elsewhere: MCP servers, the provider's tools, what turns up while it runs."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

import agents
from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    Runner,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.mcp import MCPServer
from agents.tool_context import ToolContext
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool

import kairo_team as kt
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.governance.policies.mcp_policy import McpPolicy
from tests.agents.loops import asyncio_alone
from tests.agents.openai_double import Permit, Scripted, ask, look, raising, work

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


class Library(MCPServer):
    """An MCP server that is asked in place."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[tuple[str, Any]] = []

    @property
    def name(self) -> str:
        return "library"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[McpTool]:
        schema = {"type": "object", "properties": {"title": {"type": "string"}}}
        return [McpTool.model_validate({"name": "find.book", "inputSchema": schema})]

    async def call_tool(self, tool_name: str, arguments: Any, meta: Any = None) -> CallToolResult:
        self.called.append((tool_name, arguments))
        return CallToolResult(content=[TextContent(type="text", text="found")])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_tools_of_an_mcp_server_meet_the_mcp_policy_under_the_servers_own_names() -> None:
    for policy, offered in ((None, []), (McpPolicy(allowed=["library/find.book"]), ["find.book"])):
        permit, server = Permit(), Library()
        permissions = kt.ToolPermissions(guard=permit, mcp=policy)
        model = Scripted(lambda call: "done" if call.results or not call.tools else ask("find.book", title="Tides"))
        await work(Agent("a", model=model, mcp_servers=[server]), team={"permissions": permissions})
        assert model.calls[0].tools == offered
        assert server.called == [("find.book", {"title": "Tides"})] * len(offered)
        assert [name for name, *_ in permit.asked] == ["find_book"] * len(offered)


HOSTED = [
    WebSearchTool(),
    FileSearchTool(vector_store_ids=["v"]),
    CodeInterpreterTool(tool_config={"type": "code_interpreter", "container": {"type": "auto"}}),
    ImageGenerationTool(tool_config={"type": "image_generation"}),
    HostedMCPTool(tool_config={"type": "mcp", "server_label": "x", "server_url": "http://localhost"}),
]


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: type(tool).__name__)
async def test_a_tool_that_runs_at_the_provider_is_refused_unless_it_is_allowed(tool: Any) -> None:
    with pytest.raises(ValueError, match=r"runs at the provider, .* allow_hosted=True"):
        OpenAIAgent(Agent("a", tools=[tool]))
    model = Scripted(["x"])
    result, _ = await work(Agent("a", model=model, tools=[tool]), allow_hosted=True)
    assert result.output == "x"
    assert len(model.calls[0].tools) == 1


async def test_a_tool_the_library_runs_past_its_function_tools_is_refused_in_any_case() -> None:
    shell = LocalShellTool(executor=lambda _request: "ran")
    with pytest.raises(ValueError, match=r"agent 'a': the tool 'local_shell' .* write it as a function tool"):
        OpenAIAgent(Agent("a", tools=[shell]), allow_hosted=True)


def test_tools_are_looked_for_in_the_whole_graph() -> None:
    last = Agent("last", tools=[WebSearchTool()])
    middle = Agent("middle", handoffs=[handoff(last)])
    with pytest.raises(ValueError, match="agent 'last': the tool 'web_search'"):
        OpenAIAgent(Agent("first", tools=[middle.as_tool("m", "x")]))


async def test_a_tool_that_turns_up_while_it_runs_is_governed_or_refused_like_any_other() -> None:
    class Late(agents.AgentHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            agent.tools.append(WebSearchTool())

    model = Scripted(lambda call: "never" if call.results else ask("look", at="x"))
    result, _ = await work(Agent("a", model=model, tools=[look], hooks=Late()))
    assert "runs at the provider" in (result.error or "")


async def test_models_and_agents_that_a_hook_puts_in_while_it_runs_are_governed_or_refused() -> None:
    late = Scripted(["late"])

    class Swap(agents.AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            agent.model = late

    class Grow(agents.AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            agent.handoffs.append(Agent("b", model=late))

    class Sneak(agents.AgentHooks[Any]):
        async def on_start(self, context: Any, agent: Any) -> None:
            agent.handoffs.append(handoff(Agent("b", model=late)))

    if tuple(map(int, version("openai-agents").split(".")[:2])) < (0, 24):  # it has its models before the hook is done
        for hooks in (Swap(), Grow(), Sneak()):
            result, _ = await work(Agent("a", model=Scripted([ask("transfer_to_b")]), hooks=hooks))
            assert (result.output, late.calls) == (None, [])
        return
    for hooks in (Swap(), Grow()):
        result, _ = await work(Agent("a", model=Scripted([ask("transfer_to_b")]), hooks=hooks))
        assert (result.output, result.usage.loops) == ("late", len(result.outcomes) + isinstance(hooks, Grow))
    asked = len(late.calls)
    result, _ = await work(Agent("a", model=Scripted([ask("transfer_to_b")]), hooks=Sneak()))
    assert "'b', or its model, was added during the run" in (result.error or "")
    assert len(late.calls) == asked


async def test_a_copy_of_a_governed_agent_is_governed_anew_in_this_attempt_and_in_the_next() -> None:
    kept: list[Agent[Any]] = []
    model = Scripted(["inside"])

    @function_tool
    async def copied(context: ToolContext[Any]) -> str:
        """Run a copy."""
        mine = kept[0] if kept else context.agent
        assert isinstance(mine, Agent)
        kept.append(mine)
        done = await Runner.run(mine.clone(model=model, tools=[]), "x")
        return str(done.final_output)

    agent = Agent("a", model=Scripted(lambda call: "ok" if call.results else ask("copied")), tools=[copied])
    for _ in range(2):
        result, _ = await work(agent)
        assert (result.output, result.usage.tokens, result.usage.loops) == ("ok", 45, 3)
    assert len(model.calls) == 2


async def test_a_prompt_the_provider_keeps_is_refused_unless_it_is_allowed() -> None:
    model = Scripted(["x"])
    agent = Agent("a", model=model, prompt={"id": "pmpt_1"})
    result, _ = await work(agent)
    assert "allow_hosted=True" in (result.error or "")
    assert model.calls == []
    assert (await work(agent, allow_hosted=True))[0].output == "x"


async def test_a_tool_that_waits_for_the_librarys_own_approval_blocks() -> None:
    tool = function_tool(raising(ValueError("never run")), needs_approval=True)
    _, witness = await work(Agent("a", model=Scripted([["I must ask.", ask("spend")]]), tools=[tool]))
    assert witness.output is not None
    assert witness.output.status is kt.AgentStatus.BLOCKED
    assert "'spend'" in (witness.output.error or "")
