"""smolagents: an agent that calls tools, in a thread, by chat completions."""

from __future__ import annotations

import anyio.to_thread
from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool

from interop.agents.look import look
from kairo_team.addresses import ModelAddress


def do(task: str, address: ModelAddress) -> str:
    """Let an agent do the task."""
    model = OpenAIServerModel("m", api_base=address.openai, api_key=address.key)
    agent = ToolCallingAgent([tool(look)], model, max_steps=12, verbosity_level=LogLevel.OFF)
    return str(agent.run(task))


async def run(task: str, address: ModelAddress) -> str:
    """Let an agent do the task; its thread is left alone when the attempt ends, and finds no address then."""
    return await anyio.to_thread.run_sync(do, task, address, abandon_on_cancel=True)
