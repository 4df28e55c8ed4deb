"""A LangGraph graph under a budget: nothing passes a limit, and what ends an attempt ends the graph."""

from __future__ import annotations

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's graphs have no stubs, and the types of what builds them are not complete.
import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")

from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy, interrupt

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent, governed
from kairo_team.governance import MaxIterations
from tests.agents.langgraph_double import Scripted, Witness, asking, dear, graph_of, said, work
from tests.agents.langgraph_ways import WAYS, calls
from tests.agents.loops import asyncio_alone

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


# -- the budget -----------------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@WAYS
async def test_kf_b01_sixteen_branches_never_spend_more_than_there_is(wrap: Any, sync: bool) -> None:
    """B01: sixteen parallel callers under 250 tokens spent 1600. Calls of up to 100 tokens here."""
    model = Scripted(replies=[dear], max_tokens=90, seconds=0.01)
    short: dict[str, Any] = {"input": lambda assignment, context: {"messages": [HumanMessage("go")]}}
    graph = graph_of(*[asking(wrap(model), sync=sync)] * 16, side_by_side=True)
    result, _ = await work(graph, budget=kt.Budget(tokens=250), options=short)
    assert 0 < result.usage.tokens <= 250
    assert result["t"].error is not None
    assert "tokens" in result["t"].error
    assert 1 <= len(model.log) <= 3


async def test_kf_b01_sixteen_tasks_with_one_graph_never_spend_more_than_there_is() -> None:
    model = Scripted(replies=[dear], max_tokens=90, seconds=1.0)
    agent = LangGraphAgent(
        graph_of(asking(model)), input=lambda assignment, context: {"messages": [HumanMessage("go")]}
    )
    witness = Witness(agent)
    result = await witness.run(*(kt.Task(f"t{n}", "Do it.") for n in range(16)), budget=kt.Budget(tokens=250))
    assert 0 < result.usage.tokens <= 250


async def test_a_governed_model_is_clamped_to_what_is_left() -> None:
    model = Scripted(replies=[dear])
    graph = graph_of(asking(governed(model)))
    result, _ = await work(graph, budget=kt.Budget(tokens=700))
    assert result.status is kt.TeamStatus.COMPLETED
    (limit,) = model.limits
    assert limit is not None
    assert limit < 700


async def test_a_clamp_lowers_the_limit_that_was_bound_to_the_model_too() -> None:
    class Keyword(Scripted):
        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            self.log.append(kwargs["max_tokens"])
            return self._answer(messages)

    model = Keyword()
    await work(graph_of(asking(governed(model).bind(max_tokens=5000))), budget=kt.Budget(tokens=900))
    assert model.log[0] < 900  # type: ignore[operator]


async def test_a_followed_model_is_refused_where_its_whole_limit_does_not_fit() -> None:
    model = Scripted(max_tokens=690)
    result, _ = await work(graph_of(asking(model)), budget=kt.Budget(tokens=700))
    assert model.log == []
    assert result.usage.tokens == 0
    assert "only governed(model) can cut it short" in result["t"].error
    assert "room for only" in result["t"].error


async def test_a_followed_model_without_a_limit_is_held_with_4096_tokens() -> None:
    model = Scripted()
    _, witness = await work(graph_of(asking(model)), budget=kt.Budget(tokens=9000))
    assert calls(witness)[0].held > 4096


@WAYS
async def test_kf_b17_a_reply_that_does_not_say_what_it_used_is_charged_its_hold(wrap: Any) -> None:
    model = Scripted(replies=[AIMessage("done")], max_tokens=50)
    result, witness = await work(graph_of(asking(wrap(model))), budget=kt.Budget(tokens=9000))
    (call,) = calls(witness)
    assert call.outcome == "unknown"
    assert result.usage.tokens == call.held > 50


@WAYS
async def test_a_call_that_fails_is_charged_its_hold_and_raises_what_it_raised(wrap: Any) -> None:
    model = Scripted(replies=[OSError("the line is dead")], max_tokens=50)
    result, witness = await work(graph_of(asking(wrap(model))))
    (call,) = calls(witness)
    assert (call.outcome, result["t"].error) == ("error", "OSError: the line is dead")
    assert result.usage.tokens == call.held


async def test_kf_b02_a_subgraph_counts_on_the_same_budget() -> None:
    """B02: each nested agent got a fresh counter."""
    model = Scripted(replies=[said("x", 100, 50)], max_tokens=50)
    inner = graph_of(asking(model), asking(model))
    result, witness = await work(graph_of(asking(model), inner, inner), budget=kt.Budget(loops=3))
    assert len(model.log) == 3
    assert result["t"].error is not None
    assert "loop_budget_exceeded" in result["t"].error
    assert result.usage.loops == 3
    assert len(calls(witness)) == 3


async def test_a_reply_of_langchains_cache_is_free() -> None:
    model = Scripted(cache=InMemoryCache())
    result, _ = await work(graph_of(asking(model), asking(model)))
    assert (len(model.log), result.usage.tokens) == (2, 30)
    fixed: dict[str, Any] = {"input": lambda assignment, context: {"messages": [HumanMessage("the same")]}}
    await work(graph_of(asking(model)), options=fixed)
    again, _ = await work(graph_of(asking(model)), options=fixed)
    assert (len(model.log), again.usage.tokens) == (3, 0)


async def test_a_governed_model_asks_no_cache() -> None:
    model = Scripted(cache=InMemoryCache())
    fixed: dict[str, Any] = {"input": lambda assignment, context: {"messages": [HumanMessage("the same")]}}
    for _ in range(2):
        await work(graph_of(asking(governed(model))), options=fixed)
    assert len(model.log) == 2


async def test_pictures_are_held_for_too() -> None:
    model = Scripted(max_tokens=10)
    picture = HumanMessage(
        [{"type": "text", "text": "look"}, {"type": "image", "base64": "A" * 5000, "mime_type": "x"}]
    )
    _, witness = await work(graph_of(asking(model)), options={"input": lambda a, c: {"messages": [picture]}})
    assert calls(witness)[0].held > 5000


# -- what ends an attempt -------------------------------------------------------------------------------


def swallowing(node: Any) -> Any:
    """A node that goes on whatever happens in it."""

    async def careless(state: MessagesState) -> dict[str, Any]:
        try:
            made: dict[str, Any] = await node(state)
        except Exception:  # noqa: BLE001 - that is the point
            return {"messages": [AIMessage("never mind")]}
        return made

    return careless


def retrying(model: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("ask", asking(model), retry_policy=RetryPolicy(max_attempts=5, retry_on=Exception))
    builder.add_edge(START, "ask")
    return builder.compile()


def flattening(model: Any) -> Any:
    async def flat(state: MessagesState) -> dict[str, Any]:
        try:
            made: dict[str, Any] = await asking(model)(state)
        except Exception as error:  # noqa: BLE001 - that is the point
            raise RuntimeError(str(error)) from None
        return made

    return flat


SWALLOWERS: dict[str, Callable[[Any], list[Any]]] = {
    "caught": lambda model: [swallowing(asking(model)), swallowing(asking(model))],
    "retried": lambda model: [retrying(model)],
    "flattened": lambda model: [flattening(model)],
    "fallback": lambda model: [asking(model.with_fallbacks([Scripted()]))],
}


@pytest.mark.parametrize("make", SWALLOWERS.values(), ids=SWALLOWERS)
@WAYS
async def test_kf_b10_a_halt_crosses_the_graph_whatever_catches_it(make: Any, wrap: Any) -> None:
    """B10: the halt was swallowed by callbacks or flattened to RuntimeError(str)."""
    model = Scripted()
    graph = graph_of(asking(Scripted()), *make(wrap(model)))
    result, witness = await work(graph, budget=kt.Budget(loops=1))
    assert witness.outputs == []
    assert result["t"].error is not None
    assert "loop_budget_exceeded" in result["t"].error
    assert model.log == []


@WAYS
async def test_a_constraint_ends_the_graph_and_what_was_said_so_far_is_reviewed(wrap: Any) -> None:
    model = Scripted(replies=[said("the first half")])
    graph = graph_of(asking(wrap(model)), swallowing(asking(wrap(model))))
    result, _ = await work(graph, constraints=[MaxIterations(1)])
    assert len(model.log) == 1
    assert result["t"].artifact is not None
    assert (result["t"].artifact.text, result["t"].artifact.partial) == ("the first half", True)


@WAYS
async def test_a_deadline_ends_a_call_in_flight_and_what_was_said_comes_back(wrap: Any) -> None:
    model = Scripted(replies=[said("the first half")], max_tokens=40)
    slow = Scripted(seconds=1000, max_tokens=40)
    result, witness = await work(graph_of(asking(wrap(model)), asking(wrap(slow))), budget=kt.Budget(seconds=5))
    assert slow.aborted == [1]
    assert result["t"].artifact is not None
    assert (result["t"].artifact.text, result["t"].artifact.partial) == ("the first half", True)
    assert result.halt is kt.HaltReason.TIME_BUDGET_EXCEEDED
    assert result.usage.tokens > 15 + 40, "the call that was cut off is charged what was held for it"
    assert result.duration < 6
    assert [call.outcome for call in calls(witness)] == ["ok", "unknown"]


@WAYS
async def test_what_a_node_gives_up_is_charged_and_blocks_nobody(wrap: Any) -> None:
    slow, quick = Scripted(seconds=1000, max_tokens=300), Scripted(max_tokens=300)

    async def impatient(state: MessagesState) -> dict[str, Any]:
        with anyio.move_on_after(2):
            await wrap(slow).ainvoke(state["messages"])
        return {"messages": [await wrap(quick).ainvoke(state["messages"])]}

    result, _ = await work(graph_of(impatient), budget=kt.Budget(tokens=1000, seconds=60))
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    assert slow.aborted == [1]
    assert 300 < result.usage.tokens <= 1000
    assert result.duration < 10


async def test_the_caller_leaving_ends_calls_in_flight() -> None:
    slow = Scripted(seconds=1000)
    with anyio.move_on_after(3) as scope:
        await work(graph_of(*[asking(slow)] * 4, side_by_side=True))
    assert scope.cancelled_caught
    assert len(slow.aborted) == 4


async def test_a_node_that_ignores_its_cancellation_does_not_keep_the_run() -> None:
    async def stubborn(state: MessagesState) -> dict[str, Any]:
        try:
            await anyio.sleep(1000)
        finally:
            await asyncio.sleep(1000)
        return {}

    graph = graph_of(asking(Scripted(replies=[said("the first half")])), stubborn)
    result, _ = await work(graph, budget=kt.Budget(seconds=5))
    assert result.halt is kt.HaltReason.TIME_BUDGET_EXCEEDED
    assert result["t"].artifact is not None
    assert result["t"].artifact.text == "the first half"
    assert result.duration < 20


async def test_wide_graphs_are_held_as_fast_as_narrow_ones() -> None:
    """T30: a call costs the same however many there are; 200 branches wait for one another and none is lost."""
    model = Scripted(max_tokens=50, seconds=0.5)
    graph = graph_of(*[asking(model)] * 200, side_by_side=True)
    result, _ = await work(graph, budget=kt.Budget(tokens=200 * 15 + 1000))
    assert (result.status, result.usage.tokens, len(model.log)) == (kt.TeamStatus.COMPLETED, 3000, 200)


@pytest.mark.parametrize("text", ["not yet", ""])
async def test_the_recursion_limit_is_a_turn_limit_that_says_what_to_do(text: str) -> None:
    """As in the other wrappers; without a text there is nothing to review, and the error says what to do."""
    builder = StateGraph(MessagesState)

    async def again(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(text)]}

    builder.add_node("again", again)
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")
    result, _ = await work(builder.compile(), options={"config": {"recursion_limit": 4}})
    said = result["t"].error or " ".join(result["t"].warnings)
    assert "within the 4 steps" in said
    assert "recursion_limit" in said
    assert result["t"].artifact == (kt.Artifact(text, partial=True) if text else None)
    assert result.status == ("degraded" if text else "failed")


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["bare", "checkpointer"])
async def test_an_interrupt_is_a_failed_attempt_that_is_not_tried_again(saver: Any) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("may I?"))]}

    graph = graph_of(asking(Scripted(replies=[said("a draft")])), ask, checkpointer=saver)
    result, witness = await work(graph)
    assert result["t"].error is not None
    assert "which cannot be given here" in result["t"].error
    assert result["t"].attempts == 1
    assert witness.outputs[0].text == "a draft"


async def test_a_graph_that_fails_fails_the_attempt() -> None:
    def broken(state: MessagesState) -> dict[str, Any]:
        raise LookupError("no such page")

    result, _ = await work(graph_of(swallowing(asking(Scripted())), broken))
    assert result["t"].error is not None
    assert result["t"].error.startswith("LookupError")
