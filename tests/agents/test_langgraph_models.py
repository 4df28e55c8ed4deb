"""Models inside a LangGraph graph: followed or governed, streamed, in threads, priced."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import anyio
import pytest

pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")

from langchain_core.language_models import FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.graph import MessagesState  # pyright: ignore[reportMissingTypeStubs]

import kairo_team as kt
from kairo_team.agents.langgraph import governed
from tests.agents.langgraph_double import Scripted, Streaming, asking, asks, graph_of, said, work
from tests.agents.langgraph_ways import WAYS, Dose, calls
from tests.agents.loops import asyncio_alone

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@pytest.mark.real_time
async def test_a_governed_model_is_governed_once(sync: bool) -> None:
    model = governed(Scripted())
    result, witness = await work(graph_of(asking(model, sync=sync), asking(model.bind_tools([]), sync=sync)))
    assert (len(calls(witness)), result.usage.loops, result.usage.tokens) == (2, 2, 30)


@WAYS
async def test_a_streamed_reply_counts(wrap: Any) -> None:
    model = wrap(Streaming(replies=[said("one two three")]))
    pieces: list[str] = []

    async def stream(state: MessagesState) -> dict[str, Any]:
        pieces.extend([piece.text async for piece in model.astream(state["messages"])])
        return {"messages": [AIMessage("".join(pieces))]}

    result, witness = await work(graph_of(stream))
    assert (result.usage.tokens, len(calls(witness))) == (15, 1)
    assert "".join(pieces).strip() == "one two three"
    assert ("one two three" in pieces) is (wrap is governed), "a governed reply comes in one piece"


@pytest.mark.real_time
@pytest.mark.parametrize("sync", [False, True], ids=["stream", "invoke"])
@WAYS
async def test_synchronous_calls_are_followed_in_their_threads(wrap: Any, sync: bool) -> None:
    model = wrap(Streaming(replies=[said("one two")]))

    def node(state: MessagesState) -> dict[str, Any]:
        assert threading.current_thread() is not threading.main_thread()
        if sync:
            return {"messages": [model.invoke(state["messages"])]}
        return {"messages": [AIMessage("".join(piece.text for piece in model.stream(state["messages"])))]}

    result, witness = await work(graph_of(node), budget=kt.Budget(tokens=9000))
    assert (result.output.strip(), result.usage.tokens, len(calls(witness))) == ("one two", 15, 1)


@pytest.mark.real_time
@WAYS
async def test_a_loop_of_its_own_in_a_thread_is_followed_too(wrap: Any) -> None:
    model = wrap(Scripted())

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [asyncio.run(model.ainvoke(state["messages"]))]}

    result, witness = await work(graph_of(node))
    assert (result.output, result.usage.tokens, len(calls(witness))) == ("done", 15, 1)


@WAYS
async def test_a_call_that_blocks_the_event_loop_is_refused(wrap: Any) -> None:
    model = Scripted()

    async def blocking(state: MessagesState) -> dict[str, Any]:
        return {"messages": [wrap(model).invoke(state["messages"])]}

    result, _ = await work(graph_of(blocking))
    assert result["t"].error is not None
    assert "would hold up the whole team: await its async form (ainvoke)" in result["t"].error
    assert model.log == []


@pytest.mark.real_time
@WAYS
async def test_a_synchronous_call_in_flight_does_not_keep_the_run(wrap: Any) -> None:
    """Its thread cannot be interrupted: it is left behind, its hold charged, and no call is made from it any more."""
    let_go, late = threading.Event(), list[object]()

    def hold(*_: Any) -> AIMessage:
        let_go.wait(120)
        return said("done")

    model = Scripted(replies=[hold], max_tokens=40)

    def node(state: MessagesState) -> dict[str, Any]:
        try:
            wrap(model).invoke(state["messages"])
            wrap(model).invoke(state["messages"])
        except BaseException as error:
            late.append(error)
            raise
        return {"messages": []}

    result, _ = await work(graph_of(node), budget=kt.Budget(seconds=0.5, tokens=9000))
    assert result.halt is kt.HaltReason.TIME_BUDGET_EXCEEDED
    assert result.duration < 60
    assert result.usage.tokens > 40
    let_go.set()
    with anyio.fail_after(60):
        while not late:
            await anyio.sleep(0.001)
    assert len(model.log) == 1


async def test_what_is_not_seen_of_a_followed_model_is_seen_of_a_governed_one() -> None:
    """A call that is given no callbacks leaves LangChain nobody to tell."""
    seen: list[int] = []
    for model in (Scripted(), governed(Scripted())):

        async def deaf(state: MessagesState, model: Any = model) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"], {"callbacks": []})]}

        result, _ = await work(graph_of(deaf))
        seen.append(result.usage.tokens)
    assert seen == [0, 15]


async def test_outside_a_team_a_governed_model_is_what_it_was() -> None:
    plain = Streaming(replies=[said("one two")])
    model = governed(plain)
    assert type(model).__name__ == "Streaming"
    assert isinstance(model, Streaming)
    assert governed(model) is model
    assert (await model.ainvoke("hi")).text == "one two"
    assert model.invoke("hi").text == "one two"
    assert len([piece async for piece in model.astream("hi")]) > 2
    assert len(list(model.stream("hi"))) > 2
    assert type(plain) is Streaming


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # LangChain forgets the second prompt
async def test_several_prompts_in_one_call_are_refused_of_a_followed_model_and_held_of_a_governed_one() -> None:
    for model, tokens in ((Scripted(), 0), (governed(Scripted()), 30)):

        def batch_of(model: Any) -> Any:
            async def batch(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
                result = await model.agenerate([state["messages"]] * 2, callbacks=config.get("callbacks"))
                return {"messages": [result.generations[0][0].message]}

            return batch

        result, _ = await work(graph_of(batch_of(model)), budget=kt.Budget(tokens=20_000))
        assert result.usage.tokens == tokens
        assert ("make a call for each prompt" in (result["t"].error or "")) is (tokens == 0)
    gc.collect()  # what LangChain forgets is found here, and not in a later test


class Router(Scripted):
    """A model that asks another one."""

    inner: Any = None

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        return ChatResult(generations=[ChatGeneration(message=await self.inner.ainvoke(messages))])


@pytest.mark.parametrize("inner", [Scripted(), governed(Scripted())], ids=["plain inside", "governed inside"])
@WAYS
async def test_a_model_that_asks_another_is_counted_once_where_it_is_governed(wrap: Any, inner: Any) -> None:
    result, witness = await work(graph_of(asking(wrap(Router(inner=inner)))))
    times = 1 if wrap is governed else 2
    assert (result.usage.tokens, len(calls(witness))) == (15 * times, times)


async def test_low_level_calls_without_callbacks_are_seen_of_a_governed_model_alone() -> None:
    for model, tokens in ((Scripted(), 0), (governed(Scripted()), 15)):

        def low(model: Any) -> Any:
            async def node(state: MessagesState) -> dict[str, Any]:
                return {"messages": [(await model.agenerate([state["messages"]])).generations[0][0].message]}

            return node

        result, _ = await work(graph_of(low(model)))
        assert (result.output, result.usage.tokens) == ("done", tokens)


async def test_a_model_of_text_completion_is_followed() -> None:
    model = FakeListLLM(responses=["done"])

    async def complete(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(await model.ainvoke(state["messages"]))]}

    result, witness = await work(graph_of(complete))
    (call,) = calls(witness)
    assert (result.output, call.outcome, result.usage.tokens) == ("done", "unknown", call.held)


@WAYS
async def test_dollars_are_held_and_settled_by_the_price_table(wrap: Any) -> None:
    model = Scripted(replies=[said("done", 100, 10)], max_tokens=50)
    prices = {"scripted:*": kt.Price(input=1, output=10)}
    result, _ = await work(graph_of(asking(wrap(model))), budget=kt.Budget(dollars=1), prices=prices)
    assert str(result.usage.dollars) == "0.0002"
    result, _ = await work(graph_of(asking(wrap(model))), budget=kt.Budget(dollars="0.0001"), prices=prices)
    assert result.usage.dollars == 0
    assert "dollar" in result["t"].error
    assert len(model.log) == 1


@WAYS
async def test_a_model_without_a_price_is_refused_under_a_dollar_limit(wrap: Any) -> None:
    model = Scripted(max_tokens=50)
    result, _ = await work(graph_of(asking(wrap(model))), budget=kt.Budget(dollars=1))
    assert "the price of model 'scripted:model' is unknown" in result["t"].error
    assert model.log == []


async def test_a_model_that_never_streamed_does_not_seem_to() -> None:
    assert len([piece async for piece in governed(Scripted()).astream("hi")]) == 1


async def test_a_typed_reply_of_a_governed_model_is_governed() -> None:
    model = governed(Scripted(replies=[asks("Dose", mg=5)]))

    async def typed(state: MessagesState) -> dict[str, Any]:
        dose: Any = await model.with_structured_output(Dose).ainvoke(state["messages"])
        return {"messages": [AIMessage(f"{dose.mg} mg")]}

    class Named(Scripted):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.bind(tools=[{"name": tool.__name__, "parameters": tool.model_json_schema()} for tool in tools])

    model = governed(Named(replies=[asks("Dose", mg=5)]))
    result, _ = await work(graph_of(typed))
    assert (result.output, result.usage.tokens) == ("5 mg", 15)


def test_governed_says_what_it_cannot_take() -> None:
    with pytest.raises(ValueError, match="takes a LangChain chat model, not 'gpt'"):
        governed("gpt")  # type: ignore[type-var]
    with pytest.raises(ValueError, match="bind to it afterwards"):
        governed(Scripted().bind(stop=["."]))  # type: ignore[type-var]
    with pytest.raises(ValueError, match=r"unknown for GenericFakeChatModel.*limit='\.\.\.'"):
        governed(GenericFakeChatModel(messages=iter(["x"])))


async def test_the_keyword_that_limits_a_reply_can_be_named() -> None:
    limits: list[Any] = []

    class Odd(GenericFakeChatModel):
        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            limits.append(kwargs)
            return await super()._agenerate(messages)

    odd = Odd(messages=iter([said("done")] * 3))
    result, _ = await work(graph_of(asking(governed(odd, limit="how_long"))), budget=kt.Budget(tokens=900))
    assert (result.output, list(limits[0])) == ("done", ["how_long"])
    assert 0 < limits[0]["how_long"] < 900
