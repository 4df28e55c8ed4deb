"""Microsoft Agent Framework: a multi-selection edge group takes the branches; checkpoints in files."""

from __future__ import annotations

import json
from typing import Never

from agent_framework import Agent, Executor, FileCheckpointStorage, WorkflowBuilder, WorkflowContext, executor, handler
from agent_framework.openai import OpenAIChatCompletionClient

from benchmarks.side_by_side.jobs import ANSWERER, MESSAGE, SORTER, SPECIALISTS
from benchmarks.side_by_side.program import MODEL, Given, main


class Specialist(Executor):
    """Looks into the message."""

    def __init__(self, name: str, agent: Agent) -> None:
        super().__init__(id=name)
        self.agent = agent

    @handler
    async def look(self, _kinds: list[str], context: WorkflowContext[str]) -> None:
        """Say what was found."""
        await context.send_message((await self.agent.run(MESSAGE)).text)


async def run(given: Given) -> str:
    """Sort the message, ask the specialists it is for, answer."""
    client = OpenAIChatCompletionClient(MODEL, base_url=given.url, api_key="none")
    sorter = Agent(client, SORTER, name="sorter")
    answerer = Agent(client, ANSWERER, name="answerer")

    @executor
    async def sort(message: str, context: WorkflowContext[list[str]]) -> None:
        kinds = json.loads((await sorter.run(message)).text)
        context.set_state("kinds", kinds)
        await context.send_message(kinds)

    @executor
    async def answer(text: str, context: WorkflowContext[Never, str]) -> None:
        found = [*context.get_state("found", []), text]
        context.set_state("found", found)
        if len(found) == len(context.get_state("kinds")):
            await context.yield_output((await answerer.run("\n".join([MESSAGE, *found]))).text)

    specialists = [Specialist(name, Agent(client, told, name=name)) for name, told in SPECIALISTS.items()]
    storage = FileCheckpointStorage(given.folder)
    builder = WorkflowBuilder(start_executor=sort, name="triage", checkpoint_storage=storage, output_from=[answer])
    builder.add_multi_selection_edge_group(sort, specialists, lambda kinds, _names: kinds)
    for specialist in specialists:
        builder.add_edge(specialist, answer)
    latest = await storage.get_latest(workflow_name="triage") if given.again else None
    begin = {"checkpoint_id": latest.checkpoint_id} if latest else {"message": MESSAGE}
    return (await builder.build().run(**begin)).get_outputs()[-1]


if __name__ == "__main__":
    main(run)
