"""pydantic-ai: an `Agent` on a `FunctionModel`; and the same agent as a member of a kairo-team."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import kairo_team as kt
from benchmarks.peers.turns.experiment import ANSWER, GOAL, INSTRUCTIONS, look, main, suspend
from kairo_team.agents import PydanticAIAgent


async def reply(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Call the tool, then answer."""
    await suspend()
    last = messages[-1]
    if isinstance(last, ModelRequest) and any(isinstance(part, ToolReturnPart) for part in last.parts):
        return ModelResponse([TextPart(ANSWER)])
    return ModelResponse([ToolCallPart("look", {"port": "Oslo"})])


agent = Agent(FunctionModel(reply), instructions=INSTRUCTIONS, tools=[look])
wrapped = PydanticAIAgent(agent)
BUDGET = kt.Budget(tokens=100_000, loops=10)


async def run() -> str:
    """One conversation."""
    return (await agent.run(GOAL)).output


async def governed() -> str:
    """One conversation under a budget."""
    return (await wrapped.run(GOAL, budget=BUDGET)).text


if __name__ == "__main__":
    main("pydantic-ai-slim", {"agent": run, "governed": governed})
