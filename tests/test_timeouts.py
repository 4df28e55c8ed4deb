"""Timeouts of attempts share one timer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

import kairo_team as kt
from kairo_team.budget import Budget, HaltReason
from kairo_team.engine.live.task_pool import background
from kairo_team.engine.live.timers import Timeouts
from kairo_team.engine.run.team_run import TeamRun
from kairo_team.errors import HaltError
from kairo_team.governance import Governor

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def watched() -> AsyncGenerator[Timeouts]:
    timeouts = Timeouts(anyio.current_time)
    async with background(timeouts.watch):
        yield timeouts


async def sleep_at_most(timeouts: Timeouts, team: Governor, timeout: float, seconds: float) -> bool:
    """Sleep in a scope of its own; say whether the timeout cut it short."""
    async with team.scope() as scope:
        timeouts.start(scope, timeout)
        await anyio.sleep(seconds)
    return scope.cancelled


async def test_a_timeout_ends_the_body_quietly_and_a_body_in_time_stays() -> None:
    team = Governor(Budget(seconds=60), name="team")
    async with watched() as timeouts:
        assert await sleep_at_most(timeouts, team, 0.01, 60)
        assert not await sleep_at_most(timeouts, team, 5, 0.001)
        assert await sleep_at_most(timeouts, team, 0, 60)
    assert team.halted is None


async def test_a_timeout_runs_from_when_the_work_began() -> None:
    async with watched() as timeouts:
        async with Governor().scope() as scope:
            timeouts.start(scope, 5, timeouts.clock() - 6)
            await anyio.sleep(60)
        assert scope.cancelled


async def test_work_that_never_waits_starts_no_timeout() -> None:
    async def answer(_: kt.Assignment) -> str:
        return "done"

    team = kt.Team("t", [kt.Member("m", answer)])
    request = kt.TeamExecutionRequest("goal", config=kt.TeamConfig(task_timeout=5))
    async with TeamRun.open(request, team) as run:
        graph = await run.plan(lambda: kt.TaskGraph([kt.Task("a", "do")]))
        async for task in run.ready(graph):
            attempt = await run.attempt(task, 1)
            run.accept(task, attempt)
        assert not run._supervisor.timeouts.pending
    assert run.result.output == "done"


async def test_a_budget_that_ends_before_the_timeout_halts() -> None:
    team = Governor(Budget(seconds=0.01), name="team")
    async with watched() as timeouts:
        with pytest.raises(HaltError) as caught:
            await sleep_at_most(timeouts, team, 5, 60)
    assert caught.value.reason is HaltReason.TIME_BUDGET_EXCEEDED


async def test_a_timeout_never_hides_the_bodys_own_timeout_error() -> None:
    async with watched() as timeouts:
        with pytest.raises(TimeoutError, match="mine"):
            async with Governor().scope() as scope:
                timeouts.start(scope, 60)
                raise TimeoutError("mine")


async def test_each_of_many_is_ended_at_its_own_time_and_no_other() -> None:
    team = Governor(name="team")
    cut: dict[int, bool] = {}

    async def one(number: int) -> None:
        cut[number] = await sleep_at_most(timeouts, team, 0.01 if number % 3 else 60, 0.2)

    async with watched() as timeouts, anyio.create_task_group() as group:
        for number in range(300):
            group.start_soon(one, number)
    assert {number for number, was_cut in cut.items() if was_cut} == {n for n in range(300) if n % 3}


async def test_an_earlier_timeout_that_comes_later_is_kept() -> None:
    team = Governor(name="team")
    async with watched() as timeouts, anyio.create_task_group() as group:
        group.start_soon(sleep_at_most, timeouts, team, 30, 0.05)
        await anyio.sleep(0.01)
        assert await sleep_at_most(timeouts, team, 0.01, 30)


async def test_what_has_ended_is_forgotten_long_before_its_time() -> None:
    team = Governor(name="team")
    async with watched() as timeouts:
        for _ in range(10_000):
            with team.scope() as scope:
                timeouts.start(scope, 300)
        assert timeouts.pending < 200
