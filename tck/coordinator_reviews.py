"""The coordinator kit on reviews: which artifacts are accepted, and the effect of an evaluator's own failure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import anyio

from kairo_team.budget import Budget
from kairo_team.events import EvaluationResult
from kairo_team.results import TeamStatus
from kairo_team.tasks import Task
from kairo_team.tck.coordinator_reviewing import (
    TWO,
    Reviewed,
    Reviewer,
    ReviewStage,
    Writer,
    fixed_parts_of,
    hanging,
    is_accepted,
    outcome_of,
)
from kairo_team.tck.kit import clause
from kairo_team.team import RiskProfile
from kairo_team.verdicts import ESCALATION_CAUSES, NEVER_BY_RISK, Cause, EvaluationContext, EvaluationVerdict
from kairo_team.verdicts import VerdictOutcome as Outcome

LOW, MEDIUM, HIGH = RiskProfile
SECRET = "the judge's password is swordfish"
_OF_AN_EVALUATOR = (Cause.EVALUATOR_ERROR, Cause.EVALUATOR_TIMEOUT, Cause.JUDGE_BUDGET)
LEFT_OPEN = [
    *(EvaluationVerdict.escalate(cause, "somebody else must say") for cause in sorted(ESCALATION_CAUSES)),
    *(EvaluationVerdict.review_exceeded(cause, "there is no review") for cause in _OF_AN_EVALUATOR),
]
"""Every verdict of an evaluator that decides nothing."""


async def _raises(context: EvaluationContext) -> Any:
    raise RuntimeError(SECRET)


async def _times_out(context: EvaluationContext) -> Any:
    raise TimeoutError(SECRET)


async def _raises_a_group(context: EvaluationContext) -> Any:
    async with anyio.create_task_group() as group:
        group.start_soon(_raises, context)


class _NoVerdict:
    """An imitation of a PASS, with a score that is not a number."""

    outcome = Outcome.PASS
    score = math.nan
    cause = None
    feedback = SECRET
    findings = criteria = suggestions = ()


CRASHES: dict[str, Any] = {
    "raises": _raises,
    "raises a TimeoutError": _times_out,
    "raises a group": _raises_a_group,
    "returns None": None,
    "returns True": True,
    "returns a word": f"PASS. {SECRET}",
    "returns a mapping": {"outcome": "pass", "score": 1.0, "feedback": SECRET},
    "returns an outcome": Outcome.PASS,
    "returns a look-alike": _NoVerdict(),
}
"""Ways in which an evaluator fails to give a verdict."""


class _CallRaises(Reviewer):
    """An evaluator that raises at the call, before it returns an awaitable."""

    def evaluate(self, context: EvaluationContext) -> Any:
        self.asked.append(context)
        raise RuntimeError(SECRET)


def _crashing() -> Iterator[tuple[str, Reviewer]]:
    yield "raises when it is called", _CallRaises()
    for name, answer in CRASHES.items():
        yield name, Reviewer(answer)


class ReviewTests(ReviewStage):
    """Acceptance and risk, and an evaluator's own failures."""

    # ------------------------------------------------------------------ what is accepted

    @clause("C14", needs="supports_review")
    async def test_c14_a_pass_is_accepted_at_any_risk(self) -> None:
        """A PASS completes the run; the result has the verdict with its score."""
        for risk in RiskProfile:
            run = await self.play(Reviewer(EvaluationVerdict.passed(0.75)), risk_profile=risk)
            assert run.result.status is TeamStatus.COMPLETED, f"under {risk}: {run.result.error}"
            for outcome in run.outcomes:
                assert fixed_parts_of(outcome.verdict) == ("pass", None, 0.75), f"under {risk}: {outcome.verdict!r}"
            run.check_handed_on(f"under {risk}")

    @clause("C14", needs="supports_review")
    async def test_c14_nothing_but_a_pass_is_accepted_above_low_risk(self) -> None:
        """Any other outcome is refused when no person can be asked, with the reason."""
        for risk in (MEDIUM, HIGH):
            for verdict in LEFT_OPEN:
                run, where = await self.play(Reviewer(verdict), risk_profile=risk), f"{verdict.cause} under {risk}"
                run.check_refused(where)
                run.check_handed_on(where)
                _check_unchanged(run, verdict, where)

    @clause("C14", needs="supports_review supports_plan")
    async def test_c14_equal_artifacts_of_two_tasks_are_both_reviewed(self) -> None:
        """Though two tasks made the same."""

        async def by_task(context: EvaluationContext) -> EvaluationVerdict:
            if context.task.id == "first":
                return EvaluationVerdict.passed(1.0)
            return EvaluationVerdict.escalate(Cause.UNDECIDED, "it is not what was asked")

        run = await self.play(Reviewer(by_task), Writer(lambda assignment, number: "the same text"))
        accepted = [outcome.task_id for outcome in run.result.outcomes if is_accepted(outcome)]
        assert accepted == ["first"], f"one text was made twice, and passed for 'first' alone; accepted: {accepted}"

    @clause("C14", needs="supports_review")
    async def test_c14_low_risk_accepts_visibly(self) -> None:
        """A verdict stays what it was, in result and event, and the run is DEGRADED; two causes no risk accepts."""
        for verdict in LEFT_OPEN:
            run, where = await self.play(Reviewer(verdict), risk_profile=LOW), f"{verdict.cause} under low"
            if verdict.cause in NEVER_BY_RISK:
                run.check_refused(where)
            run.check_visible(where)
            run.check_handed_on(where)
            _check_unchanged(run, verdict, where)

    @clause("C14", needs="supports_review")
    async def test_c14_a_defect_is_not_accepted_where_no_round_is_left(self) -> None:
        """REVISE without a round left is accepted only at LOW risk, visibly."""
        for risk in RiskProfile:
            where = f"revise under {risk}"
            verdict = EvaluationVerdict.revise("too short", score=0.5)
            run = await self.play(Reviewer(verdict), risk_profile=risk, max_feedback_rounds=0)
            assert all(outcome_of(one) is not Outcome.PASS for one in run.outcomes), f"{where}: it became a PASS"
            if risk is not LOW:
                run.check_refused(where)
            run.check_visible(where)
            run.check_handed_on(where)

    @clause("C14", needs="supports_review")
    async def test_c14_a_review_is_shown_the_artifact_and_what_it_was_made_from(self) -> None:
        """Task, goal, configuration, artifact, its number, accepted upstream artifacts, and the tokens of the task."""
        run = await self.play(Reviewer(EvaluationVerdict.passed()))
        for shown in run.reviewer.asked:
            (made,) = run.writer.of(shown.task.id)
            own = run.result[shown.task.id].artifact
            assert shown.artifact == own, f"the review of {shown.task.id!r} saw {shown.artifact!r}, not {own!r}"
            assert shown.task == made.task, f"the review saw the task {shown.task!r}"
            assert shown.goal == made.goal, f"the review saw the goal {shown.goal!r}"
            assert dict(shown.upstream) == dict(made.upstream), f"the review saw {dict(shown.upstream)!r} upstream"
            assert (shown.attempt, tuple(shown.prior_verdicts)) == (1, ()), f"{shown.attempt}, {shown.prior_verdicts}"
            assert shown.config is not None, "the review did not see the run's configuration"
            assert shown.context is not None, "the review got no context, so it has no governed models"
            used = run.result[shown.task.id].usage
            assert shown.usage is not None, "the review did not see what the task has used"
            assert shown.usage.tokens == used.tokens, f"the review saw {shown.usage!r}, and the task has used {used!r}"

    # ------------------------------------------------------------------ an evaluator's own failure

    @clause("C15", needs="supports_review")
    async def test_c15_a_broken_evaluator_gives_no_verdict_and_no_score(self) -> None:
        """Whatever breaks, in result and event it is REVIEW_EXCEEDED with its cause; nothing above LOW is accepted."""
        for risk in RiskProfile:
            for name, reviewer in _crashing():
                run, where = await self.play(reviewer, risk_profile=risk), f"an evaluator that {name}, {risk} risk"
                causes = {Cause.EVALUATOR_ERROR}
                if "TimeoutError" in name:
                    causes.add(Cause.EVALUATOR_TIMEOUT)
                _check_no_review(run, causes, where)
                if risk is not LOW:
                    run.check_refused(where)
                run.check_visible(where)

    @clause("C15", needs="supports_review supports_plan")
    async def test_c15_an_evaluator_that_broke_is_asked_about_the_next_task(self) -> None:
        """Its later verdict counts."""
        asked: list[str] = []

        async def break_once(context: EvaluationContext) -> EvaluationVerdict:
            asked.append(context.task.id)
            if asked[0] == context.task.id:
                raise RuntimeError(SECRET)
            return EvaluationVerdict.passed(1.0)

        tasks = [Task(name, "Write it.") for name in "abc"]
        run = await self.play(Reviewer(break_once), tasks=tasks, max_parallel_tasks=1)
        accepted = [outcome.task_id for outcome in run.result.outcomes if is_accepted(outcome)]
        wanted = [task.id for task in tasks if task.id != asked[0]]
        assert accepted == wanted, f"the review of {asked[0]!r} broke, and no other: {wanted} pass, not {accepted}"

    @clause("C15", needs="supports_review")
    async def test_c15_a_hanging_evaluator_is_cancelled_in_time(self) -> None:
        """A review ends after `review_timeout`, for real; that is a cause of its own."""
        for risk in RiskProfile:
            ended: list[float] = []
            began = anyio.current_time()
            reviewer = Reviewer(hanging(ended))
            run = await self.play(
                reviewer, tasks=TWO[:1], risk_profile=risk, review_timeout=5.0, budget=Budget(seconds=600.0)
            )
            _check_no_review(run, {Cause.EVALUATOR_TIMEOUT}, f"a hanging evaluator, {risk} risk")
            if risk is not LOW:
                run.check_refused(f"a hanging evaluator, {risk} risk")
            run.check_visible(f"a hanging evaluator, {risk} risk")
            took = ended[0] - began
            assert took <= 5.0 + self.late(1.0), f"review_timeout was 5 s, a review was cancelled after {took:g} s"

    @clause("C15", needs="supports_review")
    async def test_c15_no_word_of_an_evaluators_failure_reaches_a_member(self) -> None:
        """The failure is not a finding, a text, a reason for another attempt, or an artifact."""
        for risk in (LOW, MEDIUM):
            for name, reviewer in _crashing():
                run = await self.play(reviewer, risk_profile=risk)
                check_secret(run, f"an evaluator that {name}, {risk} risk")


def _check_unchanged(run: Reviewed, verdict: EvaluationVerdict, where: str) -> None:
    for outcome in run.outcomes:
        assert fixed_parts_of(outcome.verdict) == fixed_parts_of(verdict), (
            f"{where}: the verdict became {outcome.verdict!r}"
        )


def _check_no_review(run: Reviewed, causes: set[Cause], where: str) -> None:
    """Check that every review became REVIEW_EXCEEDED with one of the causes, in result and event."""
    verdicts = [outcome.verdict for outcome in run.outcomes]
    for verdict in [*verdicts, *(event.verdict for event in run.seen.of(EvaluationResult))]:
        assert verdict is not None, f"{where}: there is no verdict"
        assert verdict.outcome is Outcome.REVIEW_EXCEEDED, f"{where}: became {verdict!r}"
        assert verdict.cause in causes, f"{where}: the cause is {verdict.cause}"
        assert verdict.score is None, f"{where}: scored {verdict.score}"


def check_secret(run: Reviewed, where: str) -> None:
    """Check that no assignment and no artifact contains a word that a broken evaluator returned or raised."""
    for assignment in run.writer.asked:
        assert SECRET not in repr(assignment), f"{where}: its words are in an assignment: {assignment!r}"
        assert not assignment.findings, f"{where}: the member got the findings {assignment.findings!r}"
    for artifact in (run.result.artifact, *(outcome.artifact for outcome in run.result.outcomes)):
        assert SECRET not in repr(artifact), f"{where}: its words are an artifact"
