"""A coordinator that is interrupted: the calls of its workers that nobody saw end are listed, and warned of."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.agents import TeamAgent
from tests.cluster.stage import Crew, crew, new_database
from tests.cluster.test_lost_deliveries import Provider, work
from tests.cluster.test_runs import elsewhere, request_of, team_of

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

WAS_CUT = "1 call was under way when the run was interrupted, and nobody saw the answer: model 'test:m', charged"
CUT_BEFORE = "1 call was under way when an earlier session of the run ended, and nobody saw the answer: model 'test:m'"
REQUEST = request_of(kt.Task("a", "do", member="m0"))


def alone(provider: Provider) -> kt.Team:
    return team_of(work, model=provider.model)


def in_a_team(provider: Provider) -> kt.Team:
    inner = kt.Team("inner", [kt.Member("clerk", work)])
    return team_of(TeamAgent(inner, plan=kt.TaskGraph([kt.Task("b", "do")])), model=provider.model)


async def resume(cast: Crew, team: kt.Team) -> kt.TeamResult:
    """Resume the run in another process."""
    here, runtime = elsewhere(team, cast.new_cluster())
    with anyio.fail_after(60):
        return await runtime.resume("r", here)


@pytest.mark.parametrize("make", [alone, in_a_team])
async def test_third_o11_an_interrupted_coordinator_warns_of_its_workers_calls(make: Any) -> None:
    """Its worker is told nothing, and is not said to have been stubborn."""
    provider = Provider(hang_on="second")
    team = make(provider)
    async with crew(new_database("procrastinate")) as cast:
        cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here)
        async with runtime:
            run = await runtime.start(here, REQUEST)
            with anyio.fail_after(60):
                await provider.hangs.wait()
                run.interrupt("enough for today")
                result = await run.result()
        [doubt] = cast.here.journal.in_doubt("r")
        calls = cast.here.journal.calls("r")
        again = await resume(cast, team)
    assert (result.status, result.error) == ("cancelled", "enough for today")
    assert [one for one in result.warnings if one.startswith(WAS_CUT)]
    assert not [one for one in result.warnings if "did not end" in one]
    assert result.usage.tokens == sum(call.usage.tokens for call in calls)
    assert doubt.usage.tokens > 0
    assert (again.status, provider.asked) == ("completed", ["first", "second", "second"])
    assert [one for one in again.warnings if one.startswith(CUT_BEFORE)]


@pytest.mark.parametrize("make", [alone, in_a_team])
async def test_third_o11_a_call_of_a_worker_is_in_doubt_when_the_caller_was_cancelled(make: Any) -> None:
    """As by Ctrl-C: the worker is told to leave the run, and the next session warns of the call."""
    provider = Provider(hang_on="second")
    team = make(provider)
    async with crew(new_database("procrastinate")) as cast:
        cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(partial(kt.run, here, REQUEST, runtime=runtime))
                await provider.hangs.wait()
                group.cancel_scope.cancel()
        [doubt] = cast.here.journal.in_doubt("r")
        again = await resume(cast, team)
    assert (doubt.state, doubt.usage.tokens > 0) == ("sent", True)
    assert (again.status, provider.asked) == ("completed", ["first", "second", "second"])
    assert [one for one in again.warnings if one.startswith(CUT_BEFORE)]


async def test_third_o11_a_call_of_a_worker_whose_run_was_killed_is_not_in_doubt() -> None:
    provider = Provider(hang_on="second")
    team = alone(provider)
    async with crew(new_database("procrastinate")) as cast:
        cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here)
        async with runtime:
            run = await runtime.start(here, REQUEST)
            with anyio.fail_after(60):
                await provider.hangs.wait()
                run.cancel("enough")
                await run.result()
        assert cast.here.journal.in_doubt("r") == ()
        assert [call.state for call in cast.here.journal.calls("r")] == ["answered", "unknown"]
