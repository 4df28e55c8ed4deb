"""A tool that fails again and again is left alone for a while, and tried again after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.messages import ToolCall
from kairo_team.testing import FakeClock
from kairo_team.tools import CircuitBreaker, CircuitBreakers, PermissionDecision, Tool, Toolbox, ToolResult
from tests.tools.stages import Guard, pipeline, simple

pytestmark = pytest.mark.anyio


class Rig:
    """A tool that works or not, behind a circuit breaker with a clock moved by hand."""

    def __init__(self, guard: Guard | None = None, failures: int = 3) -> None:
        self.clock = FakeClock()
        self.works = False
        self.runs = 0
        breakers = CircuitBreakers(CircuitBreaker(failures, pause=30), self.clock)
        self.pipeline = pipeline(guard=guard, breakers=breakers)
        self.tool = simple(self._run)

    def _run(self, arguments: Mapping[str, Any]) -> str:
        self.runs += 1
        if not self.works:
            raise OSError("down")
        return "fine"

    async def call(self) -> str:
        result = await self.pipeline.call(self.tool, {})
        return result.refused_by or result.text


async def test_it_opens_after_three_failures_in_a_row() -> None:
    rig = Rig()
    assert [await rig.call() for _ in range(4)] == ["OSError: down"] * 3 + ["circuit-breaker"]
    assert rig.runs == 3
    result = await rig.pipeline.call(rig.tool, {})
    assert result.text == (
        "it failed 3 times in a row and is blocked for 30 seconds: continue without it, or try again later"
    )


async def test_a_success_in_between_begins_the_count_anew() -> None:
    rig = Rig()
    for works in (False, False, True, False, False):
        rig.works = works
        await rig.call()
    rig.works = True
    assert await rig.call() == "fine"


async def test_after_the_pause_one_call_tries_and_its_success_closes_it() -> None:
    rig = Rig()
    for _ in range(3):
        await rig.call()
    rig.clock.advance(29.9)
    assert await rig.call() == "circuit-breaker"
    rig.clock.advance(0.1)
    rig.works = True
    assert [await rig.call() for _ in range(3)] == ["fine"] * 3


async def test_a_trial_that_fails_opens_it_for_another_pause() -> None:
    rig = Rig()
    for _ in range(3):
        await rig.call()
    rig.clock.advance(30)
    assert [await rig.call(), await rig.call()] == ["OSError: down", "circuit-breaker"]
    rig.clock.advance(30)
    assert await rig.call() == "OSError: down"


async def test_while_one_call_tries_the_others_are_refused() -> None:
    breakers = CircuitBreakers(CircuitBreaker(1, pause=5), anyio.current_time)
    works = False

    async def work(arguments: Mapping[str, Any]) -> str:
        await anyio.sleep(1)
        if not works:
            raise OSError("down")
        return "fine"

    box = Toolbox(pipeline(breakers=breakers), [Tool("work", work, side_effect="read")])
    await box.run([ToolCall("0", "work", {})])
    await anyio.sleep(5)
    works = True
    results = await box.run([ToolCall(str(n), "work", {}) for n in range(3)])
    assert sorted(result.refused_by or result.text for result in results) == [
        "circuit-breaker",
        "circuit-breaker",
        "fine",
    ]


async def test_a_timeout_is_a_failure_and_so_is_an_error_result_of_the_tools_own() -> None:
    async def hang(arguments: Mapping[str, Any]) -> None:
        await anyio.sleep_forever()

    broken = simple(lambda _: ToolResult("no", is_error=True), name="broken")
    for tool in (Tool("hang", hang, timeout=1), broken):
        way = pipeline()
        results = [await way.call(tool, {}) for _ in range(4)]
        assert [result.refused_by for result in results] == [None, None, None, "circuit-breaker"]


async def test_refusals_teach_nothing() -> None:
    guard = Guard(PermissionDecision.deny("no"))
    rig = Rig(guard)
    assert [await rig.call() for _ in range(5)] == ["permission-guard"] * 5
    guard.answer = PermissionDecision.allow()
    for _ in range(3):
        await rig.call()
    rig.clock.advance(30)
    guard.answer = PermissionDecision.deny("no")
    assert await rig.call() == "permission-guard"
    guard.answer = PermissionDecision.allow()
    rig.works = True
    assert await rig.call() == "fine", "a refused trial leaves the trial to the next call"


async def test_calls_begun_before_it_opened_have_no_say_after_it() -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(CircuitBreaker(1, pause=10), clock)
    first, second = breakers.admit("x"), breakers.admit("x")
    assert first is not None
    assert second is not None
    breakers.end("x", first, succeeded=False)
    breakers.end("x", second, succeeded=True)
    assert breakers.admit("x") is None
    clock.advance(10)
    trial = breakers.admit("x")
    assert trial is not None
    breakers.end("x", second, succeeded=False)
    assert breakers.admit("x") is None, "the trial goes on"
    breakers.end("x", trial, succeeded=True)
    assert breakers.admit("x") is not None


async def test_each_tool_has_a_circuit_of_its_own() -> None:
    rig = Rig()
    for _ in range(4):
        await rig.call()
    assert (await rig.pipeline.call(simple(lambda _: "fine", name="other"), {})).text == "fine"


@given(ends=st.lists(st.sampled_from([True, False, None]), max_size=40), failures=st.integers(1, 4))
async def test_one_at_a_time_it_is_open_exactly_after_so_many_failures_in_a_row(
    ends: list[bool | None], failures: int
) -> None:
    clock = FakeClock()
    breakers = CircuitBreakers(CircuitBreaker(failures, pause=10), clock)
    in_a_row, is_open = 0, False
    for end in ends:
        if is_open:
            assert breakers.admit("x") is None
            clock.advance(10)
        ticket = breakers.admit("x")
        assert ticket is not None
        breakers.end("x", ticket, succeeded=end)
        if end is not None:
            in_a_row = 0 if end else in_a_row + 1
            is_open = not end and (is_open or in_a_row >= failures)
            clock.advance(0)
        elif is_open:
            assert breakers.admit("x") is not None, "the trial taught nothing: another may try"
            return
