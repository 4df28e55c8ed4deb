"""Strands: conditions on the edges of a graph take the branches that the sorter names; a session in files."""

from __future__ import annotations

import json

from strands import Agent
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder
from strands.multiagent.base import Status
from strands.multiagent.graph import GraphState
from strands.session.file_session_manager import FileSessionManager

from benchmarks.side_by_side.jobs import ANSWERER, MESSAGE, SORTER, SPECIALISTS
from benchmarks.side_by_side.program import MODEL, Given, main


def named(state: GraphState) -> list[str]:
    """Return the specialists that the sorter named."""
    sorted_out = state.results.get("sort")
    return json.loads(str(sorted_out.result)) if sorted_out and sorted_out.status == Status.COMPLETED else []


def done(state: GraphState) -> set[str]:
    """Return the nodes that are complete."""
    return {node.node_id for node in state.completed_nodes}


async def run(given: Given) -> str:
    """Sort the message, ask the specialists it is for, answer."""
    model = OpenAIModel(client_args={"base_url": given.url, "api_key": "none"}, model_id=MODEL)
    graph = GraphBuilder()
    for name, told in {"sort": SORTER, **SPECIALISTS, "answer": ANSWERER}.items():
        graph.add_node(Agent(model, system_prompt=told, callback_handler=None), name)
    for name in SPECIALISTS:
        graph.add_edge("sort", name, lambda state, name=name: name in named(state))
        graph.add_edge(name, "answer", lambda state: all(each in done(state) for each in named(state)))
    graph.set_entry_point("sort")
    graph.set_session_manager(FileSessionManager("run-1", str(given.folder)))
    if given.calls:
        graph.set_max_node_executions(given.calls)
    result = await graph.build().invoke_async(MESSAGE)
    if "answer" not in result.results:
        raise RuntimeError(f"{result.status}: {list(result.results)}")
    return str(result.results["answer"].result)


if __name__ == "__main__":
    main(run)
