"""The coordinator kit on events of the run: C4, the first and the last; C5, their numbers."""

from __future__ import annotations

from typing import Any

import anyio

from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext
from kairo_team.events import Event, TeamEnded
from kairo_team.results import TeamStatus
from kairo_team.tasks import Assignment, Task
from kairo_team.tck.coordinator_stage import (
    CoordinatorStage,
    check_ends,
    fail,
    fail_at,
    hang,
    say_nothing,
    write,
)
from kairo_team.tck.kit import clause


class EndTests(CoordinatorStage):
    """First and last event, and the numbers of all."""

    # ------------------------------------------------------------------ C4: first and last event

    @clause("C4")
    async def test_c04_a_run_that_completes_begins_and_ends_once(self) -> None:
        show = self.stage(write)
        result = await show.play()
        assert result.status is TeamStatus.COMPLETED, f"with members that all write it ended {result!r}"
        await check_ends(show, result)

    @clause("C4")
    async def test_c04_a_run_that_fails_begins_and_ends_once(self) -> None:
        for show in (self.stage(fail), self.stage(write, budget=Budget(loops=0)), self.stage(say_nothing)):
            result = await show.play()
            assert result.status is TeamStatus.FAILED, f"it ended {result!r}"
            await check_ends(show, result)

    @clause("C4")
    async def test_c04_a_run_out_of_time_begins_and_ends_once(self) -> None:
        for limits in ({"budget": Budget(seconds=5)}, {"budget": Budget(seconds=0)}):
            fields: dict[str, Any] = limits
            show = self.stage(hang, task_timeout=None, **fields)
            result = await show.play()
            assert result.status is TeamStatus.TIMEOUT, f"it ended {result!r}"
            await check_ends(show, result)

    @clause("C4")
    async def test_c04_a_killed_run_begins_and_ends_once(self) -> None:
        show = self.stage(hang)
        async with show.live() as run:
            await anyio.sleep(1)
            run.cancel("enough")
            run.cancel("more than enough")
            result = await run.result()
        assert result.status is TeamStatus.CANCELLED, f"it ended {result!r}"
        await check_ends(show, result)

    @clause("C4", needs="supports_plan")
    async def test_c04_a_degraded_run_is_a_completed_one(self) -> None:
        tasks = [Task("a", "Do a."), Task("b", "Do b."), Task("c", "Do c.", depends_on=["a", "b"], needs=1)]
        show = self.stage(fail_at("b"), tasks=tasks)
        result = await show.play()
        assert result.status is TeamStatus.DEGRADED, f"a dispensable task failed, and it ended {result!r}"
        assert result.output, "a degraded run has its output"
        await check_ends(show, result)

    @clause("C4")
    async def test_c04_the_last_event_is_out_before_the_result(self) -> None:
        late: list[Event] = []

        async def slow(event: Event) -> None:
            await anyio.sleep(0.001)
            late.append(event)

        show = self.stage(write, runtime={"subscribers": [slow]})
        await show.play()
        ends = [len(show.seen.of(TeamEnded)), sum(isinstance(event, TeamEnded) for event in late)]
        assert ends == [1, 1], f"when the result was there, plain and async subscribers had {ends} last events"

    @clause("C4")
    async def test_c04_a_subscriber_that_raises_changes_nothing(self) -> None:
        def broken(event: Event) -> None:
            raise LookupError("the subscriber is broken")

        show = self.stage(write, runtime={"subscribers": [broken]})
        result = await show.play()
        assert result.status is TeamStatus.COMPLETED, f"with a broken subscriber it ended {result!r}"
        await check_ends(show, result)

    # ------------------------------------------------------------------ C5: numbers

    @clause("C5")
    async def test_c05_events_are_numbered_without_gaps(self) -> None:
        for function in (write, fail, _emit_progress):
            show = self.stage(function, tasks=[Task(f"t{number}", "Do it.") for number in range(12)])
            await show.play()
            _check_numbers(show.seen.events, show.request.run_id)

    @clause("C5")
    async def test_c05_runs_side_by_side_are_numbered_each_by_itself(self) -> None:
        show = self.stage(_emit_progress)
        requests = [self.stage(_emit_progress, goal=f"Goal {number}.").request for number in range(10)]
        async with anyio.create_task_group() as group:
            for request in requests:
                group.start_soon(show.coordinator.execute, request, show.team)
        for request in requests:
            of_one = [event for event in show.seen.events if event.run_id == request.run_id]
            _check_numbers(of_one, request.run_id)
        known = {request.run_id for request in requests}
        strange = [event for event in show.seen.events if event.run_id not in known]
        assert not strange, f"events of no run that was asked for: {strange[:3]}"

    @clause("C5")
    async def test_c05_whoever_watches_a_run_sees_what_subscribers_see(self) -> None:
        show = self.stage(_emit_progress)
        async with show.live() as run:
            watched = [event async for event in run.events()]
        assert watched == show.seen.events, (
            f"`run.events()` gave {[event.type for event in watched]}, the subscriber got {show.seen.types}"
        )


async def _emit_progress(assignment: Assignment, context: MemberContext) -> str:
    for number in range(3):
        context.emit(f"step {number}")
        await anyio.sleep(0.01)
    return "done"


def _check_numbers(events: list[Event], run_id: str) -> None:
    assert events, f"run {run_id!r} emitted no event"
    strange = {event.run_id for event in events} - {run_id}
    assert not strange, f"events of run {run_id!r} bear the ids {sorted(strange)}"
    numbers = [event.seq for event in events]
    assert numbers == list(range(1, len(events) + 1)), f"events are numbered 1, 2, 3 without gaps, not {numbers}"
