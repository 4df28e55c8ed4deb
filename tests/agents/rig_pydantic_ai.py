"""`PydanticAIAgent` in the matrix: a pydantic-ai agent on a `FunctionModel`."""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent, Tool
from pydantic_ai import messages as native
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.agents.pydantic_ai_messages import conversation
from tests.agents.rigs import Reply, Rig, RigTool, told


class PydanticAIRig(Rig):
    name = "PydanticAIAgent"
    backends = ("asyncio",)

    def agent(self) -> Any:
        return PydanticAIAgent(Agent(self.model(), tools=[_tool(tool) for tool in self.tools]))

    def model(self) -> FunctionModel:
        """The scripted model in pydantic-ai's dress."""

        async def function(messages: list[native.ModelMessage], info: AgentInfo) -> native.ModelResponse:
            said = [info.instructions or "", told([m for m in conversation(messages) if m.role != "system"])]
            tools = [tool.name for tool in [*info.function_tools, *info.output_tools]]
            most = (info.model_settings or {}).get("max_tokens")
            reply = await self.answer("\n".join(said), tools, most)
            return response(reply, self.ids(reply))

        return FunctionModel(function, model_name="scripted")


def response(reply: Reply, ids: list[str]) -> native.ModelResponse:
    """Say a reply of the script in pydantic-ai's words."""
    calls = [native.ToolCallPart(ask.tool, {"text": ask.text}, name) for name, ask in zip(ids, reply.asks, strict=True)]
    texts = [native.TextPart(reply.text)] if reply.text else []
    usage = RequestUsage(input_tokens=reply.prompt_tokens, output_tokens=reply.completion_tokens)
    return native.ModelResponse([*texts, *calls], usage=usage, finish_reason="length" if reply.cut else None)


def _tool(tool: RigTool) -> Tool[Any]:
    async def function(text: str) -> str:
        return await tool.function(text)

    return Tool(function, name=tool.name, metadata={"side_effect": tool.side_effect})


RIG = PydanticAIRig
