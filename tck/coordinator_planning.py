"""The coordinator kit on planning: the effect of a planner's failure, and the budget and time of planning."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext
from kairo_team.events import AttemptStarted, PlanReady
from kairo_team.messages import Message, ModelRequest
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.tasks import Task, TaskGraph, TaskStatus
from kairo_team.tck.coordinator_reviewing import Judge, Writer, hanging
from kairo_team.tck.coordinator_stage import CoordinatorStage, Show
from kairo_team.tck.kit import clause
from kairo_team.team import Team, TeamExecutionRequest

Plans = Callable[[MemberContext], Awaitable[Any]]
PLAN = (Task("search", "Look it up."), Task("text", "Write it.", depends_on=["search"]))


class Planning:
    """A planner that calls a function of its context, and counts its calls."""

    def __init__(self, plans: Plans) -> None:
        self.asked = 0
        self._plans = plans

    async def plan(self, request: TeamExecutionRequest, team: Team, context: MemberContext) -> Any:
        """Plan by the function; the event loop turns once."""
        self.asked += 1
        await checkpoint()
        return await self._plans(context)


async def _good(context: MemberContext) -> Any:
    return TaskGraph(PLAN)


async def _raises(context: MemberContext) -> Any:
    raise LookupError("the archive of plans is closed")


async def _none(context: MemberContext) -> Any:
    return None


async def _a_list(context: MemberContext) -> Any:
    return list(PLAN)


async def _cycle(context: MemberContext) -> Any:
    return TaskGraph([Task("a", "Do it.", depends_on=["b"]), Task("b", "Do it.", depends_on=["a"])])


async def _times_out(context: MemberContext) -> Any:
    raise TimeoutError("the planner's own clock")


async def _unknown_role(context: MemberContext) -> Any:
    return TaskGraph([Task("a", "Do it."), Task("b", "Sing it.", role="soprano", depends_on=["a"])])


NO_PLANS: dict[str, Plans] = {
    "raises": _raises,
    "raises a TimeoutError": _times_out,
    "returns None": _none,
    "returns a list": _a_list,
    "plans a cycle": _cycle,
}
"""Planners that make no plan."""


class PlanningTests(CoordinatorStage):
    """The plan of a planner, its failures, budget and time."""

    @classmethod
    def planned(cls, plans: Plans, writer: Any, *, fallback: bool = False, **how: Any) -> Show:
        """Put a run together whose plan is made by a planner."""
        show = cls.stage(writer, **how)
        show.coordinator = cls.make_planning_coordinator(Planning(plans), fallback=fallback)
        return show

    @clause("C18", needs="supports_planner")
    async def test_c18_a_planners_plan_is_the_plan(self) -> None:
        """The plan runs unchanged, in its order."""
        for fallback in (False, True):
            writer = Writer()
            show = self.planned(_good, writer, fallback=fallback)
            result = await show.play()
            show.seen.assert_lawful()
            assert result.status is TeamStatus.COMPLETED, result.error
            tasks = [outcome.task_id for outcome in result.outcomes]
            assert tasks == ["search", "text"], f"the plan was search, text; the outcomes are {tasks}"
            assert [one.task.id for one in writer.asked] == tasks, f"done were {[one.task.id for one in writer.asked]}"

    @clause("C18", needs="supports_planner")
    async def test_c18_without_a_plan_the_run_fails(self) -> None:
        """No other plan replaces it by default, no member is called, and no plan.ready is emitted."""
        for name, plans in NO_PLANS.items():
            writer = Writer()
            show = self.planned(plans, writer)
            _check_failed(await show.play(), show, writer, f"a planner that {name}")

    @clause("C17", "C18", needs="supports_planner")
    async def test_c18_a_plan_that_nobody_can_do_fails_the_run(self) -> None:
        """Every task of the plan is skipped, even those that a member could do."""
        writer = Writer()
        show = self.planned(_unknown_role, writer)
        result = await show.play()
        _check_failed(result, show, writer, "a plan with an unknown role")
        stood = [(outcome.task_id, outcome.status, outcome.attempts) for outcome in result.outcomes]
        skipped = TaskStatus.SKIPPED
        assert stood == [("a", skipped, 0), ("b", skipped, 0)], f"the outcomes of the plan are {stood}"

    @clause("C18", needs="supports_planner")
    async def test_c18_where_that_was_asked_for_one_task_takes_the_place_of_the_plan(self) -> None:
        """Whatever the failure: the goal becomes one task, with a warning, and the run is DEGRADED."""
        for name, plans in (NO_PLANS | {"names an unknown role": _unknown_role}).items():
            writer, where = Writer(), f"a planner that {name}, with a fallback"
            show = self.planned(plans, writer, fallback=True)
            result = await show.play()
            show.seen.assert_lawful()
            assert result.status is TeamStatus.DEGRADED, f"{where}: {result.status}, {result.error}"
            assert len(writer.asked) == 1, f"{where}: {len(writer.asked)} assignments, not one"
            assert [one.status for one in result.outcomes] == [TaskStatus.COMPLETED], f"{where}: {result.outcomes!r}"
            assert writer.asked[0].goal == show.request.goal, f"{where}: the goal is {writer.asked[0].goal!r}"
            assert result.warnings, f"{where}: there is no warning"

    @clause("C12", needs="supports_planner")
    async def test_c12_what_planning_spends_is_the_runs(self) -> None:
        """With and without a plan in the end."""
        for fallback, ends in ((False, _good), (False, _raises), (True, _raises)):
            judge = Judge("a plan of five words")
            show = self.planned(_asking(judge, ends), Writer(), fallback=fallback, budget=Budget(tokens=10_000))
            usage = (await show.play()).usage.tokens
            assert judge.spent > 0, "the planner's model was not asked"
            assert usage == judge.spent, f"planning spent {judge.spent} tokens, the result has {usage}"

    @clause("C12", needs="supports_planner")
    async def test_c12_planning_never_passes_the_budget(self) -> None:
        """The planner's model is refused in time, however often it is asked; without a plan no member is called."""
        judge, writer = Judge("words " * 5), Writer()
        show = self.planned(_asking(judge, _good, often=50), writer, budget=Budget(tokens=100))
        result = await show.play()
        show.seen.assert_lawful()
        assert result.usage.tokens == judge.spent, f"spent {judge.spent} tokens, the result has {result.usage.tokens}"
        assert judge.spent <= 100, f"the budget was 100 tokens, planning spent {judge.spent}"
        assert not writer.asked, "a member was called without a plan"

    @clause("C10", needs="supports_planner")
    async def test_c10_the_deadline_covers_planning(self) -> None:
        """A planner that is not done by then is cancelled for real; that is a TIMEOUT, with or without a fallback."""
        for fallback in (False, True):
            ended: list[float] = []
            writer, began = Writer(), anyio.current_time()
            show = self.planned(hanging(ended), writer, fallback=fallback, budget=Budget(seconds=5.0))
            result = await show.play()
            show.seen.assert_lawful()
            assert result.status is TeamStatus.TIMEOUT, f"it ended {result.status}"
            assert ended, "the planner was not cancelled"
            took = max(anyio.current_time(), *ended) - began
            assert took <= 5.0 + self.late(1.0), f"the deadline was at 5 s, planning ended at {took:g} s"
            assert not writer.asked, "a member was called"

    @clause("C11", needs="supports_planner")
    async def test_c11_the_callers_cancellation_ends_planning(self) -> None:
        """Cancellation is not a planner's failure."""
        for fallback in (False, True):
            ended: list[float] = []
            show = self.planned(hanging(ended), Writer(), fallback=fallback)
            result: TeamResult | None = None
            with anyio.move_on_after(5) as scope:
                result = await show.play()
            assert scope.cancelled_caught, f"the caller was cancelled, and got {result!r}"
            assert ended, "the planner was not cancelled"
            assert show.seen.types[-1] == "team.cancelled", f"the last event is {show.seen.types[-1]}"


def _asking(judge: Judge, then: Plans, often: int = 1) -> Plans:
    """Return a planning function that first asks a model."""

    async def plan(context: MemberContext) -> Any:
        for _ in range(often):
            await context.model(judge).complete(ModelRequest([Message.user("What is to be done?")], max_tokens=5))
        return await then(context)

    return plan


def _check_failed(result: TeamResult, show: Show, writer: Writer, where: str) -> None:
    """Check that the run failed while planning."""
    show.seen.assert_lawful()
    assert result.status is TeamStatus.FAILED, f"{where}: the run is {result.status}"
    assert not writer.asked, f"{where}: a member was called"
    assert not show.seen.of(AttemptStarted), f"{where}: an attempt was started"
    assert not show.seen.of(PlanReady), f"{where}: plan.ready was emitted"
    assert result.error, f"{where}: there is no error"
