"""LangGraph: a `StateGraph` with one node a task and an edge from all it depends on; no checkpointer."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from benchmarks.peers.graph.experiment import Graph, Run, Work, main


class State(TypedDict):
    """What the nodes share; nothing is written to it."""

    goal: str


def build(graph: Graph, work: Work) -> Run:
    """Compile the graph."""

    def node(name: str) -> Any:
        async def act(_state: State) -> dict[str, str]:
            await work(name)
            return {}

        return act

    builder = StateGraph(State)
    for name, needs in graph.items():
        builder.add_node(name, node(name))
        builder.add_edge(list(needs) if needs else START, name)
    compiled = builder.compile()

    async def run() -> None:
        await compiled.ainvoke({"goal": "Work."}, {"recursion_limit": 100})

    return run


if __name__ == "__main__":
    main("langgraph", build)
