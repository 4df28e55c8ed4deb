"""Microsoft Agent Framework: an `Agent` with a function tool; its layers as its own clients have them."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)
from agent_framework.observability import ChatTelemetryLayer

from benchmarks.peers.turns.experiment import ANSWER, GOAL, INSTRUCTIONS, look, main, suspend


class Model(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):
    """Call the tool, then answer."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Awaitable[ChatResponse]:
        async def reply() -> ChatResponse:
            await self._validate_options(options)
            await suspend()
            if messages[-1].role == "tool":
                return ChatResponse(messages=[Message("assistant", [ANSWER])])
            call = Content.from_function_call("call-1", "look", arguments={"port": "Oslo"})
            return ChatResponse(messages=[Message("assistant", [call])], finish_reason="tool_calls")

        return reply()


agent = Agent(Model(), INSTRUCTIONS, tools=[look])


async def run() -> str:
    """One conversation."""
    return (await agent.run(GOAL)).text


if __name__ == "__main__":
    main("agent-framework-core", {"agent": run})
