"""Microsoft Agent Framework, by the Responses interface."""

from __future__ import annotations

from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatClient

from interop.agents.look import look
from kairo_team.addresses import ModelAddress


async def run(task: str, address: ModelAddress) -> str:
    """Let an agent do the task."""
    client = OpenAIChatClient("m", base_url=address.openai, api_key=address.key)
    agent = Agent(client, "You look at things.", name="looker", tools=[tool(look, approval_mode="never_require")])
    return str((await agent.run(task)).text)
