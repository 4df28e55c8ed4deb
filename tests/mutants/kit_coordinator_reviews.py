"""Coordinators that are wrong in one decision about reviews and revisions; the kit must reject each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.artifacts import Finding
from kairo_team.results import Attempt
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict
from tests.mutants.honest import change_config
from tests.mutants.kit_mutant import registry_of
from tests.mutants.reviewing import Around, Reviewing, ReviewingTCK, Work

MUTANTS, mutant = registry_of(ReviewingTCK)


# ---------------------------------------------------------------- acceptance


@mutant("T07", clause="C14")
class AcceptanceLooksLikeAPass(Reviewing):
    """What LOW risk accepts is shown as passed."""

    def shown(self, verdict: EvaluationVerdict) -> EvaluationVerdict:
        return EvaluationVerdict.passed(feedback=verdict.feedback)


@mutant("T08", clause="C14")
class NobodyToAskIsAccepted(Reviewing):
    """What nobody can be asked about is accepted, also under HIGH risk."""

    def is_accepted(self, run: kt.TeamRun, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> bool:
        return not run.gated or super().is_accepted(run, verdict, decision)


@mutant(clause="C14")
class LowRiskAcceptsEverything(Reviewing):
    """LOW risk accepts what a person was required for."""

    def is_accepted(self, run: kt.TeamRun, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> bool:
        low = run.config.risk_profile is kt.RiskProfile.LOW and decision is None
        return low or super().is_accepted(run, verdict, decision)


@mutant(clause="C14")
class ReviewsSeeNoUpstream(Reviewing):
    """Reviews are not shown what an artifact was made from."""

    def reviewer(self, work: Work) -> Any:
        class Blind(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                return await self.real.evaluate(replace(context, upstream={}))

        return Blind(self.evaluator)


@mutant(clause="C14")
class ReviewsSeeNoUsage(Reviewing):
    """Reviews are not shown what a task has used."""

    def reviewer(self, work: Work) -> Any:
        class Blind(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                return await self.real.evaluate(replace(context, usage=None))

        return Blind(self.evaluator)


# ---------------------------------------------------------------- an evaluator's failure


@mutant("E01", clause="C15")
class CrashIsAPass(Reviewing):
    """An evaluator that raises has passed the artifact."""

    def reviewer(self, work: Work) -> Any:
        return Around(self.evaluator, lambda _: EvaluationVerdict.passed(0.5))


@mutant("E01", clause="C15")
class CrashScoresZero(Reviewing):
    """An evaluator that raises has given the lowest score."""

    def reviewer(self, work: Work) -> Any:
        return Around(self.evaluator, lambda _: EvaluationVerdict.revise("nothing was found good", score=0.0))


@mutant("E02", clause="C15")
class OutageIsFeedback(Reviewing):
    """What a broken evaluator says goes to the member, who is to mend it."""

    async def review(self, work: Work, attempt: Attempt) -> EvaluationVerdict:
        verdict = await super().review(work, attempt)
        broken = verdict.cause is Cause.EVALUATOR_ERROR and len(work.reviewed) <= work.rounds
        return EvaluationVerdict.revise(verdict.feedback) if broken else verdict


@mutant("E02", clause="C15")
class OutageSpendsRounds(Reviewing):
    """After a broken review the member has to try again, although nothing is known against its artifact."""

    async def settle(self, work: Work, verdict: EvaluationVerdict) -> None:
        if verdict.cause is Cause.EVALUATOR_ERROR and len(work.reviewed) <= work.rounds:
            verdict = await self.review(work, await self.revise(work, work.last, ()))
        await super().settle(work, verdict)


@mutant("E04", clause="C15")
class SlownessIsAnError(Reviewing):
    """A review that took too long has the code of one that broke."""

    async def review(self, work: Work, attempt: Attempt) -> EvaluationVerdict:
        verdict = await super().review(work, attempt)
        slow = verdict.cause is Cause.EVALUATOR_TIMEOUT
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, verdict.feedback) if slow else verdict


@mutant("E05", clause="C15")
class AbsenceIsAPass(Reviewing):
    """An evaluator that returns nothing has nothing against it."""

    def reviewer(self, work: Work) -> Any:
        class Kind(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                verdict = await super().evaluate(context)
                return EvaluationVerdict.passed() if verdict is None else verdict

        return Kind(self.evaluator)


@mutant("E05", clause="C15")
class PassBySubstring(Reviewing):
    """A text with "pass" in it passes."""

    def reviewer(self, work: Work) -> Any:
        class Reading(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                verdict = await super().evaluate(context)
                return EvaluationVerdict.passed() if "pass" in str(verdict).lower() else verdict

        return Reading(self.evaluator)


@mutant("E08", clause="C15")
class LooksLikeAVerdict(Reviewing):
    """Whatever has an outcome is taken for a verdict, whatever its score."""

    def reviewer(self, work: Work) -> Any:
        class Trusting(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                found = await super().evaluate(context)
                return EvaluationVerdict(found.outcome) if hasattr(found, "outcome") and not found.findings else found

        return Trusting(self.evaluator)


@mutant("E20", clause="C15")
class HangingJudge(Reviewing):
    """Nobody looks how long a review takes."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        return await super().execute(change_config(request, review_timeout=None), team)


@mutant("T13", clause="C8")
class OneReviewAtATime(Reviewing):
    """Every review waits for those of all other tasks."""

    def reviewer(self, work: Work) -> Any:
        lock = self.__dict__.setdefault("lock", anyio.Lock())

        class Queued(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                async with lock:
                    return await self.real.evaluate(context)

        return Queued(self.evaluator)


@mutant(clause="C9")
class SlotsEndWithTheAttempt(Reviewing):
    """A task gives its slot back before it is reviewed."""

    async def review(self, work: Work, attempt: Attempt) -> EvaluationVerdict:
        await work.run.pause(work.task, 0.5)
        return await super().review(work, attempt)


# ---------------------------------------------------------------- revisions


@mutant("T09", clause="C16")
class OneRoundIsNone(Reviewing):
    """The first artifact counts as a revision."""

    def used_up(self, work: Work) -> Cause | None:
        return Cause.ROUNDS_EXHAUSTED if len(work.reviewed) >= work.rounds else super().used_up(work)


@mutant("T26", clause="C16")
class LastComesBack(Reviewing):
    """The last artifact comes back although an earlier one was better."""

    def best(self, work: Work) -> Attempt:
        return work.last


@mutant("E15", clause="C16")
class NeverEnds(Reviewing):
    """Reviews go on until the rounds are spent, progress or not."""

    def used_up(self, work: Work) -> Cause | None:
        return Cause.ROUNDS_EXHAUSTED if len(work.reviewed) > work.rounds else None


@mutant("E15", clause="C16")
class GoesInCircles(Reviewing):
    """Of earlier artifacts only the last one is known again."""

    def standing(self, work: Work, attempt: Attempt) -> EvaluationVerdict | None:
        recent = replace(work, reviewed=work.reviewed[-1:])
        return super().standing(recent, attempt)


@mutant("E16", clause="C16")
class AsksUntilItPasses(Reviewing):
    """An unchanged artifact is judged again."""

    def standing(self, work: Work, attempt: Attempt) -> EvaluationVerdict | None:
        return None


@mutant("E04", clause="C16")
class ExhaustionIsAnError(Reviewing):
    """Rounds that are spent have the code of an evaluator that broke."""

    def used_up(self, work: Work) -> Cause | None:
        return Cause.EVALUATOR_ERROR if super().used_up(work) is Cause.ROUNDS_EXHAUSTED else super().used_up(work)


@mutant(clause="C16")
class FindingsAreLost(Reviewing):
    """A revision starts without knowing what is to be revised."""

    async def revise(self, work: Work, previous: Attempt, findings: Sequence[Finding]) -> Attempt:
        return await super().revise(work, previous, ())


@mutant(clause="C16")
class StartsFromNothing(Reviewing):
    """A revision does not get the artifact that is to be revised."""

    async def revise(self, work: Work, previous: Attempt, findings: Sequence[Finding]) -> Attempt:
        return await super().revise(work, previous._replace(output=None), findings)


@mutant(clause="C16")
class SomebodyElseRevises(Reviewing):
    """Each revision goes to another member."""

    async def revise(self, work: Work, previous: Attempt, findings: Sequence[Finding]) -> Attempt:
        for other in work.run.others(work.task)[:1]:
            await work.run.hand_over(work.task, other)
        return await super().revise(work, previous, findings)


@mutant(clause="C16")
class NewestFirst(Reviewing):
    """A review gets the verdicts before it in the wrong order."""

    def reviewer(self, work: Work) -> Any:
        class Backwards(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                return await self.real.evaluate(replace(context, prior_verdicts=context.prior_verdicts[::-1]))

        return Backwards(self.evaluator)


@mutant("T16", clause="C16")
class RemembersReviews(Reviewing):
    """What reviews said is kept by the coordinator, for all tasks."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.said: list[EvaluationVerdict] = []

    def reviewer(self, work: Work) -> Any:
        said = self.said

        class Shared(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                verdict = await self.real.evaluate(replace(context, prior_verdicts=said))
                said.append(verdict)
                return verdict

        return Shared(self.evaluator)


@mutant("T24", clause="C16")
class LosesTheArtifactInTheThirdRound(Reviewing):
    """From the third attempt on nobody is handed what is to be revised."""

    async def revise(self, work: Work, previous: Attempt, findings: Sequence[Finding]) -> Attempt:
        number = len(work.reviewed) + 1
        known = previous.artifact if number < 3 else None
        return await work.run.attempt(work.task, number, artifact_number=number, previous=known, findings=findings)


@mutant("T24", clause="C16")
class RepeatsTheFirstFindings(Reviewing):
    """Every revision is told what the first review found."""

    async def revise(self, work: Work, previous: Attempt, findings: Sequence[Finding]) -> Attempt:
        return await super().revise(work, previous, work.prior[0].findings or findings)


@mutant("E10", clause="C14")
class JudgesATextOnce(Reviewing):
    """The verdict on a text is that on the same text of another task."""

    async def review(self, work: Work, attempt: Attempt) -> EvaluationVerdict:
        known: dict[Any, EvaluationVerdict] = self.__dict__.setdefault("known", {})
        key = (work.run.request.run_id, attempt.artifact)
        if key in known and not work.reviewed:
            work.reviewed.append((attempt, known[key]))
            return known[key]
        known[key] = await super().review(work, attempt)
        return known[key]


@mutant("E04", clause="C15")
class GivesUpOnItsEvaluator(Reviewing):
    """An evaluator that broke once is not asked about any other task."""

    broken: EvaluationVerdict | None = None

    async def review(self, work: Work, attempt: Attempt) -> EvaluationVerdict:
        if self.broken is not None:
            work.reviewed.append((attempt, self.broken))
            return self.broken
        verdict = await super().review(work, attempt)
        self.broken = verdict if verdict.cause is Cause.EVALUATOR_ERROR else None
        return verdict
