"""What a member is held to holds in the team that is that member, at any depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator, FailurePolicy, TaskDispatchCoordinator
from kairo_team.gates import CallbackGate
from kairo_team.governance import CostLimit, MaxIterations
from kairo_team.governance.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase, ModelInput
from kairo_team.governance.policies.mcp_policy import McpPolicy
from kairo_team.permissions import PermissionDecision
from kairo_team.testing import EventRecorder, FunctionModel
from kairo_team.tools.permissions import JointGuard, ToolPermissions
from kairo_team.tools.tool import as_tool

pytestmark = pytest.mark.anyio

ONCE = TaskDispatchCoordinator(failure_policy=FailurePolicy(retries=0))
DEPTHS = pytest.mark.parametrize("depth", [1, 3])
ran: list[str] = []


@kt.tool(side_effect="read")
async def look(text: str) -> str:
    """Look something up."""
    ran.append(f"look {text}")
    return f"found {text}"


@kt.tool(side_effect="write")
async def write(text: str) -> str:
    """Write something down."""
    ran.append(f"write {text}")
    return f"wrote {text}"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


class Guard:
    """Says the same of every tool call, and counts them."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    async def check(self, tool: str, arguments: Mapping[str, Any], side_effect: Any) -> Any:
        self.asked += 1
        return self.answer


class Rule:
    """Decides the same in its phase, and remembers what it saw."""

    def __init__(self, phase: GuardrailPhase, decision: GuardrailDecision) -> None:
        self.phases = frozenset({phase})
        self.decision = decision
        self.seen: list[GuardrailContext] = []

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.seen.append(context)
        return self.decision


def using(*tools: Any) -> Any:
    """Make an agent that calls each tool once and gives back what they said."""

    async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        box = await context.tools(tools)
        results = [await tool.call({"text": "x"}) for tool in box]
        return "\n".join(f"{result.text} [{result.refused_by}]" for result in results) or "no tool was offered"

    return work


def nested(agent: Any, *, depth: int = 1, member: Mapping[str, Any] = {}, **team: Any) -> TeamAgent:
    """A team in a team in a team ...; `team` and `member` are fields of the innermost."""
    inner = TeamAgent(kt.Team("inner", [kt.Member("worker", agent, **member)], **team), coordinator=ONCE)
    for _ in range(depth - 1):
        inner = TeamAgent(kt.Team("between", [kt.Member("desk", inner)]), coordinator=ONCE)
    return inner


async def run(
    agent: Any, *, role: kt.Role | str = "desk", member: Mapping[str, Any] = {}, **team: Any
) -> kt.TeamResult:
    outer = kt.Team("outer", [kt.Member(role, agent, **member)], **team)
    return await ONCE.execute(kt.TeamExecutionRequest("Do it.", run_id="out"), outer)


def text_of(result: kt.TeamResult) -> str:
    assert result.status is kt.TeamStatus.COMPLETED, result.error
    return result.output or ""


# -- tools ------------------------------------------------------------------------------------


async def call_both(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Call both tools without asking whether they are offered."""
    results = [await context.tool(tool).call({"text": "x"}) for tool in (look, write)]
    return "\n".join(f"{result.text} [{result.refused_by}]" for result in results)


@DEPTHS
async def test_plan_mode_holds_inside(depth: int) -> None:
    output = text_of(await run(nested(call_both, depth=depth), permissions=ToolPermissions(plan_mode=True)))
    assert ran == ["look x"]
    assert "[plan-mode]" in output


@DEPTHS
async def test_what_the_role_allows_bounds_what_is_used_inside(depth: int) -> None:
    role = kt.Role("desk", allowed_tools=["look"])
    output = text_of(await run(nested(call_both, depth=depth), role=role))
    assert ran == ["look x"]
    assert "[allowed-tools]" in output
    offered = text_of(await run(nested(using(write), depth=depth), role=role))
    assert offered == "no tool was offered"


async def test_the_inner_roles_list_holds_as_well() -> None:
    inner = kt.Team("inner", [kt.Member(kt.Role("worker", allowed_tools=["write"]), call_both)])
    await run(TeamAgent(inner, coordinator=ONCE), role=kt.Role("desk", allowed_tools=["look"]))
    assert ran == []


@DEPTHS
async def test_the_permission_guard_is_asked_inside(depth: int) -> None:
    guard = Guard(PermissionDecision.deny("not here", "house-rules"))
    output = text_of(await run(nested(call_both, depth=depth), permissions=ToolPermissions(guard=guard)))
    assert (ran, guard.asked) == ([], 2)
    assert output.count("not here [house-rules]") == 2


async def test_both_guards_must_agree_and_the_outer_goes_first() -> None:
    yes, no = Guard(PermissionDecision.allow()), Guard(PermissionDecision.deny("not here"))
    await run(nested(using(look), permissions=ToolPermissions(guard=no)), permissions=ToolPermissions(guard=yes))
    assert (ran, yes.asked, no.asked) == ([], 1, 1)
    await run(nested(using(look), permissions=ToolPermissions(guard=yes)), permissions=ToolPermissions(guard=no))
    assert (ran, yes.asked, no.asked) == ([], 1, 2)


@pytest.mark.parametrize("answer", [None, "yes", True])
async def test_what_is_no_decision_of_the_outer_guard_allows_nothing(answer: Any) -> None:
    inner = nested(using(look), permissions=ToolPermissions(guard=Guard(PermissionDecision.allow())))
    output = text_of(await run(inner, permissions=ToolPermissions(guard=Guard(answer))))
    assert ran == []
    assert "[permission-guard]" in output


async def test_what_both_ask_about_is_asked_once_with_both_reasons() -> None:
    asked: list[kt.HumanRequest] = []

    async def decide(question: kt.HumanRequest) -> kt.HumanDecision:
        asked.append(question)
        return kt.HumanDecision.approve()

    inner = nested(using(look), permissions=ToolPermissions(guard=Guard(PermissionDecision.ask("it looks"))))
    permissions = ToolPermissions(guard=Guard(PermissionDecision.ask("it costs")))
    await run(inner, permissions=permissions, runtime=kt.Runtime(gate=CallbackGate(decide)))
    assert ran == ["look x"]
    assert len(asked) == 1
    assert "it costs; it looks" in asked[0].text
    assert repr(JointGuard(Guard(1), Guard(2))).startswith("JointGuard(")


@DEPTHS
async def test_a_guardrail_denies_tool_calls_inside(depth: int) -> None:
    rule = Rule(GuardrailPhase.PRE_TOOL, GuardrailDecision.deny("not today"))
    output = text_of(await run(nested(using(look), depth=depth), guardrails=[rule]))
    assert (ran, len(rule.seen)) == ([], 1)
    assert "not today" in output


SERVER_TOOL = replace(as_tool(look), name="files_read", server="files", server_tool="read")


@pytest.mark.parametrize(
    ("outer", "runs"),
    [
        (None, True),
        (ToolPermissions(), True),
        (ToolPermissions(mcp=McpPolicy(allowed=["files/read"])), True),
        (ToolPermissions(mcp=McpPolicy(allowed=["files/list"])), False),
    ],
)
async def test_an_mcp_policy_that_was_given_holds_inside_and_none_takes_nothing_away(
    outer: ToolPermissions | None, runs: bool
) -> None:
    async def read(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        return (await context.tool(SERVER_TOOL).call({"text": "x"})).text

    inner = ToolPermissions(mcp=McpPolicy(allowed=["files/read"]))
    for depth in (1, 3):
        ran.clear()
        output = text_of(await run(nested(read, depth=depth, permissions=inner), permissions=outer))
        assert (ran == ["look x"]) == runs, output


# -- models -----------------------------------------------------------------------------------


@DEPTHS
@pytest.mark.parametrize("of", ["team", "member"])
async def test_a_denied_prompt_is_not_sent_inside(depth: int, of: str) -> None:
    model = FunctionModel(lambda _: "fine")
    rule = Rule(GuardrailPhase.PRE_MODEL, GuardrailDecision.deny("no such thing"))
    given: dict[str, Any] = {"guardrails": [rule]} if of == "team" else {"member": {"guardrails": [rule]}}
    result = await run(nested(kt.MiniAgent(model), depth=depth), **given)
    assert (model.calls, len(rule.seen)) == ([], 1)
    assert "no such thing" in str(result["task"].error)


async def test_the_inner_teams_guardrails_see_what_the_outer_ones_left() -> None:
    model = FunctionModel(lambda _: "fine")
    told = ModelInput((kt.Message.user("Say hello."),), {})
    outer = Rule(GuardrailPhase.PRE_MODEL, GuardrailDecision.modify("shorter", told))
    inner = Rule(GuardrailPhase.PRE_MODEL, GuardrailDecision.allow())
    own = Rule(GuardrailPhase.PRE_MODEL, GuardrailDecision.allow())
    await run(nested(kt.MiniAgent(model), guardrails=[inner], member={"guardrails": [own]}), guardrails=[outer])
    assert [message.text for message in model.calls[0].messages] == ["Say hello."]
    for rule in (inner, own):
        assert rule.seen[0].payload == told
    assert inner.seen[0].member == "worker"


async def test_the_inner_planner_is_guarded_too() -> None:
    model = FunctionModel(lambda _: "fine")
    rule = Rule(GuardrailPhase.PRE_MODEL, GuardrailDecision.deny("no such thing"))
    inner = TeamAgent(
        kt.Team("inner", [kt.Member("worker", kt.MiniAgent(model))]),
        coordinator=ExpertTeamCoordinator(planner=AgentPlanner(model)),
    )
    await run(inner, guardrails=[rule])
    assert model.calls == []
    assert rule.seen[0].metadata["purpose"] == "plan"


class CountsCalls(Rule):
    """Denies the third call that it sees in a run."""

    def for_run(self) -> CountsCalls:
        return CountsCalls(GuardrailPhase.PRE_MODEL, GuardrailDecision.allow())

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        self.seen.append(context)
        return GuardrailDecision.deny("enough") if len(self.seen) > 2 else self.decision


async def test_state_of_an_outer_guardrail_is_one_for_the_outer_run() -> None:
    model = FunctionModel(lambda _: "fine")
    outer = kt.Team(
        "outer",
        [kt.Member("desk", nested(kt.MiniAgent(model)), guardrails=[])],
        guardrails=[CountsCalls(GuardrailPhase.PRE_MODEL, GuardrailDecision.allow())],
    )
    plan = kt.TaskGraph([kt.Task(f"t{number}", "do") for number in range(4)])
    await ONCE.execute(kt.TeamExecutionRequest("Do it.", plan=plan), outer)
    assert len(model.calls) == 2


# -- constraints ------------------------------------------------------------------------------


def asking(model: FunctionModel, times: int) -> Any:
    async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        for number in range(times):
            await context.model(model).complete(kt.ModelRequest([kt.Message.user(f"{number}")]))
        return "done"

    return ask


@DEPTHS
@pytest.mark.parametrize("of", ["team", "member"])
async def test_model_calls_inside_are_turns_of_the_attempt_around(depth: int, of: str) -> None:
    model, recorder = FunctionModel(lambda _: "fine"), EventRecorder()
    given: dict[str, Any] = {"constraints": [MaxIterations(3)]}
    given = given if of == "team" else {"member": given}
    result = await run(nested(asking(model, 5), depth=depth), runtime=kt.Runtime(subscribers=[recorder]), **given)
    assert len(model.calls) == 3
    assert result.status is kt.TeamStatus.FAILED
    assert [event.run_id for event in recorder.events if event.type == "constraint.violated"] == ["out"]
    recorder.assert_lawful()


async def test_a_cost_limit_around_ends_the_calls_inside() -> None:
    model = FunctionModel(lambda _: "fine " * 10, dollars_per_token=0.01)
    await run(nested(asking(model, 9)), member={"constraints": [CostLimit(0.25)]})
    assert len(model.calls) == 3


async def test_a_team_without_rules_is_a_member_like_any_other() -> None:
    """Nothing is taken away where nothing is forbidden."""
    output = text_of(await run(nested(call_both, depth=3)))
    assert output == "found x [None]\nwrote x [None]"
