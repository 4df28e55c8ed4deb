"""The one way every tool call goes: its order, what each stage refuses, what a tool may do wrong, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget, InvalidReply
from kairo_team.governance import Governor
from kairo_team.governance.guardrails import GuardrailAction, GuardrailDecision, GuardrailPhase
from kairo_team.governance.policies.mcp import McpPolicy
from kairo_team.tools import (
    CircuitBreaker,
    CircuitBreakers,
    PermissionDecision,
    Tool,
    ToolPipeline,
    ToolResult,
    as_tool,
)
from kairo_team.tools.pipeline import MAX_REASON
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
        self.pipeline._allowed = Allowed({"simple"})
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
    chain: Any = rig.pipeline._guardrails
    chain.policies[0].answer = lambda context: with_arguments(context, a=1) if context.phase is PRE else None
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
    "permission-guard": (asks, "this needs the approval of a human, and nobody can be asked: it costs money"),
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
            "the permission guard failed: ExceptionGroup: two (1 sub-exception)",
        ),
        (None, "the permission guard answered 'None', which is no decision"),
        (True, "the permission guard answered 'True', which is no decision"),
        ("allow", "the permission guard answered 'allow', which is no decision"),
        (GuardrailDecision.allow(), "the permission guard answered .*, which is no decision"),
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
    guard = Guard(lambda _tool, arguments: arguments.update(path="/etc") or PermissionDecision.allow())
    result = await pipeline(guard=guard).call(simple(never), {"path": "a"})
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


# ---------------------------------------------------------------- arguments


async def add(a: int, b: int = 2) -> int:
    return a + b


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"a": "x"}, "the arguments do not fit: 'a': Input should be a valid integer"),
        ({}, "the arguments do not fit: 'a' is missing"),
        ("", "'a' is missing"),
        ("  \n", "'a' is missing"),
        ('{"a": 1', "the arguments are no JSON: Expecting"),
        ("call add please", "the arguments are no JSON: .*; they began 'call add please'"),
        ("[1]", r"the arguments must be a JSON object, by name, not '\[1\]'"),
        ("null", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ('{"a": NaN}', "the arguments are no JSON: NaN is no JSON number"),
        ('{"a": 1' + "0" * 5000 + "}", "the arguments are no JSON|do not fit"),
        ("[" * 100_000, "the arguments are no JSON"),
        ('{"a":' * 100_000, "the arguments are no JSON"),
        (None, "must be a JSON object"),
        ([("a", 1)], "must be a JSON object"),
        (5, "must be a JSON object"),
        ({"a": 1, "b": object()}, "'b': Input should be a valid integer"),
    ],
)
async def test_bad_arguments_are_an_error_the_model_can_act_on(arguments: Any, complaint: str) -> None:
    calls, guard, policy = Calls(), Guard(), Policy()
    way = pipeline(policy, guard=guard, calls=calls)
    result = await way.call(as_tool(add), arguments)
    assert (result.is_error, result.refused_by) == (True, "arguments")
    with pytest.raises(ValueError, match=complaint):
        raise ValueError(result.text)
    assert calls.last[1:3] == ("refused", "arguments")
    assert (guard.asked, policy.shown, way.governor.usage) == ([], [], Usage())


async def test_arguments_may_be_json_text() -> None:
    assert (await pipeline().call(as_tool(add), '{"a": 1, "b": 4}')).text == "5"


async def test_a_guard_sees_the_coerced_arguments_with_defaults_and_the_tool_gets_the_same() -> None:
    guard, policy = Guard(), Policy(PRE)
    assert (await pipeline(policy, guard=guard).call(as_tool(add), {"a": "3"})).text == "5"
    assert guard.asked == [("add", {"a": 3, "b": 2}, "system")]
    assert json.loads(policy.shown[0].payload.text) == {"a": 3, "b": 2}


async def test_arguments_nested_too_deeply_or_in_a_circle_are_refused() -> None:
    circle: dict[str, Any] = {}
    circle["a"] = circle
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for arguments in (circle, {"a": deep}):
        result = await pipeline(guard=Guard()).call(simple(never), arguments)
        assert result.text == "the arguments are nested too deeply"


async def test_a_tool_gets_plain_lists_and_dicts_of_its_own() -> None:
    got: list[Any] = []
    frozen = {"rows": ({"n": 1},)}
    await pipeline(guard=Guard()).call(simple(got.append), frozen)
    assert got == [{"rows": [{"n": 1}]}]
    got[0]["rows"].append(2)
    assert frozen == {"rows": ({"n": 1},)}


async def test_arguments_that_cannot_be_read_are_refused() -> None:
    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no items")

    for arguments in (Broken(a=1), {"a": Broken(b=1)}):
        result = await pipeline().call(simple(never), arguments)
        assert result.text == "the arguments cannot be read: RuntimeError: no items"
    for strange in (float("nan"), b"\xff"):
        result = await pipeline(guard=Guard()).call(simple(never), {"a": strange})
        assert result.text.startswith("the arguments are no JSON values: ")


async def test_a_check_that_returns_no_arguments_is_no_way_in() -> None:
    nonsense: Any = lambda _: ["a"]  # noqa: E731 - no name is needed
    for guard in (None, Guard()):
        result = await pipeline(guard=guard).call(simple(never, check=nonsense), {})
        assert result.refused_by == "arguments"
        assert "which are no arguments by name" in result.text


async def test_a_check_that_fails_is_no_way_in() -> None:
    def check(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        raise RuntimeError("bug")

    result = await pipeline().call(simple(never, check=check), {})
    assert result.text == "the arguments could not be checked: RuntimeError: bug"


# ---------------------------------------------------------------- what a tool may do wrong


class SearchError(Exception):
    pass


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SearchError("no index"), "SearchError: no index"),
        (SearchError(), "SearchError"),
        (TimeoutError("slow"), "TimeoutError: slow"),
        (Unsayable(), "Unsayable: <a Unsayable that cannot be shown>"),
        (InvalidReply("report", "it is a poem"), "InvalidReply: the artifact is no valid 'report': it is a poem"),
        (RecursionError("deep"), "RecursionError: deep"),
        (StopIteration(), "RuntimeError: coroutine raised StopIteration"),
        (ExceptionGroup("two", [ValueError("a")]), "ExceptionGroup: two (1 sub-exception)"),
    ],
)
async def test_a_tool_that_raises_is_an_error_without_traceback(error: Exception, text: str) -> None:
    def fail(arguments: Mapping[str, Any]) -> None:
        raise error

    calls = Calls()
    way = pipeline(calls=calls)
    assert await way.call(simple(fail), {}) == ToolResult(text, is_error=True)
    assert calls == [("simple", "error", None, text)]
    assert way.governor.usage.tool_calls == 1


PASSING = [
    HaltError(HaltReason.TOKEN_BUDGET_EXCEEDED, Usage(), "team"),
    ConstraintExit("max-iterations", "enough"),
    GuardrailDenied("filter", "pre_model", "no"),
    InsufficientBudget("tokens", 5, 1, "task"),
]


@pytest.mark.parametrize("end", PASSING, ids=lambda end: type(end).__name__)
@pytest.mark.parametrize("wrap", [False, True])
async def test_what_ends_the_attempt_passes_untouched(end: Exception, wrap: bool) -> None:
    error = ExceptionGroup("outer", [ValueError("x"), ExceptionGroup("inner", [end])]) if wrap else end

    def fail(arguments: Mapping[str, Any]) -> None:
        raise error

    calls = Calls()
    way = pipeline(calls=calls)
    with pytest.raises(type(end)) as caught:
        await way.call(simple(fail), {})
    assert caught.value is end
    assert way.governor.usage.tool_calls == 1
    assert calls.last[:3] == ("simple", "error", None)


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
async def test_the_end_of_the_program_passes(end: type[BaseException]) -> None:
    def fail(arguments: Mapping[str, Any]) -> None:
        raise end

    way = pipeline()
    with pytest.raises(end):
        await way.call(simple(fail), {})
    assert way.governor.usage.tool_calls == 1


async def hang(arguments: Mapping[str, Any]) -> None:
    await anyio.sleep_forever()


async def test_a_tool_that_hangs_ends_with_its_timeout() -> None:
    began = anyio.current_time()
    way = pipeline()
    result = await way.call(simple(hang, timeout=2.5), {})
    assert result == ToolResult("TimeoutError: it took longer than 2.5 seconds", is_error=True)
    assert anyio.current_time() - began == pytest.approx(2.5)
    assert way.governor.usage.tool_calls == 1


@pytest.mark.real_time
async def test_a_plain_function_that_hangs_is_left_to_itself() -> None:
    import threading

    release = threading.Event()

    def block() -> None:
        release.wait(20)

    try:
        result = await pipeline().call(as_tool(block, timeout=0.05), {})
    finally:
        release.set()
    assert result.text == "TimeoutError: it took longer than 0.05 seconds"


async def test_a_cancelled_call_is_charged_if_it_was_started_and_only_then() -> None:
    calls = Calls()
    way = pipeline(calls=calls)
    with anyio.move_on_after(1):
        await way.call(simple(hang), {})
    assert way.governor.usage == Usage(tool_calls=1)
    assert calls == [("simple", "error", None, "the call was interrupted")]
    with anyio.CancelScope() as scope:
        scope.cancel()
        await way.call(simple(never), {})
    assert way.governor.usage == Usage(tool_calls=1)
    assert way.governor.held == Usage()


async def test_a_halted_governor_starts_no_tool() -> None:
    governor = Governor(Budget())
    governor.cancel()
    with pytest.raises(HaltError):
        await pipeline(governor=governor).call(simple(never), {})


async def test_over_its_limit_a_tool_call_is_refused_and_nobody_is_halted() -> None:
    way = pipeline(budget=Budget(tool_calls=2))
    results = [await way.call(simple(lambda _: "ok"), {}) for _ in range(3)]
    assert [result.refused_by for result in results] == [None, None, "budget"]
    assert way.governor.usage.tool_calls == 2
    assert way.governor.halted is None


async def test_a_tool_may_say_itself_that_it_failed() -> None:
    calls = Calls()
    way = pipeline(calls=calls)
    made = simple(lambda _: ToolResult("no such page", is_error=True, value=404, refused_by="somebody inside"))
    assert await way.call(made, {}) == ToolResult("no such page", is_error=True, value=404)
    assert calls == [("simple", "error", None, "no such page")]


async def test_the_reason_in_an_event_is_masked_and_short() -> None:
    def fail(arguments: Mapping[str, Any]) -> None:
        raise SearchError("hunter2" + "x" * 10_000)

    calls = Calls()
    way = pipeline(calls=calls, secrets=["hunter2"])
    await way.call(simple(fail), {})
    reason = calls.last[3]
    assert reason is not None
    assert reason.startswith("SearchError: [secret]xx")
    assert len(reason) == MAX_REASON


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
