"""LangGraph: a checkpointer, and `interrupt`."""

from __future__ import annotations

import html
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt


class State(TypedDict):
    """What the nodes share."""

    text: str
    approved: bool


def page(model: Any, saver: Any, form: dict[str, str]) -> str:
    """Return a page with the question, or with the result; `form` is what a person sent."""

    def write(_: State) -> dict[str, Any]:
        return {"text": model.invoke("Explain tides.").text}

    def review(state: State) -> dict[str, Any]:
        return {"approved": interrupt(state["text"])}

    builder = StateGraph(State)
    builder.add_node("write", write)
    builder.add_node("review", review)
    builder.add_edge(START, "write")
    builder.add_edge("write", "review")
    builder.add_edge("review", END)
    graph = builder.compile(saver)
    config = {"configurable": {"thread_id": "tides"}}
    if form and graph.get_state(config).next:
        graph.invoke(Command(resume=form["say"] == "yes"), config)
    if not graph.get_state(config).values:
        graph.invoke({}, config)
    state = graph.get_state(config)
    for question in state.interrupts:
        return (
            f"<form method=post><pre>{html.escape(question.value)}</pre><button name=say value=yes>Yes</button></form>"
        )
    return f"{state.values['approved']}: {html.escape(state.values['text'])}"
