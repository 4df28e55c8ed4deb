"""LangGraph: a graph that sends each part to a node."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.first_hour.jobs import CHUNKS


class State(TypedDict):
    """What the nodes share."""

    notes: Annotated[list[str], operator.add]
    gathered: str
    minutes: str


def run(model: Any) -> str:
    """Take notes of each part at the same time, gather them, edit the minutes."""

    def take(state: dict[str, str]) -> dict[str, Any]:
        return {"notes": [model.invoke(f"Take notes:\n{state['text']}").text]}

    def gather(state: State) -> dict[str, Any]:
        return {"gathered": model.invoke("Put the notes together:\n" + "\n".join(state["notes"])).text}

    def edit(state: State) -> dict[str, Any]:
        return {"minutes": model.invoke(f"Write the minutes: decisions first.\n{state['gathered']}").text}

    builder = StateGraph(State)
    for node in (take, gather, edit):
        builder.add_node(node.__name__, node)
    builder.add_conditional_edges(START, lambda _: [Send("take", {"text": one}) for one in CHUNKS], ["take"])
    builder.add_edge("take", "gather")
    builder.add_edge("gather", "edit")
    builder.add_edge("edit", END)
    return str(builder.compile().invoke({"notes": []})["minutes"])
