"""Runs in a database, and over workers, that are cut after a person's answer let them go on."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

import kairo_team as kt
from tests.cluster.server import die
from tests.cluster.stage import crew, new_database
from tests.cluster.test_lost_deliveries import Provider, ask, replace_worker
from tests.cluster.test_runs import elsewhere, request_of, team_of
from tests.durable.test_third_resumed_suspensions import check_one_cut, pay
from tests.human import AsksFirst
from tests.tck.test_journal_kits import TestPostgresJournal as PostgresKit
from tests.test_third_killed_at_resume import Killer

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

BOOKED = 11
ONE = kt.Task("a", "do", member="m0")


@pytest.mark.parametrize("over", [0, 2])
async def test_third_o1_a_process_that_dies_behind_an_answer_loses_nothing_in_a_database(over: int) -> None:
    journal: Any = PostgresKit.make_journal()
    other = PostgresKit.make_another(journal)
    try:
        await check_one_cut(journal, other, partial(die, journal), over)
    finally:
        PostgresKit.close(journal)
        PostgresKit.close(other)


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    await ask(context, "first")
    context.governor.record_usage(prompt_tokens=BOOKED)
    await context.tool(pay).call({"amount": 5})
    return f"{await ask(context, 'second')}, {await ask(context, 'third')}"


def asking_team(provider: Provider) -> kt.Team:
    return team_of(work, model=provider.model, permissions=kt.ToolPermissions(guard=AsksFirst("pay")))


async def suspend_and_answer(team: kt.Team, runtime: kt.Runtime) -> None:
    """Begin the run, and answer what it waits for."""
    result = await kt.run(team, request_of(ONE), runtime=runtime)
    assert result.status == "suspended"
    [question] = runtime.pending("r")
    runtime.answer(question.id, kt.HumanDecision.approve())


async def test_third_o1_another_coordinator_that_is_killed_at_its_resume_keeps_what_its_workers_made() -> None:
    """The tool call is approved; the run is killed as soon as it is resumed, and its worker does nothing more."""
    provider, killer = Provider(), Killer()
    team = asking_team(provider)
    async with crew(new_database("procrastinate")) as cast:
        cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here, gate=kt.DeferGate())
        there, other = elsewhere(team, cast.new_cluster(), gate=kt.DeferGate(), subscribers=[killer])
        killer.runtime = other
        with anyio.fail_after(60):
            await suspend_and_answer(here, runtime)
            result = await other.resume("r", there)
        calls, open_questions = cast.here.journal.calls("r"), other.pending()
    assert (result.status, result.error, open_questions) == ("cancelled", "killed", ())
    assert (result["a"].status, result["a"].attempts, result["a"].member) == ("cancelled", 1, "m0")
    assert provider.asked == ["first"]
    assert result["a"].usage.tokens == result.usage.tokens == calls[0].usage.tokens + BOOKED


async def test_third_o1_another_coordinator_goes_on_behind_an_answer() -> None:
    provider = Provider(hang_on="third")
    team = asking_team(provider)
    async with crew(new_database("procrastinate")) as cast:
        cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here, gate=kt.DeferGate())
        there, other = elsewhere(team, cast.new_cluster(), gate=kt.DeferGate())
        ends: list[kt.TeamResult] = []
        with anyio.fail_after(60):
            await suspend_and_answer(here, runtime)
            async with anyio.create_task_group() as group:
                group.start_soon(runtime.resume, "r", here)
                await provider.hangs.wait()
                ends.append(await other.resume("r", there, take_over=True))
                group.cancel_scope.cancel()
        calls = cast.here.journal.calls("r")
    [result] = ends
    assert (result.status, result.output) == ("completed", "answer to second, answer to third")
    assert provider.asked == ["first", "second", "third", "third"]
    assert result.usage.tokens == sum(call.usage.tokens for call in calls) + 2 * BOOKED


async def test_third_o1_another_worker_goes_on_behind_an_answer() -> None:
    provider = Provider(hang_on="third")
    team = asking_team(provider)
    async with crew(new_database("procrastinate")) as cast:
        lost = cast.add_worker(team)
        here, runtime = elsewhere(team, cast.here, gate=kt.DeferGate())
        ends: list[kt.TeamResult] = []

        async def go_on() -> None:
            ends.append(await runtime.resume("r", here))

        with anyio.fail_after(60):
            await suspend_and_answer(here, runtime)
            async with anyio.create_task_group() as group:
                group.start_soon(go_on)
                await provider.hangs.wait()
                await replace_worker(cast, lost, team)
        calls = cast.here.journal.calls("r")
    [result] = ends
    assert (result.status, result.output) == ("completed", "answer to second, answer to third")
    assert provider.asked == ["first", "second", "third", "third"]
    assert result.usage.tokens == sum(call.usage.tokens for call in calls) + 2 * BOOKED
