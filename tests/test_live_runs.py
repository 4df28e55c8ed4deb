"""Live runs: begun beside the caller, watched by many, each seeing every event once."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team import events
from kairo_team.coordinators import TaskDispatchCoordinator
from kairo_team.errors import Misuse
from kairo_team.testing import EventRecorder, run_in_virtual_time
from tests.live import FIRST, LAST, hang, request, team_of, watch

# ---------------------------------------------------------------- start


async def test_start_returns_at_once_with_a_handle() -> None:
    recorder = EventRecorder()
    async with kt.Runtime(subscribers=[recorder]) as runtime:
        began = anyio.current_time()
        run = await runtime.start(team_of(), request())
        assert (anyio.current_time(), recorder.types[0], repr(run)) == (began, FIRST, "<Run 'r' running>")
        assert runtime.runs["r"] is run
        run.steer("It can be steered at once.")
        result = await run.result()
        assert anyio.current_time() == began + 1
    assert (result.status, result.output) == (kt.TeamStatus.COMPLETED, "t0 is done")
    assert repr(run) == "<Run 'r' ended>"


@pytest.mark.parametrize("how", ["start", "stream"])
async def test_live_runs_need_the_runtimes_block_and_say_so(how: str) -> None:
    runtime = kt.Runtime()
    sentence = r"start and stream need `async with kt\.Runtime\(\.\.\.\) as runtime:` around them"
    for _ in range(2):
        with pytest.raises(Misuse, match=sentence):
            if how == "start":
                await runtime.start(team_of(), request())
            else:
                async with runtime.stream(team_of(), request()):
                    raise AssertionError
        async with runtime:
            pass
    assert list(runtime.runs) == []


async def test_a_runtime_is_entered_once_at_a_time() -> None:
    async with kt.Runtime() as runtime:
        with pytest.raises(Misuse, match="this runtime is entered already"):
            async with runtime:
                raise AssertionError
        assert (await (await runtime.start(team_of(), request())).result()).status is kt.TeamStatus.COMPLETED


async def test_leaving_the_block_waits_for_the_runs() -> None:
    async with kt.Runtime() as runtime:
        runs = [await runtime.start(team_of(), request(run_id=name)) for name in "ab"]
    assert [(await run.result()).status for run in runs] == [kt.TeamStatus.COMPLETED] * 2


async def test_leaving_the_block_by_an_exception_cancels_the_runs() -> None:
    recorder = EventRecorder()
    runtime = kt.Runtime(subscribers=[recorder])
    run: kt.Run | None = None
    with pytest.raises(OSError, match="the server went down"):
        async with runtime:
            run = await runtime.start(team_of(hang), request())
            await anyio.wait_all_tasks_blocked()
            raise OSError("the server went down")
    assert run is not None
    result = await run.result()
    assert (result.status, result["t0"].artifact) == (
        kt.TeamStatus.CANCELLED,
        kt.Artifact("half of it", partial=True),
    )
    assert recorder.types[-1] == "team.cancelled"
    assert list(runtime.runs) == []


async def test_a_team_of_another_runtime_is_refused_before_anything_starts() -> None:
    async with kt.Runtime() as runtime:
        with pytest.raises(Misuse, match="runtime"):
            await runtime.start(team_of(runtime=kt.Runtime()), request())
        assert list(runtime.runs) == []
        assert (await (await runtime.start(team_of(runtime=runtime), request())).result()).status.value == "completed"


async def test_kf_u04_a_request_is_started_once() -> None:
    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(), request())
        for _ in range(2):
            with pytest.raises(kt.RunExists):
                await runtime.start(team_of(), request())
            await run.result()


async def test_a_bare_goal_is_no_request_to_start() -> None:
    async with kt.Runtime() as runtime:
        with pytest.raises((TypeError, AttributeError, ValueError)):
            await runtime.start(team_of(), 5)  # type: ignore[arg-type]  # the mistake is the point
        assert list(runtime.runs) == []


# ---------------------------------------------------------------- stream


async def test_a_stream_is_watched_to_its_end() -> None:
    async with kt.Runtime() as runtime, runtime.stream(team_of(), request()) as run:
        seen = [event.type async for event in run.events()]
        assert (seen[0], seen[-1]) == (FIRST, LAST)
    assert (await run.result()).status is kt.TeamStatus.COMPLETED


async def test_leaving_a_stream_early_cancels_the_run_and_waits_for_it() -> None:
    recorder = EventRecorder()
    async with kt.Runtime(subscribers=[recorder]) as runtime:
        async with runtime.stream(team_of(hang), request()) as run:
            async for event in run.events():
                if event.type == "attempt.started":
                    break
        assert recorder.types[-1] == "team.cancelled"
        assert list(runtime.runs) == []
    result = await run.result()
    assert (result.status, result.error) == (kt.TeamStatus.CANCELLED, "the block that streamed the run was left")
    assert result["t0"].artifact == kt.Artifact("half of it", partial=True)


async def test_an_exception_in_a_streams_block_comes_out_after_the_run_has_ended() -> None:
    run: kt.Run | None = None
    async with kt.Runtime() as runtime:
        with pytest.raises(KeyError, match="mine"):
            async with runtime.stream(team_of(hang), request()) as run:
                raise KeyError("mine")
        assert run is not None
        assert not run.live
    assert (await run.result()).status is kt.TeamStatus.CANCELLED


async def test_a_stream_whose_watcher_is_cancelled_waits_for_the_run_too() -> None:
    run: kt.Run | None = None
    async with kt.Runtime() as runtime:
        with anyio.move_on_after(3):
            async with runtime.stream(team_of(hang), request()) as run:
                await watch(run)
        assert run is not None
        assert not run.live
    assert anyio.current_time() >= 3
    assert (await run.result()).status is kt.TeamStatus.CANCELLED


# ---------------------------------------------------------------- events


async def test_a_started_runs_events_begin_at_the_first_whenever_one_looks() -> None:
    recorder = EventRecorder()
    async with kt.Runtime(subscribers=[recorder]) as runtime:
        run = await runtime.start(team_of(), request(3))
        late: list[list[events.Event]] = []

        async def look(after: float) -> None:
            await anyio.sleep(after)
            late.append(await watch(run))

        async with anyio.create_task_group() as group:
            for after in (0.0, 0.3, 0.7, 2.0):
                group.start_soon(look, after)
    assert late == [recorder.events] * 4
    assert await watch(run) == recorder.events, "the handle keeps them when the run has been forgotten"
    recorder.assert_lawful()


async def test_another_runs_events_begin_when_one_asks_for_them() -> None:
    recorder, seen = EventRecorder(), list[events.Event]()
    runtime = kt.Runtime(subscribers=[recorder])
    async with anyio.create_task_group() as group:

        async def look() -> None:
            await anyio.sleep(0.7)
            source = runtime.runs["r"].events()
            await anyio.sleep(0.1)  # they are kept from the call on
            seen.extend([event async for event in source])

        group.start_soon(look)
        await TaskDispatchCoordinator().execute(request(2), team_of(runtime=runtime))
    place = recorder.events.index(seen[0])
    assert place > 0
    assert seen == recorder.events[place:]
    assert seen[-1].type == LAST


async def test_the_numbers_of_unwatched_events_count() -> None:
    seen: list[events.Event] = []
    runtime = kt.Runtime()
    async with anyio.create_task_group() as group:

        async def look() -> None:
            await anyio.sleep(0.7)
            await watch(runtime.runs["r"], into=seen)

        group.start_soon(look)
        await TaskDispatchCoordinator().execute(request(), team_of(runtime=runtime))
    assert [event.seq for event in seen] == list(range(seen[0].seq, seen[-1].seq + 1))
    assert seen[0].seq > 5


@pytest.mark.parametrize("after", [0, 1, 4, 9, 10_000])
async def test_events_after_a_number_are_those_above_it(after: int) -> None:
    """What `Last-Event-ID` is for: every event comes once, however often the watcher was cut off."""
    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(), request(2))
        everything = await watch(run)
        assert await watch(run, after) == everything[after:]


@pytest.mark.parametrize("after", [-1, True, 1.0, "3", None])
async def test_what_is_no_number_of_an_event_is_refused_at_the_call(after: Any) -> None:
    async with kt.Runtime() as runtime:
        run = await runtime.start(team_of(), request())
        with pytest.raises(ValueError, match=r"events\(after=\) takes the number of the last event that is known"):
            run.events(after)


async def test_watchers_come_and_go_and_are_as_slow_as_they_like() -> None:
    """None of them changes what the others see, or holds up the run."""
    recorder = EventRecorder()
    async with kt.Runtime(subscribers=[recorder]) as runtime:
        run = await runtime.start(team_of(), request(4))
        seen: dict[str, list[events.Event]] = {name: [] for name in ("quick", "slow", "gone", "back")}

        async def slowly() -> None:
            async for event in run.events():
                seen["slow"].append(event)
                await anyio.sleep(10)

        async def come_and_go() -> None:
            with anyio.move_on_after(0.6):
                await watch(run, into=seen["gone"])
            await watch(run, seen["gone"][-1].seq, seen["back"])

        began = anyio.current_time()
        async with anyio.create_task_group() as group:
            group.start_soon(watch, run, 0, seen["quick"])
            group.start_soon(slowly)
            group.start_soon(come_and_go)
            await run.result()
            assert anyio.current_time() - began == 1
    assert seen["quick"] == seen["slow"] == recorder.events
    assert seen["gone"] + seen["back"] == recorder.events
    assert seen["gone"]
    assert seen["back"]


def chatter(number: int) -> Any:
    async def talk(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        for word in range(5):
            context.emit(f"{assignment.task.id} {word}")
            await anyio.sleep((number + word) % 3)
        return "done"

    return talk


@given(tasks=st.integers(1, 40), slots=st.sampled_from([None, 1, 3, 16]), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_kf_g11_no_event_is_dropped_or_reordered_at_any_parallelism(
    tasks: int, slots: int | None, cuts: list[int]
) -> None:
    """A subscriber, a watcher from the start, and one that is cut off again and again see the same events."""

    async def main() -> None:
        recorder = EventRecorder()
        async with kt.Runtime(subscribers=[recorder]) as runtime:
            run = await runtime.start(team_of(chatter(tasks)), request(tasks, max_parallel_tasks=slots))
            patient: list[events.Event] = []
            restless: list[events.Event] = []

            async def be_cut_off() -> None:
                for cut in [*cuts, None]:
                    async for event in run.events(restless[-1].seq if restless else 0):
                        restless.append(event)
                        if cut is not None and len(restless) % 61 == cut:
                            break

            async with anyio.create_task_group() as group:
                group.start_soon(watch, run, 0, patient)
                group.start_soon(be_cut_off)
        assert patient == restless == recorder.events
        recorder.assert_lawful()
        assert len(recorder.of(events.AttemptProgress)) == 5 * tasks

    run_in_virtual_time(main)
