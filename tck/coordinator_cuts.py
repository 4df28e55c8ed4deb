"""The coordinator kit on runs that end early: C10, the deadline and the kill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import anyio

from kairo_team.budget import Budget, HaltReason
from kairo_team.contracts import MemberContext
from kairo_team.events import TaskAssigned, TeamEnded
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.tasks import Assignment, Task, TaskStatus
from kairo_team.tck.coordinator_stage import CoordinatorStage, Show, Watched, fail, hang, hang_at
from kairo_team.tck.kit import clause

GRACE: Final = 0.5
"""Seconds of clean-up that the kit's runs allow."""
SLACK: Final = 0.25
"""Seconds by which an end may also be late."""


async def shield(assignment: Assignment, context: MemberContext) -> str:
    """Shield long work from every cancellation."""
    context.keep("half a text")
    with anyio.CancelScope(shield=True):
        await anyio.sleep(1000)
    return "too late"


async def swallow(assignment: Assignment, context: MemberContext) -> str:
    """Keep working after every cancellation."""
    while True:
        try:
            await anyio.sleep(1000)
        except anyio.get_cancelled_exc_class():
            context.keep("half a text")


async def tidy_up(assignment: Assignment, context: MemberContext) -> str:
    """Hang, and take half the grace to clean up; that is shielded."""
    try:
        return await hang(assignment, context)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(GRACE / 2)


async def fail_late(assignment: Assignment, context: MemberContext) -> str:
    """Break after ten seconds."""
    await anyio.sleep(10)
    return await fail(assignment, context)


class CutTests(CoordinatorStage):
    """Deadlines and kills: work ends for real, and finished or kept work comes back."""

    # ------------------------------------------------------------------ C10: deadline

    @clause("C10")
    async def test_c10_at_the_deadline_work_is_cancelled_for_real(self) -> None:
        agent = Watched(hang)
        three = [Task(name, "Do it.") for name in "abc"]
        show, took, result = await self._run_out(agent, tasks=three, budget=Budget(seconds=5.0))
        _check_cut(agent, show, result, TeamStatus.TIMEOUT)
        assert 5 <= took <= 5 + self.late(SLACK), f"the deadline was after 5 seconds, it ended after {took:g}"

    @clause("C10")
    async def test_c10_the_budgets_seconds_are_a_deadline(self) -> None:
        agent = Watched(hang)
        show, took, result = await self._run_out(agent, budget=Budget(seconds=5))
        _check_cut(agent, show, result, TeamStatus.TIMEOUT)
        assert 5 <= took <= 5 + self.late(SLACK), f"the deadline was after 5 seconds, not {took:g}"
        assert result.halt is HaltReason.TIME_BUDGET_EXCEEDED, f"`halt` must say the time is up, not {result.halt}"

    @clause("C10")
    async def test_c10_whoever_ignores_the_deadline_has_the_grace_and_no_more(self) -> None:
        _, _, obedient = await self._run_out(Watched(hang), budget=Budget(seconds=5.0))
        for ignore in (shield, swallow):
            _, took, result = await self._run_out(Watched(ignore), budget=Budget(seconds=5.0))
            assert result.status is TeamStatus.TIMEOUT, f"it ended {result!r}"
            assert took <= 5 + GRACE + self.late(SLACK), f"5 seconds and a grace of {GRACE:g}: it ended after {took:g}"
            names = [outcome.member for outcome in result.outcomes if outcome.member and outcome.attempts]
            warnings = set(result.warnings) - set(obedient.warnings)
            assert any(name in text for name in names for text in warnings), (
                f"no warning names one of {names}, who ignored their cancellation: {result.warnings}"
            )

    @clause("C10")
    async def test_c10_clean_up_within_the_grace_is_waited_for(self) -> None:
        cleaned: list[str] = []

        async def tidy(assignment: Assignment, context: MemberContext) -> str:
            try:
                return await tidy_up(assignment, context)
            finally:
                cleaned.append(assignment.task.id)

        agent = Watched(tidy)
        show, _, result = await self._run_out(agent, budget=Budget(seconds=5.0))
        _check_cut(agent, show, result, TeamStatus.TIMEOUT)
        assert len(cleaned) == len(agent.calls), f"{len(agent.calls)} had to clean up, only {cleaned} could"

    @clause("C10")
    async def test_c10_a_deadline_while_trying_again_is_the_same(self) -> None:
        agent = Watched(fail_late)
        _, took, result = await self._run_out(agent, budget=Budget(seconds=10.5))
        wanted = (TeamStatus.TIMEOUT, TeamStatus.FAILED)
        assert result.status in wanted, f"it ended {result!r}"
        assert took <= 10.5 + GRACE + self.late(SLACK), f"the deadline was after 10.5 seconds, it ended after {took:g}"

    @clause("C10", needs="supports_plan")
    async def test_c10_what_was_finished_comes_back_in_plan_order(self) -> None:
        tasks = [Task("slow", "Hang."), Task("after", "Wait.", depends_on=["slow"]), *_quick("x", "y")]
        agent = Watched(hang_at("slow"))
        _, _, result = await self._run_out(agent, tasks=tasks, budget=Budget(seconds=5.0))
        _check_half_done(result, TeamStatus.TIMEOUT)

    # ------------------------------------------------------------------ C10: kill

    @clause("C10")
    async def test_c10_a_kill_cancels_work_for_real(self) -> None:
        agent = Watched(hang)
        show = self.stage(agent, task_timeout=None, cancel_grace=GRACE)
        result, took = await _kill(show)
        _check_cut(agent, show, result, TeamStatus.CANCELLED)
        assert took <= self.late(SLACK), f"it ended {took:g} seconds after the kill"
        assert "the first reason" in str(result.error), f"a killed run fails for its first reason, not {result.error!r}"

    @clause("C10")
    async def test_c10_whoever_ignores_a_kill_has_the_grace_and_no_more(self) -> None:
        for ignore in (shield, swallow):
            show = self.stage(Watched(ignore), task_timeout=None, cancel_grace=GRACE)
            result, took = await _kill(show)
            assert result.status is TeamStatus.CANCELLED, f"it was killed and ended {result!r}"
            assert took <= GRACE + self.late(SLACK), f"a grace of {GRACE:g}: it ended {took:g} seconds after the kill"

    @clause("C10", needs="supports_plan")
    async def test_c10_what_was_finished_before_a_kill_comes_back_in_plan_order(self) -> None:
        tasks = [Task("slow", "Hang."), Task("after", "Wait.", depends_on=["slow"]), *_quick("x", "y")]
        show = self.stage(Watched(hang_at("slow")), tasks=tasks, task_timeout=None)
        result, _ = await _kill(show, after=3.0)
        _check_half_done(result, TeamStatus.CANCELLED)

    @clause("C10")
    async def test_c10_a_kill_in_the_first_moment_is_a_kill(self) -> None:
        agent = Watched(hang)
        show = self.stage(agent, task_timeout=None)
        result, _ = await _kill(show, after=0.0)
        assert result.status is TeamStatus.CANCELLED, f"it was killed and ended {result!r}"
        assert not +agent.at_work, f"still at work: {agent.at_work}"

    async def _run_out(self, agent: Watched, **fields: Any) -> tuple[Show, float, TeamResult]:
        show = self.stage(agent, task_timeout=None, cancel_grace=GRACE, **fields)
        began = anyio.current_time()
        result = await show.play()
        return show, anyio.current_time() - began, result


def _quick(*names: str) -> Sequence[Task]:
    return [Task(name, "Do it at once.") for name in names]


async def _kill(show: Show, *, after: float = 1.0) -> tuple[TeamResult, float]:
    """Kill a run, twice; return its result and the seconds it took to end."""
    async with show.live() as run:
        await anyio.sleep(after)
        began = anyio.current_time()
        run.cancel("the first reason")
        run.cancel("another reason")
        result = await run.result()
        return result, anyio.current_time() - began


def _check_cut(agent: Watched, show: Show, result: TeamResult, status: TeamStatus) -> None:
    """Check that hanging attempts were cancelled, other tasks skipped, and kept work came back."""
    assert result.status is status, f"it should end {status.value}, and ended {result!r}"
    assert agent.calls, "nobody was at work"
    assert agent.cancelled == len(agent.calls), f"{len(agent.calls)} were at work, {agent.cancelled} were cancelled"
    assert not +agent.at_work, f"still at work: {agent.at_work}"
    lost = {call.task.id for call in agent.calls} - {outcome.task_id for outcome in result.outcomes}
    assert not lost, f"tasks that were at work have no outcome: {sorted(lost)}"
    for outcome in result.outcomes:
        handed_out = bool(show.seen.of(TaskAssigned, outcome.task_id))
        wanted = TaskStatus.CANCELLED if handed_out else TaskStatus.SKIPPED
        assert outcome.status is wanted, f"task {outcome.task_id!r} should be {wanted}, not {outcome.status}"
        kept = outcome.artifact
        if any(call.task.id == outcome.task_id for call in agent.calls):
            assert kept is not None and kept.text == "half a text", f"the kept work should come back, not {kept!r}"  # noqa: PT018 - one claim
            assert kept.partial, f"kept work must be a partial artifact, not {kept!r}"
    assert show.seen.of(TeamEnded), "no last event"


def _check_half_done(result: TeamResult, status: TeamStatus) -> None:
    assert result.status is status, f"it should end {status.value}, and ended {result!r}"
    found = [(outcome.task_id, outcome.status.value) for outcome in result.outcomes]
    wanted = [("slow", "cancelled"), ("after", "skipped"), ("x", "completed"), ("y", "completed")]
    assert found == wanted, f"the outcomes should be {wanted}, not {found}"
    texts = [outcome.artifact and outcome.artifact.text for outcome in result.outcomes]
    assert texts == ["half a text", None, "text of x", "text of y"], f"the finished work should come back, not {texts}"
