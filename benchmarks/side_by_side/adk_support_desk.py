"""Google ADK: `sub_agents` give each desk a tool to hand over; sessions on SQLite, resumable."""

from __future__ import annotations

from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import UserContent

from benchmarks.side_by_side.jobs import BILLS, FRONT, MESSAGE, REFUNDS
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """Let the desks hand the message over until one answers."""
    model = LiteLlm(f"openai/{MODEL}", api_base=given.url, api_key="none")
    refunds = Agent(name="refunds", description="Pays back.", model=model, instruction=REFUNDS)
    billing = Agent(name="billing", description="Money.", model=model, instruction=BILLS, sub_agents=[refunds])
    front = Agent(name="front", model=model, instruction=FRONT, sub_agents=[billing])
    app = App(name="desk", root_agent=front, resumability_config=ResumabilityConfig(is_resumable=True))
    sessions = SqliteSessionService(str(given.folder / "sessions.db"))
    whose = {"user_id": "me", "session_id": "run-1"}
    session = await sessions.get_session(app_name="desk", **whose) if given.again else None
    begin = {"invocation_id": session.events[0].invocation_id} if session else {"new_message": UserContent(MESSAGE)}
    config = RunConfig(max_llm_calls=given.calls or 500)
    result = None
    async with Runner(app=app, session_service=sessions, auto_create_session=True) as runner:
        async for event in runner.run_async(**whose, **begin, run_config=config):
            if event.is_final_response() and event.content:
                result = event.content.parts[0].text
    return result


if __name__ == "__main__":
    main(run)
