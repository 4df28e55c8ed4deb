"""Google ADK: a route of the workflow leads back to the writer; sessions on SQLite, resumable."""

from __future__ import annotations

from google.adk.agents import Agent
from google.adk.agents.context import Context
from google.adk.agents.run_config import RunConfig
from google.adk.apps import App, ResumabilityConfig
from google.adk.events.event import Event
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.workflow import START, Workflow
from google.genai.types import UserContent

from benchmarks.side_by_side.jobs import DOCUMENTER, ROUNDS, WRITE, WRITER, fault
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """Write until the tests pass, then document."""
    model = LiteLlm(f"openai/{MODEL}", api_base=given.url, api_key="none")
    writer = Agent(name="writer", model=model, instruction=WRITER)
    documenter = Agent(name="documenter", model=model, instruction=DOCUMENTER)

    def test(ctx: Context, node_input: str) -> Event:
        rounds = ctx.state.get("rounds", 0) + 1
        failed = fault(node_input)
        if failed is None:
            return Event(route="passed", output=node_input)
        return Event(
            route="failed" if rounds < ROUNDS else "over", output=f"{WRITE}\n{failed}", state={"rounds": rounds}
        )

    workflow = Workflow(
        name="code",
        edges=[(START, writer, test, {"passed": documenter, "failed": writer})],
    )
    app = App(name="desk", root_agent=workflow, resumability_config=ResumabilityConfig(is_resumable=True))
    sessions = SqliteSessionService(str(given.folder / "sessions.db"))
    whose = {"user_id": "me", "session_id": "run-1"}
    session = await sessions.get_session(app_name="desk", **whose) if given.again else None
    begin = {"invocation_id": session.events[0].invocation_id} if session else {"new_message": UserContent(WRITE)}
    config = RunConfig(max_llm_calls=given.calls or 500)
    result = None
    async with Runner(app=app, session_service=sessions, auto_create_session=True) as runner:
        async for event in runner.run_async(**whose, **begin, run_config=config):
            if event.is_final_response() and event.content:
                result = event.content.parts[0].text
    return result


if __name__ == "__main__":
    main(run)
