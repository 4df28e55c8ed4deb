"""The rigs of the wrapper matrix with the kit's model behind them: each library runs as it does there."""

from __future__ import annotations

from typing import Any

import kairo_team as kt
from kairo_team._util.frozen import thaw
from kairo_team.contracts import ChatModel
from kairo_team.messages import ToolSpec
from kairo_team.tools.tool import as_tool
from tests.agents.rigs import Ask, Asked, Reply, Rig, RigTool


def agent_of(rig: type[Rig], model: ChatModel, tool: Any = None) -> Any:
    """Make the rig's agent, with a chat model of ours behind its library."""
    tools = [] if tool is None else [RigTool("look", tool, as_tool(tool).side_effect)]
    made = rig((), tools)
    made.answer = _Bridge(made, model).answer  # type: ignore[method-assign]  # the library's requests go to the model
    return made.agent()


class _Bridge:
    """Takes a library's requests to a chat model of ours, and its replies back."""

    def __init__(self, rig: Rig, model: ChatModel) -> None:
        self._rig = rig
        self._model = model

    async def answer(self, text: str, tools: Any = (), max_tokens: int | None = None) -> Reply:
        self._rig.asked.append(
            Asked(text, tuple(tools), max_tokens)
        )  # rigs count the requests for the ids of tool calls
        specs = [ToolSpec(name, "", {"type": "object"}) for name in tools]
        reply = await self._model.complete(kt.ModelRequest([kt.Message.user(text)], specs, max_tokens=max_tokens))
        usage = reply.usage or kt.Usage()
        asks = [Ask(call.name, thaw(call.arguments)["text"]) for call in reply.tool_calls]
        return Reply(
            reply.text, asks, usage.prompt_tokens, usage.completion_tokens, cut=reply.finish_reason == "length"
        )
