"""pydantic-graph: `map` makes the step run once a document; `UsageLimits` over one `RunUsage`; nothing is recorded."""

from __future__ import annotations

from pydantic_ai import Agent, RunUsage, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_graph import GraphBuilder, StepContext, reduce_list_append

from benchmarks.side_by_side.jobs import GOAL, JOINER, LISTER, READER
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """List the documents, summarise each, join the summaries."""
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=given.url, api_key="none"))
    limits = UsageLimits(total_tokens_limit=given.tokens)
    usage = RunUsage()
    lister = Agent(model, instructions=LISTER, output_type=list[str])
    reader = Agent(model, instructions=READER)
    joiner = Agent(model, instructions=JOINER)
    graph = GraphBuilder(input_type=str, output_type=str)

    @graph.step
    async def split(step: StepContext[None, None, str]) -> list[str]:
        return (await lister.run(step.inputs, usage=usage, usage_limits=limits)).output

    @graph.step
    async def read(step: StepContext[None, None, str]) -> str:
        return (await reader.run(step.inputs, usage=usage, usage_limits=limits)).output

    @graph.step
    async def gather(step: StepContext[None, None, list[str]]) -> str:
        return (await joiner.run("\n".join(step.inputs), usage=usage, usage_limits=limits)).output

    summaries = graph.join(reduce_list_append, initial_factory=list[str])
    graph.add(
        graph.edge_from(graph.start_node).to(split),
        graph.edge_from(split).map().to(read),
        graph.edge_from(read).to(summaries),
        graph.edge_from(summaries).to(gather),
        graph.edge_from(gather).to(graph.end_node),
    )
    return await graph.build().run(inputs=GOAL)


if __name__ == "__main__":
    main(run)
