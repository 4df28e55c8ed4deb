"""Strands: a `Swarm` gives each desk a tool to hand over; a session in files."""

from __future__ import annotations

from strands import Agent
from strands.models.openai import OpenAIModel
from strands.multiagent import Swarm
from strands.multiagent.base import Status
from strands.session.file_session_manager import FileSessionManager

from benchmarks.side_by_side.jobs import BILLS, FRONT, MESSAGE, REFUNDS
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """Let the desks hand the message over until one answers."""
    model = OpenAIModel(client_args={"base_url": given.url, "api_key": "none"}, model_id=MODEL)
    told = {"front": FRONT, "billing": BILLS, "refunds": REFUNDS}
    desks = [Agent(model, name=name, system_prompt=text, callback_handler=None) for name, text in told.items()]
    session = FileSessionManager("run-1", str(given.folder))
    swarm = Swarm(desks, max_iterations=given.calls or 20, session_manager=session)
    result = await swarm.invoke_async(MESSAGE)
    if result.status != Status.COMPLETED:
        raise RuntimeError(f"{result.status}: {list(result.results)}")
    return str(result.results[result.node_history[-1].node_id].result)


if __name__ == "__main__":
    main(run)
