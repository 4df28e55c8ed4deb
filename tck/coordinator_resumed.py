"""The coordinator kit on runs that are cut short and resumed, and on decisions, the same in every process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext
from kairo_team.engine.work.runtime import Runtime
from kairo_team.events import AttemptStarted, BudgetHalted, TaskCompleted
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, Task, TaskStatus
from kairo_team.tck.calls import another_moment, said_elsewhere
from kairo_team.tck.coordinator_stage import CoordinatorStage, Function, Show, Watched, fail, write
from kairo_team.tck.kit import clause
from kairo_team.testing import MemoryJournal

DIAMOND: Final = (
    Task("a", "Do a."),
    Task("b", "Do b."),
    Task("c", "Do c.", depends_on=["a", "b"]),
    Task("d", "Do d.", depends_on=["c"]),
)
_MOST_CUTS: Final = 6
_ENOUGH: Final = 20
"""Attempts at one task after which a coordinator is assumed to try for ever."""


class ResumedTests(CoordinatorStage):
    """C21 and C22."""

    @clause("C21")
    async def test_c21_a_run_that_is_cut_at_any_attempt_ends_as_if_it_was_not(self) -> None:
        """The process dies at the first attempt, or a later one, and another object resumes the run a day later."""
        whole = Watched(write)
        wanted = _told(await self.stage(whole, tasks=DIAMOND).play())
        for cut in range(1, min(len(whole.calls), _MOST_CUTS) + 1):
            journal, finished = MemoryJournal(), set[str]()
            first = Watched(write)
            show = self.stage(first, tasks=DIAMOND, runtime={"journal": journal})
            first.function = _dies_at(cut, show, journal, finished)
            await show.play()
            agent = Watched(write)
            again = self.stage(agent, tasks=DIAMOND, runtime={"journal": journal.elsewhere()})
            runtime: Runtime = again.team.runtime
            async with runtime:
                with another_moment(cut):
                    result = await runtime.resume(show.request.run_id, again.team, coordinator=again.coordinator)
            about = f"its process died at attempt {cut}, and the run was resumed"
            assert _told(result) == wanted, f"{about}: it ended {_told(result)}, and uncut {wanted}"
            repeated = finished & {one.task.id for one in agent.calls}
            assert not repeated, f"{about}: {sorted(repeated)} had been finished, and was done again"
            others = [text for one in result.outcomes for text in one.warnings if "gives it to" in text]
            assert not others, f"{about}: {others}"

    @clause("C21")
    async def test_c21_another_process_decides_the_same(self) -> None:
        """Under another hash seed, with a plan whose tasks every member may do."""
        here = await self.decisions()
        there = said_elsewhere(
            type(self).__module__,
            type(self).__qualname__,
            "import anyio; loop, options = kit.backend(kit.backends[0]); "
            "print(anyio.run(kit.decisions, backend=loop, backend_options=options))",
        )
        assert there == here, (
            f"in another process, where hash() and sets differ, it decided {there}, and here {here}: decide from the "
            "request and the team, or record the decision by TeamRun.step"
        )

    @classmethod
    async def decisions(cls) -> str:
        """Run the kit's plan, and return which member did which task, how it ended, and the run's status."""
        tasks = [Task(f"t{number}", "Do it.") for number in range(10)]
        result = await cls.stage(Watched(write), tasks=[*tasks, *DIAMOND]).play()
        return repr([(one.task_id, one.member, one.status.value) for one in result.outcomes] + [result.status.value])

    @clause("C22")
    async def test_c22_once_the_budget_is_used_up_nothing_is_tried_again(self) -> None:
        """Every attempt fails, and the run has two loops."""
        show = self.stage(Watched(fail), tasks=[Task("a", "Do a.")], budget=Budget(loops=2))
        result = await show.play()
        halted = [event.seq for event in show.seen.of(BudgetHalted)]
        if not halted:
            pytest.skip("it makes fewer than three attempts")
        later = [event for event in show.seen.of(AttemptStarted) if event.seq > halted[0] + 1]
        assert not later, (
            f"its budget was used up, and {len(later)} more attempts were begun: ask TeamRun.is_over before another try"
        )
        assert result.outcomes[0].status is not TaskStatus.COMPLETED

    @clause("C22", needs="supports_plan")
    async def test_c22_a_member_that_cannot_pay_is_not_waited_for(self) -> None:
        """The first member fails, and no other one can pay for the task."""
        show = self.stage(Watched(fail), tasks=[Task("a", "Do a.", member="one")], budget=Budget(loops=100))
        first, *others = show.team.members
        broke = Budget(loops=0)
        show.set_members([first, *(replace(member, budget=broke) for member in others)])
        result = await show.play()
        tried = show.seen.of(AttemptStarted, "a")
        assert result["a"].status is TaskStatus.FAILED, f"no member could do it, and it is {result['a'].status}"
        assert len(tried) <= _ENOUGH, f"no other member can pay, and {len(tried)} attempts were made: see hand_over"
        by_others = {event.member for event in tried} - {first.id}
        assert not by_others, f"{sorted(map(str, by_others))} cannot pay, and made attempts all the same"


def _dies_at(cut: int, show: Show, journal: MemoryJournal, finished: set[str]) -> Function:
    """Return a function at whose `cut`th call the process dies; `finished` are the tasks that had ended then."""
    calls = 0

    async def work(assignment: Assignment, context: MemberContext) -> str:
        nonlocal calls
        calls += 1
        if calls == cut:
            finished.update(str(event.task_id) for event in show.seen.of(TaskCompleted))
            journal.crash()
        return await write(assignment, context)

    return work


def _told(result: TeamResult) -> list[Any]:
    tasks = [(one.task_id, one.status.value, one.artifact and one.artifact.text) for one in result.outcomes]
    return [*tasks, result.status.value, result.output]
