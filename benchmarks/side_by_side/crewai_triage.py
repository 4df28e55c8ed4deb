"""CrewAI: a flow with a method a branch, joined by `and_`; a checkpoint in a file after each method."""

from __future__ import annotations

import json

from crewai import LLM, CheckpointConfig
from crewai.flow.flow import Flow, and_, listen, start
from pydantic import BaseModel

from benchmarks.side_by_side.jobs import ANSWERER, BILLING, BUG, MESSAGE, SALES, SORTER
from benchmarks.side_by_side.program import MODEL, Given, main


class State(BaseModel):
    """What the methods share."""

    kinds: list[str] = []
    found: list[str] = []


async def run(given: Given) -> str:
    """Sort the message, ask the specialists it is for, answer."""
    llm = LLM(f"openai/{MODEL}", base_url=given.url, api_key="none")

    async def ask(told: str, asked: str) -> str:
        return await llm.acall([{"role": "system", "content": told}, {"role": "user", "content": asked}])

    class Triage(Flow[State]):
        @start()
        async def sort(self) -> None:
            self.state.kinds = json.loads(await ask(SORTER, MESSAGE))

        @listen(sort)
        async def bug(self) -> None:
            if "bug" in self.state.kinds:
                self.state.found.append(await ask(BUG, MESSAGE))

        @listen(sort)
        async def billing(self) -> None:
            if "billing" in self.state.kinds:
                self.state.found.append(await ask(BILLING, MESSAGE))

        @listen(sort)
        async def sales(self) -> None:
            if "sales" in self.state.kinds:
                self.state.found.append(await ask(SALES, MESSAGE))

        @listen(and_(bug, billing, sales))
        async def answer(self) -> str:
            return await ask(ANSWERER, "\n".join([MESSAGE, *self.state.found]))

    made = sorted(given.folder.glob("main/*.json"), key=lambda path: path.stat().st_mtime) if given.again else []
    config = CheckpointConfig(
        location=str(given.folder),
        on_events=["method_execution_finished"],
        restore_from=made[-1] if made else None,
    )
    return await Triage().kickoff_async(from_checkpoint=config)


if __name__ == "__main__":
    main(run)
