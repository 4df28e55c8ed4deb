"""The coordinator kit on the caller's cancellation: C11."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext
from kairo_team.engine.run.ending import LAST_EVENT
from kairo_team.events import Event, TeamStarted
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, Task
from kairo_team.tck.coordinator_cuts import GRACE, SLACK, fail_late, shield, swallow, tidy_up
from kairo_team.tck.coordinator_reviewing import Reviewer, hanging
from kairo_team.tck.coordinator_stage import LONG, CoordinatorStage, Show, Watched, hang, sleep
from kairo_team.tck.kit import clause
from kairo_team.team import RiskProfile


class CancelTests(CoordinatorStage):
    """A caller that is cancelled gets the cancellation, and leaves nothing running."""

    @clause("C11")
    async def test_c11_in_flight(self) -> None:
        agent = Watched(hang)
        show = self.stage(agent, task_timeout=None, cancel_grace=GRACE)
        await _cancel_caller(show, lambda: anyio.sleep(1))
        assert agent.calls, "nobody was in flight"
        assert agent.cancelled == len(agent.calls), f"{len(agent.calls)} were at work, {agent.cancelled} were cancelled"
        await _check_all_is_over(show, agent)

    @clause("C11")
    async def test_c11_before_anything_began(self) -> None:
        agent = Watched(hang)
        show = self.stage(agent, task_timeout=None)
        await _cancel_caller(show, _at_once)
        await _check_all_is_over(show, agent)

    @clause("C11")
    async def test_c11_after_each_event(self) -> None:
        whole = self.stage(sleep)
        await whole.play()
        for count in range(1, len(whole.seen.events)):
            agent = Watched(sleep)
            show, result = await self._cancel_at_event(agent, count)
            if result is None:
                await _check_all_is_over(show, agent)
            else:  # there was nothing left to wait for
                assert show.terminal == LAST_EVENT[result.status].type, (
                    f"the last event of {result!r} is {show.terminal}"
                )

    async def _cancel_at_event(self, agent: Watched, count: int) -> tuple[Show, TeamResult | None]:
        scope = anyio.CancelScope()

        def listen(event: Event) -> None:
            if event.seq == count:
                scope.cancel()

        show = self.stage(agent, cancel_grace=GRACE, runtime={"subscribers": [listen]})
        with scope:
            return show, await show.play()
        return show, None

    @clause("C11")
    async def test_c11_while_members_fail(self) -> None:
        agent = Watched(fail_late)
        show = self.stage(agent, cancel_grace=GRACE, task_timeout=None)
        await _cancel_caller(show, lambda: anyio.sleep(9.9))
        await _check_all_is_over(show, agent)

    @clause("C11", needs="supports_review")
    async def test_c11_while_reviewing(self) -> None:
        """Cancellation during a review is not an evaluator's failure, which LOW risk would accept."""
        ended: list[float] = []
        agent, low = Watched(sleep), RiskProfile.LOW
        tasks = [Task("a", "Do a.")]
        show = self.stage(agent, tasks=tasks, evaluator=Reviewer(hanging(ended)), risk_profile=low, review_timeout=None)
        await _cancel_caller(show, lambda: anyio.sleep(5))
        assert ended, "the review was not cancelled"
        await _check_all_is_over(show, agent)

    @clause("C11")
    async def test_c11_whoever_ignores_it_has_the_grace_and_no_more(self) -> None:
        for ignore in (shield, swallow):
            agent = Watched(ignore)
            show = self.stage(agent, task_timeout=None, cancel_grace=GRACE)
            began = anyio.current_time()
            await _cancel_caller(show, lambda: anyio.sleep(1))
            took = anyio.current_time() - began - 1
            assert took <= GRACE + self.late(SLACK), f"a grace of {GRACE:g}: it ended after {took:g} seconds"
            await _check_all_is_over(show, agent)

    @clause("C11")
    async def test_c11_it_wins_over_a_halt(self) -> None:
        async def spend(assignment: Assignment, context: MemberContext) -> str:
            try:
                await anyio.sleep_forever()
            finally:
                context.governor.record_usage(prompt_tokens=1_000_000)
            return "unreachable"

        agent = Watched(spend)
        show = self.stage(agent, task_timeout=None, budget=Budget(tokens=1000))
        await _cancel_caller(show, lambda: anyio.sleep(1))
        await _check_all_is_over(show, agent)

    @clause("C11")
    async def test_c11_it_wins_over_a_kill(self) -> None:
        agent = Watched(tidy_up)
        show = self.stage(agent, task_timeout=None, cancel_grace=GRACE)

        async def kill() -> None:
            await anyio.sleep(1)
            show.team.runtime.runs[show.request.run_id].cancel("enough")

        await _cancel_caller(show, kill)
        await _check_all_is_over(show, agent)


async def _at_once() -> None:
    """Wait for nothing."""


async def _cancel_caller(show: Show, moment: Callable[[], Awaitable[object]]) -> None:
    """Cancel the caller at that moment; the cancellation must reach the caller."""
    came_back: list[object] = []
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_at, scope, moment)
            came_back.append(await show.play())
    assert not came_back, f"its caller was cancelled, and `execute` returned {came_back[0]!r}"
    assert scope.cancelled_caught, "its caller was cancelled, and did not get its cancellation"


async def _cancel_at(scope: anyio.CancelScope, moment: Callable[[], Awaitable[object]]) -> None:
    await moment()
    scope.cancel()


async def _check_all_is_over(show: Show, agent: Watched) -> None:
    """Check that the run ends as cancelled, and nothing of it is left."""
    seen, calls = list(show.seen.events), len(agent.calls)
    assert not +agent.at_work, f"still at work after the cancellation: {agent.at_work}"
    if show.seen.of(TeamStarted):
        assert show.terminal == "team.cancelled", f"a cancelled run ends with team.cancelled, not {show.terminal}"
        show.seen.assert_lawful()
    await anyio.sleep(LONG)
    assert len(agent.calls) == calls, "members were called after the run was cancelled"
    assert len(show.seen.events) == len(seen), f"events after the end: {show.seen.types[len(seen) :]}"
