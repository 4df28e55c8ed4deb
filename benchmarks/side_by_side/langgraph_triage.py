"""LangGraph: `Command(goto=[...])` takes the branches that the sorter names; checkpoints on SQLite."""

from __future__ import annotations

import json
import operator
from typing import Annotated, TypedDict

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from benchmarks.side_by_side.jobs import ANSWERER, MESSAGE, SORTER, SPECIALISTS
from benchmarks.side_by_side.program import MODEL, Given, main


class State(TypedDict, total=False):
    """What the nodes share."""

    message: str
    found: Annotated[list[str], operator.add]
    result: str


async def run(given: Given) -> str:
    """Sort the message, ask the specialists it is for, answer."""
    model = ChatOpenAI(model=MODEL, base_url=given.url)

    async def ask(told: str, asked: str) -> str:
        return (await model.ainvoke([("system", told), ("user", asked)])).text

    async def sort(state: State) -> Command:
        return Command(goto=json.loads(await ask(SORTER, state["message"])))

    async def answer(state: State) -> State:
        return {"result": await ask(ANSWERER, "\n".join([state["message"], *state["found"]]))}

    def specialist(told: str):  # noqa: ANN202
        async def look(state: State) -> State:
            return {"found": [await ask(told, state["message"])]}

        return look

    def let_go(_state: State) -> State:
        return {}

    graph = StateGraph(State)
    graph.add_node("sort", sort, destinations=tuple(SPECIALISTS))
    graph.add_node("answer", answer)
    for name, told in SPECIALISTS.items():
        graph.add_node(name, specialist(told), error_handler=let_go)
        graph.add_edge(name, "answer")
    graph.add_edge(START, "sort")
    graph.add_edge("answer", END)
    async with AsyncSqliteSaver.from_conn_string(str(given.folder / "checkpoints.db")) as saver:
        config = {"configurable": {"thread_id": "run-1"}}
        state = await graph.compile(checkpointer=saver).ainvoke(None if given.again else {"message": MESSAGE}, config)
    return state["result"]


if __name__ == "__main__":
    main(run)
