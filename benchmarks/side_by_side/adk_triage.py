"""Google ADK: a workflow whose parallel worker runs the agents that the sorter names; sessions on SQLite, resumable."""

from __future__ import annotations

import json

from google.adk.agents import Agent
from google.adk.agents.context import Context
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.workflow import START, Workflow, node
from google.genai.types import UserContent

from benchmarks.side_by_side.jobs import ANSWERER, MESSAGE, SORTER, SPECIALISTS
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """Sort the message, ask the specialists it is for, answer."""
    model = LiteLlm(f"openai/{MODEL}", api_base=given.url, api_key="none")
    sorter = Agent(name="sorter", model=model, instruction=SORTER)
    answerer = Agent(name="answerer", model=model, instruction=ANSWERER)
    specialists = {name: Agent(name=name, model=model, instruction=told) for name, told in SPECIALISTS.items()}

    def named(node_input: str) -> list[str]:
        return json.loads(node_input)

    @node(parallel_worker=True, rerun_on_resume=True)
    async def look(ctx: Context, node_input: str) -> str:
        return await ctx.run_node(specialists[node_input], MESSAGE)

    def together(node_input: list[str]) -> str:
        return "\n".join([MESSAGE, *node_input])

    workflow = Workflow(name="triage", edges=[(START, sorter, named, look, together, answerer)])
    app = App(name="desk", root_agent=workflow, resumability_config=ResumabilityConfig(is_resumable=True))
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
