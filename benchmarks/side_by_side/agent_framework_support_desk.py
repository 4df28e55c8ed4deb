"""Microsoft Agent Framework: `HandoffBuilder` gives each desk tools to hand over; checkpoints in files."""

from __future__ import annotations

from agent_framework import Agent, FileCheckpointStorage
from agent_framework.openai import OpenAIChatCompletionClient
from agent_framework.orchestrations import HandoffBuilder

from benchmarks.side_by_side.jobs import BILLS, FRONT, MESSAGE, REFUNDS
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """Let the desks hand the message over until one answers."""
    client = OpenAIChatCompletionClient(MODEL, base_url=given.url, api_key="none")
    desks = [
        Agent(client, told, id=name, name=name, require_per_service_call_history_persistence=True)
        for name, told in {"front": FRONT, "billing": BILLS, "refunds": REFUNDS}.items()
    ]
    front, billing, refunds = desks
    storage = FileCheckpointStorage(given.folder)
    workflow = (
        HandoffBuilder(name="desks", participants=desks, checkpoint_storage=storage)
        .with_start_agent(front)
        .add_handoff(front, [billing])
        .add_handoff(billing, [refunds])
        .with_termination_condition(lambda said: said[-1].author_name == "refunds" and bool(said[-1].text))
        .build()
    )
    latest = await storage.get_latest(workflow_name="desks") if given.again else None
    begin = {"checkpoint_id": latest.checkpoint_id} if latest else {"message": MESSAGE}
    return (await workflow.run(**begin)).get_outputs()[-1].text


if __name__ == "__main__":
    main(run)
