"""LangGraph: `Send` makes a node run once a document; an error handler lets a document go; checkpoints on SQLite."""

from __future__ import annotations

import json
import operator
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.side_by_side.jobs import GOAL, JOINER, LISTER, READER
from benchmarks.side_by_side.program import MODEL, Given, main


class State(TypedDict, total=False):
    """What the nodes share."""

    documents: list[str]
    summaries: Annotated[list[str], operator.add]
    result: str


async def run(given: Given) -> str:
    """List the documents, summarise each, join the summaries."""
    model = ChatOpenAI(model=MODEL, base_url=given.url)

    async def ask(told: str, asked: str) -> str:
        return (await model.ainvoke([("system", told), ("user", asked)])).text

    async def split(_state: State) -> State:
        return {"documents": json.loads(await ask(LISTER, GOAL))}

    async def read(name: str) -> State:
        return {"summaries": [await ask(READER, name)]}

    async def gather(state: State) -> State:
        return {"result": await ask(JOINER, "\n".join(state["summaries"]))}

    def let_go(_name: str) -> State:
        return {}

    graph = StateGraph(State)
    graph.add_node("split", split)
    graph.add_node("read", read, error_handler=let_go)
    graph.add_node("gather", gather)
    graph.add_edge(START, "split")
    graph.add_conditional_edges("split", lambda state: [Send("read", name) for name in state["documents"]], ["read"])
    graph.add_edge("read", "gather")
    graph.add_edge("gather", END)
    async with AsyncSqliteSaver.from_conn_string(str(given.folder / "checkpoints.db")) as saver:
        config = {"configurable": {"thread_id": "run-1"}}
        state = await graph.compile(checkpointer=saver).ainvoke(None if given.again else {"summaries": []}, config)
    return state["result"]


if __name__ == "__main__":
    main(run)
