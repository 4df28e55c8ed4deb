"""`LangGraphAgent`: what goes into a graph and comes out of it, tasks side by side, and what is refused at once."""

from __future__ import annotations

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's graphs have no stubs, and the types of what builds them are not complete.
import gc
import sys
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph

import kairo_team as kt
from kairo_team.agents.langgraph import LangGraphAgent, governed
from kairo_team.agents.langgraph_attempt import Followed, GraphAttempt
from kairo_team.errors import MissingExtra
from tests.agents.langgraph_double import Scripted, Witness, asking, graph_of, said, work
from tests.agents.langgraph_ways import WAYS, Dose, calls
from tests.agents.loops import asyncio_alone

pytestmark = pytest.mark.anyio
anyio_backend = asyncio_alone


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
    options: dict[str, Any] = {
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
    def add(state: Figures) -> dict[str, int]:
        return {"total": state["quarter"] * 2}

    builder = StateGraph(Figures)
    builder.add_node("add", add)
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
        (lambda: LangGraphAgent(figures()), ValueError, "no 'messages': set input="),
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
            "takes `prompt`, the text of the message, or `input`",
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


@pytest.mark.usefixtures("swept")
async def test_a_run_leaves_nothing_behind() -> None:
    before = {id(found) for found in gc.get_objects() if isinstance(found, GraphAttempt | Followed)}
    await work(graph_of(*[asking(Scripted())] * 4, side_by_side=True))
    gc.collect()
    left = [found for found in gc.get_objects() if isinstance(found, GraphAttempt | Followed)]
    assert {id(found) for found in left} <= before
