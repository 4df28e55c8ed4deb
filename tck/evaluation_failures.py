"""Contract tests of evaluators: the effect of their own failures, alone and in a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

import anyio

from kairo_team.artifacts import Artifact
from kairo_team.contracts import EvaluationStrategy, MemberContext
from kairo_team.coordinators.expert_team import ExpertTeamCoordinator
from kairo_team.engine.work.runtime import Runtime
from kairo_team.gates import CallbackGate
from kairo_team.human import HumanRequest
from kairo_team.results import TeamResult
from kairo_team.tasks import Assignment, TaskGraph, TaskStatus
from kairo_team.tck.calls import skip_unless
from kairo_team.tck.evaluation_stage import GOAL, Asked, EvaluationStage, refusing
from kairo_team.tck.evaluation_verdicts import ESCALATE, EXCEEDED, PASS, REVISE, check_verdict, given_to_member
from kairo_team.tck.kit import clause
from kairo_team.team import Member, Team, TeamConfig, TeamExecutionRequest
from kairo_team.verdicts import NOT_APPLICABLE, Cause, EvaluationVerdict

SECRET: Final = "key-5177-of-the-archive"
"""A text in every error that the kit makes."""
_ERRORS: Final = (LookupError, RuntimeError, OSError, ValueError, ZeroDivisionError)
_REVIEW_TIMEOUT: Final = {True: 30.0, False: 2.0}
"""Seconds; by whether time is virtual."""
_GRACE: Final = 1.0
_AT_ONCE: Final = 0.5
"""Seconds that clean-up may take."""
_SURELY_WAITING: Final = 0.25


class FailureTests(EvaluationStage):
    """C7 and C8."""

    @clause("C7")
    async def test_c07_its_failure_decides_nothing(self) -> None:
        """A good artifact whose review breaks with any error, in the first round and in the third."""
        again = [EvaluationVerdict.revise("Not yet.")] * 2
        for error, artifact, prior in product(_ERRORS, self.good(), ((), again)):
            asked = await self.ask(self._crashing(error), artifact, prior)
            check_undecided(asked)
            if asked.error is None and asked.verdict.outcome is EXCEEDED:
                cause = asked.verdict.cause
                assert cause is Cause.EVALUATOR_ERROR, f"a crash is evaluator_error, not {cause}"

    @clause("C7")
    async def test_c07_its_failure_passes_nothing_bad_and_is_told_nobody(self) -> None:
        """Even if another part of the evaluator found the defect."""
        for artifact in self.bad():
            asked = await self.ask(self._crashing(LookupError), artifact)
            if asked.error is None:
                check_verdict(asked.verdict)
                assert asked.verdict.outcome is not PASS, f"its review broke, and {artifact.text!r:.80} passed"
                assert SECRET not in given_to_member(asked.verdict), (
                    f"a member would be given its failure: {given_to_member(asked.verdict)!r:.300}"
                )

    @clause("C7")
    async def test_c07_a_failure_counts_as_one_however_often_it_comes(self) -> None:
        """No fallback passes after some."""
        strategy = self._crashing(LookupError)
        for _ in range(6):
            check_undecided(await self.ask(strategy, self.good()[0]))

    @clause("C7")
    async def test_c07_in_a_run_its_failure_reaches_no_member(self) -> None:
        """And the artifact is not accepted."""
        played = await play(self._crashing(LookupError), self)
        check_not_accepted(played)
        given = [repr((one.findings, one.directives)) for one in played.assignments]
        assert SECRET not in "".join(given), f"a member was given the failure: {given}"

    @clause("C7", needs="cannot_crash")
    async def test_c07_what_cannot_crash_never_does(self) -> None:
        """Good, bad, cut off, without text or with odd data: code decides every criterion that is not a person's."""
        assert not self.asks_a_judge, "cannot_crash is True, and asks_a_judge too: a judge can always fail"
        odd = [Artifact("\x00\U0010ffff"), Artifact("{}", {"a": [None]}), Artifact("x" * 10_000), Artifact("")]
        cut = [replace(one, partial=True) for one in self.good()]
        for artifact in (*self.good(), *self.bad(), *cut, *odd):
            asked = await self.ask(self.make_strategy(), artifact)
            about = f"cannot_crash is True, and the review of {artifact.text!r:.60}"
            assert asked.error is None, f"{about} raised {asked.error!r:.200}"
            broken = [one for one in asked.verdict.criteria if one.passed is None and one.by == "check"]
            undecided = [one for one in broken if one.level != NOT_APPLICABLE]
            assert not undecided, (
                f"{about} left {[one.id for one in undecided]} undecided: {undecided[0].reason or 'no reason':.200}; "
                "say cannot_crash = False, and override make_crashing_strategy"
            )
            gave_up = {Cause.EVALUATOR_ERROR, Cause.EVALUATOR_TIMEOUT}.intersection((asked.verdict.cause,))
            assert not gave_up, f"{about} ended by {asked.verdict.cause}: {asked.verdict.feedback:.200}"

    @clause("C8")
    async def test_c08_cancellation_passes_through(self) -> None:
        """At once, and without a verdict."""
        for artifact in self.good()[:2]:
            started = anyio.current_time()
            asked = await self.ask(self._hanging(), artifact, cancelled_after=_SURELY_WAITING)
            took = anyio.current_time() - started
            assert took < _SURELY_WAITING + _AT_ONCE, f"cancelled, it kept running for {took:g} seconds"
            ended = repr(asked.error or asked.returned)
            assert asked.cancelled, f"cancelled, it ended with {ended:.200}: cancellation must pass through"

    @clause("C8")
    async def test_c08_in_a_run_it_holds_nobody_up(self) -> None:
        """A hanging review ends when the run cancels it, or earlier by itself, and does not count as a review."""
        started = anyio.current_time()
        played = await play(self._hanging(), self)
        took = anyio.current_time() - started
        most = _REVIEW_TIMEOUT[self.virtual_time]
        assert took <= most + 2 * _GRACE, f"the run took {took:g} seconds; its reviews may take {most:g}"
        check_not_accepted(played)
        if played.verdict.outcome is EXCEEDED:
            cause = played.verdict.cause
            gave_up = cause is Cause.EVALUATOR_ERROR and took < most
            assert gave_up or cause is Cause.EVALUATOR_TIMEOUT, f"a review that hangs is no {cause}"

    def _crashing(self, error: type[Exception]) -> EvaluationStrategy:
        skip_unless(not self.cannot_crash, "cannot_crash is True")
        return self.make_crashing_strategy(error(SECRET))

    def _hanging(self) -> EvaluationStrategy:
        skip_unless(self.asks_a_judge or self.can_hang, "can_hang is False")
        return self.make_hanging_strategy()


def check_undecided(asked: Asked) -> None:
    """Raise `AssertionError` unless a review of a good artifact broke, and only the run gets the error."""
    if asked.error is not None:
        return
    verdict = asked.verdict
    check_verdict(verdict)
    shown = f"{verdict.outcome.name} with a score of {verdict.score}"
    assert verdict.outcome is not PASS, f"its review broke, and {asked.artifact.text!r:.80} passed"
    assert verdict.outcome is not REVISE, f"its review broke, and the artifact is blamed: {verdict.feedback!r:.200}"
    assert verdict.score is None, f"its review broke, and it returns {shown}"
    assert SECRET not in given_to_member(verdict), (
        f"a member would be given its failure: {given_to_member(verdict)!r:.300}"
    )


@dataclass(frozen=True, slots=True)
class Played:
    """The end of one task of a run."""

    result: TeamResult
    assignments: list[Assignment]

    @property
    def verdict(self) -> EvaluationVerdict:
        """The run's verdict of the last review."""
        verdict = self.result.outcomes[0].verdict
        assert verdict is not None, f"nothing was reviewed: {self.result!r:.300}"
        return verdict


def check_not_accepted(played: Played) -> None:
    """Raise `AssertionError` if an artifact was accepted or scored without a review."""
    verdict = played.verdict
    assert verdict.outcome in {EXCEEDED, ESCALATE}, f"nothing was decided, and the verdict is {verdict!r:.300}"
    assert verdict.score is None, f"nothing was decided, and the score is {verdict.score}"
    status = played.result.outcomes[0].status
    assert status is not TaskStatus.COMPLETED, "nothing was decided, and the artifact is accepted"


async def play(strategy: EvaluationStrategy, kit: EvaluationStage) -> Played:
    """Run a team whose member makes the first good artifact, reviewed by this strategy."""
    assignments: list[Assignment] = []

    async def write(assignment: Assignment, _: MemberContext) -> Any:
        assignments.append(assignment)
        return kit.good()[0]

    team = Team("kit", [Member("writer", write)], runtime=Runtime(models={"*": refusing()}))
    settings = TeamConfig(review_timeout=_REVIEW_TIMEOUT[kit.virtual_time], cancel_grace=_GRACE)
    request = TeamExecutionRequest(GOAL, plan=TaskGraph([kit.task]), config=settings)
    result = await ExpertTeamCoordinator(evaluator=strategy, gate=CallbackGate(_silence)).execute(request, team)
    return Played(result, assignments)


async def _silence(_: HumanRequest) -> None:
    """Answer nothing."""
