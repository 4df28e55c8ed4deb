"""Google ADK, by LiteLLM and chat completions."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

from interop.agents.look import look
from kairo_team.addresses import ModelAddress


async def run(task: str, address: ModelAddress) -> str:
    """Let an agent do the task."""
    model = LiteLlm(model="openai/m", api_base=address.openai, api_key=address.key)
    agent = LlmAgent(name="looker", model=model, instruction="You look at things.", tools=[look])
    runner = InMemoryRunner(agent, app_name="interop")
    session = await runner.session_service.create_session(app_name="interop", user_id="u")
    asked = types.Content(role="user", parts=[types.Part(text=task)])
    said = ""
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=asked):
        if event.is_final_response() and event.content and event.content.parts:
            said = "".join(part.text or "" for part in event.content.parts)
    return said
