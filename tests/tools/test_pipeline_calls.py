"""A call at the end of the pipeline: which arguments are taken, what a tool may do wrong, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget, InvalidReply
from kairo_team.governance import Governor
from kairo_team.governance.guardrails import GuardrailPhase
from kairo_team.tools import ToolResult, as_tool
from kairo_team.tools.pipeline import MAX_REASON
from tests.tools.stages import Calls, Guard, Policy, pipeline, simple

pytestmark = pytest.mark.anyio

PRE = GuardrailPhase.PRE_TOOL


def never(arguments: Mapping[str, Any]) -> None:
    raise AssertionError("it was not to be called")


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
        ('{"a": 1', "the arguments are not JSON: Expecting"),
        ("call add please", "the arguments are not JSON: .*; they began 'call add please'"),
        ("[1]", r"the arguments must be a JSON object, by name, not '\[1\]'"),
        ("null", "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ('{"a": NaN}', "the arguments are not JSON: NaN is not a JSON value"),
        ('{"a": 1' + "0" * 5000 + "}", "the arguments are not JSON|do not fit"),
        ("[" * 100_000, "the arguments are not JSON"),
        ('{"a":' * 100_000, "the arguments are not JSON"),
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
        assert result.text.startswith("the arguments are not JSON values: ")


async def test_a_check_that_returns_no_arguments_is_no_way_in() -> None:
    def nonsense(_: Any) -> Any:
        return ["a"]

    for guard in (None, Guard()):
        result = await pipeline(guard=guard).call(simple(never, check=nonsense), {})
        assert result.refused_by == "arguments"
        assert "which is not a mapping of arguments" in result.text


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
        (InvalidReply("report", "it is a poem"), "InvalidReply: the artifact is not a valid 'report': it is a poem"),
        (RecursionError("deep"), "RecursionError: deep"),
        (StopIteration(), "RuntimeError: coroutine raised StopIteration"),
        (ExceptionGroup("two", [ValueError("a")]), "ValueError: a"),
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
async def test_audit_g25_a_tool_cannot_end_the_program(end: type[BaseException]) -> None:
    def fail(arguments: Mapping[str, Any]) -> None:
        raise end

    calls = Calls()
    way = pipeline(calls=calls)
    result = await way.call(simple(fail), {})
    assert result.is_error
    assert result.text.startswith(f"{end.__name__}(): ")
    assert way.governor.usage.tool_calls == 1
    assert calls.last[:3] == ("simple", "error", None)


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
        release.wait(120)

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
