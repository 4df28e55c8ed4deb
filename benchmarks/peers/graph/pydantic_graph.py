"""pydantic-graph: one step a task, and before it a join over its dependencies."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pydantic_graph import GraphBuilder, reduce_null

from benchmarks.peers.graph.experiment import Graph, Run, Work, last_of, main


def build(graph: Graph, work: Work) -> Run:
    """Build the graph; the tasks nothing depends on are joined at its end."""
    builder = GraphBuilder(name="work")

    def step(name: str) -> Any:
        async def act(_context: Any) -> None:
            await work(name)

        return builder.step(act, node_id=name)

    steps = {name: step(name) for name in graph}
    targets: dict[str, list[Any]] = defaultdict(list)
    builder.add(builder.edge_from(builder.start_node).to(*(steps[name] for name in graph if not graph[name])))
    for name, needs in {**graph, "end": last_of(graph)}.items():
        if needs:
            join = builder.join(reduce_null, initial=None, node_id=f"before-{name}")
            builder.add(builder.edge_from(join).to(steps.get(name, builder.end_node)))
            for need in needs:
                targets[need].append(join)
    for name, joins in targets.items():
        builder.add(builder.edge_from(steps[name]).to(*joins))
    return builder.build().run


if __name__ == "__main__":
    main("pydantic-graph", build)
