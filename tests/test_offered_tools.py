"""Tools that a coordinator offers for one attempt, and tools that end it."""

from __future__ import annotations

from typing import Any

import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.agents import TeamAgent
from kairo_team.errors import TurnEnded
from kairo_team.permissions import PermissionDecision
from kairo_team.results import Attempt
from kairo_team.testing import EventRecorder, FunctionModel, ScriptedModel
from kairo_team.tools import as_tool
from tests.human import AsksFirst

pytestmark = pytest.mark.anyio


class Offering:
    """A coordinator of one task whose attempt has tools; it remembers the attempt."""

    def __init__(self, *tools: Any) -> None:
        self.tools = tools
        self.attempts: list[Attempt] = []

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            output_type = next(iter(team.output_types), None)
            graph = await run.plan(kt.TaskGraph([kt.Task("turn", request.goal, output_type=output_type)]))
            async for task in run.ready(graph):
                run.go(self.work, run, task)
        return run.result

    async def work(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1, tools=self.tools)
        self.attempts.append(attempt)
        if attempt.error is None:
            run.accept(task, attempt)
        else:
            run.fail(task, attempt.error)


@kt.tool(side_effect="read", ends="turn")
async def pass_on(to: str, message: str) -> str:
    """Give the turn to another member."""
    return message


@kt.tool(ends="answer")
async def finish(answer: str) -> str:
    """End the work with an answer."""
    return answer.strip()


@kt.tool(side_effect="read")
async def search(query: str) -> str:
    """Search the notes."""
    return f"found {query}"


PASSED: dict[str, Any] = {"to": "billing", "message": "an invoice is wrong"}


def calls(*asked: tuple[str, Any], text: str = "") -> kt.ModelResponse:
    made = tuple(kt.ToolCall(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(asked))
    return kt.ModelResponse(text, made, kt.Usage(5, 5))


def mini(*replies: Any, **options: Any) -> tuple[kt.MiniAgent, ScriptedModel]:
    model = ScriptedModel(replies)
    return kt.MiniAgent(model, **options), model


async def play(
    agent: Any, *tools: Any, role: kt.Role | str = "m", config: kt.TeamConfig | None = None, **more: Any
) -> tuple[kt.TeamResult, Attempt, EventRecorder]:
    seen = EventRecorder()
    runtime = kt.Runtime(subscribers=[seen], **more.pop("runtime", {}))
    team = kt.Team("team", [kt.Member(role, agent)], runtime=runtime, **more)
    coordinator = Offering(*tools)
    request = kt.TeamExecutionRequest("Help.", config=config or kt.TeamConfig())
    result = await coordinator.execute(request, team)
    return result, coordinator.attempts[-1], seen


# ---------------------------------------------------------------- offered


async def test_a_mini_agent_has_the_offered_tools_beside_its_own() -> None:
    agent, model = mini(calls(("look", {"word": "x"}), ("search", {"query": "y"})), "Done.", tools=[search])

    @kt.tool(side_effect="read")
    async def look(word: str) -> str:
        return f"saw {word}"

    result, attempt, seen = await play(agent, look)
    assert result.output == "Done."
    assert [spec.name for spec in model.calls[0].tools] == ["search", "look"]
    assert [m.text for m in model.calls[1].messages if m.role == "tool"] == ["saw x", "found y"]
    assert attempt.ended_by is None
    assert sorted(event.tool for event in seen.of(events.ToolCalled)) == ["look", "search"]


async def test_a_mini_agent_without_tools_has_the_offered_ones() -> None:
    agent, model = mini("Done.")
    await play(agent, search)
    assert [spec.name for spec in model.calls[0].tools] == ["search"]


async def test_a_function_calls_an_offered_tool_by_its_name() -> None:
    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        assert [tool.name for tool in context.offered] == ["search"]
        assert (await context.tools([])).names == ("search",)
        return (await context.tool("search")(query="tides")).text

    result, _, seen = await play(member, search)
    assert result.output == "found tides"
    assert result.usage.tool_calls == 1
    assert [event.outcome for event in seen.of(events.ToolCalled)] == ["ok"]


async def test_allowed_tools_of_the_role_bind_its_own_tools_and_not_the_offered_ones() -> None:
    agent, model = mini(calls(("pass_on", PASSED)), tools=[search])
    _, attempt, _ = await play(agent, pass_on, role=kt.Role("m", allowed_tools=[]))
    assert [spec.name for spec in model.calls[0].tools] == ["pass_on"]
    assert attempt.ended_by is not None


async def test_an_own_tool_does_not_pass_for_an_offered_one() -> None:
    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        own = as_tool(search, name="pass_on")
        return (await context.tool(own)(query="tides")).text

    result, _, _ = await play(member, pass_on, role=kt.Role("m", allowed_tools=["other"]))
    assert "not allowed here" in (result.output or "")


async def test_permissions_budget_and_guardrails_hold_for_offered_tools() -> None:
    class Deny:
        async def check(self, tool: str, arguments: Any, side_effect: str) -> PermissionDecision:
            return PermissionDecision.deny("not you")

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool("pass_on")(**PASSED)).text

    denied, attempt, _ = await play(member, pass_on, permissions=kt.ToolPermissions(guard=Deny()))
    assert (denied.output, attempt.ended_by) == ("not you", None)
    config = kt.TeamConfig(budget=kt.Budget(tool_calls=0))
    unpaid, attempt, _ = await play(member, pass_on, config=config)
    assert "no tool call is left" in (unpaid.output or "")
    assert attempt.ended_by is None


async def test_two_tools_of_one_name_are_refused_with_a_sentence() -> None:
    agent, model = mini("Done.", tools=[as_tool(search, name="pass_on")])
    result, _, _ = await play(agent, pass_on)
    assert "the coordinator offers a tool 'pass_on', and the member has one of this name" in (result.error or "")
    assert model.calls == []


async def test_what_is_no_tool_is_refused() -> None:
    agent, model = mini("Done.")
    team = kt.Team("team", [kt.Member("m", agent)])
    result = await Offering("search").execute(kt.TeamExecutionRequest("Help."), team)
    assert "'search'" in (result.error or "")
    assert model.calls == []


@pytest.mark.parametrize(
    ("allowed", "found"), [(None, "found tides"), (["search"], "found tides"), ([], "not allowed")]
)
async def test_what_is_allowed_to_a_task_around_the_run_binds_offered_tools_too(allowed: Any, found: str) -> None:
    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool("search")(query="tides")).text

    inner = TeamAgent(kt.Team("inner", [kt.Member("m", member)]), coordinator=Offering(search))
    outer = kt.Team("outer", [kt.Member(kt.Role("desk", allowed_tools=allowed), inner)])
    assert found in ((await kt.run(outer, "Help.")).output or "")


# ---------------------------------------------------------------- the end of a turn


@pytest.mark.parametrize("text", ["", "It is about money."])
async def test_no_model_is_called_after_a_tool_that_ends_the_turn(text: str) -> None:
    agent, model = mini(calls(("pass_on", PASSED), ("search", {"query": "x"}), text=text), tools=[search])
    result, attempt, seen = await play(agent, pass_on)
    assert len(model.calls) == 1
    assert [event.tool for event in seen.of(events.ToolCalled)] == ["pass_on"], "what is behind it is not called"
    assert result.output == (text or PASSED["message"])
    assert attempt.output is not None
    assert (attempt.output.status, attempt.output.turns_completed) == (kt.AgentStatus.COMPLETED, 1)
    assert attempt.output.tool_calls_executed == 1
    assert not attempt.output.artifact.partial
    assert [message.role for message in attempt.output.transcript] == ["system", "user", "assistant"]
    assert attempt.ended_by is not None
    assert (attempt.ended_by.name, attempt.ended_by.arguments) == ("pass_on", PASSED)


async def test_reads_before_it_are_made_and_it_is_made_alone() -> None:
    agent, _ = mini(calls(("search", {"query": "x"}), ("pass_on", PASSED)), tools=[search])
    _, attempt, seen = await play(agent, pass_on)
    assert [event.tool for event in seen.of(events.ToolCalled)] == ["search", "pass_on"]
    assert attempt.ended_by is not None


async def test_a_call_that_is_refused_does_not_end_the_turn() -> None:
    agent, model = mini(calls(("pass_on", {"to": "billing"})), "I answer myself.")
    result, attempt, _ = await play(agent, pass_on)
    assert "message" in next(m.text for m in model.calls[1].messages if m.role == "tool")
    assert (result.output, attempt.ended_by) == ("I answer myself.", None)


async def test_it_can_be_called_on_the_last_turn() -> None:
    agent, model = mini(calls(("search", {"query": "x"})), calls(("pass_on", PASSED)), tools=[search], max_turns=2)
    _, attempt, _ = await play(agent, pass_on)
    assert [[spec.name for spec in request.tools] for request in model.calls] == [["search", "pass_on"], ["pass_on"]]
    assert attempt.ended_by is not None


async def test_a_tool_that_was_withheld_is_not_called_on_the_last_turn() -> None:
    asks = calls(("search", {"query": "x"}), text="Looking.")
    agent = kt.MiniAgent(FunctionModel(lambda _: asks), tools=[search], max_turns=2)
    _, attempt, seen = await play(agent, pass_on)
    assert len(seen.of(events.ToolCalled)) == 1
    assert attempt.output is not None
    assert attempt.output.status is kt.AgentStatus.TURN_LIMIT_REACHED


async def test_a_small_budget_is_no_reason_to_withhold_a_tool_that_ends_the_turn() -> None:
    """It needs no turn after it, so two turns are counted as without tools: by tokens, not by bytes."""
    agent, model = mini("Done.", settings={"max_tokens": 20})
    config = kt.TeamConfig(budget=kt.Budget(tokens=2_000))
    await play(agent, pass_on, config=config)
    assert "last turn" not in model.calls[0].messages[-1].text


async def test_a_function_ends_its_turn_by_calling_the_tool() -> None:
    reached: list[str] = []

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("I looked at it.")
        await context.tool("pass_on")(**PASSED)
        reached.append("behind it")
        return "never"

    result, attempt, _ = await play(member, pass_on)
    assert (result.output, reached) == ("I looked at it.", [])
    assert attempt.ended_by is not None
    assert attempt.usage.tool_calls == 1


async def test_a_member_that_swallows_the_end_has_ended_all_the_same() -> None:
    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        try:
            await context.tool("pass_on")(**PASSED)
        except TurnEnded:
            return "my own words"
        raise AssertionError

    result, attempt, _ = await play(member, pass_on)
    assert result.output == "my own words"
    assert attempt.ended_by is not None


@pytest.mark.parametrize("agent", ["mini", "function"])
async def test_the_result_of_a_tool_that_answers_is_the_artifact(agent: str) -> None:
    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.keep("I am done.")
        await context.tool("finish")(answer=' {"n": 3} ')
        raise AssertionError

    model = mini(calls(("finish", {"answer": ' {"n": 3} '}), text="I am done."))[0]
    types = {"number": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
    result, attempt, _ = await play(model if agent == "mini" else member, finish, output_types=types)
    assert result.artifact is not None
    assert (result.output, dict(result.artifact.data)) == ('{"n": 3}', {"n": 3})
    assert attempt.ended_by is not None


@pytest.mark.parametrize(("tool", "arguments", "ok"), [("finish", {"answer": "x"}, False), ("pass_on", PASSED, True)])
async def test_an_answer_has_the_output_type_and_a_turn_that_is_passed_on_need_not(
    tool: str, arguments: Any, ok: bool
) -> None:
    agent, _ = mini(calls((tool, arguments)))
    result, attempt, _ = await play(agent, finish, pass_on, output_types={"number": int})
    assert (result.status is kt.TeamStatus.COMPLETED) is ok
    assert (attempt.ended_by is not None) is ok


async def test_a_kill_goes_before_the_end_of_a_turn() -> None:
    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.cancel()
        await context.tool("pass_on")(**PASSED)
        raise AssertionError

    _, attempt, _ = await play(member, pass_on)
    assert (attempt.halt, attempt.ended_by) == (kt.HaltReason.CANCELLED, None)


async def test_alone_a_tool_of_its_own_ends_the_work_too() -> None:
    agent, model = mini(calls(("finish", {"answer": "42"}), text="So:"), tools=[finish])
    output = await agent.run("What is it?")
    assert (output.text, output.status, len(model.calls)) == ("42", kt.AgentStatus.COMPLETED, 1)


# ---------------------------------------------------------------- records


class Desk(Offering):
    """Asks a person behind the attempt."""

    async def work(self, run: kt.TeamRun, task: kt.Task) -> None:
        attempt = await run.attempt(task, 1, tools=self.tools)
        self.attempts.append(attempt)
        assert attempt.error is None or attempt.interrupted
        await run.ask(kt.HumanRequest("review", "Is it good?", "", task.id, attempt.member, 1))
        run.accept(task, attempt)


@pytest.mark.parametrize("agent", ["mini", "function"])
async def test_a_resumed_attempt_answers_the_same_calls_from_the_records(agent: str) -> None:
    made: list[str] = []

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        found = await context.tool("find")(query="tides")
        await context.tool("mail")(text=found.text)
        await context.tool("hand")(to="billing")
        raise AssertionError

    @kt.tool(side_effect="read")
    async def find(query: str) -> str:
        made.append("find")
        return f"found {query}"

    @kt.tool
    async def mail(text: str) -> str:
        made.append("mail")
        return "sent"

    @kt.tool(ends="turn")
    async def hand(to: str) -> str:
        made.append("hand")
        return f"to {to}"

    turns = [("find", {"query": "tides"}), ("mail", {"text": "found tides"}), ("hand", {"to": "billing"})]
    model = ScriptedModel([calls(turn) for turn in turns])
    runtime = kt.Runtime(gate=kt.DeferGate())
    permissions = kt.ToolPermissions(guard=AsksFirst("mail"))
    who = kt.MiniAgent(model) if agent == "mini" else member
    team = kt.Team("team", [kt.Member("m", who)], permissions=permissions, runtime=runtime)
    coordinator = Desk(find, mail, hand)
    result = await coordinator.execute(kt.TeamExecutionRequest("Help.", run_id="r"), team)
    wanted = [["find"], ["find", "mail", "hand"], ["find", "mail", "hand"]]
    for made_by_now in wanted[:2]:
        assert (result.status, made) == (kt.TeamStatus.SUSPENDED, made_by_now)
        (question,) = runtime.pending("r")
        runtime.answer(question.id, kt.HumanDecision.approve())
        result = await runtime.resume("r", team, coordinator=coordinator)
    assert (result.output, made) == ("to billing", wanted[2])
    assert [attempt.ended_by and attempt.ended_by.name for attempt in coordinator.attempts] == [None, "hand", "hand"]
    assert agent == "function" or len(model.calls) == 3


@pytest.mark.parametrize("ends", ["now", 3, True])
def test_an_end_that_is_none_is_refused(ends: Any) -> None:
    with pytest.raises(ValueError, match="ends must be one of answer, turn, or None, not"):
        as_tool(search, ends=ends)
    with pytest.raises(ValueError, match="ends must be one of"):
        kt.tool(ends=ends)(lambda: "")
