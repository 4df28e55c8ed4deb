"""LangGraph: a desk calls a tool to hand over, and its node returns `Command(goto=...)`; checkpoints on SQLite."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from benchmarks.side_by_side.jobs import BILLS, FRONT, MESSAGE, REFUNDS
from benchmarks.side_by_side.program import MODEL, Given, main

DESKS = {"front": (FRONT, ["billing"]), "billing": (BILLS, ["refunds"]), "refunds": (REFUNDS, [])}


async def run(given: Given) -> str:
    """Let the desks hand the message over until one answers."""
    model = ChatOpenAI(model=MODEL, base_url=given.url)

    def hand_over(to: str):  # noqa: ANN202
        @tool(f"transfer_to_{to}", description=f"Hand the customer over to {to}.")
        def transfer() -> str:
            return to

        return transfer

    def desk(told: str, others: list[str]):  # noqa: ANN202
        bound = model.bind_tools([hand_over(other) for other in others]) if others else model

        async def act(state: MessagesState) -> Command:
            reply = await bound.ainvoke([SystemMessage(told), *state["messages"]])
            for call in reply.tool_calls:
                done = ToolMessage("Handed over.", tool_call_id=call["id"])
                return Command(goto=call["name"].removeprefix("transfer_to_"), update={"messages": [reply, done]})
            return Command(goto=END, update={"messages": [reply]})

        return act

    graph = StateGraph(MessagesState)
    for name, (told, others) in DESKS.items():
        graph.add_node(name, desk(told, others), destinations=(*others, END))
    graph.add_edge(START, "front")
    async with AsyncSqliteSaver.from_conn_string(str(given.folder / "checkpoints.db")) as saver:
        config = {"configurable": {"thread_id": "run-1"}}
        begin = None if given.again else {"messages": [HumanMessage(MESSAGE)]}
        state = await graph.compile(checkpointer=saver).ainvoke(begin, config)
    return state["messages"][-1].text


if __name__ == "__main__":
    main(run)
