"""The coordinator kit on tasks: C6, events; C7, outcomes; C17, members; C20, the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import anyio

from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget
from kairo_team.contracts import MemberContext
from kairo_team.events import (
    AttemptFinished,
    AttemptStarted,
    PlanGrew,
    PlanReady,
    TaskAssigned,
    TaskEnded,
    TaskEvent,
)
from kairo_team.results import AgentOutput, AgentStatus, TeamResult, TeamStatus
from kairo_team.tasks import Assignment, Task, TaskStatus
from kairo_team.tck.coordinator_stage import (
    CoordinatorStage,
    Show,
    Watched,
    fail,
    fail_at,
    hang,
    sleep,
    write,
)
from kairo_team.tck.kit import clause
from kairo_team.team import RiskProfile, Role

RARE = "kit-rare-skill"
"""A capability that no member has unless the kit gives it."""


def diamond() -> list[Task]:
    """Return a plan of four tasks; the last in the plan ends first."""
    return [
        Task("end", "Put together.", depends_on=["left", "right"]),
        Task("left", "Do the left side.", depends_on=["start"]),
        Task("right", "Do the right side.", depends_on=["start"]),
        Task("start", "Begin."),
    ]


class WorkTests(CoordinatorStage):
    """The events of every task, its outcome in the result, and its member."""

    # ------------------------------------------------------------------ C6: events of tasks

    @clause("C6")
    async def test_c06_every_task_has_one_terminal_event_that_says_what_the_result_says(self) -> None:
        for function in (write, sleep, fail, fail_at("left"), _waver):
            show = self.stage(function, tasks=diamond())
            _check_events(show, await show.play())

    @clause("C6")
    async def test_c06_it_is_so_out_of_time_too(self) -> None:
        show = self.stage(hang, tasks=diamond(), budget=Budget(seconds=5.0), task_timeout=None)
        _check_events(show, await show.play())

    @clause("C6")
    async def test_c06_it_is_so_when_killed_too(self) -> None:
        show = self.stage(hang, tasks=diamond(), task_timeout=None)
        async with show.live() as run:
            await anyio.sleep(1)
            run.cancel("enough")
            result = await run.result()
        _check_events(show, result)

    @clause("C6")
    async def test_c06_events_of_a_task_come_in_their_order(self) -> None:
        """Assigned; every try started and finished, counted from 1; its end."""
        for function in (write, fail, _waver, _emit_progress):
            show = self.stage(function, tasks=diamond())
            await show.play()
            show.seen.assert_lawful()
            for task_id in {event.task_id for event in show.seen.of(TaskAssigned)}:
                tries = [event.attempt for event in show.seen.of(AttemptStarted, task_id)]
                done = [event.attempt for event in show.seen.of(AttemptFinished, task_id)]
                counted = list(range(1, len(tries) + 1))
                assert tries == done == counted, f"task {task_id!r}: tries {tries} started and {done} finished"

    @clause("C6")
    async def test_c06_every_try_is_told_and_no_other(self) -> None:
        for function in (write, fail, _waver):
            agent = Watched(function)
            show = self.stage(agent, tasks=diamond())
            result = await show.play()
            for outcome in result.outcomes:
                made = [call.task.id for call in agent.calls].count(outcome.task_id)
                started = len(show.seen.of(AttemptStarted, outcome.task_id))
                assert made == started == outcome.attempts, (
                    f"task {outcome.task_id!r}: members were called {made} times, events report {started} tries, "
                    f"the outcome of {outcome.attempts}"
                )

    # ------------------------------------------------------------------ C7: outcomes and status

    @clause("C7")
    async def test_c07_there_is_one_outcome_for_each_planned_task_in_plan_order(self) -> None:
        for function in (write, _later_first, fail):
            show = self.stage(function, tasks=diamond())
            result = await show.play()
            assert result.plan is not None, "the result must have the plan that was run"
            planned = [task.id for task in result.plan.tasks]
            found = [outcome.task_id for outcome in result.outcomes]
            assert found == planned, f"the outcomes must be of {planned}, in this order, not {found}"
            assert result.run_id == show.request.run_id, f"the result bears the id {result.run_id!r}"

    @clause("C7", needs="supports_plan")
    async def test_c07_the_plan_given_is_the_plan_run(self) -> None:
        show = self.stage(write, tasks=diamond())
        result = await show.play()
        assert result.plan == show.request.plan, f"it ran {result.plan!r}, not the request's plan"

    @clause("C7")
    async def test_c07_completed_means_that_all_were_accepted(self) -> None:
        result = await self.stage(write, tasks=diamond()).play()
        assert result.status is TeamStatus.COMPLETED, f"it ended {result!r}"
        assert result.error is None, f"a run that completed has no error, and not {result.error!r}"
        assert {outcome.status for outcome in result.outcomes} == {TaskStatus.COMPLETED}, f"{result.outcomes}"

    @clause("C7")
    async def test_c07_nothing_accepted_is_a_failed_run_at_any_risk(self) -> None:
        for risk in (RiskProfile.LOW, RiskProfile.MEDIUM):
            result = await self.stage(fail, risk_profile=risk).play()
            assert result.status is TeamStatus.FAILED, f"at {risk} risk nothing was accepted, and it ended {result!r}"

    @clause("C7", needs="supports_plan")
    async def test_c07_a_lost_task_fails_the_run_or_degrades_it(self) -> None:
        tasks = [Task("good", "Do it."), Task("bad", "Try it."), Task("after", "Wait.", depends_on=["bad"])]
        medium = TeamStatus.DEGRADED if self.tolerates_failures else TeamStatus.FAILED
        for risk, wanted in ((RiskProfile.LOW, TeamStatus.DEGRADED), (RiskProfile.MEDIUM, medium)):
            result = await self.stage(fail_at("bad"), tasks=tasks, risk_profile=risk).play()
            assert result.status is wanted, f"at {risk} risk one was lost: {wanted.value} is due, not {result!r}"
            artifact = result["good"].artifact
            assert artifact is not None, "the artifact of the finished task is gone"
            assert artifact.text == "text of good", f"the finished task's artifact is {artifact!r}"

    @clause("C7", needs="supports_plan")
    async def test_c07_a_dispensable_task_degrades_the_run(self) -> None:
        tasks = [Task("a", "Do a."), Task("b", "Do b."), Task("c", "Do c.", depends_on=["a", "b"], needs=1)]
        result = await self.stage(fail_at("b"), tasks=tasks).play()
        assert result.status is TeamStatus.DEGRADED, f"all did without a task: DEGRADED is due, not {result!r}"

    @clause("C7")
    async def test_c07_a_partial_artifact_that_is_accepted_degrades_the_run(self) -> None:
        result = await self.stage(_run_out_of_turns).play()
        for outcome in result.outcomes:
            assert outcome.artifact is not None, f"what task {outcome.task_id!r} made is gone"
            assert outcome.artifact.partial, f"task {outcome.task_id!r} ran out of turns, its artifact is partial"
            if outcome.status is TaskStatus.COMPLETED:
                assert result.status is not TeamStatus.COMPLETED, "a partial artifact went as a whole one"

    @clause("C7", needs="supports_plan")
    async def test_c07_a_task_that_never_started_has_no_attempts(self) -> None:
        result = await self.stage(fail_at("start"), tasks=diamond()).play()
        for name in ("left", "right", "end"):
            outcome = result[name]
            assert outcome.status is TaskStatus.SKIPPED, f"task {name!r} could not start and is {outcome.status}"
            assert outcome.attempts == 0, f"task {name!r} never started and has {outcome.attempts} attempts"

    # ------------------------------------------------------------------ C17: binding

    @clause("C17", needs="supports_plan")
    async def test_c17_what_nobody_can_do_fails_the_run_while_planning(self) -> None:
        for need, word in (
            (Task("odd", "Do it.", requires={RARE}), RARE),
            (Task("odd", "Do it.", role="kit-no-such-role"), "kit-no-such-role"),
            (Task("odd", "Do it.", member="kit-no-such-member"), "kit-no-such-member"),
        ):
            agent = Watched(write)
            show = self.stage(agent, tasks=[Task("plain", "Do this."), need], risk_profile=RiskProfile.LOW)
            result = await show.play()
            assert result.status is TeamStatus.FAILED, f"nobody can do {word!r}, and it ended {result!r}"
            assert not agent.calls, f"nobody can do {word!r}, and members were called"
            for named in ("odd", word):
                assert named in str(result.error), f"the error must name {named!r}, not just {result.error!r}"
            found = [(one.task_id, one.status.value, one.attempts) for one in result.outcomes]
            wanted = [("plain", "skipped", 0), ("odd", "skipped", 0)]
            assert found == wanted, f"every planned task is skipped: {wanted}, not {found}"
            started = show.seen.of(TaskAssigned)
            assert not started, f"tasks were handed out: {started}"
            _check_events(show, result)

    @clause("C17", needs="supports_plan")
    async def test_c17_a_task_goes_to_whoever_can_do_it(self) -> None:
        able = self.make_team(write).members[-1]
        for need in (Task("odd", "Do it.", requires={RARE}), Task("odd", "Do it.", member=able.id)):
            agent = Watched(write)
            show = self.stage(agent, tasks=[Task("plain", "Do this."), need])
            skilled = Role("kit-skilled", capabilities=frozenset({RARE}))
            last = replace(show.team.members[-1], role=skilled, name=able.id)
            show.set_members([*show.team.members[:-1], last])
            result = await show.play()
            assert result.status is TeamStatus.COMPLETED, f"{able.id!r} can do it, and it ended {result!r}"
            roles = [
                context.role.id
                for call, context in zip(agent.calls, agent.contexts, strict=True)
                if call.task.id == "odd"
            ]
            assert roles == ["kit-skilled"], f"only {able.id!r} can do it, and it was given to {roles}"
            assert result["odd"].member == able.id, f"the result has {result['odd'].member!r} did it"

    # ------------------------------------------------------------------ C20: output

    @clause("C20", needs="joins_output")
    async def test_c20_the_output_is_what_the_accepted_ends_made(self) -> None:
        result = await self.stage(write).play()
        _check_output(result)
        _check_output(await self.stage(write, tasks=diamond()).play())

    @clause("C20", needs="supports_plan joins_output")
    async def test_c20_several_ends_stand_in_plan_order_under_their_ids(self) -> None:
        tasks = [Task("c", "Do c."), Task("b", "Do b."), Task("a", "Do a.", depends_on=["b"])]
        result = await self.stage(_later_first, tasks=tasks).play()
        _check_output(result)
        rest = (result.output or "").replace("text of c", "").replace("text of a", "")
        assert rest.find("c") < rest.find("a"), f"two tasks end the plan: each under its id, not {result.output!r}"
        assert "c" in rest, f"two tasks end the plan: each under its id, not {result.output!r}"

    @clause("C20", needs="supports_plan joins_output")
    async def test_c20_where_the_last_task_was_lost_what_came_before_it_is_no_output(self) -> None:
        tasks = [Task("a", "Do a."), Task("b", "Do b.", depends_on=["a"])]
        result = await self.stage(fail_at("b"), tasks=tasks, risk_profile=RiskProfile.LOW).play()
        found = (result.output, result.partial_output)
        assert found == (None, "text of a"), f"'b' was lost: output and partial output are {found}"
        assert "'b'" in (result.error or ""), f"'b' was lost, and the error is {result.error!r}"

    @clause("C20", needs="joins_output")
    async def test_c20_nothing_accepted_is_no_output(self) -> None:
        result = await self.stage(fail).play()
        assert result.output is None, f"nothing was accepted, and the output is {result.output!r}"

    @clause("C20", needs="joins_output")
    async def test_c20_a_run_that_failed_has_a_partial_output_and_says_why(self) -> None:
        """Finished and kept work comes back, marked as not successful."""

        async def keep_and_fail(assignment: Assignment, context: MemberContext) -> str:
            context.keep("half a page")
            return await fail(assignment, context)

        result = await self.stage(keep_and_fail).play()
        assert result.output is None, f"it failed, and its output is {result.output!r}"
        there = result.partial_output or ""
        assert "half a page" in there, f"a member kept 'half a page', and the partial output is {there!r}"
        assert result.error, "it failed without an error"

    @clause("C20", needs="supports_plan joins_output")
    async def test_c20_what_was_finished_is_no_output_where_the_run_failed(self) -> None:
        tasks = [Task("a", "Do a."), Task("b", "Do b.", depends_on=["a"])]
        result = await self.stage(fail_at("b"), tasks=tasks, risk_profile=RiskProfile.MEDIUM).play()
        if result.status is TeamStatus.FAILED:
            found = (result.output, result.partial_output)
            assert found == (None, "text of a"), f"output and partial output of a failed run are {found}"
        assert result.warnings, "a task was lost without a warning"

    @clause("C20", needs="joins_output")
    async def test_c20_what_was_cut_short_says_why(self) -> None:
        """The run's warnings name the limit, even if the artifact was accepted."""
        result = await self.stage(_run_out_of_turns).play()
        if result.status is not TeamStatus.COMPLETED:
            stated = "; ".join([*result.warnings, result.error or ""])
            assert "3 of 3" in stated, f"an agent stopped at 3 of 3 turns, and the result states {stated!r}"


async def _waver(assignment: Assignment, context: MemberContext) -> str:
    """Fail the first attempt at each task, if tasks are retried."""
    if context.governor.usage.loops > 1:
        return await write(assignment, context)
    return await fail(assignment, context)


async def _emit_progress(assignment: Assignment, context: MemberContext) -> str:
    context.emit("half way", share=0.5)
    return await sleep(assignment, context)


async def _later_first(assignment: Assignment, context: MemberContext) -> str:
    """Take longer for a later letter of the alphabet."""
    await anyio.sleep(ord(assignment.task.id[0]) / 100)
    return await write(assignment, context)


async def _run_out_of_turns(assignment: Assignment, context: MemberContext) -> AgentOutput:
    return AgentOutput(Artifact("a beginning"), AgentStatus.TURN_LIMIT_REACHED, 3, 3)


def _check_events(show: Show, result: TeamResult) -> None:
    """Check that the events of the tasks agree with the result."""
    show.seen.assert_lawful()
    planned = [outcome.task_id for outcome in result.outcomes]
    for ready in show.seen.of(PlanReady)[-1:]:  # a plan may be replaced
        later = [event for event in show.seen.of(PlanGrew) if event.seq > ready.seq]
        told = [*ready.tasks, *(task.id for event in later for task in event.added)]
        assert sorted(told) == sorted(planned), f"plan.ready and plan.grew have the tasks {told}, the result {planned}"
    strangers = {event.task_id for event in show.seen.of(TaskEvent)} - set(planned)
    assert not strangers, f"events of tasks that the result does not have: {strangers}"
    for outcome in result.outcomes:
        ends = show.seen.of(TaskEnded, outcome.task_id)
        assert len(ends) == 1, f"task {outcome.task_id!r} has {len(ends)} terminal events: {ends}"
        (end,) = ends
        wanted = (f"task.{outcome.status.value}", outcome.attempts, outcome.member, outcome.error)
        emitted = (end.type, end.attempts, end.member, end.reason)
        assert emitted == wanted, f"task {outcome.task_id!r}: the last event has {emitted}, the result {wanted}"


def _check_output(result: TeamResult) -> None:
    """Compare the output with the accepted artifacts."""
    assert result.plan is not None, "the result must have its plan"
    accepted = [outcome.task_id for outcome in result.outcomes if outcome.status is TaskStatus.COMPLETED]
    ends = [task_id for task_id in accepted if not _leads_on(task_id, accepted, result.plan.tasks)]
    texts = [artifact.text for task_id in ends if (artifact := result[task_id].artifact) is not None]
    output = result.output or ""
    if len(texts) == 1:
        assert output == texts[0], f"one task ends the plan: its text is the output, not {output!r}"
    places = [output.find(text) for text in texts]
    assert -1 not in places, f"the output must contain the artifacts of {ends}: {output!r}"
    assert places == sorted(places), f"the output has the artifacts of {ends} in another order: {output!r}"
    inner = [result[name].artifact for name in accepted if name not in ends]
    repeated = [one.text for one in inner if one is not None and one.text in output and one.text not in texts]
    assert not repeated, f"the output has what others worked on further: {repeated}"


def _leads_on(task_id: str, accepted: Sequence[str], tasks: Sequence[Task]) -> bool:
    return any(task_id in task.depends_on and task.id in accepted for task in tasks)
