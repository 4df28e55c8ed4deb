"""Strands: an agent lists the documents, then a graph is made with a node for each; a session of the graph in files."""

from __future__ import annotations

import json

from strands import Agent
from strands.models.openai import OpenAIModel
from strands.multiagent import GraphBuilder
from strands.session.file_session_manager import FileSessionManager

from benchmarks.side_by_side.jobs import GOAL, JOINER, LISTER, READER
from benchmarks.side_by_side.program import MODEL, Given, main


async def run(given: Given) -> str:
    """List the documents, summarise each, join the summaries."""
    model = OpenAIModel(client_args={"base_url": given.url, "api_key": "none"}, model_id=MODEL)

    def agent(told: str) -> Agent:
        return Agent(model, system_prompt=told, callback_handler=None)

    names = json.loads(str(await agent(LISTER).invoke_async(GOAL)))
    graph = GraphBuilder()
    join = graph.add_node(agent(JOINER), "join")
    readers = [graph.add_node(agent(f"{READER} It is {name}."), name) for name in names]
    for reader in readers:
        graph.add_edge(reader, join, lambda state: all(each in state.completed_nodes for each in readers))
    graph.set_session_manager(FileSessionManager("run-1", str(given.folder)))
    if given.calls:
        graph.set_max_node_executions(given.calls - 1)
    result = await graph.build().invoke_async(GOAL)
    if "join" not in result.results:
        raise RuntimeError(f"{result.status}: {list(result.results)}")
    return str(result.results["join"].result)


if __name__ == "__main__":
    main(run)
