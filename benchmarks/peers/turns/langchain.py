"""LangChain: `create_agent`, its agent on LangGraph; no checkpointer."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from benchmarks.peers.turns.experiment import ANSWER, GOAL, INSTRUCTIONS, look, main, suspend


class Model(BaseChatModel):
    """Call the tool, then answer."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_named: Any) -> Any:
        """Know the tools."""
        return self

    def _generate(self, *_given: Any, **_named: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_given: Any, **_named: Any) -> ChatResult:
        await suspend()
        if isinstance(messages[-1], ToolMessage):
            message = AIMessage(ANSWER)
        else:
            message = AIMessage("", tool_calls=[{"name": "look", "args": {"port": "Oslo"}, "id": "call-1"}])
        return ChatResult(generations=[ChatGeneration(message=message)])


agent: Any = create_agent(Model(), tools=[look], system_prompt=INSTRUCTIONS)


async def run() -> str:
    """One conversation."""
    said = await agent.ainvoke({"messages": [{"role": "user", "content": GOAL}]})
    return str(said["messages"][-1].text)


if __name__ == "__main__":
    main("langchain", {"agent": run})
