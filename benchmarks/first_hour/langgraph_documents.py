"""LangGraph: a graph that sends each document to a node, and a checkpointer. It has no limit in tokens or dollars."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.first_hour.jobs import DOCUMENTS


class State(TypedDict):
    """What the nodes share."""

    summaries: Annotated[list[str], operator.add]


def run(model: Any, saver: Any) -> str:
    """Summarise 200 documents; after Ctrl-C the same call resumes."""

    def read(state: dict[str, str]) -> dict[str, Any]:
        return {"summaries": [model.invoke(f"Summarise:\n{state['text']}").text]}

    builder = StateGraph(State)
    builder.add_node("read", read)
    builder.add_conditional_edges(START, lambda _: [Send("read", {"text": one}) for one in DOCUMENTS], ["read"])
    builder.add_edge("read", END)
    graph = builder.compile(saver)
    config = {"configurable": {"thread_id": "docs"}, "max_concurrency": 8}
    state = graph.get_state(config)
    given = None if state.values or state.next else {"summaries": []}
    return f"{len(graph.invoke(given, config)['summaries'])} summaries"
