"""Strands Agents, by chat completions, streamed."""

from __future__ import annotations

from strands import Agent, tool
from strands.models.openai import OpenAIModel

from interop.agents.look import look
from kairo_team.addresses import ModelAddress


async def run(task: str, address: ModelAddress) -> str:
    """Let an agent do the task."""
    model = OpenAIModel(client_args={"base_url": address.openai, "api_key": address.key}, model_id="m")
    agent = Agent(model=model, tools=[tool(look)], system_prompt="You look at things.", callback_handler=None)
    return str(await agent.invoke_async(task))
