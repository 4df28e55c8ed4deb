"""CrewAI: a flow whose method gathers a call a document; a checkpoint in a file after each method."""

from __future__ import annotations

import asyncio
import json

from crewai import LLM, CheckpointConfig
from crewai.flow.flow import Flow, listen, start
from pydantic import BaseModel

from benchmarks.side_by_side.jobs import GOAL, JOINER, LISTER, READER
from benchmarks.side_by_side.program import MODEL, Given, main


class State(BaseModel):
    """What the methods share."""

    names: list[str] = []
    summaries: list[str] = []


async def run(given: Given) -> str:
    """List the documents, summarise each, join the summaries."""
    llm = LLM(f"openai/{MODEL}", base_url=given.url, api_key="none")

    async def ask(told: str, asked: str) -> str:
        return await llm.acall([{"role": "system", "content": told}, {"role": "user", "content": asked}])

    class Documents(Flow[State]):
        @start()
        async def split(self) -> None:
            self.state.names = json.loads(await ask(LISTER, GOAL))

        @listen(split)
        async def read(self) -> None:
            self.state.summaries = await asyncio.gather(*(ask(READER, name) for name in self.state.names))

        @listen(read)
        async def gather(self) -> str:
            return await ask(JOINER, "\n".join(self.state.summaries))

    made = sorted(given.folder.glob("main/*.json"), key=lambda path: path.stat().st_mtime) if given.again else []
    config = CheckpointConfig(
        location=str(given.folder),
        on_events=["method_execution_finished"],
        restore_from=made[-1] if made else None,
    )
    return await Documents().kickoff_async(from_checkpoint=config)


if __name__ == "__main__":
    main(run)
