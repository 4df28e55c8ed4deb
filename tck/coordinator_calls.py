"""The coordinator kit on `execute`: C1, when it acts and raises; C2, what it refuses; C3, many runs at once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import anyio

from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext, TeamCoordinator
from kairo_team.errors import RunExists
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.tasks import Assignment, Task, TaskStatus
from kairo_team.tck.calls import result_or_error
from kairo_team.tck.coordinator_stage import CoordinatorStage, Show, Watched, check_ends, fail, hang, sleep, write
from kairo_team.tck.kit import clause


class CallTests(CoordinatorStage):
    """Nothing before it is awaited, always a result, and nothing of one run in another."""

    # ------------------------------------------------------------------ C1: nothing before it is awaited

    @clause("C1")
    async def test_c01_a_call_that_is_not_awaited_does_nothing(self) -> None:
        agent = Watched(write)
        show = self.stage(agent)
        execution: Any = show.coordinator.execute(show.request, show.team)
        await anyio.sleep(1)
        seen, calls = show.seen.types, len(agent.calls)
        await _close(execution)
        assert not seen, f"before it was awaited there were events: {seen}"
        assert not calls, f"before it was awaited members were called {calls} times"

    @clause("C1")
    async def test_c01_a_call_that_is_never_awaited_leaves_no_warning(self) -> None:
        show = self.stage(write)
        gc.collect(1)  # older garbage is gone or aged: the collection below is quick and finds only this call's
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            await _close(show.coordinator.execute(show.request, show.team))
            gc.collect(1)
        caused = [str(one.message) for one in caught]
        assert not caused, f"dropping what `execute` returned gave warnings: {caused}"

    @clause("C1")
    async def test_c01_a_call_that_is_never_awaited_does_not_use_the_request_up(self) -> None:
        show = self.stage(write)
        await _close(show.coordinator.execute(show.request, show.team))
        result = await show.play()
        assert result.status is TeamStatus.COMPLETED, f"the run that followed ended {result!r}"

    @clause("C1")
    async def test_c01_a_request_that_was_run_is_refused(self) -> None:
        agent = Watched(write)
        show = self.stage(agent)
        await show.play()
        events, calls = len(show.seen.events), len(agent.calls)
        raised = await result_or_error(show.play)
        assert isinstance(raised, RunExists), f"a second run of one request must raise RunExists; it gave {raised!r}"
        assert len(show.seen.events) == events, f"after its end it emitted {show.seen.types[events:]}"
        assert len(agent.calls) == calls, "it called a member"

    @clause("C1")
    async def test_c01_a_request_that_runs_is_refused(self) -> None:
        show = self.stage(sleep)
        raised: list[object] = []

        async def again() -> None:
            await anyio.sleep(0.5)
            raised.append(await result_or_error(show.play))

        async with anyio.create_task_group() as group:
            group.start_soon(again)
            await show.play()
        assert isinstance(raised[0], RunExists), (
            f"one request twice at once must raise RunExists; it gave {raised[0]!r}"
        )
        show.seen.assert_lawful()

    @clause("C1", "C2")
    async def test_c01_what_goes_wrong_inside_is_not_raised(self) -> None:
        for function in (fail, _raise_assertion, _raise_group):
            result = await result_or_error(self.stage(function).play)
            assert isinstance(result, TeamResult), f"with members that fail `execute` gave {result!r}, not a result"

    # ------------------------------------------------------------------ C2: every other end is a result

    @clause("C2")
    async def test_c02_a_budget_that_cannot_start_is_a_failed_result(self) -> None:
        agent = Watched(write)
        show = self.stage(agent, budget=Budget(loops=0))
        await _check_refused(show, agent, await show.play())

    @clause("C2")
    async def test_c02_members_that_ask_for_more_than_there_is_are_a_failed_result(self) -> None:
        agent = Watched(write)
        members = len(self.make_team(agent).members)
        show = self.stage(agent, budget=Budget(tokens=100 * members - 1))
        show.change_members(budget=Budget(tokens=100))
        await _check_refused(show, agent, await show.play())

    @clause("C2", needs="supports_plan")
    async def test_c02_a_plan_that_cannot_start_is_a_failed_result(self) -> None:
        for field in ("evaluator", "output_type"):
            agent = Watched(write)
            fields: dict[str, Any] = {field: "nobody-has-this"}
            show = self.stage(agent, tasks=[Task("a", "Do a."), Task("b", "Do b.", **fields)])
            result = await show.play()
            await _check_refused(show, agent, result)
            assert "nobody-has-this" in str(result.error), f"the error must name what is wrong, not {result.error!r}"

    @clause("C2")
    async def test_c02_without_any_time_no_member_is_called(self) -> None:
        agent = Watched(write)
        show = self.stage(agent, budget=Budget(seconds=0))
        result = await show.play()
        assert result.status is TeamStatus.TIMEOUT, f"with no time at all it ended {result!r}"
        assert not agent.calls, "with no time at all a member was called"

    @clause("C2")
    async def test_c02_a_failed_result_says_why(self) -> None:
        show = self.stage(fail)
        result = await show.play()
        assert result.status is TeamStatus.FAILED, f"with members that all fail it ended {result!r}"
        assert result.error, "a run that failed needs an error"
        assert result.warnings[:1] == (result.error,), f"its error is the first of its warnings, not {result.warnings}"

    # ------------------------------------------------------------------ C3: one object, many runs

    @clause("C3")
    async def test_c03_ten_runs_at_once_equal_ten_in_a_row(self) -> None:
        one = self.make_coordinator()
        alone = [await _shape(self._numbered(one, number)) for number in range(10)]
        together: dict[int, Any] = {}

        async def play(number: int) -> None:
            together[number] = await _shape(self._numbered(one, number))

        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(play, number)
        for number in range(10):
            assert together[number] == alone[number], (
                f"run {number} beside nine others: {together[number]}; by itself: {alone[number]}"
            )

    def _numbered(self, coordinator: TeamCoordinator, number: int) -> Show:
        """Return a run whose members work at a pace of their own, and say whose work it is."""

        async def work(assignment: Assignment, context: MemberContext) -> str:
            await anyio.sleep(0.1 + number * 0.07)
            return f"{assignment.goal} {assignment.task.id} after {sorted(assignment.upstream)}"

        tasks = [Task("a", "Do a."), Task("b", "Do b."), Task("c", "Do c.", depends_on=["a", "b"])]
        show = self.stage(work, tasks=tasks if number % 2 else None, goal=f"Goal {number}.")
        show.coordinator = coordinator
        return show

    @clause("C3")
    async def test_c03_nothing_of_one_run_shows_in_the_next(self) -> None:
        first_agent, next_agent = Watched(sleep), Watched(write)
        first = self.stage(first_agent, goal="First.", context={"colour": "blue"}, tasks=[Task("only-first", "Do it.")])
        async with first.live() as run:
            run.steer("Be short.")
            await run.result()
        following = self.stage(next_agent, goal="Next.")
        following.coordinator = first.coordinator
        result = await following.play()
        assert next_agent.calls, f"the next run called no member: {result!r}"
        for call in next_agent.calls:
            assert call.goal == "Next.", f"the next run was about {call.goal!r}"
            assert not call.directives, f"directives of the first run came to the next: {call.directives}"
            assert not call.context, f"the first run's context came to the next: {call.context}"
            assert call.task.id != "only-first", "the first run's plan was run again"

    @clause("C3")
    async def test_c03_a_run_that_was_killed_leaves_nothing_behind(self) -> None:
        killed = self.stage(hang)
        async with killed.live() as run:
            await anyio.sleep(1)
            run.cancel("enough")
            await run.result()
        following = self.stage(write)
        following.coordinator = killed.coordinator
        assert (await following.play()).status is TeamStatus.COMPLETED, "after a killed run the same object fails"

    @clause("C3")
    async def test_c03_runs_that_failed_leave_nothing_behind(self) -> None:
        """After a run with failing members, and after one that ran out of budget, the same plan runs again."""
        one, tasks = self.make_coordinator(), [Task("a", "Do a."), Task("b", "Do b.", depends_on=["a"])]
        for function in (fail, _overspend):
            for work in (function, write):
                show = self.stage(work, tasks=tasks, budget=Budget(tokens=1000))
                show.coordinator = one
                result = await show.play()
                completed = result.status is TeamStatus.COMPLETED
                assert completed or work is function, f"after a run that failed the same object gave {result!r}"


async def _overspend(assignment: Assignment, context: MemberContext) -> str:
    context.governor.record_usage(prompt_tokens=1_000_000)
    return "it was too dear"


async def _raise_assertion(assignment: Assignment, context: MemberContext) -> str:
    raise AssertionError("the archive is closed")


async def _raise_group(assignment: Assignment, context: MemberContext) -> str:
    raise ExceptionGroup("both", [LookupError("the archive is closed"), OSError("the disk is full")])


async def _close(execution: Any) -> None:
    """Drop what `execute` returned, like an owner that never awaits it."""
    close: Callable[[], None] | None = getattr(execution, "close", None)
    assert close is not None, f"`execute` is an async method: it returns a coroutine, not {execution!r}"
    close()


async def _check_refused(show: Show, agent: Watched, result: TeamResult) -> None:
    """Check that the run was refused before any work, with an error like every other failed run."""
    assert result.status is TeamStatus.FAILED, f"it cannot start, and ended {result!r}"
    assert not agent.calls, f"it cannot start, and members were called {len(agent.calls)} times"
    assert result.error, "a refusal must have an error"
    started = [(one.task_id, one.status, one.attempts) for one in result.outcomes if one.attempts]
    assert not started, f"nothing may have started, but {started} have"
    assert all(one.status is TaskStatus.SKIPPED for one in result.outcomes), (
        f"every task is skipped, not {result.outcomes}"
    )
    await check_ends(show, result)


async def _shape(show: Show) -> Any:
    """Play the run; return the parts of the result and of the tasks' events that other runs must not change."""
    result = await show.play()
    outcomes = [(one.task_id, one.status, one.artifact, one.attempts) for one in result.outcomes]
    emitted: dict[str, list[str]] = {}
    for event in show.seen.events:
        emitted.setdefault(getattr(event, "task_id", None) or "", []).append(event.type)
    return result.status, result.output, outcomes, result.usage.loops, emitted
