"""How live runs end: their results, their cancellation, and what they leave behind, which is nothing."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.errors import Misuse
from kairo_team.testing import EventRecorder, run_in_virtual_time
from tests.live import FIRST, LAST, NO_RETRIES, Odd, begin_slowly, explode, hang, request, team_of, watch

# ---------------------------------------------------------------- result


async def test_the_result_is_there_for_everybody_and_again() -> None:
    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(), request())
        results: list[kt.TeamResult] = []

        async def wait() -> None:
            results.append(await run.result())

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
    assert results == [await run.result()] * 3


async def test_the_result_of_a_run_of_ones_own_comes_from_its_handle_too() -> None:
    runtime = kt.Runtime()
    results: list[kt.TeamResult] = []
    result: kt.TeamResult | None = None
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            await anyio.sleep(0.5)
            results.append(await runtime.runs["r"].result())

        group.start_soon(wait)
        result = await TaskDispatchCoordinator().execute(request(), team_of(runtime=runtime))
    assert results == [result]


async def test_what_the_coordinator_raises_comes_out_of_result_and_hurts_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with kt.Runtime() as runtime:
        other = await runtime.start(team_of(), request(run_id="other"))
        run = await runtime.start(team_of(), request(), coordinator=Odd(before=explode))
        for _ in range(2):
            with pytest.raises(OSError, match="no disk"):
                await run.result()
        assert await watch(run) == []
        assert (await other.result()).status is kt.TeamStatus.COMPLETED
    assert list(runtime.runs) == []
    assert "the coordinator of run 'r' raised" in caplog.text
    with pytest.raises(kt.RunFinished):
        run.steer("faster")


async def test_the_result_is_what_the_coordinator_returned_not_what_it_had_before() -> None:
    """A coordinator may work on after the run's last event; nobody gets a result before it is done."""

    class Proud(Odd):
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
            from dataclasses import replace

            result = await super().execute(request, team)
            return replace(result, warnings=("I did this.",))

    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(), request(), coordinator=Proud(after=lambda: anyio.sleep(5)))
        assert (await watch(run))[-1].type == LAST
        with pytest.raises(kt.RunFinished):
            run.cancel_task("t0")
        assert (await run.result()).warnings == ("I did this.",)
        assert anyio.current_time() >= 6


async def test_a_coordinator_that_returns_no_result_has_none() -> None:
    class Lazy:
        async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> Any:
            return None

    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(), request(), coordinator=Lazy())
        with pytest.raises(kt.RunFinished):
            await run.result()


async def test_a_run_whose_block_is_left_before_it_begins_has_no_result_and_says_so() -> None:
    """Nobody who waits for it is cancelled in its place."""
    runs: list[kt.Run] = []
    with suppress(ExceptionGroup):
        async with kt.Runtime() as runtime, anyio.create_task_group() as group:
            runs.append(await begin_slowly(runtime, team_of(), group))
            raise OSError("down")
    with pytest.raises(kt.RunFinished, match="run 'r' has ended already"):
        await runs[0].result()


# ---------------------------------------------------------------- cancel


async def test_a_run_cancelled_before_it_begins_ends_when_it_does_and_the_first_reason_counts() -> None:
    calls: list[str] = []
    async with kt.Runtime() as runtime, anyio.create_task_group() as group:
        run = await begin_slowly(runtime, team_of(lambda _: calls.append("called")), group)
        assert repr(run) == "<Run 'r' starting>"
        run.cancel("changed my mind")
        run.cancel("twice")
        changes = [partial(run.steer, "x"), partial(run.cancel_task, "t0"), partial(run.top_up, kt.Budget(tokens=1))]
        for change in changes:
            with pytest.raises(Misuse, match="run 'r' has not begun yet"):
                change()
        result = await run.result()
        assert (result.status, result.error, calls) == (kt.TeamStatus.CANCELLED, "changed my mind", [])
        types = [event.type for event in await watch(run)]
        assert (types[0], types[-1]) == (FIRST, "team.cancelled")


async def test_a_run_is_cancelled_once_however_often_one_says_it() -> None:
    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(hang), request())
        await anyio.sleep(1)
        run.cancel("enough")
        run.cancel("more than enough")
        result = await run.result()
        with pytest.raises(kt.RunFinished):
            run.cancel("too late")
    assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, "enough")
    assert [event.type for event in await watch(run)].count("team.cancelled") == 1


@pytest.mark.real_time
@pytest.mark.parametrize("by", ["thread", "signal"])
async def test_kf_u07_a_started_run_is_cancelled_from_a_thread_or_a_signal_handler(by: str) -> None:
    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(hang), request())
        await anyio.wait_all_tasks_blocked()
        before = signal.signal(signal.SIGUSR1, lambda *_: run.cancel("by signal"))
        do = (lambda: run.cancel("by thread")) if by == "thread" else (lambda: os.kill(os.getpid(), signal.SIGUSR1))
        thread = threading.Thread(target=do)
        thread.start()
        try:
            with anyio.fail_after(60):
                result = await run.result()
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)
    assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, f"by {by}")


# ---------------------------------------------------------------- many, and what they leave behind


@pytest.mark.sampled("anyio_backend")
async def test_two_hundred_runs_at_once_do_not_mix() -> None:
    """Events, budgets, directives and results are each run's own; the recorder hears all of them."""
    recorder = EventRecorder()

    async def spend(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        number = int(assignment.goal)
        await anyio.sleep(number % 7)
        context.governor.record_usage(prompt_tokens=number)
        context.emit(assignment.goal)
        return f"{number} {' '.join(assignment.directives)}"

    plan = kt.TaskGraph([kt.Task(name, "do", depends_on=["a"] if name == "b" else []) for name in "ab"])
    async with kt.Runtime(subscribers=[recorder]) as runtime:
        runs: list[kt.Run] = []
        for number in range(200):
            config = kt.TeamConfig(budget=kt.Budget(tokens=1000))
            one = kt.TeamExecutionRequest(str(number), plan=plan, config=config, run_id=f"r{number}")
            runs.append(await runtime.start(team_of(spend), one))
        await anyio.wait_all_tasks_blocked()
        for number, run in enumerate(runs):
            with suppress(kt.RunFinished):
                run.steer(f"as {number}")
        results = [await run.result() for run in runs]
    recorder.assert_lawful()
    for number, (run, result) in enumerate(zip(runs, results, strict=True)):
        assert result.run_id == run.run_id == f"r{number}"
        assert result.usage.tokens == 2 * number
        assert result.output == (f"{number} as {number}" if number % 7 else f"{number} ")
        own = await watch(run)
        assert own == [event for event in recorder.events if event.run_id == run.run_id]
        assert {event.text for event in own if isinstance(event, events.AttemptProgress)} == {str(number)}


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("runs", [700, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.usefixtures("swept")
def test_a_finished_run_leaves_nothing_behind_but_its_id(runs: int, caplog: pytest.LogCaptureFixture) -> None:
    """Memory stays flat over any runs: started and executed ones, on a shared budget, failed and killed ones too."""
    plan = kt.TaskGraph([kt.Task("t", "do")])

    async def tiny(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        context.governor.record_usage(prompt_tokens=1)
        return "" if assignment.goal == "9" else "x"

    async def main() -> list[int]:
        sizes: list[int] = []
        async with kt.Runtime(budget=kt.Budget(tokens=10**9)) as runtime:
            team = team_of(tiny, runtime=runtime)
            for number in range(runs):
                one = kt.TeamExecutionRequest(str(number % 10), plan=plan, run_id=f"r{number}")
                if number % 2:
                    await NO_RETRIES.execute(one, team)
                else:
                    run = await runtime.start(team, one, coordinator=NO_RETRIES)
                    run.events()
                    if number % 10 == 4:
                        run.cancel()
                    await run.result()
                if number in {299, runs - 1}:
                    await anyio.wait_all_tasks_blocked()
                    sizes.append(_objects())
            assert len(runtime.runs) == 0
        return sizes

    caplog.set_level(logging.CRITICAL, "kairo_team")  # pytest keeps the line of each failed run
    before, after = run_in_virtual_time(main)
    assert after - before < 100, f"{after - before} objects more after {runs - 300} runs"
