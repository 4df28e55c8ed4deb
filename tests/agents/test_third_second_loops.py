"""A model of another library that kept connections of an event loop which ended works at once in the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Protocol

import pytest

pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from pydantic import PrivateAttr

import kairo_team as kt
from kairo_team.agents.dead_connections import close_dead_connections
from kairo_team.agents.langgraph import LangGraphAgent, governed
from tests.models.wires import PROMPT_TOKENS, REPLY_TOKENS, Wires

pytestmark = pytest.mark.real_time


class Plain(BaseChatModel):
    """A model with a client of httpx of its own, in a private field."""

    url: str
    max_tokens: int = 40
    _http_client: httpx.AsyncClient = PrivateAttr(default_factory=httpx.AsyncClient)

    @property
    def _llm_type(self) -> str:
        return "plain"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(**await self._fields()))])

    async def _astream(self, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=AIMessageChunk(**await self._fields()))

    async def _fields(self) -> dict[str, Any]:
        body = (await self._http_client.post(f"{self.url}/v1/chat/completions", json={})).json()
        used = {"input_tokens": PROMPT_TOKENS, "output_tokens": REPLY_TOKENS, "total_tokens": 10}
        return {"content": body["choices"][0]["message"]["content"], "usage_metadata": used}


class Around(Plain):
    """A model that asks another one; its own client is never used."""

    asked: BaseChatModel

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=await self.asked.ainvoke(messages))])


def chat(wires: Wires) -> ChatOpenAI:
    """Return a model of a provider, whose client is shared between all that have its address."""
    options: dict[str, Any] = {"model": "m", "base_url": f"{wires.url}/v1", "api_key": "k", "max_tokens": 40}
    return ChatOpenAI(**options, max_retries=0)


def plain(wires: Wires) -> Plain:
    return Plain(url=wires.url)


def around(wires: Wires) -> Around:
    return Around(url="", asked=chat(wires))


async def invoked(model: Any, messages: Any) -> Any:
    return await model.ainvoke(messages)


async def streamed(model: Any, messages: Any) -> Any:
    pieces = [piece async for piece in model.astream(messages)]
    return pieces[0]


class Make(Protocol):
    """Makes a model of LangChain that asks the wires."""

    def __call__(self, wires: Wires) -> BaseChatModel: ...


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wires]:
    wires = Wires()
    for name, value in wires.environment.items():
        monkeypatch.setenv(name, value)
    yield wires
    wires.stop()


def ask(agent: Any) -> kt.TeamResult:
    """Run a team in an event loop that ends with it."""
    team = kt.Team("desk", [kt.Member("writer", agent)])
    return kt.run_sync(team, "Say it.", budget=kt.Budget(tokens=20_000))


def check_each_loop_asks_once(agent: Any, wires: Wires, *, before: int = 0) -> None:
    """Let the agent work in three event loops, one after the other: one request and one charge in each."""
    for number in (1, 2, 3):
        result = ask(agent)
        assert (result.error, result.output) == (None, "Fine.")
        assert (len(wires.asked) - before, wires.opened - before) == (number, number)
        assert (result.usage.tokens, result.usage.loops) == (PROMPT_TOKENS + REPLY_TOKENS, 1)


def observed(model: Any) -> Any:
    """Return the model itself: its calls are followed by LangChain's callbacks."""
    return model


@pytest.mark.parametrize(
    ("make", "wrap", "call"),
    [
        (chat, governed, invoked),
        (chat, observed, invoked),
        (plain, governed, streamed),
        (plain, observed, streamed),
        (around, governed, invoked),
    ],
)
def test_third_o42_a_model_of_langchain_works_at_once_in_a_second_loop(
    wires: Wires, make: Make, wrap: Callable[[Any], Any], call: Any
) -> None:
    """Also where the first loop was not a team's; what dead loops left is closed, without a warning."""
    model = make(wires)
    asyncio.run(call(model, [HumanMessage("Say it.")]))
    asked = wrap(model)

    async def say(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await call(asked, state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("say", say)
    graph.add_edge(START, "say")
    graph.add_edge("say", END)
    check_each_loop_asks_once(LangGraphAgent(graph.compile()), wires, before=1)
    assert wires.open == 1
    close_dead_connections(model)
    assert wires.all_closed()


@pytest.mark.parametrize("interface", ["chat_completions", "responses"])
def test_third_o42_a_model_of_the_agents_sdk_works_at_once_in_a_second_loop(wires: Wires, interface: str) -> None:
    agents = pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")
    from openai import AsyncOpenAI

    from kairo_team.agents.openai_agents import OpenAIAgent

    kind = agents.OpenAIChatCompletionsModel if interface == "chat_completions" else agents.OpenAIResponsesModel
    model = kind("m", AsyncOpenAI())
    check_each_loop_asks_once(OpenAIAgent(agents.Agent(name="writer", model=model)), wires)
    close_dead_connections(model)
    assert wires.all_closed()


def test_third_o42_connections_of_a_loop_that_goes_on_stay_open(wires: Wires) -> None:
    model = chat(wires)

    async def twice() -> None:
        await model.ainvoke("Say it.")
        await asyncio.to_thread(close_dead_connections, model)
        await model.ainvoke("Say it.")

    asyncio.run(twice())
    assert (len(wires.asked), wires.opened) == (2, 1)
    close_dead_connections(model)
    assert wires.all_closed()


class Unlike:
    """A client with other names inside, or with names that mean something else."""

    def __init__(self, **inside: Any) -> None:
        vars(self).update(inside)


@pytest.mark.parametrize(
    "model",
    [
        None,
        Unlike(client=None),
        Unlike(client=Unlike(_transport=Unlike(_pool=Unlike(_connections={})))),
        Unlike(client=Unlike(_pool=Unlike(_connections=[None, object(), Unlike(_connection=object())]))),
        Unlike(_pool=Unlike(_connections=[Unlike(_call_connection_lost=None, _loop=None)])),
    ],
)
def test_third_o42_a_client_that_is_made_otherwise_is_left_alone(model: Any) -> None:
    close_dead_connections(model)


def test_third_o42_what_holds_itself_is_looked_at_once() -> None:
    circle = Unlike()
    circle.client = circle  # type: ignore[attr-defined]  # whatever it is
    close_dead_connections(circle)
