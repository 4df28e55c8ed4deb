"""CrewAI: a crew of one, in a thread, by chat completions."""

from __future__ import annotations

import anyio.to_thread
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from interop.agents.look import look
from kairo_team.addresses import ModelAddress


def kick_off(task: str, address: ModelAddress) -> str:
    """Let a crew do the task."""
    llm = LLM(model="openai/m", base_url=address.openai, api_key=address.key)
    agent = Agent(role="looker", goal="look at things", backstory="has eyes", llm=llm, tools=[tool("look")(look)])
    asked = Task(description=task, expected_output="what is there", agent=agent)
    return str(Crew(agents=[agent], tasks=[asked]).kickoff())


async def run(task: str, address: ModelAddress) -> str:
    """Let a crew do the task; its thread is left alone when the attempt ends, and finds no address then."""
    return await anyio.to_thread.run_sync(kick_off, task, address, abandon_on_cancel=True)
