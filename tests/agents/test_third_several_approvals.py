"""A reply with several calls that a person must approve: all are asked about, and the run waits for them once."""

from __future__ import annotations

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false
# LangGraph's graphs have no stubs, and the types of what builds them are not complete.
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import FailurePolicy, TaskDispatchCoordinator
from kairo_team.errors import NoQuestion
from kairo_team.governance import GuardrailPhase
from kairo_team.testing import EventRecorder, MemoryJournal
from tests.agents.rigs import Ask, Reply, Rig, RigTool, each_rig
from tests.agents.stage import noting
from tests.human import APPROVE, DEFER, REJECT, AsksFirst

pytestmark = pytest.mark.real_time  # journals write in threads

RUN = "r"
CALLS = 5
BOTH = (Ask("pay", "one"), Ask("send", "two"))


@dataclass
class Elsewhere:
    """A journal, and how another process sees it."""

    first: Any
    path: Path | None

    def other(self) -> Any:
        if self.path is None:
            return self.first.elsewhere()
        self.first.close()
        self.first = kt.SqliteJournal(self.path)
        return self.first


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = None if request.param == "memory" else tmp_path / "runs.db"
    kept = Elsewhere(MemoryJournal() if path is None else kt.SqliteJournal(path), path)
    yield kept
    if path is not None:
        kept.first.close()


@pytest.fixture(params=each_rig())
def rig(request: pytest.FixtureRequest) -> type[Rig]:
    """A kind of rig."""
    kind: type[Rig] = request.param
    return kind


@dataclass
class Desk:
    """A team of one agent, in one process after another; its tools write down what they did."""

    make: type[Rig]
    asks: Sequence[Ask]
    gate: Any = field(default_factory=kt.DeferGate)
    made: list[str] = field(default_factory=list[str])
    rigs: list[Rig] = field(default_factory=list[Rig])
    """One of each process."""
    timeout: float | None = None

    def tools(self) -> list[RigTool]:
        async def use(text: str) -> str:
            self.made.append(text)
            return f"did {text}"

        async def read(text: str) -> str:
            await anyio.sleep(0.2)
            return await use(text)

        return [
            RigTool("pay", use, "write"), RigTool("send", use, "write"), RigTool("note", use, "write"),
            RigTool("peek", use, "read"), RigTool("look", read, "read"),
        ]  # fmt: skip

    def reply(self, _number: int) -> Reply:
        """Say the script, which goes on in the next process."""
        return Reply("done") if sum(self.asked) else Reply("I will.", self.asks)

    def team(self, agent: Any = None) -> kt.Team:
        if agent is None:
            self.rigs.append(self.make(self.reply, self.tools()))
            agent = self.rigs[-1].agent()
        permissions = kt.ToolPermissions(guard=AsksFirst("pay", "send", "peek"))
        return kt.Team("desk", [kt.Member("clerk", agent)], permissions=permissions)

    def once(self) -> TaskDispatchCoordinator:
        return TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))

    async def run(self, journal: Any = None) -> kt.TeamResult:
        self.runtime = kt.Runtime(journal=journal, gate=self.gate)
        plan = kt.TaskGraph([kt.Task("t", "Do it.", timeout=self.timeout)])
        team = self.team()
        return await kt.run(team, "Go.", plan=plan, run_id=RUN, runtime=self.runtime, coordinator=self.once())

    async def resume(self, journal: Any) -> kt.TeamResult:
        """Go on in another process."""
        self.runtime = kt.Runtime(journal=journal, gate=self.gate)
        return await self.runtime.resume(RUN, self.team(), coordinator=self.once())

    @property
    def asked(self) -> list[int]:
        """How often the model was asked, by process."""
        return [len(one.asked) for one in self.rigs]


def subjects(questions: Sequence[kt.HumanRequest]) -> list[str]:
    return [question.subject for question in questions]


def answer(journal: Any, *decisions: kt.HumanDecision) -> None:
    for question, decision in zip(journal.pending(RUN), decisions, strict=True):
        journal.answer(question.id, decision)


PAY, SEND = "pay(text='one')", "send(text='two')"


async def test_third_o42_all_calls_of_a_reply_are_asked_about_and_the_run_waits_once(
    rig: type[Rig], journal: Elsewhere
) -> None:
    desk = Desk(rig, [*BOTH, Ask("note", "three")])
    result = await desk.run(journal.first)
    assert (result.status, result.usage.loops, desk.made) == ("suspended", 1, [])
    assert result["t"].error is not None
    assert "call 'pay'" in result["t"].error
    assert "call 'send'" in result["t"].error
    there = journal.other()
    assert subjects(there.pending(RUN)) == [PAY, SEND]
    answer(there, APPROVE, APPROVE)
    result = await desk.resume(journal.other())
    assert (result.status, result.output, result.usage.loops) == ("completed", "done", 2)
    assert desk.made == ["one", "two", "three"]
    assert desk.asked == [1, 1]
    assert all(f"did {text}" in desk.rigs[1].asked[0].text for text in desk.made)
    assert journal.first.pending(RUN) == ()


@pytest.mark.parametrize("first", [True, False])
async def test_third_o42_an_answer_to_some_leaves_the_run_waiting_for_the_others(
    rig: type[Rig], journal: Elsewhere, first: bool
) -> None:
    desk = Desk(rig, BOTH)
    await desk.run(journal.first)
    there = journal.other()
    place = 0 if first else 1
    there.answer(there.pending(RUN)[place].id, APPROVE)
    result = await desk.resume(journal.other())
    left = [SEND] if first else [PAY]
    assert (result.status, result["t"].status) == ("suspended", "suspended")
    assert result["t"].error is not None
    assert ("call 'pay'" in result["t"].error, "call 'send'" in result["t"].error) == (not first, first)
    assert subjects(journal.first.pending(RUN)) == left
    assert desk.made == (["one"] if first else [])  # what comes after a call that waits is not made before it
    answer(journal.first, APPROVE)
    result = await desk.resume(journal.other())
    assert (result.status, desk.made, desk.asked) == ("completed", ["one", "two"], [1, 0, 1])
    assert (result.usage.tokens, result.usage.loops, result.usage.tool_calls) == (30, 2, 2)
    assert result.warnings == ()


async def test_third_o42_a_call_that_is_refused_takes_no_other_with_it(rig: type[Rig], journal: Elsewhere) -> None:
    desk = Desk(rig, BOTH)
    await desk.run(journal.first)
    answer(journal.first, REJECT, APPROVE)
    result = await desk.resume(journal.other())
    assert (result.status, desk.made) == ("completed", ["two"])
    [asked] = desk.rigs[1].asked
    assert "not like this" in asked.text
    assert "did two" in asked.text


async def test_third_o42_nothing_is_said_yet_and_the_run_is_resumed(rig: type[Rig]) -> None:
    desk, journal = Desk(rig, BOTH), MemoryJournal()
    await desk.run(journal)
    there = journal.elsewhere()
    there.answer(there.pending(RUN)[0].id, DEFER)
    result = await desk.resume(there)
    assert (result.status, desk.made, desk.asked) == ("suspended", [], [1, 0])
    assert subjects(there.pending(RUN)) == [SEND, PAY]
    assert result["t"].error is not None
    assert "call 'send'" in result["t"].error


class Slow(kt.DeferGate):
    """Puts off calls of `pay` and `peek` soon, all others later."""

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision:
        await anyio.sleep(0.01 if question.subject.startswith("p") else 0.1)
        return await super().decide(question)


async def test_third_o42_a_call_under_way_ends_and_is_not_made_again(rig: type[Rig]) -> None:
    desk, journal = Desk(rig, [Ask("look", "zero"), Ask("peek", "one"), Ask("send", "two")], Slow()), MemoryJournal()
    result = await desk.run(journal)
    assert (result.status, desk.made) == ("suspended", ["zero"])
    assert len(journal.pending(RUN)) == 2
    answer(journal, APPROVE, APPROVE)
    result = await desk.resume(journal.elsewhere())
    assert (result.status, sorted(desk.made), desk.asked) == ("completed", ["one", "two", "zero"], [1, 1])
    assert result.warnings == ()


class ByTool:
    """A gate that says the same about each call of a tool; None: it never answers."""

    def __init__(self, **decisions: kt.HumanDecision | None) -> None:
        self.asked: list[str] = []
        self.ids: list[str] = []
        self._decisions = decisions

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        tool = question.subject.partition("(")[0]
        self.asked.append(tool)
        self.ids.append(question.id)
        decision = self._decisions[tool]
        if decision is None:
            await anyio.sleep_forever()
        return decision


async def test_third_o42_a_call_that_is_approved_behind_one_that_waits_is_made_after_it(rig: type[Rig]) -> None:
    gate = ByTool(pay=DEFER, send=APPROVE)
    desk, journal = Desk(rig, BOTH, gate), MemoryJournal()
    result = await desk.run(journal)
    assert (result.status, desk.made, gate.asked) == ("suspended", [], ["pay", "send"])
    assert subjects(journal.pending(RUN)) == [PAY]
    answer(journal, APPROVE)
    result = await desk.resume(journal.elsewhere())
    assert (result.status, desk.made, gate.asked) == ("completed", ["one", "two"], ["pay", "send"])


async def test_third_o42_all_questions_of_an_attempt_that_times_out_are_withdrawn(rig: type[Rig]) -> None:
    """Whether they were put off or are still asked."""
    gate = ByTool(pay=DEFER, send=None)
    desk, journal = Desk(rig, BOTH, gate, timeout=2), MemoryJournal()
    result = await desk.run(journal)
    assert (result.status, result["t"].status, desk.made) == ("failed", "failed", [])
    assert "timed out" in str(result["t"].error)
    assert (gate.asked, journal.pending(RUN)) == (["pay", "send"], ())
    for question_id in gate.ids:
        with pytest.raises(NoQuestion, match="timed out"):
            journal.answer(question_id, APPROVE)


async def test_third_o42_the_run_around_waits_for_all_questions_too(rig: type[Rig]) -> None:
    desk, journal = Desk(rig, BOTH), MemoryJournal()

    def outer() -> kt.Team:
        inner = TeamAgent(desk.team(), plan=kt.TaskGraph([kt.Task("t", "Do it.")]), coordinator=desk.once())
        return kt.Team("outer", [kt.Member("group", inner)])

    runtime = kt.Runtime(journal=journal, gate=kt.DeferGate())
    result = await kt.run(outer(), "Go.", plan=kt.TaskGraph([kt.Task("o", "Do it.")]), run_id=RUN, runtime=runtime)
    assert (result.status, subjects(journal.pending(RUN))) == ("suspended", [PAY, SEND])
    for left in ([SEND], list[str]()):
        there = journal.elsewhere()
        there.answer(there.pending(RUN)[0].id, APPROVE)
        runtime = kt.Runtime(journal=there, gate=kt.DeferGate())
        result = await runtime.resume(RUN, outer())
        assert subjects(there.pending(RUN)) == left
    assert (result.status, desk.made) == ("completed", ["one", "two"])


async def test_third_o42_a_toolbox_ends_the_attempt_once_all_its_calls_are_asked_about() -> None:
    """Whoever takes its results never sees one of a call that waits."""
    made, seen = list[str](), list[str]()

    @kt.tool(side_effect="write")
    async def pay(text: str) -> str:
        """Pay for something."""
        made.append(text)
        return f"paid {text}"

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        box = await context.tools([pay])
        results = await box.run(
            [kt.ToolCall(str(number), "pay", {"text": f"part {number}"}) for number in range(CALLS)]
        )
        seen.extend(result.text for result in results)
        return " ".join(seen)

    shown, recorder = list[Any](), EventRecorder()
    runtime = kt.Runtime(gate=kt.DeferGate(), subscribers=[recorder])
    permissions, guardrails = kt.ToolPermissions(guard=AsksFirst("pay")), [noting(GuardrailPhase.PRE_TOOL, shown)]
    team = kt.Team("till", [kt.Member("clerk", work)], permissions=permissions, guardrails=guardrails)
    result = await kt.run(team, "Go.", run_id=RUN, runtime=runtime)
    assert (result.status, seen, len(runtime.pending(RUN)), shown) == ("suspended", [], CALLS, [])
    assert str(result.outcomes[0].error).endswith("; and 2 more")
    recorder.assert_lawful()
    for question in runtime.pending(RUN):
        runtime.answer(question.id, APPROVE)
    result = await runtime.resume(RUN, team)
    recorder.assert_lawful()
    assert (result.status, len(shown)) == ("completed", CALLS)
    assert made == [f"part {number}" for number in range(CALLS)]
    assert seen == [f"paid {text}" for text in made]


@pytest.mark.loops("asyncio")
async def test_third_o42_a_graph_goes_no_step_further_with_calls_that_wait() -> None:
    """A node of the user's own behind the tools does not get the messages of calls that nobody has approved."""
    pytest.importorskip("langgraph")
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode

    from kairo_team.agents.langgraph import LangGraphAgent, governed, governed_tool_call
    from tests.agents.rig_langgraph import LangGraphRig, RigModel, native_tool

    seen: list[list[str]] = []

    async def look_on(state: MessagesState) -> dict[str, Any]:
        seen.append([str(message.content) for message in state["messages"]])
        return {}

    class Watched(LangGraphRig):
        def agent(self) -> Any:
            tools = [native_tool(tool) for tool in self.tools]
            model = governed(RigModel(rig=self)).bind_tools(tools)

            async def ask(state: MessagesState) -> dict[str, Any]:
                return {"messages": [await model.ainvoke(state["messages"])]}

            builder = StateGraph(MessagesState)
            builder.add_node("ask", ask)
            builder.add_node("tools", ToolNode(tools, awrap_tool_call=governed_tool_call))
            builder.add_node("look_on", look_on)
            builder.add_edge(START, "ask")
            builder.add_edge("ask", "tools")
            builder.add_edge("tools", "look_on")
            return LangGraphAgent(builder.compile())

    desk, journal = Desk(Watched, BOTH), MemoryJournal()
    result = await desk.run(journal)
    assert (result.status, seen, len(journal.pending(RUN))) == ("suspended", [], 2)
    answer(journal, APPROVE, APPROVE)
    result = await desk.resume(journal.elsewhere())
    assert (result.status, desk.made, len(seen)) == ("completed", ["one", "two"], 1)
    assert seen[0][-2:] == ["did one", "did two"]


@pytest.mark.loops("asyncio")
async def test_third_o42_a_graph_whose_tools_are_only_followed_asks_what_a_gate_answers_at_once() -> None:
    """Without `governed_tool_call` no call is put off alone: one that is still asked about is asked about again."""
    pytest.importorskip("langgraph")
    from kairo_team.agents.langgraph import LangGraphAgent, governed
    from tests.agents.rig_langgraph import LangGraphRig, RigModel, graph_of

    class Followed(LangGraphRig):
        def agent(self) -> Any:
            return LangGraphAgent(graph_of(governed(RigModel(rig=self)), self.tools))

    for gate, waits in ((kt.DeferGate(), [2]), (Slow(), [1, 1])):
        desk, journal, waited = Desk(Followed, BOTH, gate), MemoryJournal(), list[int]()
        result = await desk.run(journal)
        while result.status == "suspended":
            waited.append(len(journal.pending(RUN)))
            answer(journal, *[APPROVE] * waited[-1])
            result = await desk.resume(journal)
        assert (result.status, sorted(desk.made), waited) == ("completed", ["one", "two"], waits)


@pytest.mark.loops("asyncio")
async def test_third_o42_a_turn_limit_of_the_library_does_not_go_before_the_questions() -> None:
    pytest.importorskip("agents")
    from kairo_team.agents.openai_agents import OpenAIAgent
    from tests.agents.rig_openai_agents import OpenAIRig

    class Short(OpenAIRig):
        def agent(self) -> Any:
            return OpenAIAgent(super().agent().agent, max_turns=1)

    result = await Desk(Short, BOTH).run()
    assert result.status == "suspended"
