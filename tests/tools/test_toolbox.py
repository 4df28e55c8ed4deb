"""The calls of one turn: what runs side by side, in which order results come back, and what goes wrong with names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.budget import Budget, HaltReason, Usage
from kairo_team.errors import ConstraintExit, GuardrailDenied, HaltError, InsufficientBudget
from kairo_team.messages import ToolCall
from kairo_team.tools import PermissionDecision, Tool, Toolbox, ToolPipeline, ToolResult, as_tool
from tests.tools.stages import Calls, Guard, pipeline, simple

pytestmark = pytest.mark.anyio


class Bench:
    """A reading and a writing tool that take a second each and note when they begin and end."""

    def __init__(self, way: ToolPipeline | None = None) -> None:
        self.log: list[str] = []
        reads = Tool("read", self._work, side_effect="read")
        self.box = Toolbox(
            way or pipeline(), [reads, Tool("write", self._work, side_effect="write"), Tool("run", self._work)]
        )

    async def _work(self, arguments: Mapping[str, Any]) -> str:
        self.log.append(f"+{arguments['n']}")
        await anyio.sleep(arguments.get("for", 1))
        self.log.append(f"-{arguments['n']}")
        return str(arguments["n"])

    async def turn(self, *names: str) -> list[str]:
        calls = [ToolCall(str(number), name, {"n": number}) for number, name in enumerate(names)]
        return [result.text for result in await self.box.run(calls)]


async def test_reads_run_side_by_side_and_come_back_in_call_order() -> None:
    bench, began = Bench(), anyio.current_time()
    calls = [ToolCall(str(n), "read", {"n": n, "for": 5 - n}) for n in range(5)]
    assert [result.text for result in await bench.box.run(calls)] == ["0", "1", "2", "3", "4"]
    assert anyio.current_time() - began == pytest.approx(5)
    assert bench.log[5:] == ["-4", "-3", "-2", "-1", "-0"]


async def test_others_run_one_by_one() -> None:
    bench = Bench()
    assert await bench.turn("write", "run", "write") == ["0", "1", "2"]
    assert bench.log == ["+0", "-0", "+1", "-1", "+2", "-2"]


async def test_a_write_waits_for_the_reads_before_it_and_is_done_before_those_after_it() -> None:
    bench, began = Bench(), anyio.current_time()
    assert await bench.turn("read", "read", "write", "read", "read") == ["0", "1", "2", "3", "4"]
    assert [sorted(part) for part in (bench.log[:2], bench.log[2:4], bench.log[6:8])] == [
        ["+0", "+1"],
        ["-0", "-1"],
        ["+3", "+4"],
    ]
    assert bench.log[4:6] == ["+2", "-2"]
    assert anyio.current_time() - began == pytest.approx(3)


@given(names=st.lists(st.sampled_from(["read", "write", "run", "no such tool"]), max_size=12))
async def test_whatever_a_turn_asks_for_there_is_one_result_per_call_in_order(names: list[str]) -> None:
    results = await Bench().turn(*names)
    for number, (name, result) in enumerate(zip(names, results, strict=True)):
        assert result == str(number) or name == "no such tool"


async def test_no_calls_are_no_results() -> None:
    assert await Bench().box.run([]) == []


# ---------------------------------------------------------------- ends


ENDS = [
    HaltError(HaltReason.CANCELLED, Usage(), "team"),
    ConstraintExit("max-iterations", "enough"),
    GuardrailDenied("filter", "pre_model", "no"),
    InsufficientBudget("tokens", 5, 1, "task"),
]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
async def test_the_end_of_an_attempt_comes_out_of_the_group_unwrapped_and_stops_the_others(end: Exception) -> None:
    bench = Bench()

    def fail(arguments: Mapping[str, Any]) -> None:
        raise end

    box = Toolbox(pipeline(), [bench.box["read"].tool, simple(fail, name="fail", side_effect="read")])
    with pytest.raises(type(end)) as caught:
        await box.run([ToolCall("0", "read", {"n": 0}), ToolCall("1", "fail", {}), ToolCall("2", "fail", {})])
    assert caught.value is end
    assert "-0" not in bench.log


async def test_of_two_different_ends_the_halt_goes_first() -> None:
    barrier = anyio.Event()

    async def fail(arguments: Mapping[str, Any]) -> None:
        await barrier.wait()
        raise ENDS[arguments["n"]]

    async def go(arguments: Mapping[str, Any]) -> None:
        barrier.set()

    box = Toolbox(pipeline(), [Tool("fail", fail, side_effect="read"), Tool("go", go, side_effect="read")])
    calls = [ToolCall(str(n), "fail", {"n": n}) for n in (3, 2, 1, 0)]
    with pytest.raises(tuple(type(end) for end in ENDS)):
        await box.run([*calls, ToolCall("go", "go", {})])


async def test_a_cancellation_ends_all_and_passes() -> None:
    bench = Bench()
    with anyio.move_on_after(0.5) as scope:
        await bench.turn("read", "read")
    assert scope.cancelled_caught
    assert sorted(bench.log) == ["+0", "+1"]


_CANCELLED = "CancelledError(): it was not cancelled, but something it waited for was"


@pytest.mark.loops("asyncio")  # trio lets nobody raise its Cancelled
async def test_a_tool_that_cancels_itself_is_an_error_and_the_others_answer() -> None:
    async def cancel(arguments: Mapping[str, Any]) -> None:
        raise anyio.get_cancelled_exc_class()

    bench = Bench()
    box = Toolbox(pipeline(), [bench.box["read"].tool, Tool("cancel", cancel, side_effect="read")])
    results = await box.run([ToolCall("0", "read", {"n": 0}), ToolCall("1", "cancel", {})])
    assert [result.text for result in results] == ["0", _CANCELLED]


async def test_a_cancellation_that_nobody_asked_for_is_an_error_of_the_tool() -> None:
    """On asyncio a tool may wait for what somebody else cancelled; that does not end who called the tool."""

    async def wait(arguments: Mapping[str, Any]) -> None:
        raise asyncio.CancelledError

    calls = Calls()
    result = await pipeline(calls=calls).call(Tool("wait", wait), {})
    assert (result.is_error, result.text.partition("(")[0]) == (True, "CancelledError")
    assert calls.last[1] == "error"


async def test_a_tool_of_no_server_is_allowed_by_its_own_name_alone() -> None:
    ran = Tool("ran", never, server_tool="None")
    way = pipeline(allowed=["None/None"])
    assert way.refusal(ran) == "the tool 'ran' is not allowed here; allowed are 'None/None'"
    with pytest.raises(ValueError, match="server must be a string or None, not 5"):
        Tool("ran", never, server=5)  # type: ignore[arg-type]  # what is tried


async def never(_: Mapping[str, Any]) -> None:
    raise AssertionError("it must not run")


async def test_reads_side_by_side_never_pass_the_limit() -> None:
    bench = Bench(pipeline(budget=Budget(tool_calls=3)))
    calls = [ToolCall(str(n), "read", {"n": n}) for n in range(8)]
    results = await bench.box.run(calls)
    assert sum(result.refused_by == "budget" for result in results) == 5
    assert len(bench.log) == 6


# ---------------------------------------------------------------- names


async def test_an_unknown_tool_is_an_error_that_lists_those_there_are() -> None:
    calls = Calls()
    box = Toolbox(pipeline(calls=calls, allowed=["simple"]), [simple(str), simple(str, name="hidden")])
    (result,) = await box.run([ToolCall("0", "simpel", {})])
    assert result == ToolResult(
        "there is no tool 'simpel'; there are 'simple'", is_error=True, refused_by="unknown-tool"
    )
    assert calls == [("simpel", "refused", "unknown-tool", result.text)]


async def test_the_name_of_an_unknown_tool_may_be_anything() -> None:
    for name in ("", "x" * 10**6, "a\nb", "__class__"):
        (result,) = await Toolbox(pipeline(), []).run([ToolCall("0", name, {})])
        assert result.refused_by == "unknown-tool"
        assert len(result.text) < 500


async def test_broken_arguments_of_one_call_leave_the_others_alone() -> None:
    calls = [ToolCall("0", "read", '{"n": 0'), ToolCall("1", "read", '{"n": 1}'), ToolCall("2", "read", "[]")]
    results = await Bench().box.run(calls)
    assert [result.refused_by for result in results] == ["arguments", None, "arguments"]
    assert results[1].text == "1"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named 'simple': give one of them another name"):
        Toolbox(pipeline(), [simple(str), simple(repr)])
    one = simple(str)
    assert Toolbox(pipeline(), [one, one]).names == ("simple",)


async def test_only_what_may_run_is_offered_and_the_rest_is_refused_when_called() -> None:
    look, change = simple(lambda _: "seen", name="look", side_effect="read"), simple(str, name="change")
    box = Toolbox(pipeline(plan_mode=True), [change, look])
    assert (box.names, [spec.name for spec in box.specs], len(box)) == (("look",), ["look"], 1)
    assert [governed.name for governed in box] == ["look"]
    results = await box.run([ToolCall("0", "change", {}), ToolCall("1", "look", {})])
    assert [result.refused_by for result in results] == ["plan-mode", None]
    with pytest.raises(KeyError, match="there is no tool 'x'; there are 'look'"):
        box["x"]


async def test_a_governed_tool_is_called_by_name_or_with_a_mapping() -> None:
    async def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    box = Toolbox(pipeline(guard=Guard()), [as_tool(add)])
    tool = box["add"]
    assert (tool.name, tool.spec.description, repr(tool)) == ("add", "Add.", "GovernedTool('add')")
    assert (await tool(a=1)).value == 2
    assert (await tool.call({"a": 1, "b": 2})).value == 3
    assert (await tool.call('{"a": 5}')).value == 6


async def test_an_argument_may_have_any_name() -> None:
    tool = Toolbox(pipeline(), [simple(sorted, name="odd")])["odd"]
    assert (await tool(self=1, arguments=2, tool=3)).text == '["arguments","self","tool"]'


async def test_a_tool_named_by_the_guard_alone_is_still_offered() -> None:
    box = Toolbox(pipeline(guard=Guard(PermissionDecision.deny("no"))), [simple(str)])
    assert box.names == ("simple",)
    assert (await box.run([ToolCall("0", "simple", {})]))[0].text == "no"
