"""The one way every tool call goes: its order, what each stage refuses, and what guardrails change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import HaltError
from kairo_team.governance import Governor
from kairo_team.governance.guardrails import GuardrailAction, GuardrailContext, GuardrailDecision, GuardrailPhase
from kairo_team.governance.policies.mcp_policy import McpPolicy
from kairo_team.tools import (
    CircuitBreaker,
    CircuitBreakers,
    PermissionDecision,
    Tool,
    ToolPipeline,
    ToolResult,
    as_tool,
)
from tests.tools.stages import Calls, Guard, Policy, pipeline, simple, with_arguments

pytestmark = pytest.mark.anyio

PRE, POST = GuardrailPhase.PRE_TOOL, GuardrailPhase.POST_TOOL
DENY = PermissionDecision.deny("not you", "rule-7")


class Recorded:
    """A pipeline whose every stage writes its name down."""

    def __init__(self) -> None:
        self.log: list[str] = []
        log = self.log

        class Breakers(CircuitBreakers):
            def admit(self, tool: str) -> int | None:
                log.append("breaker")
                return super().admit(tool)

            def end(self, tool: str, ticket: int, succeeded: bool | None) -> None:
                log.append(f"breaker told {succeeded}")
                super().end(tool, ticket, succeeded)

        class Allowed(frozenset[str]):
            def __contains__(self, name: object) -> bool:
                log.append("allowed")
                return super().__contains__(name)

        class Permissions:
            guard = Guard(log=log)
            mcp = None
            breaker = CircuitBreaker()

            @property
            def plan_mode(self) -> bool:
                log.append("plan mode")
                return False

        self.governor = Governor(Budget(tool_calls=1), clock=lambda: 0.0)
        self.pipeline = pipeline(Policy(PRE, POST, log=log), governor=self.governor)
        self.pipeline.breakers = Breakers(CircuitBreaker(), anyio.current_time)
        self.pipeline._allowed = (Allowed({"simple"}),)
        self.pipeline._permissions = Permissions()  # type: ignore[assignment]  # it writes down when it is read
        sanitize = self.pipeline._sanitize

        def recorded(text: str) -> str:
            log.append("sanitize")
            return sanitize(text)

        self.pipeline._sanitize = recorded  # type: ignore[assignment]  # the same

    def check(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self.log.append("arguments")
        return arguments

    def run(self, arguments: Mapping[str, Any]) -> str:
        self.log.append(f"run, {self.governor.held.tool_calls} held")
        return "done"


async def test_every_stage_comes_in_its_place() -> None:
    rig = Recorded()
    result = await rig.pipeline.call(simple(rig.run, check=rig.check), {})
    assert result == ToolResult("done", value="done")
    assert rig.log == [
        "breaker",
        "allowed",
        "plan mode",
        "arguments",
        "guard",
        "pre_tool",
        "run, 1 held",
        "breaker told True",
        "post_tool",
        "sanitize",
    ]
    assert rig.governor.usage == Usage(tool_calls=1)


async def test_changed_arguments_pass_the_static_stages_again_and_no_guardrail() -> None:
    rig = Recorded()

    def change(context: GuardrailContext) -> GuardrailDecision | None:
        return with_arguments(context, a=1) if context.phase is PRE else None

    chain: Any = rig.pipeline._guardrails
    chain.policies[0].answer = change
    await rig.pipeline.call(simple(rig.run, check=rig.check), {})
    again = ["allowed", "plan mode", "arguments", "guard"]
    assert rig.log[1:-4] == [*again, "pre_tool", *again]


# ---------------------------------------------------------------- refusals


def no_mcp(calls: Calls) -> tuple[ToolPipeline, Tool]:
    return pipeline(calls=calls), simple(never, server="files", server_tool="write")


def never(arguments: Mapping[str, Any]) -> None:
    raise AssertionError("it was not to be called")


def broke(calls: Calls) -> tuple[ToolPipeline, Tool]:
    return pipeline(calls=calls, budget=Budget(tool_calls=0)), simple(never)


def asks(calls: Calls) -> tuple[ToolPipeline, Tool]:
    return pipeline(guard=Guard(PermissionDecision.ask("it costs money")), calls=calls), simple(never)


REFUSALS: Mapping[str, tuple[Callable[[Calls], tuple[ToolPipeline, Tool]], str]] = {
    "allowed-tools": (
        lambda calls: (pipeline(allowed=["other"], calls=calls), simple(never)),
        "the tool 'simple' is not allowed here; allowed are 'other'",
    ),
    "plan-mode": (
        lambda calls: (pipeline(plan_mode=True, calls=calls), simple(never, side_effect="write")),
        "only tools that read may be used while planning; 'simple' is a write tool",
    ),
    "rule-7": (lambda calls: (pipeline(guard=Guard(DENY), calls=calls), simple(never)), "not you"),
    "permission-guard": (asks, "this needs the approval of a human, and the run has no gate: it costs money"),
    "policy": (
        lambda calls: (pipeline(Policy(PRE, answer=GuardrailDecision.deny("bad words")), calls=calls), simple(never)),
        "bad words",
    ),
    "budget": (broke, "no tool call is left to make: 'run' has 0 tool_calls left, 1 asked"),
    "mcp-policy": (no_mcp, "the tool 'write' of the MCP server 'files' is not on the allowed list"),
}


@pytest.mark.parametrize("by", REFUSALS)
async def test_a_refusal_is_an_error_result_that_says_why_and_by_what(by: str) -> None:
    make, reason = REFUSALS[by]
    calls = Calls()
    way, tool = make(calls)
    result = await way.call(tool, {})
    assert result == ToolResult(reason, is_error=True, refused_by=by)
    assert calls == [(tool.name, "refused", by, reason)]
    assert way.governor.usage == Usage()
    assert way.governor.held == Usage()
    assert way.governor.halted is None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ValueError("bug"), "the permission guard failed: ValueError: bug"),
        (
            ExceptionGroup("two", [ValueError("bug")]),
            "the permission guard failed: ValueError: bug",
        ),
        (None, "the permission guard answered 'None', not a decision"),
        (True, "the permission guard answered 'True', not a decision"),
        ("allow", "the permission guard answered 'allow', not a decision"),
        (GuardrailDecision.allow(), "the permission guard answered .*, not a decision"),
    ],
)
async def test_a_guard_that_fails_or_answers_nonsense_denies(answer: Any, reason: str) -> None:
    result = await pipeline(guard=Guard(answer)).call(simple(never), {})
    assert result.refused_by == "permission-guard"
    assert result.text == reason or ".*" in reason


async def test_a_guard_that_is_not_async_or_forgets_to_await_denies() -> None:
    class Sync:
        def check(self, tool: str, arguments: Any, side_effect: Any) -> PermissionDecision:
            return PermissionDecision.allow()

    class Forgetful:
        async def check(self, tool: str, arguments: Any, side_effect: Any) -> Any:
            return Guard().check(tool, arguments, side_effect)

    for guard in (Sync(), Forgetful()):
        result = await pipeline(guard=guard).call(simple(never), {})  # type: ignore[arg-type]  # the point
        assert (result.is_error, result.refused_by) == (True, "permission-guard")


async def test_a_guard_that_changes_what_it_is_shown_denies() -> None:
    def meddle(_tool: str, arguments: Any, /) -> PermissionDecision:
        arguments.update(path="/etc")
        return PermissionDecision.allow()

    result = await pipeline(guard=Guard(meddle)).call(simple(never), {"path": "a"})
    assert "part of a frozen value" in result.text


async def test_a_denial_by_the_guard_triggers_no_guardrail() -> None:
    policy = Policy()
    await pipeline(policy, guard=Guard(DENY)).call(simple(never), {})
    assert policy.shown == []


async def test_a_halt_out_of_a_guard_is_a_halt() -> None:
    halt = HaltError(HaltReason.CANCELLED, Usage(), "team")
    for answer in (halt, ExceptionGroup("g", [halt])):
        with pytest.raises(HaltError) as caught:
            await pipeline(guard=Guard(answer)).call(simple(never), {})
        assert caught.value is halt


# ---------------------------------------------------------------- guardrails


async def test_guardrails_are_told_what_is_called_and_by_whom() -> None:
    policy = Policy()
    way = pipeline(policy, member="ann", metadata={"run_id": "r", "task_id": "t", "purpose": "generate"})
    await way.call(simple(lambda _: "out", side_effect="write"), {"a": 1})
    before, after = policy.shown
    assert (before.phase, before.member, before.target, before.payload.text) == (PRE, "ann", "simple", '{"a": 1}')
    assert (after.phase, after.payload.text) == (POST, "out")
    about = {"run_id": "r", "task_id": "t", "purpose": "generate", "server": None, "tool": "simple"}
    assert before.metadata == after.metadata == {**about, "side_effect": "write"}


async def test_a_denied_result_is_replaced_by_the_reason_and_the_call_was_made() -> None:
    calls = Calls()
    way = pipeline(Policy(POST, answer=GuardrailDecision.deny("it holds a name")), calls=calls)
    result = await way.call(simple(lambda _: "Ann"), {})
    assert result == ToolResult("it holds a name", is_error=True, refused_by="policy")
    assert calls == [("simple", "error", "policy", "it holds a name")]
    assert way.governor.usage.tool_calls == 1
    assert [(phase, target, ruling.policy, ruling.decision.action) for phase, target, ruling in calls.rulings] == [
        (POST, "simple", "policy", GuardrailAction.DENY)
    ]


async def test_a_changed_result_has_no_value_any_more_and_stays_the_error_it_was() -> None:
    def mask(context: Any) -> GuardrailDecision:
        return GuardrailDecision.modify("masked", context.payload.with_text("***"))

    way = pipeline(Policy(POST, answer=mask))
    assert await way.call(simple(lambda _: 5), {}) == ToolResult("***")
    assert await way.call(simple(lambda _: 1 / 0), {}) == ToolResult("***", is_error=True)


async def test_what_a_failing_tool_says_passes_the_guardrails_too() -> None:
    policy = Policy(POST)
    await pipeline(policy).call(simple(lambda arguments: arguments["name"]), {})
    assert policy.shown[0].payload.text == "KeyError: 'name'"


async def test_a_call_interrupted_among_the_guardrails_after_it_was_made_and_is_told() -> None:
    halt = HaltError(HaltReason.CANCELLED, Usage(), "team")
    calls = Calls()
    way = pipeline(Policy(POST, answer=halt), calls=calls)
    with pytest.raises(HaltError):
        await way.call(simple(lambda _: 5), {})
    assert calls == [("simple", "error", None, "the call was interrupted")]
    assert way.governor.usage.tool_calls == 1


async def test_a_servers_tool_meets_the_mcp_policy_and_the_other_guardrails() -> None:
    policy = Policy(PRE, answer=GuardrailDecision.deny("not today"))
    way = pipeline(policy, mcp=McpPolicy(allowed=["list"]))
    result = await way.call(simple(never, server="files", server_tool="list"), {})
    assert result.refused_by == "policy"
    assert policy.shown[0].metadata["server"] == "files"


async def test_a_warning_is_told_and_changes_nothing() -> None:
    calls = Calls()
    way = pipeline(Policy(PRE, POST, answer=GuardrailDecision.warn("hm")), calls=calls)
    assert await way.call(simple(lambda _: 5), {}) == ToolResult("5", value=5)
    assert [(phase, ruling.decision.reason) for phase, _, ruling in calls.rulings] == [(PRE, "hm"), (POST, "hm")]


async def test_changed_arguments_that_do_not_fit_are_refused() -> None:
    async def add(a: int) -> int:
        return a

    policy = Policy(PRE, answer=lambda context: with_arguments(context, a="many"))
    result = await pipeline(policy).call(as_tool(add), {"a": 1})
    assert result.refused_by == "arguments"
    assert "'a': Input should be a valid integer" in result.text


# ---------------------------------------------------------------- what is offered


async def test_what_is_never_to_be_run_is_withheld() -> None:
    way = pipeline(allowed=["simple", "files/list"], plan_mode=True)
    reads = {"side_effect": "read"}
    assert way.refusal(simple(never, **reads)) is None
    assert way.refusal(simple(never)) == "only tools that read may be used while planning; 'simple' is a system tool"
    other = way.refusal(simple(never, name="other", **reads))
    assert other == "the tool 'other' is not allowed here; allowed are 'files/list', 'simple'"
    listed = simple(never, name="files_list", server="files", server_tool="list", **reads)
    assert way.refusal(listed) == "the tool 'list' of the MCP server 'files' is not on the allowed list"
