"""Our own `MiniAgent` in the matrix: the first row, without a library between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kairo_team as kt
from tests.agents.rigs import Reply, Rig, RigTool, told


class MiniRig(Rig):
    name = "MiniAgent"
    wraps_up = True

    def agent(self) -> Any:
        tools = [_typed(tool) for tool in self.tools]
        return kt.MiniAgent(_Model(self), tools=tools) if tools else kt.MiniAgent(_Model(self))


def _typed(tool: RigTool) -> Callable[..., Any]:
    async def function(text: str) -> str:
        return await tool.function(text)

    return kt.tool(name=tool.name, side_effect=tool.side_effect)(function)


class _Model:
    name = "test:rig"

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        said = told(request.messages)
        reply = await self._rig.answer(said, [tool.name for tool in request.tools], request.max_tokens)
        return _response(reply, self._rig.ids(reply))


def _response(reply: Reply, ids: list[str]) -> kt.ModelResponse:
    calls = [kt.ToolCall(name, ask.tool, {"text": ask.text}) for name, ask in zip(ids, reply.asks, strict=True)]
    usage = kt.Usage(reply.prompt_tokens, reply.completion_tokens)
    return kt.ModelResponse(reply.text, calls, usage, finish_reason="length" if reply.cut else "stop")


RIG = MiniRig
