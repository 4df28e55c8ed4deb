"""What never reached a model of another library's agent: the address and the cause are said, and nothing is charged."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

BOARD = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
ONCE = kt.ModelRetry(retries=0)


def pydantic_ai(address: str) -> Any:
    """An agent of pydantic-ai."""
    pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from kairo_team.agents.pydantic_ai import PydanticAIAgent

    return PydanticAIAgent(Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=address, api_key="k"))))


def openai_agent(address: str) -> Any:
    """An agent of the OpenAI Agents SDK."""
    agents = pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")
    from openai import AsyncOpenAI

    from kairo_team.agents.openai_agents import OpenAIAgent

    model = agents.OpenAIChatCompletionsModel("m", AsyncOpenAI(base_url=address, api_key="k"))
    return OpenAIAgent(agents.Agent("pilot", model=model))


def graph(address: str, *, wrap: bool = False) -> Any:
    """A graph of LangGraph, whose model is only followed, or governed."""
    pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
    client = pytest.importorskip("langchain_openai", reason="the extra `langgraph` is not installed")
    from langgraph.graph import START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]

    from kairo_team.agents.langgraph import LangGraphAgent, governed

    model = client.ChatOpenAI(model="m", base_url=address, api_key="k", max_retries=0)
    model = governed(model) if wrap else model

    async def ask(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    return LangGraphAgent(builder.compile())


def governed_graph(address: str) -> Any:
    """A graph of LangGraph with a governed model."""
    return graph(address, wrap=True)


AGENTS: dict[str, Callable[[str], Any]] = {
    "pydantic-ai": pydantic_ai,
    "OpenAI Agents SDK": openai_agent,
    "LangGraph, governed": governed_graph,
    "LangGraph, followed": graph,
}


async def outcome_of(agent: Any, goal: str = "Go.") -> tuple[str, int]:
    team = kt.Team("desk", [kt.Member("m", agent)], runtime=kt.Runtime(model_retry=ONCE))
    result = await kt.run(team, goal, budget=kt.Budget(tokens=90_000), coordinator=BOARD)
    assert result.exception is not None
    return str(result.error), result.usage.tokens


@pytest.mark.parametrize("kind", AGENTS)
async def test_third_o56_a_wrapped_agents_error_has_the_address_and_the_cause_and_is_free(kind: str) -> None:
    """The exception is the library's own, whose words are "Connection error."."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    error, tokens = await outcome_of(AGENTS[kind](f"{address}/v1"))
    assert f"ConnectionError: model 'openai:m' did not answer (connection): {address}: nothing listens there" in error
    assert tokens == 0


async def test_third_o37_a_graph_that_is_only_followed_cannot_send_half_a_character_and_says_so() -> None:
    error, tokens = await outcome_of(graph("http://127.0.0.1:9/v1"), "the tide \ud83d turns")
    assert "the request holds half of a character: build the graph with governed(model) to replace it" in error
    assert tokens == 0
