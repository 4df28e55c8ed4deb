"""`OpenAIAgent` in the matrix: the OpenAI Agents SDK, with a scripted model behind it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, FunctionTool, Model, ModelResponse, ModelSettings, Usage
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputItem, ResponseOutputMessage
from openai.types.responses.response_output_text import ResponseOutputText

from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.tools import SideEffect
from tests.agents.rigs import Reply, Rig, RigTool


class OpenAIRig(Rig):
    name = "OpenAIAgent"
    backends = ("asyncio",)

    def agent(self) -> Any:
        tools = [_native(tool) for tool in self.tools]
        effects: dict[str, SideEffect] = {tool.name: tool.side_effect for tool in self.tools}
        return OpenAIAgent(Agent("rig", model=_Model(self), tools=[*tools]), side_effects=effects)


def _native(tool: RigTool) -> FunctionTool:
    async def invoke(_context: ToolContext[Any], arguments: str) -> str:
        return await tool.function(json.loads(arguments)["text"])

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return FunctionTool(tool.name, "", schema, invoke, strict_json_schema=False)


class _Model(Model):
    model = "rig"

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],
        model_settings: ModelSettings,
        tools: list[Any],
        *_args: Any,
        **_kwargs: Any,
    ) -> ModelResponse:
        said = f"{system_instructions or ''}\n{input if isinstance(input, str) else _said(input)}"
        reply = await self._rig.answer(said, [tool.name for tool in tools], model_settings.max_tokens)
        usage = Usage(1, reply.prompt_tokens, output_tokens=reply.completion_tokens)
        return ModelResponse(_output(reply, self._rig.ids(reply)), usage, None)

    def stream_response(self, *_args: Any, **_kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError("the wrapper runs the agent without streaming")


def _said(items: list[Any]) -> str:
    return "\n".join(json.dumps(item, ensure_ascii=False).replace("\\n", "\n") for item in items)


def _output(reply: Reply, ids: list[str]) -> list[ResponseOutputItem]:
    output: list[ResponseOutputItem] = []
    if reply.text:
        part = ResponseOutputText(type="output_text", text=reply.text, annotations=[])
        status: Any = "incomplete" if reply.cut else "completed"
        output.append(ResponseOutputMessage(id="m", type="message", role="assistant", status=status, content=[part]))
    for name, ask in zip(ids, reply.asks, strict=True):
        arguments = json.dumps({"text": ask.text})
        output.append(ResponseFunctionToolCall(type="function_call", call_id=name, name=ask.tool, arguments=arguments))
    return output


RIG = OpenAIRig
