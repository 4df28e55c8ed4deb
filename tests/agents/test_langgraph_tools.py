"""Tools and guardrails inside a LangGraph graph: through the pipeline, with and without its official hook."""

from __future__ import annotations

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's graphs have no stubs, and the types of what builds them are not complete.
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

pytest.importorskip("langgraph", reason="the extra `langgraph` is not installed")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition
from langgraph.types import Command, interrupt

import kairo_team as kt
from kairo_team import events
from kairo_team._util.frozen import thaw
from kairo_team.agents.langgraph import governed, governed_tool_call
from kairo_team.governance import GuardrailContext, GuardrailDecision, GuardrailPhase
from kairo_team.permissions import PermissionDecision
from kairo_team.testing import virtual_time
from kairo_team.testing.clocks import Backend
from kairo_team.tools import SideEffect
from tests.agents.langgraph_double import Scripted, asking, asks, graph_of, said, work

pytestmark = pytest.mark.anyio

HOOK = {"awrap_tool_call": governed_tool_call}
HOOKS = pytest.mark.parametrize("options", [HOOK, {}], ids=["hook", "followed"])
WAYS = pytest.mark.parametrize("wrap", [governed, lambda model: model], ids=["governed", "followed"])


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> Backend:
    """The library runs on asyncio alone."""
    return ("asyncio", {}) if request.node.get_closest_marker("real_time") else virtual_time("asyncio")


async def route(state: MessagesState) -> str:
    return tools_condition(state)  # type: ignore[arg-type]  # the state it is made for


def loop_of(model: Any, *tools: BaseTool, **options: Any) -> Any:
    """The model, its tools, the model again."""
    builder = StateGraph(MessagesState)
    builder.add_node("ask", asking(model.bind_tools(tools)))
    builder.add_node("tools", ToolNode(tools, **options))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", route)
    builder.add_edge("tools", "ask")
    return builder.compile()


class Ran:
    """Two tools, and what they were called with."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.written: list[str] = []

        @tool
        async def look(at: str) -> str:
            """Look at something."""
            self.looked.append(at)
            return f"saw {at}"

        @tool
        async def write(text: str) -> str:
            """Write something."""
            self.written.append(text)
            return f"wrote {text}"

        look.metadata = {"side_effect": "read"}
        self.tools: tuple[BaseTool, BaseTool] = (look, write)


class Guard:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: SideEffect) -> PermissionDecision:
        self.seen.append((tool, dict(arguments), side_effect))
        return PermissionDecision.allow() if side_effect == "read" else PermissionDecision.deny("only look")


class Policy:
    """Decides about one phase."""

    def __init__(self, phase: GuardrailPhase, decide: Any) -> None:
        self.phases = {phase}
        self._decide = decide

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        decision: GuardrailDecision = self._decide(context.payload)
        return decision


def swap(old: str, new: str) -> Any:
    def decide(payload: Any) -> GuardrailDecision:
        if old not in payload.text:
            return GuardrailDecision.allow()
        return GuardrailDecision.modify("house style", payload.with_text(payload.text.replace(old, new)))

    return decide


def deny(payload: Any) -> GuardrailDecision:
    return GuardrailDecision.deny("not in this house")


def told(model: Scripted) -> Any:
    """What the last tool result was, as the model read it."""
    return next(message for message in reversed(model.log[-1]) if isinstance(message, ToolMessage))


# -- tools ----------------------------------------------------------------------------------------------


@HOOKS
async def test_a_tool_runs_once_and_is_counted(options: Any) -> None:
    ran = Ran()
    model = Scripted(replies=[asks("look", at="the moon"), said("done")])
    result, witness = await work(loop_of(model, *ran.tools, **options), budget=kt.Budget(tool_calls=1))
    assert (result.output, result.usage.tool_calls, ran.looked) == ("done", 1, ["the moon"])
    assert witness.outputs[0].tool_calls_executed == 1
    assert [event.tool for event in witness.recorder.of(events.ToolCalled)] == ["look"]
    assert told(model).text == "saw the moon"


@HOOKS
async def test_the_permission_guard_sees_every_call_and_its_side_effect(options: Any) -> None:
    ran, guard = Ran(), Guard()
    model = Scripted(replies=[asks("look", at="x"), asks("write", text="y"), said("done")])
    result, _ = await work(loop_of(model, *ran.tools, **options), permissions=kt.ToolPermissions(guard=guard))
    assert guard.seen == [("look", {"at": "x"}, "read"), ("write", {"text": "y"}, "system")]
    assert (ran.looked, ran.written, result.output) == (["x"], [], "done")
    assert told(model).status == "error"
    assert "only look" in told(model).text


@HOOKS
async def test_over_the_limit_of_tool_calls_the_model_reads_a_refusal(options: Any) -> None:
    ran = Ran()
    model = Scripted(replies=[asks("look", at="x"), asks("look", at="y"), said("done")])
    result, _ = await work(loop_of(model, *ran.tools, **options), budget=kt.Budget(tool_calls=1))
    assert (ran.looked, result.output, result.usage.tool_calls) == (["x"], "done", 1)
    assert told(model).status == "error"


async def test_tools_that_are_not_allowed_are_not_offered_by_a_governed_model_and_run_nowhere() -> None:
    ran = Ran()
    offered: list[Any] = []

    class Watched(Scripted):
        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            offered.append([each["name"] for each in kwargs.get("tools", ())])
            return await super()._agenerate(messages)

    model = Watched(replies=[asks("write", text="x"), said("done")])
    role = kt.Role("m", allowed_tools=["look"])
    await work(loop_of(governed(model), *ran.tools, **HOOK), role=role)
    assert offered == [["look"], ["look"]]
    await work(loop_of(model, *ran.tools), role=role)
    assert ran.written == []
    await work(loop_of(governed(model), *ran.tools, **HOOK), role=kt.Role("m", allowed_tools=[]))
    assert offered[-1] == []


@HOOKS
async def test_a_tool_that_fails_fails_the_way_the_graph_has_it(options: Any) -> None:
    @tool
    async def broken(at: str) -> str:
        """Fail."""
        raise LookupError("no such page")

    model = Scripted(replies=[asks("broken", at="x"), said("done")])
    result, _ = await work(loop_of(model, broken, handle_tool_errors=True, **options))
    assert result.output == "done"
    assert "no such page" in told(model).text
    assert told(model).status == "error"


@HOOKS
async def test_a_halt_out_of_a_tool_crosses_the_graph(options: Any) -> None:
    @tool
    async def stop(at: str) -> str:
        """Halt."""
        raise kt.HaltError(kt.HaltReason.CANCELLED, kt.Usage(), "somewhere")

    model = Scripted(replies=[asks("stop", at="x"), said("never")])
    result, _ = await work(loop_of(model, stop, handle_tool_errors=True, **options))
    assert len(model.log) == 1
    assert result["t"].error is not None
    assert "'somewhere' halted" in result["t"].error


@HOOKS
async def test_a_model_inside_a_tool_is_governed(options: Any) -> None:
    inner = Scripted(replies=[said("from inside", 100, 20)])

    @tool
    async def think(at: str) -> str:
        """Think."""
        return str((await inner.ainvoke(at)).text)

    model = Scripted(replies=[asks("think", at="x"), said("done")])
    result, witness = await work(loop_of(model, think, **options))
    assert (result.usage.tokens, len(witness.recorder.of(events.ModelCalled))) == (150, 3)


@HOOKS
async def test_cancelling_ends_a_tool_in_flight(options: Any) -> None:
    ended: list[str] = []

    @tool
    async def wait(at: str) -> str:
        """Wait."""
        try:
            await anyio.sleep(1000)
        finally:
            ended.append(at)
        return "late"

    model = Scripted(replies=[asks("wait", at="x"), said("never")])
    result, _ = await work(loop_of(model, wait, **options), budget=kt.Budget(seconds=3))
    assert ended == ["x"]
    assert result.usage.tool_calls == 1


async def test_the_hook_hands_on_what_the_tool_is_injected_and_the_command_it_returns() -> None:
    @tool
    async def note(text: str, runtime: ToolRuntime[None, dict[str, Any]]) -> Command[Any]:
        """Note."""
        count = len(runtime.state["messages"])
        return Command(update={"messages": [ToolMessage(f"{text} {count}", tool_call_id=runtime.tool_call_id)]})

    model = Scripted(replies=[asks("note", text="noted"), said("done")])
    result, _ = await work(loop_of(model, note, **HOOK))
    assert (result.output, told(model).text) == ("done", "noted 2")


@HOOKS
async def test_an_interrupt_out_of_a_tool_is_still_one(options: Any) -> None:
    @tool
    async def gate(at: str) -> str:
        """Ask a human."""
        return str(interrupt("may I?"))

    model = Scripted(replies=[asks("gate", at="x"), said("never")])
    result, _ = await work(loop_of(model, gate, **options))
    assert "which cannot be given here" in result["t"].error
    assert len(model.log) == 1


@HOOKS
async def test_nested_arguments_reach_the_tool_as_they_were(options: Any) -> None:
    got: list[Any] = []

    @tool
    async def sort(items: list[dict[str, list[int]]]) -> str:
        """Sort."""
        got.append(items)
        return "sorted"

    model = Scripted(replies=[asks("sort", items=[{"a": [2, 1]}, {}]), said("done")])
    allow = Policy(GuardrailPhase.PRE_TOOL, lambda payload: GuardrailDecision.allow())
    result, _ = await work(loop_of(model, sort, **options), guardrails=[allow])
    assert (result.output, got) == ("done", [[{"a": [2, 1]}, {}]])


@HOOKS
async def test_tools_of_any_name_and_none_are_dealt_with(options: Any) -> None:
    ran = Ran()
    model = Scripted(replies=[asks("nobody", at="x"), asks("look", at="y"), said("done")])
    result, _ = await work(loop_of(model, *ran.tools, **options))
    assert (result.output, ran.looked) == ("done", ["y"])
    ran.tools[0].name = "look at: everything, please! " * 4
    model = Scripted(replies=[asks(ran.tools[0].name, at="x"), said("done")])
    result, witness = await work(loop_of(model, *ran.tools, **options))
    assert (result.output, ran.looked) == ("done", ["y", "x"])
    assert len(witness.recorder.of(events.ToolCalled)[0].tool) == 64


async def test_outside_a_team_the_hook_does_nothing() -> None:
    ran = Ran()
    graph = loop_of(Scripted(replies=[asks("look", at="x"), said("done")]), *ran.tools, **HOOK)
    state = await graph.ainvoke({"messages": [HumanMessage("hi")]})
    assert (state["messages"][-1].text, ran.looked) == ("done", ["x"])


async def test_a_tool_called_without_a_tool_node_is_followed_and_refused_by_an_exception() -> None:
    ran = Ran()

    async def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(await ran.tools[1].ainvoke({"text": "x"}))]}

    result, _ = await work(graph_of(node), permissions=kt.ToolPermissions(guard=Guard()))
    assert ran.written == []
    assert result["t"].error is not None
    assert result["t"].error.startswith("ToolRefused: ")
    assert "only look" in result["t"].error


@pytest.mark.real_time
async def test_a_tool_called_in_a_thread_is_followed_too() -> None:
    runs: list[str] = []

    @tool
    def plain(text: str) -> str:
        """Do."""
        runs.append(text)
        return f"did {text}"

    def node(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(plain.invoke({"text": "x"}))]}

    result, _ = await work(graph_of(node), budget=kt.Budget(tool_calls=1))
    assert (result.output, result.usage.tool_calls, runs) == ("did x", 1, ["x"])
    result, _ = await work(graph_of(node), permissions=kt.ToolPermissions(guard=Guard()))
    assert "only look" in result["t"].error
    assert runs == ["x"]


# -- guardrails -------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(("phase", "asked"), [(GuardrailPhase.PRE_MODEL, 0), (GuardrailPhase.POST_MODEL, 1)])
async def test_a_denied_call_of_a_model_ends_the_attempt(wrap: Any, phase: GuardrailPhase, asked: int) -> None:
    model = Scripted(max_tokens=50)
    result, _ = await work(graph_of(asking(wrap(model)), asking(wrap(model))), guardrails=[Policy(phase, deny)])
    assert len(model.log) == asked
    assert result.usage.tokens == 15 * asked
    assert "not in this house" in result["t"].error


async def test_guardrails_change_what_a_governed_model_is_told_and_says() -> None:
    model = Scripted(replies=[said("all is well")])
    policies = [
        Policy(GuardrailPhase.PRE_MODEL, swap("Do it", "Do it gently")),
        Policy(GuardrailPhase.POST_MODEL, swap("well", "good")),
    ]
    result, _ = await work(graph_of(asking(governed(model))), guardrails=policies)
    assert result.output == "all is good"
    assert "Do it gently" in model.log[0][-1].text


async def test_a_changed_text_leaves_the_pictures_beside_it() -> None:
    model = Scripted()
    picture = {"type": "image", "url": "https://example.org/a.png"}
    message = HumanMessage([{"type": "text", "text": "look at this"}, picture])
    options: dict[str, Any] = {"input": lambda assignment, context: {"messages": [message]}}
    policy = Policy(GuardrailPhase.PRE_MODEL, swap("look", "glance"))
    await work(graph_of(asking(governed(model))), options=options, guardrails=[policy])
    assert model.log[0][0].content == [{"type": "text", "text": "glance at this"}, picture]


@pytest.mark.parametrize(("phase", "asked"), [(GuardrailPhase.PRE_MODEL, 0), (GuardrailPhase.POST_MODEL, 1)])
async def test_what_cannot_be_changed_in_a_followed_model_is_refused(phase: GuardrailPhase, asked: int) -> None:
    model = Scripted(replies=[said("Do it well")], max_tokens=50)
    policy = Policy(phase, swap("Do it", "Do nothing"))
    result, _ = await work(graph_of(asking(model)), guardrails=[policy])
    assert len(model.log) == asked
    assert result.usage.tokens == 15 * asked
    assert "build the graph with governed(model) to let it" in result["t"].error


@HOOKS
@pytest.mark.parametrize("phase", [GuardrailPhase.PRE_TOOL, GuardrailPhase.POST_TOOL])
async def test_a_denied_tool_is_an_error_the_model_reads(options: Any, phase: GuardrailPhase) -> None:
    ran = Ran()
    model = Scripted(replies=[asks("look", at="x"), said("done")])
    result, _ = await work(loop_of(model, *ran.tools, **options), guardrails=[Policy(phase, deny)])
    assert result.output == "done"
    assert ran.looked == (["x"] if phase is GuardrailPhase.POST_TOOL else [])
    assert told(model).status == "error"
    assert "not in this house" in told(model).text
    assert "saw" not in told(model).text


async def test_guardrails_change_arguments_and_results_through_the_hook() -> None:
    ran = Ran()
    policies = [
        Policy(GuardrailPhase.PRE_TOOL, swap("there", "here")),
        Policy(GuardrailPhase.POST_TOOL, swap("saw", "glimpsed")),
    ]
    model = Scripted(replies=[asks("look", at="there"), said("done")])
    await work(loop_of(model, *ran.tools, **HOOK), guardrails=policies)
    assert ran.looked == ["here"]
    assert (told(model).text, told(model).status) == ("glimpsed here", "success")


async def test_without_the_hook_changed_arguments_refuse_the_call_and_a_changed_result_stands_as_an_error() -> None:
    ran = Ran()
    model = Scripted(replies=[asks("look", at="there"), said("done")])
    policy = Policy(GuardrailPhase.PRE_TOOL, swap("there", "here"))
    await work(loop_of(model, *ran.tools), guardrails=[policy])
    assert ran.looked == []
    assert "give the ToolNode awrap_tool_call" in told(model).text

    model = Scripted(replies=[asks("look", at="there"), said("done")])
    policy = Policy(GuardrailPhase.POST_TOOL, swap("saw", "glimpsed"))
    await work(loop_of(model, *ran.tools), guardrails=[policy])
    assert (told(model).text, told(model).status) == ("glimpsed there", "error")


@HOOKS
@pytest.mark.parametrize("returned", [{"ok": True, "found": ["a"]}, ["a", {"b": None}], "saw it", "{not JSON"])
async def test_third_o20_a_policy_is_shown_the_json_value_of_a_tool_in_a_graph(
    options: dict[str, Any], returned: Any
) -> None:
    """LangChain has made JSON of a list or an object before a graph shows the result."""
    shown: list[Any] = []

    @tool
    async def look() -> Any:
        """Look at something."""
        return returned

    def decide(payload: Any) -> GuardrailDecision:
        shown.append(thaw(payload.result))
        return GuardrailDecision.allow()

    graph = loop_of(governed(Scripted(replies=[asks("look"), said("done")])), look, **options)
    result, _ = await work(graph, guardrails=[Policy(GuardrailPhase.POST_TOOL, decide)])
    assert (result.output, shown) == ("done", [returned])
