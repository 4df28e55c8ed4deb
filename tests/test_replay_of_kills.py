"""A run that was killed is replayed to the point where it ended, also for what had no attempt by then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.testing import EventRecorder
from tests.test_recorded_steps import Broken, Replay, comparable

pytestmark = [pytest.mark.anyio, pytest.mark.sampled("anyio_backend")]

Body = Callable[[kt.TeamRun, kt.Task], Awaitable[None]]
PLAN = kt.TaskGraph([kt.Task("odd", "do"), kt.Task("long", "do"), kt.Task("after", "do", depends_on=["odd"])])


async def work(assignment: kt.Assignment) -> str:
    await anyio.sleep(3)
    return "made"


async def try_it(run: kt.TeamRun, task: kt.Task) -> None:
    attempt = await run.attempt(task, 1)
    if attempt.error is None:
        run.accept(task, attempt)
    else:
        run.fail(task, attempt.error)


async def play(odd: Body, journal: MemoryRecords, agent: Any = work) -> kt.TeamResult:
    """Run the plan, killed after a second; or replay it with an agent that nobody may call."""
    recorder = EventRecorder()
    runtime = Replay(journal, subscribers=[recorder])
    team = kt.Team("team", [kt.Member("m", agent, max_concurrency=9)], runtime=runtime)
    is_first = not journal.records

    async def kill() -> None:
        await anyio.sleep(1)
        runtime.runs["r"].cancel("killed")

    request = kt.TeamExecutionRequest("g", run_id="r")
    with anyio.fail_after(1_000):  # a replay that hangs fails, in no time
        async with anyio.create_task_group() as group, kt.TeamRun.open(request, team) as run:
            if is_first:
                group.start_soon(kill)
            async for task in run.ready(await run.plan(PLAN)):
                run.go(odd if task.id == "odd" else try_it, run, task)
    recorder.assert_lawful()
    return run.result


async def raise_an_error(run: kt.TeamRun, task: kt.Task) -> None:
    raise ValueError("no way")


async def fail_it(run: kt.TeamRun, task: kt.Task) -> None:
    await run.step("why", lambda: "bad")
    run.fail(task, "bad")


async def skip_it(run: kt.TeamRun, task: kt.Task) -> None:
    run.skip(task, "of no use")


async def add_and_pause(run: kt.TeamRun, task: kt.Task) -> None:
    await run.add(lambda: [kt.Task("more", "do")])
    await run.pause(task, 5)


@pytest.mark.parametrize("odd", [raise_an_error, fail_it, skip_it, add_and_pause])
async def test_a_task_without_an_attempt_stands_as_it_did_when_the_run_was_killed(odd: Body) -> None:
    journal = MemoryRecords()
    result = await play(odd, journal)
    assert result.status is kt.TeamStatus.CANCELLED
    assert result["odd"].member == "m"
    again = await play(odd, MemoryRecords(dict(journal.records)), Broken())
    assert comparable(again) == comparable(result)


async def test_a_step_that_was_interrupted_by_a_kill_is_not_made_again() -> None:
    made: list[str] = []

    async def ask_first(run: kt.TeamRun, task: kt.Task) -> None:
        await run.add(lambda: [kt.Task("more", "do")])
        await run.step("ask", ask)

    async def ask() -> None:
        made.append("asked")
        await anyio.sleep(5)

    journal = MemoryRecords()
    result = await play(ask_first, journal)
    again = await play(ask_first, MemoryRecords(dict(journal.records)), Broken())
    assert comparable(again) == comparable(result)
    assert made == ["asked"]


async def test_a_map_that_was_open_at_the_kill_is_open_at_the_end_of_the_replay() -> None:
    plan = kt.TaskGraph(
        [
            kt.Task("split", "do"),
            kt.Task.map("each", "do", over="split", max_items=5),
            kt.Task("last", "do", depends_on=["each"]),
        ]
    )

    async def split(assignment: kt.Assignment) -> str:
        return '["x", "y"]'

    async def replayed(journal: MemoryRecords, agent: Any) -> kt.TeamResult:
        def kill(event: events.Event) -> None:
            if isinstance(event, events.TaskCompleted):
                runtime.runs["r"].cancel("killed")

        runtime = Replay(journal, subscribers=[kill] if not journal.records else [])
        team = kt.Team("team", [kt.Member("m", agent)], runtime=runtime)
        return await kt.run(team, kt.TeamExecutionRequest("g", plan=plan, run_id="r"))

    journal = MemoryRecords()
    result = await replayed(journal, split)
    assert result["each"].status is kt.TaskStatus.CANCELLED
    again = await replayed(MemoryRecords(dict(journal.records)), Broken())
    assert comparable(again) == comparable(result)
