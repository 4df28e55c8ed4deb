"""pydantic-graph: a decision leads back to the writer until the tests pass; `UsageLimits`; nothing is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic_ai import Agent, RunUsage, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_graph import GraphBuilder, StepContext, TypeExpression

from benchmarks.side_by_side.jobs import DOCUMENTER, ROUNDS, WRITE, WRITER, fault
from benchmarks.side_by_side.program import MODEL, Given, main


@dataclass
class State:
    """What the steps share."""

    code: str = ""
    failed: str | None = None
    rounds: int = 0


async def run(given: Given) -> str:
    """Write until the tests pass, then document."""
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=given.url, api_key="none"))
    limits = UsageLimits(total_tokens_limit=given.tokens)
    usage = RunUsage()
    writer = Agent(model, instructions=WRITER)
    documenter = Agent(model, instructions=DOCUMENTER)
    graph = GraphBuilder(state_type=State, output_type=str)

    @graph.step
    async def write(step: StepContext[State, None, object]) -> None:
        step.state.rounds += 1
        asked = f"{WRITE}\n{step.state.failed or ''}"
        step.state.code = (await writer.run(asked, usage=usage, usage_limits=limits)).output

    @graph.step
    async def test(step: StepContext[State, None, None]) -> Literal["passed", "failed", "too often"]:
        step.state.failed = fault(step.state.code)
        if step.state.failed is None:
            return "passed"
        return "failed" if step.state.rounds < ROUNDS else "too often"

    @graph.step
    async def document(step: StepContext[State, None, object]) -> str:
        return (await documenter.run(step.state.code, usage=usage, usage_limits=limits)).output

    graph.add(
        graph.edge_from(graph.start_node).to(write),
        graph.edge_from(write).to(test),
        graph.edge_from(test).to(
            graph.decision()
            .branch(graph.match(TypeExpression[Literal["passed"]]).to(document))
            .branch(graph.match(TypeExpression[Literal["failed"]]).to(write))
            .branch(graph.match(TypeExpression[Literal["too often"]]).to(graph.end_node))
        ),
        graph.edge_from(document).to(graph.end_node),
    )
    return await graph.build().run(state=State())


if __name__ == "__main__":
    main(run)
