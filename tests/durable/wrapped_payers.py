"""Payers that need other libraries: agents of pydantic-ai, LangGraph and OpenAI Agents, and tools of an MCP server."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent
from kairo_team.governance.policies.mcp_policy import McpPolicy
from kairo_team.tools.mcp import McpServer
from kairo_team.tools.permissions import ToolPermissions
from tests.agents.rig_langgraph import LangGraphRig, RigModel, graph_of
from tests.agents.rig_openai_agents import OpenAIRig
from tests.agents.rig_pydantic_ai import PydanticAIRig
from tests.agents.rigs import Ask, Reply, RigTool
from tests.durable.payers import Payer
from tests.tools.mcp_rig import listed, raw

NOTES = 2
"""Calls of the tool before the answer."""


class _Wrapped(Payer):
    """A foreign agent that calls its tool, and answers then; a rig's model answers by what it is told alone."""

    backends = ("asyncio",)
    agent: Any
    """Makes the agent; it is a rig's."""

    def __init__(self, account: Sequence[str] = (), used: Sequence[str] = ()) -> None:
        super().__init__(account, used)
        self.asked: Sequence[str] = ()
        """As many as the place of the reply in its conversation: what names the tool calls in it."""
        self.tools = [RigTool("note", self.note)]

    def team(self) -> kt.Team:
        return kt.Team("team", [kt.Member("writer", self.agent())])

    async def note(self, text: str) -> str:
        self.used.append(text)
        return f"noted {text}"

    def ids(self, reply: Reply) -> list[str]:
        """Return the ids of the calls that a reply asks for: the same in every session."""
        return [f"call-{len(self.asked)}-{place}" for place in range(len(reply.asks))]

    async def answer(self, said: str, tools: Sequence[str], most: int | None) -> Reply:
        self.account.append(said)
        noted = said.count("noted ")
        self.asked = [said] * (noted + 1)
        if tools and noted < NOTES:
            return Reply("", [Ask("note", f"{len(said)}")])
        return Reply(f"answer {len(said)}")


class PydanticAI(_Wrapped):
    """An agent of pydantic-ai with its own loop."""

    agent = PydanticAIRig.agent
    model: Any = PydanticAIRig.model


class Graph(_Wrapped):
    """A graph of LangGraph, its model and its tools governed."""

    agent = LangGraphRig.agent


class OpenAI(_Wrapped):
    """An agent of the OpenAI Agents SDK with its own loop."""

    agent = OpenAIRig.agent


class Mcp(Payer):
    """Mini agents with a tool of an MCP server, which keeps its own account in a file."""

    backends = ("asyncio",)
    side_effect: Any = "read"

    def __init__(self, account: Sequence[str] = (), used: Sequence[str] = ()) -> None:
        self.file = Path(tempfile.mkstemp()[1])
        super().__init__(account, used)

    @property
    def used(self) -> list[str]:
        calls = [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]
        return [one["params"]["arguments"]["text"] for one in calls if one["method"] == "tools/call"]

    @used.setter
    def used(self, used: Sequence[str]) -> None:
        calls = [{"method": "tools/call", "params": {"arguments": {"text": text}}} for text in used]
        self.file.write_text("".join(f"{json.dumps(one)}\n" for one in calls), encoding="utf-8")

    def server(self) -> McpServer:
        text = {"text": {"type": "string"}}
        tool = listed("note", properties=text, required=["text"])
        return raw(name="notes", tools=[tool], record=str(self.file), side_effects={"note": self.side_effect})

    def team(self) -> kt.Team:

        permissions = ToolPermissions(mcp=McpPolicy(allowed=["note"]))
        return kt.Team(
            "team", [kt.Member("writer", kt.MiniAgent("m:x", tools=[self.server()]))], permissions=permissions
        )

    def reply(self, name: str, request: kt.ModelRequest, said: str) -> str | kt.ModelResponse:
        notes = sum(one.role == "tool" for one in request.messages)
        if request.tools and notes < NOTES:
            call = kt.ToolCall(f"c{notes}", request.tools[0].name, {"text": f"{len(said)}"})
            return kt.ModelResponse("", tool_calls=[call])
        return f"answer {len(said)}"


class Followed(_Wrapped):
    """A graph of LangGraph that is only observed: its calls are recorded, and made again with the attempt."""

    def agent(self) -> Any:
        return LangGraphAgent(graph_of(RigModel(rig=self), self.tools))
