"""What the end of many tasks in flight costs: as much for each of many as for each of few."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.testing import FunctionModel, run_in_virtual_time, virtual_time_backends

FEW = 100
MANY = 4 * FEW


async def sleep(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    await anyio.sleep_forever()
    return ""


async def ask(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    request = kt.ModelRequest([kt.Message.user("Go on.")], max_tokens=10)
    return (await context.model("test:slow").complete(request)).text


async def answer_never(request: kt.ModelRequest) -> str:
    await anyio.sleep_forever()
    return ""


def graph_of(number: int, **task: Any) -> kt.TaskGraph:
    return kt.TaskGraph([kt.Task(f"task-{one}", "Sleep.", **task) for one in range(number)])


async def run_many(number: int, agent: Callable[..., Any], limit: kt.Budget, **task: Any) -> kt.TeamResult:
    """Run so many tasks at once, none of which ends by itself."""
    member = kt.Member("member", agent, max_concurrency=number)
    team = kt.Team("team", [member], coordinator=TaskDispatchCoordinator())
    starts = kt.BudgetPolicy(expect=kt.Budget(tokens=1))  # all of them: none waits before it starts
    config = kt.TeamConfig(max_parallel_tasks=number, budget=limit, budget_policy=starts)
    request = kt.TeamExecutionRequest("Sleep.", plan=graph_of(number, **task), config=config)
    model = FunctionModel(answer_never, name="test:slow")
    return await kt.run(team, request, runtime=kt.Runtime(models={"test:*": model}))


async def end_of_the_run(number: int) -> kt.TeamResult:
    return await run_many(number, sleep, kt.Budget(seconds=2))


async def end_of_each_task(number: int) -> kt.TeamResult:
    return await run_many(number, sleep, kt.Budget(), budget=kt.Budget(seconds=2))


async def end_of_those_who_wait_for_budget(number: int) -> kt.TeamResult:
    return await run_many(number, ask, kt.Budget(tokens=100 * FEW, seconds=2))


def calls_of(work: Callable[[int], Any], number: int, backend: str) -> int:
    """Count the calls of Python functions that a run takes: the same on a fast and on a slow machine."""
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = run_in_virtual_time(work, number, backend=backend)
    finally:
        sys.setprofile(before)
    assert {outcome.status for outcome in result.outcomes} <= {kt.TaskStatus.CANCELLED, kt.TaskStatus.FAILED}
    assert result.duration == pytest.approx(2, abs=0.5)
    return calls


@pytest.mark.sampled
@pytest.mark.parametrize("backend", virtual_time_backends)
@pytest.mark.parametrize("work", [end_of_the_run, end_of_each_task, end_of_those_who_wait_for_budget])
def test_audit_g22_what_an_end_costs_grows_with_what_is_in_flight_and_no_faster(
    work: Callable[[int], Any], backend: str
) -> None:
    calls_of(work, 1, backend)  # what is imported and compiled once
    few, many = calls_of(work, FEW, backend), calls_of(work, MANY, backend)
    assert many / few <= 1.1 * MANY / FEW


class Held:
    """Something that an agent has while it works."""


def test_what_agents_had_is_freed_when_they_are_stopped_and_not_by_the_collector() -> None:
    """Else the collector passes over it again and again while the others end: most of what a large stop took.

    On asyncio alone: trio keeps the errors of cancelled tasks in cycles of its own.
    """
    alive: list[weakref.ref[Held]] = []

    async def hold(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        held = Held()
        alive.append(weakref.ref(held))
        await anyio.sleep_forever()
        return str(held)

    async def stopped() -> list[weakref.ref[Held]]:
        await run_many(20, hold, kt.Budget(seconds=2))
        return [one for one in alive if one() is not None]

    gc.disable()
    try:
        assert not run_in_virtual_time(stopped)
    finally:
        gc.enable()
    assert len(alive) == 20
