"""pydantic-graph: a desk's output is an answer or the next desk, and a decision leads there; nothing is recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic_ai import Agent, RunUsage, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_graph import GraphBuilder, StepContext

from benchmarks.side_by_side.jobs import BILLS, FRONT, MESSAGE, REFUNDS
from benchmarks.side_by_side.program import MODEL, Given, main


@dataclass
class ToBilling:
    """Hand the customer over to billing."""

    to: Literal["billing"]


@dataclass
class ToRefunds:
    """Hand the customer over to refunds."""

    to: Literal["refunds"]


async def run(given: Given) -> str:
    """Let the desks hand the message over until one answers."""
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=given.url, api_key="none"))
    limits = UsageLimits(total_tokens_limit=given.tokens)
    usage = RunUsage()
    front = Agent(model, instructions=FRONT, output_type=[ToBilling, str])
    billing = Agent(model, instructions=BILLS, output_type=[ToRefunds, str])
    refunds = Agent(model, instructions=REFUNDS)
    graph = GraphBuilder(output_type=str)

    @graph.step
    async def at_front(_step: StepContext[None, None, None]) -> ToBilling | str:
        return (await front.run(MESSAGE, usage=usage, usage_limits=limits)).output

    @graph.step
    async def at_billing(_step: StepContext[None, None, ToBilling]) -> ToRefunds | str:
        return (await billing.run(MESSAGE, usage=usage, usage_limits=limits)).output

    @graph.step
    async def at_refunds(_step: StepContext[None, None, ToRefunds]) -> str:
        return (await refunds.run(MESSAGE, usage=usage, usage_limits=limits)).output

    graph.add(
        graph.edge_from(graph.start_node).to(at_front),
        graph.edge_from(at_front).to(
            graph.decision().branch(graph.match(ToBilling).to(at_billing)).branch(graph.match(str).to(graph.end_node))
        ),
        graph.edge_from(at_billing).to(
            graph.decision().branch(graph.match(ToRefunds).to(at_refunds)).branch(graph.match(str).to(graph.end_node))
        ),
        graph.edge_from(at_refunds).to(graph.end_node),
    )
    return await graph.build().run()


if __name__ == "__main__":
    main(run)
