"""`LangGraphAgent`: the real library with a scripted chat model of LangChain behind it."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from typing import Any, TypedDict

import anyio
import pytest

pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")

from langchain_core.caches import InMemoryCache
from langchain_core.language_models import FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy, interrupt
from pydantic import BaseModel

import kairo_team as kt
from kairo_team import events
from kairo_team.agents.langgraph import LangGraphAgent, governed
from kairo_team.agents.langgraph_attempt import Followed, GraphAttempt
from kairo_team.errors import MissingExtra
from kairo_team.governance import MaxIterations
from kairo_team.testing import virtual_time
from kairo_team.testing.clocks import Backend
from tests.agents.langgraph_double import Scripted, Streaming, Witness, asking, asks, dear, graph_of, said, work

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize("wrap", [governed, lambda model: model], ids=["governed", "followed"])


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The library runs on asyncio alone."""
    return ("asyncio", {}) if request.node.get_closest_marker("real_time") else virtual_time("asyncio")


def calls(witness: Witness) -> list[events.ModelCalled]:
    return witness.recorder.of(events.ModelCalled)


# -- state in, state out ------------------------------------------------------------------------------


@WAYS
async def test_a_graph_does_a_task_and_everything_it_used_is_counted(wrap: Any) -> None:
    model = Scripted(replies=[said("a draft", 11, 3), said("the answer", 12, 4)])
    result, witness = await work(graph_of(asking(wrap(model)), asking(wrap(model))))
    assert (result.output, result.status) == ("the answer", kt.TeamStatus.COMPLETED)
    (output,) = witness.outputs
    assert output.usage == kt.Usage(23, 7)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens, result.usage.loops) == (23, 7, 2)
    assert output.turns_completed == 2
    assert [message.role for message in output.transcript] == ["user", "assistant", "assistant"]
    assert [(call.model, call.outcome) for call in calls(witness)] == [("scripted:model", "ok")] * 2


async def test_the_task_goes_in_as_messages_with_the_roles_instructions_above() -> None:
    model = Scripted()
    await work(graph_of(asking(model)), role=kt.Role("m", instructions="Be brief."))
    system, task = model.log[0]
    assert (system.type, system.text.strip()) == ("system", "Be brief.")
    assert task.type == "human"
    assert "The goal." in task.text
    assert "Do it." in task.text


async def test_functions_make_the_input_and_the_artifact() -> None:
    model = Scripted()
    options = {
        "input": lambda assignment, context: {"messages": [HumanMessage(assignment.task.id + context.role.id)]},
        "output": lambda state: kt.Artifact(f"{len(state['messages'])} messages", data={"n": 1}),
    }
    result, _ = await work(graph_of(asking(model)), options=options)
    assert model.log[0][0].text == "tm"
    assert (result.output, result.artifact.data) == ("2 messages", {"n": 1})


async def test_an_output_that_is_no_artifact_fails_the_attempt() -> None:
    result, _ = await work(graph_of(asking(Scripted())), options={"output": lambda state: 3})
    assert "output returns a string or an Artifact, not a int" in result["t"].error


class Figures(TypedDict):
    quarter: int
    total: int
    thing: object


async def test_a_state_without_messages_is_data() -> None:
    builder = StateGraph(Figures)
    builder.add_node("add", lambda state: {"total": state["quarter"] * 2})
    builder.add_edge(START, "add")
    result, _ = await work(builder.compile(), options={"input": lambda assignment, context: {"quarter": 3}})
    assert result.artifact.data == {"quarter": 3, "total": 6}
    assert result.output == '{"quarter":3,"total":6}'


class Report(MessagesState):
    pages: int
    secret: object


async def test_what_else_is_in_the_state_is_data_where_it_is_json() -> None:
    builder = StateGraph(Report)
    builder.add_node("write", lambda state: {"messages": [AIMessage("text")], "pages": 2, "secret": object()})
    builder.add_edge(START, "write")
    result, _ = await work(builder.compile())
    assert (result.output, result.artifact.data) == ("text", {"pages": 2})


class Dose(BaseModel):
    mg: int


class Typed(MessagesState):
    structured_response: Dose


@pytest.mark.parametrize("channel", [True, False], ids=["structured_response", "text"])
async def test_a_typed_answer_is_the_artifacts_data(channel: bool) -> None:
    made: dict[str, Any] = {"messages": [AIMessage('{"mg": 5}')]}
    builder = StateGraph(Typed)
    builder.add_node("write", lambda state: {**made, "structured_response": Dose(mg=5)} if channel else made)
    builder.add_edge(START, "write")
    witness = Witness(LangGraphAgent(builder.compile()), output_types={"dose": Dose})
    result = await witness.run(kt.Task("t", "Do it.", output_type="dose"))
    assert result["t"].artifact is not None
    assert result["t"].artifact.data_as(Dose) == Dose(mg=5)


async def test_a_graph_of_functions_is_a_graph_too() -> None:
    model = Scripted()

    @entrypoint()
    async def flow(question: str) -> str:
        return str((await model.ainvoke(question)).text)

    result, _ = await work(flow, options={"input": lambda assignment, context: "why"})
    assert (result.output, result.usage.tokens) == ("done", 15)


# -- the budget -----------------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
@WAYS
async def test_kf_b01_sixteen_branches_never_spend_more_than_there_is(wrap: Any, sync: bool) -> None:
    """B01: sixteen parallel callers under 250 tokens spent 1600. Calls of up to 100 tokens here."""
    model = Scripted(replies=[dear], max_tokens=90, seconds=0.01)
    short = {"input": lambda assignment, context: {"messages": [HumanMessage("go")]}}
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
    fixed = lambda assignment, context: {"messages": [HumanMessage("the same")]}  # noqa: E731
    await work(graph_of(asking(model)), options={"input": fixed})
    again, _ = await work(graph_of(asking(model)), options={"input": fixed})
    assert (len(model.log), again.usage.tokens) == (3, 0)


async def test_a_governed_model_asks_no_cache() -> None:
    model = Scripted(cache=InMemoryCache())
    fixed = {"input": lambda assignment, context: {"messages": [HumanMessage("the same")]}}
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


SWALLOWERS = {
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
    assert len(calls(witness)) == 1


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


async def test_the_recursion_limit_is_a_failed_attempt_that_says_what_to_do() -> None:
    builder = StateGraph(MessagesState)

    async def again(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("not yet")]}

    builder.add_node("again", again)
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")
    result, _ = await work(builder.compile(), options={"config": {"recursion_limit": 4}})
    assert result["t"].error is not None
    assert "all the 4 steps" in result["t"].error
    assert "recursion_limit" in result["t"].error
    assert result["t"].artifact is not None
    assert result["t"].artifact.text == "not yet"


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["bare", "checkpointer"])
async def test_an_interrupt_is_a_failed_attempt_that_is_not_tried_again(saver: Any) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(interrupt("may I?"))]}

    graph = graph_of(asking(Scripted(replies=[said("a draft")])), ask, checkpointer=saver)
    result, witness = await work(graph)
    assert result["t"].error is not None
    assert "nobody can give it here" in result["t"].error
    assert result["t"].attempts == 1
    assert witness.outputs[0].text == "a draft"


async def test_a_graph_that_fails_fails_the_attempt() -> None:
    def broken(state: MessagesState) -> dict[str, Any]:
        raise LookupError("no such page")

    result, _ = await work(graph_of(swallowing(asking(Scripted())), broken))
    assert result["t"].error is not None
    assert result["t"].error.startswith("LookupError")


# -- isolation ------------------------------------------------------------------------------------------


async def test_kf_t12_two_tasks_with_one_graph_and_one_checkpointer_never_mix() -> None:
    """T12: two parallel tasks shared one agent instance."""
    model = Scripted(replies=[lambda messages, most: said(f"about {messages[-1].text}")], seconds=1.0)
    agent = LangGraphAgent(
        graph_of(asking(model), checkpointer=InMemorySaver()),
        input=lambda assignment, context: {"messages": [HumanMessage(assignment.task.id)]},
    )
    ids = [f"t{number}" for number in range(8)]
    result = await Witness(agent).run(*(kt.Task(name, "Do it.") for name in ids))
    assert [outcome.artifact and outcome.artifact.text for outcome in result.outcomes] == [f"about {i}" for i in ids]
    assert all(len(messages) == 1 for messages in model.log)


async def test_a_team_inside_a_node_is_governed_by_itself_and_once() -> None:
    model = Scripted()
    inner = Witness(LangGraphAgent(graph_of(asking(model))))

    async def delegate(state: MessagesState) -> dict[str, Any]:
        result = await inner.run(budget=kt.Budget(tokens=9000))
        return {"messages": [AIMessage(result.output or "nothing")]}

    result, outer = await work(graph_of(delegate, checkpointer=InMemorySaver()))
    assert (result.output, result.usage.tokens) == ("done", 0)
    assert (len(calls(inner)), len(calls(outer))) == (1, 0)


# -- models ---------------------------------------------------------------------------------------------


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
    model = Scripted(seconds=0.6, max_tokens=40)
    late: list[object] = []

    def node(state: MessagesState) -> dict[str, Any]:
        wrap(model).invoke(state["messages"])
        try:
            wrap(model).invoke(state["messages"])
        except BaseException as error:
            late.append(error)
            raise
        return {"messages": []}

    result, _ = await work(graph_of(node), budget=kt.Budget(seconds=0.2, tokens=9000))
    assert result.halt is kt.HaltReason.TIME_BUDGET_EXCEEDED
    assert result.duration < 0.5
    assert result.usage.tokens > 40
    await anyio.sleep(0.8)
    assert len(model.log) == 1


async def test_what_is_not_seen_of_a_followed_model_is_seen_of_a_governed_one() -> None:
    """A call that is given no callbacks leaves LangChain nobody to tell."""
    seen = []
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
@pytest.mark.filterwarnings("ignore:coroutine 'ahandle_event' was never awaited")
async def test_several_prompts_in_one_call_are_refused_of_a_followed_model_and_held_of_a_governed_one() -> None:
    for model, tokens in ((Scripted(), 0), (governed(Scripted()), 30)):

        def batch_of(model: Any) -> Any:
            async def batch(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
                result = await model.agenerate([state["messages"]] * 2, callbacks=config["callbacks"])
                return {"messages": [result.generations[0][0].message]}

            return batch

        result, _ = await work(graph_of(batch_of(model)), budget=kt.Budget(tokens=20_000))
        assert result.usage.tokens == tokens
        assert ("call it for each" in (result["t"].error or "")) is (tokens == 0)


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
    with pytest.raises(ValueError, match=r"how GenericFakeChatModel limits a reply's tokens.*limit='\.\.\.'"):
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


# -- what is refused when it is built ---------------------------------------------------------------------


def bare() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("n", asking(Scripted()))
    builder.add_edge(START, "n")
    return builder


def figures() -> Any:
    builder = StateGraph(Figures)
    builder.add_node("n", lambda state: {})
    builder.add_edge(START, "n")
    return builder.compile()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: LangGraphAgent(bare()), ValueError, r"give it graph\.compile\(\)"),
        (lambda: LangGraphAgent("graph"), ValueError, "a compiled LangGraph graph, not .graph."),  # type: ignore[arg-type]
        (lambda: LangGraphAgent(None), ValueError, "not None"),  # type: ignore[arg-type]
        (lambda: LangGraphAgent(Scripted()), ValueError, "not Scripted"),  # type: ignore[arg-type]
        (lambda: LangGraphAgent(figures()), ValueError, "no 'messages': say what goes in by input="),
        (lambda: LangGraphAgent(bare().compile(interrupt_before=["n"])), ValueError, "compile it without"),
        (
            lambda: LangGraphAgent(bare().compile(), config={"configurable": {"thread_id": "1"}}),
            ValueError,
            "which parallel tasks would share",
        ),
        (lambda: LangGraphAgent(figures(), input={}), ValueError, "input is a function of assignment"),  # type: ignore[arg-type]
        (lambda: LangGraphAgent(bare().compile(), output="x"), ValueError, "output is a function of"),  # type: ignore[arg-type]
        (lambda: LangGraphAgent(bare().compile(), config=[1]), ValueError, "config is a LangGraph config"),  # type: ignore[arg-type]
        (
            lambda: LangGraphAgent(figures(), prompt=lambda a, c: "x", input=lambda a, c: {}),
            ValueError,
            "takes `prompt`, what the task's message says, or `input`",
        ),
    ],
)
def test_a_graph_that_could_not_work_is_refused_at_once(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "langgraph")
    monkeypatch.setattr("kairo_team.agents.langgraph.find_spec", lambda name: None)
    for make in (lambda: LangGraphAgent(None), lambda: governed(None)):  # type: ignore[arg-type,type-var]
        with pytest.raises(MissingExtra, match=r"kairo-team\[langgraph\]"):
            make()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_on_trio_it_says_that_langgraph_needs_asyncio(anyio_backend: str) -> None:
    result, _ = await work(graph_of(asking(Scripted())))
    assert result["t"].error is not None
    assert "LangGraph runs its agents on asyncio alone" in result["t"].error


async def test_a_run_leaves_nothing_behind() -> None:
    before = {id(found) for found in gc.get_objects() if isinstance(found, GraphAttempt | Followed)}
    await work(graph_of(*[asking(Scripted())] * 4, side_by_side=True))
    gc.collect()
    left = [found for found in gc.get_objects() if isinstance(found, GraphAttempt | Followed)]
    assert {id(found) for found in left} <= before
