"""Google ADK: a workflow whose reader is a parallel worker; sessions on SQLite, resumable."""

from __future__ import annotations

import json

from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.workflow import START, Workflow, node
from google.genai.types import UserContent

from benchmarks.side_by_side.jobs import GOAL, JOINER, LISTER, READER
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """List the documents, summarise each, join the summaries."""
    model = LiteLlm(f"openai/{MODEL}", api_base=given.url, api_key="none")
    lister = Agent(name="lister", model=model, instruction=LISTER)
    reader = node(Agent(name="reader", model=model, instruction=READER), parallel_worker=True)
    joiner = Agent(name="joiner", model=model, instruction=JOINER)

    def names(node_input: str) -> list[str]:
        return json.loads(node_input)

    def together(node_input: list[str]) -> str:
        return "\n".join(node_input)

    workflow = Workflow(name="documents", edges=[(START, lister, names, reader, together, joiner)])
    app = App(name="docs", root_agent=workflow, resumability_config=ResumabilityConfig(is_resumable=True))
    sessions = SqliteSessionService(str(given.folder / "sessions.db"))
    whose = {"user_id": "me", "session_id": "run-1"}
    session = await sessions.get_session(app_name="docs", **whose) if given.again else None
    begin = {"invocation_id": session.events[0].invocation_id} if session else {"new_message": UserContent(GOAL)}
    config = RunConfig(max_llm_calls=given.calls or 500)
    result = None
    async with Runner(app=app, session_service=sessions, auto_create_session=True) as runner:
        async for event in runner.run_async(**whose, **begin, run_config=config):
            if event.is_final_response() and event.content:
                result = event.content.parts[0].text
    return result


if __name__ == "__main__":
    main(run)
