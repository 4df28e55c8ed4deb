"""`LangGraphAgent` in the matrix: a graph of a model and a `ToolNode`, with a scripted model behind them."""

from __future__ import annotations

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's graphs have no stubs, and the types of what builds them are not complete.
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from kairo_team.agents.langgraph import LangGraphAgent, governed, governed_tool_call
from tests.agents.rigs import Reply, Rig, RigTool


class LangGraphRig(Rig):
    name = "LangGraphAgent"
    backends = ("asyncio",)

    def agent(self) -> Any:
        return LangGraphAgent(graph_of(governed(RigModel(rig=self)), self.tools, awrap_tool_call=governed_tool_call))


class RigModel(BaseChatModel):
    """A chat model of LangChain that answers with a rig's replies."""

    rig: Any
    max_tokens: int | None = None

    @property
    def _llm_type(self) -> str:
        return "rig"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        told = [{"name": tool.name, "parameters": tool.args} for tool in tools]
        return self.bind(tools=[{"type": "function", "function": function} for function in told])

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("the rig is asynchronous")

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        said = "\n".join(f"{message.text}\n{getattr(message, 'tool_calls', '')}" for message in messages)
        offered = [tool["function"]["name"] for tool in kwargs.get("tools", ())]
        reply = await self.rig.answer(said, offered, self.max_tokens)
        return ChatResult(generations=[ChatGeneration(message=_message(reply, self.rig.ids(reply)))])


def graph_of(model: Any, tools: Sequence[RigTool] = (), **options: Any) -> Any:
    """The usual loop: the model, then its tools, then the model again; `options` are the `ToolNode`'s."""
    native = [native_tool(tool) for tool in tools]
    asked = model.bind_tools(native) if native else model

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await asked.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    if native:
        builder.add_node("tools", ToolNode(native, **options))
        builder.add_conditional_edges("ask", _next)
        builder.add_edge("tools", "ask")
    else:
        builder.add_edge("ask", END)
    return builder.compile()


async def _next(state: MessagesState) -> str:
    """Asynchronous: a plain function would run in a thread, which virtual time does not wait for."""
    return tools_condition(state)  # type: ignore[arg-type]  # the state it is made for


def native_tool(tool: RigTool) -> BaseTool:
    async def function(text: str) -> str:
        return await tool.function(text)

    effect = {"side_effect": tool.side_effect}
    return StructuredTool.from_function(
        coroutine=function, name=tool.name, description=f"The tool {tool.name}.", metadata=effect
    )


def _message(reply: Reply, ids: list[str]) -> AIMessage:
    calls: list[Any] = [
        {"name": ask.tool, "args": {"text": ask.text}, "id": name} for name, ask in zip(ids, reply.asks, strict=True)
    ]
    used: Any = {
        "input_tokens": reply.prompt_tokens,
        "output_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }
    finish = {"finish_reason": "length" if reply.cut else "stop"}
    return AIMessage(reply.text, tool_calls=calls, usage_metadata=used, response_metadata=finish)


RIG = LangGraphRig
