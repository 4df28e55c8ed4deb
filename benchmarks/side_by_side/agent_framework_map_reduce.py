"""Microsoft Agent Framework: a functional workflow gathers a step a document; checkpoints in files after each step."""

from __future__ import annotations

import asyncio
import json

from agent_framework import Agent, FileCheckpointStorage, step, workflow
from agent_framework.openai import OpenAIChatCompletionClient

from benchmarks.side_by_side.jobs import GOAL, JOINER, LISTER, READER
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """List the documents, summarise each, join the summaries."""
    client = OpenAIChatCompletionClient(MODEL, base_url=given.url, api_key="none")
    lister = Agent(client, LISTER, name="lister")
    reader = Agent(client, READER, name="reader")
    joiner = Agent(client, JOINER, name="joiner")

    @step(replay_key=lambda goal: goal)
    async def split(goal: str) -> list[str]:
        return json.loads((await lister.run(goal)).text)

    @step(replay_key=lambda name: name)
    async def read(name: str) -> str:
        return (await reader.run(name)).text

    @step(replay_key=lambda summaries: summaries)
    async def gather(summaries: str) -> str:
        return (await joiner.run(summaries)).text

    @workflow(name="documents")
    async def documents(goal: str) -> str:
        summaries = await asyncio.gather(*(read(name) for name in await split(goal)))
        return await gather("\n".join(summaries))

    storage = FileCheckpointStorage(given.folder)
    latest = await storage.get_latest(workflow_name="documents") if given.again else None
    begin = {"checkpoint_id": latest.checkpoint_id} if latest else {"message": GOAL}
    result = await documents.build(checkpoint_storage=storage).run(**begin)
    return result.get_outputs()[-1]


if __name__ == "__main__":
    main(run)
