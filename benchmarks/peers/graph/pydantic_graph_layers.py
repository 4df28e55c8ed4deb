"""pydantic-graph, the faster way: each layer is a map over its tasks, and one join before the next layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_graph import GraphBuilder, reduce_null

from benchmarks.peers.graph.experiment import Graph, Run, Work, layers, main


def build(graph: Graph, work: Work) -> Run:
    """Build a graph of as many joins as there are layers."""
    builder = GraphBuilder(name="work")

    def names_of(number: int, names: Sequence[str]) -> Any:
        async def give(_context: Any) -> Sequence[str]:
            return names

        return builder.step(give, node_id=f"layer-{number}")

    async def act(context: Any) -> None:
        await work(context.inputs)

    before: Any = builder.start_node
    for number, names in enumerate(layers(graph)):
        layer = names_of(number, names)
        task = builder.step(act, node_id=f"tasks-{number}")
        join = builder.join(reduce_null, initial=None, node_id=f"join-{number}")
        builder.add(
            builder.edge_from(before).to(layer),
            builder.edge_from(layer).map().to(task),
            builder.edge_from(task).to(join),
        )
        before = join
    builder.add(builder.edge_from(before).to(builder.end_node))
    return builder.build().run


if __name__ == "__main__":
    main("pydantic-graph", build)
