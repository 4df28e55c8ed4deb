"""Strands Agents: a graph with one node a task, and on every edge the condition that all dependencies are complete.

Without that condition a node of its Python library starts when the first of its dependencies is complete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from strands.agent.agent_result import AgentResult
from strands.multiagent import GraphBuilder
from strands.multiagent.graph import GraphNode, GraphState
from strands.telemetry.metrics import EventLoopMetrics

from benchmarks.peers.graph.experiment import Graph, Run, Work, main


class Instant:
    """The least a node can be: an agent without a model."""

    def __init__(self, name: str, work: Work) -> None:
        self.name = name
        self._work = work

    def __call__(self, _prompt: object = None, **_: Any) -> AgentResult:
        """Refuse: it is only awaited."""
        raise RuntimeError("await invoke_async(...) instead")

    async def invoke_async(self, _prompt: object = None, **_: Any) -> AgentResult:
        """Do the work."""
        await self._work(self.name)
        return AgentResult("end_turn", {"role": "assistant", "content": [{"text": "done"}]}, EventLoopMetrics(), {})

    async def stream_async(self, prompt: object = None, **_: Any) -> AsyncIterator[Any]:
        """Do the work, and yield its result alone."""
        yield {"result": await self.invoke_async(prompt)}


def build(graph: Graph, work: Work) -> Run:
    """Build the graph."""
    builder = GraphBuilder()
    nodes = {name: builder.add_node(Instant(name, work), name) for name in graph}

    def all_complete(needed: Sequence[GraphNode]) -> Callable[[GraphState], bool]:
        return lambda state: all(node in state.completed_nodes for node in needed)

    for name, needs in graph.items():
        condition = all_complete([nodes[need] for need in needs])
        for need in needs:
            builder.add_edge(need, name, condition)
    builder.set_execution_timeout(600)
    built = builder.build()

    async def run() -> None:
        await built.invoke_async("Work.")

    return run


if __name__ == "__main__":
    main("strands-agents", build)
