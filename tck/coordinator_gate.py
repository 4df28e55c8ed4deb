"""The coordinator kit on human gates: people decide what a review left open."""

from __future__ import annotations

from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from kairo_team.artifacts import Finding
from kairo_team.budget import Budget
from kairo_team.engine.work.runtime import Runtime
from kairo_team.events import HumanDecided, HumanRequested
from kairo_team.human import HumanDecision, HumanRequest
from kairo_team.results import TeamResult, TeamStatus
from kairo_team.tasks import Task, TaskStatus
from kairo_team.tck.coordinator_reviewing import Reviewed, Reviewer, ReviewStage, Writer, fixed_parts_of, is_accepted
from kairo_team.tck.coordinator_stage import Show
from kairo_team.tck.kit import clause
from kairo_team.team import RiskProfile
from kairo_team.verdicts import NEVER_BY_RISK, Cause, EvaluationContext, EvaluationVerdict

LOW, MEDIUM, HIGH = RiskProfile
ONE = (Task("text", "Write it."),)
PASS = EvaluationVerdict.passed(1.0)
OPEN = EvaluationVerdict.escalate(Cause.UNDECIDED, "it may be good enough")
BRANCHES = (
    Task("left", "Write it."),
    Task("right", "Write it."),
    Task("after-left", "Go on with it.", depends_on=["left"]),
    Task("after-right", "Go on with it.", depends_on=["right"]),
)


class Person:
    """A gate that answers from a script, then repeats the last answer; keeps its questions, raises scripted exceptions.

    `"hang"` never answers.
    """

    def __init__(self, *answers: Any) -> None:
        self.asked: list[HumanRequest] = []
        self._answers = answers

    async def decide(self, question: HumanRequest) -> Any:
        """Decide; the event loop turns once."""
        answer = self._answers[min(len(self.asked), len(self._answers) - 1)]
        self.asked.append(question)
        await checkpoint()
        if answer == "hang":
            await anyio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        return answer


class GateTests(ReviewStage):
    """Questions to the run's gate, and the effect of its answers."""

    # ------------------------------------------------------------------ what is asked

    @clause("C19", needs="supports_gate")
    async def test_c19_a_person_is_asked_what_a_review_left_open(self) -> None:
        """The question has the artifact, its task and the cause; events report question and answer."""
        person = Person(HumanDecision.approve())
        run = await self.play(Reviewer(OPEN), tasks=ONE, gate=person)
        assert [one.task_id for one in person.asked] == [one.task_id for one in run.outcomes], "not asked once each"
        for question in person.asked:
            artifact = run.reviewer.of(question.task_id or "")[0].artifact
            assert (question.kind, question.subject) == ("review", artifact.text), f"the question was {question!r}"
            assert question.cause is Cause.UNDECIDED, f"the question gives {question.cause} as the cause"
            assert question.run_id == run.result.run_id, f"the question is of run {question.run_id!r}"
        emitted = len(run.seen.of(HumanRequested)), len(run.seen.of(HumanDecided))
        assert emitted == (len(person.asked),) * 2, (
            f"{len(person.asked)} questions; HumanRequested and HumanDecided were emitted {emitted} times"
        )

    @clause("C19", needs="supports_gate")
    async def test_c19_nobody_is_asked_what_the_review_decided(self) -> None:
        """No person is asked after a PASS, nor after a REVISE while rounds are left."""
        script = [PASS] if not self.supports_revision else [EvaluationVerdict.revise("too short"), PASS]
        person = Person(HumanDecision.reject())
        run = await self.play(Reviewer(*script), gate=person)
        assert not person.asked, f"asked: {person.asked[0].text}"
        assert run.result.status is TeamStatus.COMPLETED, run.result.error

    # ------------------------------------------------------------------ what the answers lead to

    @clause("C14", "C19", needs="supports_gate")
    async def test_c19_approval_of_what_only_a_person_decides_is_a_pass(self) -> None:
        """At any risk, where nothing else was left open: the run is COMPLETED, and nothing is warned of."""
        verdict = EvaluationVerdict.escalate(Cause.HUMAN_REQUIRED, "look")
        for risk in RiskProfile:
            run = await self.play(Reviewer(verdict), gate=Person(HumanDecision.approve()), risk_profile=risk)
            where = f"a person approved what they were to decide, under {risk}"
            assert run.result.status is TeamStatus.COMPLETED, f"{where}: {run.result.status}, {run.result.error}"
            for outcome in run.outcomes:
                assert is_accepted(outcome), f"{where}: {outcome.task_id!r} is {outcome.status}"
                assert fixed_parts_of(outcome.verdict) == ("pass", None, None), (
                    f"{where}: it became {outcome.verdict!r}"
                )
            run.check_handed_on(where)

    @clause("C14", "C19", needs="supports_gate")
    async def test_c19_approval_accepts_and_the_verdict_stays(self) -> None:
        """At any risk, where something else was left open: the run is DEGRADED, the verdict no PASS."""
        open_beside = EvaluationVerdict.escalate(Cause.HUMAN_REQUIRED, "look", other_causes=[Cause.UNDECIDED])
        others = [EvaluationVerdict.escalate(one, "look") for one in (Cause.UNDECIDED, Cause.INJECTION_SUSPECTED)]
        for risk in RiskProfile:
            for verdict in (open_beside, *others):
                where = f"{verdict.cause} under {risk}, approved"
                person = Person(HumanDecision.approve())
                run = await self.play(Reviewer(verdict), gate=person, risk_profile=risk)
                assert run.result.status is TeamStatus.DEGRADED, f"{where}: {run.result.status}, {run.result.error}"
                for outcome in run.outcomes:
                    assert is_accepted(outcome), f"{where}: {outcome.task_id!r} is {outcome.status}"
                    assert fixed_parts_of(outcome.verdict) == fixed_parts_of(verdict), (
                        f"{where}: it became {outcome.verdict!r}"
                    )
                run.check_visible(where)
                run.check_handed_on(where)

    @clause("C19", needs="supports_gate")
    async def test_c19_a_rejection_fails_the_task_at_any_risk(self) -> None:
        """Also where the risk alone would have accepted it."""
        for risk in RiskProfile:
            person = Person(HumanDecision.reject("not like this"))
            run = await self.play(Reviewer(OPEN), gate=person, risk_profile=risk)
            assert person.asked, f"nobody was asked under {risk}"
            run.check_refused(f"rejected under {risk}")
            run.check_handed_on(f"rejected under {risk}")

    @clause("C19", needs="supports_gate")
    async def test_c19_silence_approves_nothing(self) -> None:
        """Nor does a gate that breaks or answers nonsense: the risk decides, as it does without a gate."""
        for answer in (None, RuntimeError("the line is dead"), TimeoutError("nobody there"), True, "approve"):
            for risk in RiskProfile:
                for verdict in (OPEN, EvaluationVerdict.escalate(Cause.HUMAN_REQUIRED, "look")):
                    where = f"the gate answered {answer!r}, {verdict.cause} under {risk}"
                    run = await self.play(Reviewer(verdict), gate=Person(answer), risk_profile=risk)
                    if risk is not LOW or verdict.cause in NEVER_BY_RISK:
                        run.check_refused(where)
                    run.check_visible(where)
                    run.check_handed_on(where)

    @clause("C19", needs="supports_gate")
    async def test_c19_a_person_who_wants_changes_gets_one_more_attempt(self) -> None:
        """The member gets the wanted changes and the artifact; the review decides about the new artifact."""
        wanted = "name the second moon"
        run = await self.play(Reviewer(OPEN, PASS), tasks=ONE, gate=Person(HumanDecision.revise(wanted)))
        assert run.result.status is TeamStatus.COMPLETED, run.result.error
        for outcome in run.outcomes:
            asked = run.writer.of(outcome.task_id)
            assert len(asked) == 2, f"{len(asked)} attempts were made at {outcome.task_id!r}, not 2"
            assert wanted in repr(asked[1].findings), (
                f"the second had the findings {asked[1].findings!r}, not {wanted!r}"
            )
            reviewed = run.reviewer.of(outcome.task_id)
            assert asked[1].previous == reviewed[0].artifact, f"it was to start from {asked[1].previous!r}"
            assert outcome.artifact == reviewed[1].artifact, f"{outcome.artifact!r} came back"

    @clause("C19", needs="supports_gate")
    async def test_c19_a_person_who_always_wants_changes_does_not_keep_the_run(self) -> None:
        """After `max_human_rounds` further attempts the risk decides; what only a person may accept it refuses."""
        for risk in RiskProfile:
            for verdict in (OPEN, EvaluationVerdict.escalate(Cause.HUMAN_REQUIRED, "look")):
                where = f"always sent back, {verdict.cause} under {risk}"
                person = Person(HumanDecision.revise("another one"))
                config: Any = {"risk_profile": risk, "max_human_rounds": 2, "budget": Budget(seconds=600.0)}
                run = await self.play(Reviewer(verdict), tasks=ONE, gate=person, **config)
                for outcome in run.outcomes:
                    asked = run.writer.of(outcome.task_id)
                    assert len(asked) == 3, f"{where}: {len(asked)} attempts, not the first and two more"
                if risk is not LOW or verdict.cause in NEVER_BY_RISK:
                    run.check_refused(where)
                run.check_visible(where)

    @clause("C14", "C19", needs="supports_gate supports_revision")
    async def test_c19_used_up_reviews_go_to_a_person_with_the_best_artifact(self) -> None:
        """The person decides about the best artifact."""
        script = [_wants(number, score) for number, score in enumerate((0.2, 0.9, 0.4))]
        person = Person(HumanDecision.approve())
        run = await self.play(Reviewer(*script), tasks=ONE, gate=person, max_feedback_rounds=2)
        for question, outcome in zip(person.asked, run.outcomes, strict=True):
            best = run.reviewer.of(outcome.task_id)[1].artifact
            assert question.subject == best.text, f"the person saw {question.subject!r}, the best is {best.text!r}"
            assert outcome.artifact == best, f"{outcome.artifact!r} came back, {best!r} was approved"

    @clause("C10", needs="supports_gate")
    async def test_c10_the_deadline_ends_a_question(self) -> None:
        """A person who never answers does not keep the run open."""
        began = anyio.current_time()
        run = await self.play(Reviewer(OPEN), gate=Person("hang"), budget=Budget(seconds=5.0))
        took = anyio.current_time() - began
        assert run.result.status is TeamStatus.TIMEOUT, f"it ended {run.result.status}"
        assert took <= 5.0 + self.late(1.0), f"the deadline was at 5 s, it ended after {took:g} s"
        run.check_refused("an unanswered question")

    # ------------------------------------------------------------------ put off

    @clause("C19", needs="supports_gate supports_resume")
    async def test_c19_a_question_put_off_suspends_the_run_when_all_else_is_done(self) -> None:
        """Only what depends on the answer waits."""
        run, show = await self._put_off()
        assert run.result.status is TeamStatus.SUSPENDED, f"{run.result.status}, {run.result.error}"
        assert show.terminal == "team.suspended", f"the last event is {show.terminal}"
        waiting = _pending(show, run.result)
        for outcome in run.outcomes:
            stands = TaskStatus.SUSPENDED if outcome.task_id in waiting else TaskStatus.COMPLETED
            assert outcome.status is stands, f"{outcome.task_id!r} is {outcome.status}, not {stands}"
        if self.supports_plan:
            done = sorted({one.task.id for one in run.writer.asked})
            assert done == ["after-right", "left", "right"], f"done were {done}, and only 'left' waits"
        run.check_handed_on("while it waits")

    @clause("C19", needs="supports_gate supports_resume")
    async def test_c19_an_answered_run_goes_on_and_repeats_nothing(self) -> None:
        """After approval the dependents run; earlier work stays the same and is not repeated."""
        run, show = await self._put_off()
        before, done = {one.task_id: one for one in run.outcomes}, len(run.writer.asked)
        result = await _resume(show, run.result, HumanDecision.approve())
        show.seen.assert_lawful()
        assert result.status is TeamStatus.DEGRADED, f"{result.status}, {result.error}"
        repeated = {one.task.id for one in run.writer.asked[done:]} & before.keys()
        assert not repeated, f"done again after the answer: {sorted(repeated)}"
        for name, outcome in before.items():
            assert result[name].artifact == outcome.artifact, f"{name!r} became {result[name].artifact!r}"
            assert is_accepted(result[name]), f"{name!r} is {result[name].status}"
        Reviewed(result, run.writer, run.reviewer, show.seen).check_handed_on("after the answer")

    @clause("C19", needs="supports_gate supports_resume")
    async def test_c19_a_rejection_after_the_pause_fails_the_task(self) -> None:
        """The other branches keep what they have."""
        run, show = await self._put_off()
        waiting = _pending(show, run.result)
        result = await _resume(show, run.result, HumanDecision.reject("not like this"))
        show.seen.assert_lawful()
        for name in waiting:
            assert result[name].status is TaskStatus.FAILED, f"{name!r} was rejected, and is {result[name].status}"
        for outcome in run.outcomes:
            if is_accepted(outcome):
                assert result[outcome.task_id].artifact == outcome.artifact, f"{outcome.task_id!r} lost its artifact"

    async def _put_off(self) -> tuple[Reviewed, Show]:
        """Play a run of two branches; the person defers the question about the first reviewed task."""
        chosen: list[str] = []

        async def first_is_open(context: EvaluationContext) -> EvaluationVerdict:
            if self.supports_plan:
                chosen[:] = ["left"]
            chosen[:] = chosen or [context.task.id]
            return OPEN if context.task.id in chosen else PASS

        writer, reviewer = Writer(), Reviewer(first_is_open)
        gate = Person(HumanDecision.defer())
        show = self.stage(writer, tasks=BRANCHES, evaluator=reviewer, gate=gate)
        result = await show.play()
        show.seen.assert_lawful()
        assert gate.asked, "nobody was asked"
        return Reviewed(result, writer, reviewer, show.seen), show


def _wants(number: int, score: float) -> EvaluationVerdict:
    finding = Finding(f"defect-{number}", observed=f"defect {number}")
    return EvaluationVerdict.revise(f"defect {number}", findings=[finding], score=score)


def _pending(show: Show, result: TeamResult) -> list[str]:
    runtime: Runtime = show.team.runtime
    waiting = [question.task_id or "" for question in runtime.pending(result.run_id)]
    assert waiting, "a question was put off, and the runtime knows of none"
    return waiting


async def _resume(show: Show, result: TeamResult, decision: HumanDecision) -> TeamResult:
    """Give all questions of the run the same answer, and resume it."""
    runtime: Runtime = show.team.runtime
    _pending(show, result)
    for question in runtime.pending(result.run_id):
        runtime.answer(question.id, decision)
    return await runtime.resume(result.run_id, show.team, coordinator=show.coordinator)
