"""LangGraph: a conditional edge leads back to the writer until the tests pass; checkpoints on SQLite."""

from __future__ import annotations

from typing import TypedDict

from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.side_by_side.jobs import DOCUMENTER, ROUNDS, WRITE, WRITER, fault
from benchmarks.side_by_side.program import MODEL, Given, main


class State(TypedDict, total=False):
    """What the nodes share."""

    code: str
    failed: str | None
    rounds: int
    result: str


async def run(given: Given) -> str:
    """Write until the tests pass, then document."""
    model = ChatOpenAI(model=MODEL, base_url=given.url)

    async def ask(told: str, asked: str) -> str:
        return (await model.ainvoke([("system", told), ("user", asked)])).text

    async def write(state: State) -> State:
        return {"code": await ask(WRITER, f"{WRITE}\n{state['failed'] or ''}"), "rounds": state["rounds"] + 1}

    def test(state: State) -> State:
        return {"failed": fault(state["code"])}

    def after(state: State) -> str:
        if state["failed"] is None:
            return "document"
        return "write" if state["rounds"] < ROUNDS else END

    async def document(state: State) -> State:
        return {"result": await ask(DOCUMENTER, state["code"])}

    graph = StateGraph(State)
    graph.add_node("write", write)
    graph.add_node("test", test)
    graph.add_node("document", document)
    graph.add_edge(START, "write")
    graph.add_edge("write", "test")
    graph.add_conditional_edges("test", after, ["write", "document", END])
    graph.add_edge("document", END)
    async with AsyncSqliteSaver.from_conn_string(str(given.folder / "checkpoints.db")) as saver:
        config = {"configurable": {"thread_id": "run-1"}}
        begin = None if given.again else {"failed": None, "rounds": 0}
        state = await graph.compile(checkpointer=saver).ainvoke(begin, config)
    return state["result"]


if __name__ == "__main__":
    main(run)
