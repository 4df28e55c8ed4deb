"""CrewAI: a router starts the next desk that a structured reply names; its state on SQLite after each method."""

from __future__ import annotations

from typing import Literal

from crewai import LLM
from crewai.flow.flow import Flow, FlowState, listen, router, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from pydantic import BaseModel

from benchmarks.side_by_side.jobs import BILLS, FRONT, MESSAGE, REFUNDS
from benchmarks.side_by_side.program import MODEL, Given, main

DESKS = {"front": FRONT, "billing": BILLS, "refunds": REFUNDS}


class Reply(BaseModel):
    """An answer, or the desk to hand over to."""

    to: Literal["billing", "refunds"] | None = None
    answer: str | None = None


class State(FlowState):
    """What the methods share."""

    desk: str = "front"
    answer: str | None = None


async def run(given: Given) -> str:
    """Let the desks hand the message over until one answers."""
    llm = LLM(f"openai/{MODEL}", base_url=given.url, api_key="none")

    @persist(SQLiteFlowPersistence(str(given.folder / "flows.db")))
    class Desks(Flow[State]):
        @start("handed over")
        async def act(self) -> Reply:
            messages = [{"role": "system", "content": DESKS[self.state.desk]}, {"role": "user", "content": MESSAGE}]
            return await llm.acall(messages, response_model=Reply)

        @router(act)
        async def after(self, reply: Reply) -> str:
            if reply.to is not None:
                self.state.desk = reply.to
                return "handed over"
            self.state.answer = reply.answer
            return "answered"

        @listen("answered")
        async def answer(self) -> str | None:
            return self.state.answer

    return await Desks().kickoff_async(inputs={"id": "run-1"})


if __name__ == "__main__":
    main(run)
