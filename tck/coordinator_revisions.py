"""The coordinator kit on revisions: who revises which artifact, how often, and which one comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kairo_team.artifacts import Finding
from kairo_team.events import AttemptStarted
from kairo_team.results import TeamStatus
from kairo_team.tasks import Task
from kairo_team.tck.coordinator_reviewing import (
    Reviewed,
    Reviewer,
    ReviewStage,
    Writer,
    count_tasks,
    fixed_parts_of,
    is_accepted,
)
from kairo_team.tck.coordinator_reviews import CRASHES, SECRET
from kairo_team.tck.kit import clause
from kairo_team.team import RiskProfile
from kairo_team.verdicts import Cause, EvaluationVerdict, VerdictOutcome

LOW, MEDIUM, HIGH = RiskProfile
ONE = (Task("text", "Write it."),)
PASS = EvaluationVerdict.passed(1.0)
SHORT = Finding("length", locus="the end", observed="one word", expected="two words", recheck="count the words")
REVISE = EvaluationVerdict.revise("too short", findings=[SHORT], score=0.5)


def wants(number: int, score: float | None = None) -> EvaluationVerdict:
    """Return a REVISE whose finding is specific to this number."""
    finding = Finding(f"defect-{number}", observed=f"defect {number}", expected="none")
    return EvaluationVerdict.revise(f"defect {number}", findings=[finding], score=score)


def _blocking(findings: Sequence[Finding]) -> list[Finding]:
    """Return what must be changed; a coordinator may add remarks, such as the feedback and suggestions of a verdict."""
    return [finding for finding in findings if finding.severity == "blocking"]


_BEST = {(0.3, 0.8, 0.5): 2, (0.6, 0.2, 0.1): 1, (0.4, 0.5, 0.9): 3, (0.2, 0.7, 0.7): 2}
"""Scores of three reviews, in order, and the number of the best artifact."""


class RevisionTests(ReviewStage):
    """The way from a REVISE to another attempt, and to the end."""

    # ------------------------------------------------------------------ one revision

    @clause("C16", needs="supports_revision")
    async def test_c16_the_next_attempt_has_the_findings_and_the_artifact(self) -> None:
        """The new artifact is reviewed in turn, and comes back."""
        run = await self.play(Reviewer(REVISE, PASS))
        assert run.result.status is TeamStatus.COMPLETED, run.result.error
        for outcome in run.outcomes:
            name = outcome.task_id
            first, second = _two(run, name)
            assert (tuple(first.findings), first.previous) == ((), None), f"the first attempt at {name!r} got {first!r}"
            assert _blocking(second.findings) == [SHORT], f"the revision of {name!r} got {second.findings!r}"
            reviewed = run.reviewer.of(name)[0].artifact
            assert second.previous == reviewed, f"it is to revise {second.previous!r}, {reviewed!r} was reviewed"
            assert _text(run, name) == f"version 2 of {name}", f"{_text(run, name)!r} came back"

    @clause("C16", needs="supports_revision")
    async def test_c16_every_attempt_has_the_findings_and_the_artifact_of_the_review_before_it(self) -> None:
        """In the third round as in the first."""
        script = [wants(1), wants(2), wants(3), PASS]
        run = await self.play(Reviewer(*script))
        for outcome in run.outcomes:
            asked, reviewed = run.writer.of(outcome.task_id), run.reviewer.of(outcome.task_id)
            for number, assignment in enumerate(asked[1:]):
                due, got = _blocking(script[number].findings), _blocking(assignment.findings)
                assert got == due, f"attempt {number + 2} must get the findings {due}, and got {got}"
                last = reviewed[number].artifact
                assert assignment.previous == last, (
                    f"attempt {number + 2} is to revise {last}, got {assignment.previous}"
                )

    @clause("C16", needs="supports_revision")
    async def test_c16_a_review_has_the_verdicts_before_it_oldest_first(self) -> None:
        """Every review of a task gets the artifact's number and the earlier verdicts; none of them changes later."""
        script = [wants(1), wants(2), wants(3), PASS]
        run = await self.play(Reviewer(*script))
        for outcome in run.outcomes:
            asked = run.reviewer.of(outcome.task_id)
            assert [one.attempt for one in asked] == [1, 2, 3, 4], f"they had numbers {[one.attempt for one in asked]}"
            for number, context in enumerate(asked):
                given = [fixed_parts_of(verdict) for verdict in context.prior_verdicts]
                scripted = [fixed_parts_of(verdict) for verdict in script[:number]]
                assert given == scripted, f"review {number + 1} got the verdicts {given}, not {scripted}"
                feedback = [verdict.feedback for verdict in context.prior_verdicts]
                assert feedback == [verdict.feedback for verdict in script[:number]], f"not oldest first: {feedback}"
        at_the_time = [len(prior) for prior in run.reviewer.prior]
        now = [len(context.prior_verdicts) for context in run.reviewer.asked]
        assert at_the_time == now, f"the verdicts before a review were {at_the_time}, afterwards {now}"

    @clause("C16", needs="supports_revision")
    async def test_c16_attempts_are_counted_by_reviewed_artifacts(self) -> None:
        """`Assignment.attempt` is the number of the artifact; a failed try uses up neither a number nor a round."""
        broken: list[str] = []

        def write(assignment: Any, number: int) -> str:
            if number == 2:
                broken.append(assignment.task.id)
                raise OSError("the archive is busy")
            return f"version {number}"

        run = await self.play(Reviewer(REVISE, wants(2), PASS), Writer(write), max_feedback_rounds=2)
        assert broken, "a REVISE led to no other attempt"
        for name in dict.fromkeys(broken):
            asked = run.writer.of(name)
            assert asked[0].attempt == 1, f"the first artifact was asked for as number {asked[0].attempt}"
            tried = [one.attempt for one in asked[1:3]]
            assert tried == [2] * len(tried), f"the second artifact was asked for as numbers {tried}"
            again = [(tuple(one.findings), one.previous) for one in asked[1:3]]
            assert len(dict.fromkeys(map(repr, again))) == 1, f"tries at one artifact differ: {again}"
            if len(asked) > 2:  # a coordinator that does not retry ends here
                assert is_accepted(run.result[name]), "a try that broke spent a round"

    @clause("C16", needs="supports_revision")
    async def test_c16_whoever_wrote_it_revises_it(self) -> None:
        """All attempts at a task are the same member's."""
        run = await self.play(Reviewer(wants(1), wants(2), PASS))
        for outcome in run.outcomes:
            members = [event.member for event in run.seen.of(AttemptStarted, outcome.task_id)]
            assert len(members) == 3, f"{len(members)} attempts were made at {outcome.task_id!r}, not 3"
            assert len(set(members)) == 1, f"{outcome.task_id!r} went from hand to hand: {members}"

    # ------------------------------------------------------------------ how often

    @clause("C16", needs="supports_revision")
    async def test_c16_only_so_many_revisions(self) -> None:
        """`max_feedback_rounds` counts revisions after the first artifact; 0 allows none. Then it is not accepted."""
        for risk in (MEDIUM, HIGH):
            for rounds in range(5):
                reviewer = Reviewer(*(wants(number, number / 10) for number in range(8)))
                run = await self.play(reviewer, tasks=ONE, max_feedback_rounds=rounds, risk_profile=risk)
                where = f"{rounds} rounds under {risk}"
                for outcome in run.outcomes:
                    attempts = len(run.writer.of(outcome.task_id))
                    assert attempts == rounds + 1, f"{where}: {attempts} attempts at {outcome.task_id!r}"
                run.check_refused(where)
                _check_used_up(run, Cause.ROUNDS_EXHAUSTED, where)

    @clause("C16", needs="supports_revision")
    async def test_c16_reviews_that_find_the_same_wanting_end(self) -> None:
        """Three reviews in a row without a better score end it; a better score counts as progress."""
        for scores, reviews, cause in (
            ((0.5,) * 9, 3, Cause.NO_PROGRESS),
            ((0.9, 0.8, 0.7, 0.6), 3, Cause.NO_PROGRESS),
            ((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), 6, Cause.ROUNDS_EXHAUSTED),
        ):
            script = [EvaluationVerdict.revise("too short", findings=[SHORT], score=score) for score in scores]
            run = await self.play(Reviewer(*script), tasks=ONE, max_feedback_rounds=5)
            for name, asked in count_tasks(run.reviewer.asked).items():
                assert asked == reviews, f"scores {scores}: {name!r} was reviewed {asked} times, not {reviews}"
            run.check_refused(f"scores {scores}")
            _check_used_up(run, cause, f"scores {scores}")

    # ------------------------------------------------------------------ the same again

    @clause("C16", needs="supports_revision")
    async def test_c16_an_unchanged_artifact_is_not_judged_again(self) -> None:
        """The earlier verdict stays, and the round is spent: asking until it passes would not be a review."""
        run = await self.play(Reviewer(REVISE, PASS), Writer(lambda assignment, _: assignment.task.id))
        for name, asked in count_tasks(run.reviewer.asked).items():
            assert asked == 1, f"one artifact of {name!r} was reviewed {asked} times"
        for name, tries in count_tasks(run.writer.asked).items():
            assert tries <= 4, f"{tries} attempts at {name!r}, with 3 rounds"
        run.check_refused("an unchanged artifact")

    @clause("C16", needs="supports_revision")
    async def test_c16_an_earlier_artifact_again_is_a_cycle(self) -> None:
        """A version that was refused before is not judged again, and ends the review."""
        run = await self.play(Reviewer(wants(1), wants(2), PASS), Writer(lambda _, number: "ABABAB"[number - 1]))
        for name, asked in count_tasks(run.reviewer.asked).items():
            assert asked == 2, f"two artifacts of {name!r} were reviewed {asked} times"
        run.check_refused("a cycle")
        _check_used_up(run, Cause.CYCLE, "A, B, A")

    # ------------------------------------------------------------------ the end

    @clause("C16", needs="supports_revision")
    async def test_c16_the_best_artifact_comes_back_and_not_the_last(self) -> None:
        """Whether it is accepted or not; of equals the earlier."""
        for risk in RiskProfile:
            for scores, best in _BEST.items():
                reviewer = Reviewer(*(wants(number, score) for number, score in enumerate(scores)))
                run = await self.play(reviewer, tasks=ONE, max_feedback_rounds=2, risk_profile=risk)
                for outcome in run.outcomes:
                    text, wanted = _text(run, outcome.task_id), f"version {best} of {outcome.task_id}"
                    assert text == wanted, f"scores {scores} under {risk}: {text!r} came back, not {wanted!r}"
                run.check_visible(f"scores {scores} under {risk}")

    @clause("C15", needs="supports_revision")
    async def test_c15_an_evaluator_that_breaks_later_spends_no_round(self) -> None:
        """If the review breaks after one REVISE, there is no third attempt, and no member gets the error."""
        for name, answer in CRASHES.items():
            run = await self.play(Reviewer(REVISE, answer), tasks=ONE)
            where = f"an evaluator that {name} after a REVISE"
            run.check_refused(where)
            for task_id, attempts in count_tasks(run.writer.asked).items():
                assert attempts == 2, f"{where}: {attempts} attempts at {task_id!r}, not 2"
            for assignment in run.writer.asked:
                assert SECRET not in repr(assignment), f"{where}: its words are in an assignment"
            for outcome in run.outcomes:
                assert fixed_parts_of(outcome.verdict)[:1] != ("pass",), f"{where}: it became a PASS"
                assert SECRET not in repr(outcome.artifact), f"{where}: its words are an artifact"

    @clause("C14", needs="supports_revision")
    async def test_c14_what_is_used_up_is_not_accepted_above_low_risk(self) -> None:
        """Without a person to ask an artifact does not become acceptable."""
        for risk in RiskProfile:
            run = await self.play(Reviewer(REVISE), risk_profile=risk, max_feedback_rounds=1)
            if risk is not LOW:
                run.check_refused(f"used up under {risk}")
            run.check_visible(f"used up under {risk}")
            run.check_handed_on(f"used up under {risk}")


def _two(run: Reviewed, name: str) -> list[Any]:
    asked = run.writer.of(name)
    assert len(asked) == 2, f"{len(asked)} attempts were made at {name!r}, not 2: one REVISE, then a PASS"
    return list(asked)


def _text(run: Reviewed, name: str) -> str | None:
    artifact = run.result[name].artifact
    return None if artifact is None else artifact.text


def _check_used_up(run: Reviewed, cause: Cause, where: str) -> None:
    """Check that the review of a refused artifact is REVIEW_EXCEEDED with that cause."""
    for outcome in run.outcomes:
        verdict = outcome.verdict
        assert verdict is not None, f"{where}: there is no verdict"
        found = (verdict.outcome, verdict.cause)
        assert found == (VerdictOutcome.REVIEW_EXCEEDED, cause), f"{where}: the verdict is {verdict!r}"
