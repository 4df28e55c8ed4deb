"""CrewAI: a router starts the flow's writer again until the tests pass; its state on SQLite after each method."""

from __future__ import annotations

from crewai import LLM
from crewai.flow.flow import Flow, FlowState, listen, router, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist

from benchmarks.side_by_side.jobs import DOCUMENTER, ROUNDS, WRITE, WRITER, fault
from benchmarks.side_by_side.program import MODEL, Given, main


class State(FlowState):
    """What the methods share."""

    code: str = ""
    failed: str | None = None
    rounds: int = 0


async def run(given: Given) -> str:
    """Write until the tests pass, then document."""
    llm = LLM(f"openai/{MODEL}", base_url=given.url, api_key="none")

    async def ask(told: str, asked: str) -> str:
        return await llm.acall([{"role": "system", "content": told}, {"role": "user", "content": asked}])

    @persist(SQLiteFlowPersistence(str(given.folder / "flows.db")))
    class Code(Flow[State]):
        @start("failed")
        async def write(self) -> None:
            self.state.rounds += 1
            self.state.code = await ask(WRITER, f"{WRITE}\n{self.state.failed or ''}")

        @router(write)
        async def test(self) -> str:
            self.state.failed = fault(self.state.code)
            if self.state.failed is None:
                return "passed"
            return "failed" if self.state.rounds < ROUNDS else "over"

        @listen("passed")
        async def document(self) -> str:
            return await ask(DOCUMENTER, self.state.code)

    return await Code().kickoff_async(inputs={"id": "run-1"})


if __name__ == "__main__":
    main(run)
