"""LangGraph: a `StateGraph` with one node a call, whose answers are one dict, and `AsyncSqliteSaver`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph

from benchmarks.peers.durable.experiment import PROMPT, RUN, Ask, Go, Graph, main


def _together(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    return {**one, **other}


class State(TypedDict):
    """What the nodes share."""

    answers: Annotated[dict[str, str], _together]


@asynccontextmanager
async def prepare(graph: Graph, ask: Ask, folder: Path, way: str) -> AsyncGenerator[Go]:
    """Compile the graph."""

    def node(name: str) -> Any:
        async def act(_state: State) -> dict[str, dict[str, str]]:
            return {"answers": {name: await ask(name, f"{name} {PROMPT}")}}

        return act

    builder = StateGraph(State)
    for name, needs in graph.items():
        builder.add_node(name, node(name))
        builder.add_edge(list(needs) if needs else START, name)
    recorded = way != "nothing recorded"
    async with AsyncSqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        if recorded:
            await saver.setup()
        compiled = builder.compile(checkpointer=saver if recorded else None)

        async def go(again: bool) -> Sequence[str]:
            config: Any = {"recursion_limit": 100, "configurable": {"thread_id": RUN}}
            how: Any = {"durability": "sync" if way == 'durability="sync"' else "async"} if recorded else {}
            return list((await compiled.ainvoke(None if again else {"answers": {}}, config, **how))["answers"])

        yield go


if __name__ == "__main__":
    main("langgraph", prepare, ['durability="async"', 'durability="sync"', "nothing recorded"])
