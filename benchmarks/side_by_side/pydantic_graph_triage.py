"""pydantic-graph: a map over the branches that are named, and a decision; `UsageLimits`; nothing is recorded."""

from __future__ import annotations

from typing import Literal

from pydantic_ai import Agent, RunUsage, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_graph import GraphBuilder, StepContext, TypeExpression, reduce_list_append

from benchmarks.side_by_side.jobs import ANSWERER, BILLING, BUG, MESSAGE, SALES, SORTER
from benchmarks.side_by_side.program import MODEL, Given, main

Kind = Literal["bug", "billing", "sales"]


async def run(given: Given) -> str:
    """Sort the message, ask the specialists it is for, answer."""
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=given.url, api_key="none"))
    limits = UsageLimits(total_tokens_limit=given.tokens)
    usage = RunUsage()
    sorter = Agent(model, instructions=SORTER, output_type=list[Kind])
    answerer = Agent(model, instructions=ANSWERER)
    graph = GraphBuilder(input_type=str, output_type=str)

    @graph.step
    async def sort(step: StepContext[None, None, str]) -> list[Kind]:
        return (await sorter.run(step.inputs, usage=usage, usage_limits=limits)).output

    def specialist(name: str, told: str):  # noqa: ANN202
        agent = Agent(model, instructions=told)

        async def look(_step: StepContext[None, None, Kind]) -> str:
            return (await agent.run(MESSAGE, usage=usage, usage_limits=limits)).output

        return graph.step(look, node_id=name)

    @graph.step
    async def answer(step: StepContext[None, None, list[str]]) -> str:
        return (await answerer.run("\n".join([MESSAGE, *step.inputs]), usage=usage, usage_limits=limits)).output

    bug, billing, sales = specialist("bug", BUG), specialist("billing", BILLING), specialist("sales", SALES)
    found = graph.join(reduce_list_append, initial_factory=list[str])
    graph.add(
        graph.edge_from(graph.start_node).to(sort),
        graph.edge_from(sort)
        .map()
        .to(
            graph.decision()
            .branch(graph.match(TypeExpression[Literal["bug"]]).to(bug))
            .branch(graph.match(TypeExpression[Literal["billing"]]).to(billing))
            .branch(graph.match(TypeExpression[Literal["sales"]]).to(sales))
        ),
        graph.edge_from(bug, billing, sales).to(found),
        graph.edge_from(found).to(answer),
        graph.edge_from(answer).to(graph.end_node),
    )
    return await graph.build().run(inputs=MESSAGE)


if __name__ == "__main__":
    main(run)
