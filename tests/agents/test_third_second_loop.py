"""A LangChain model whose client has connections of an event loop that has ended."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from tests.models.wires import Wires

pytest.importorskip("langgraph")
openai = pytest.importorskip("langchain_openai")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # its client leaves connections open
def test_third_o42_a_langchain_model_works_at_once_in_a_second_loop() -> None:
    graphs: Any = pytest.importorskip("langgraph.graph")
    from kairo_team.agents.langgraph import LangGraphAgent, governed

    wires = Wires()
    model = governed(
        openai.ChatOpenAI(model="gpt-4o-mini", base_url=f"{wires.url}/v1", api_key="k", max_retries=0, max_tokens=20)
    )

    async def ask(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = graphs.StateGraph(graphs.MessagesState)
    graph.add_node("ask", ask)
    graph.add_edge(graphs.START, "ask")
    graph.add_edge("ask", graphs.END)
    team = kt.Team("desk", [kt.Member("clerk", LangGraphAgent(graph.compile()))])
    try:
        results = [kt.run_sync(team, "Go.") for _ in range(3)]
    finally:
        wires.stop()
    assert [(one.status.value, one.outcomes[0].attempts, one.usage.tokens) for one in results] == [
        ("completed", 1, 10)
    ] * 3
    assert len(wires.asked) == 3
