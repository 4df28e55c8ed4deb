"""Coordinators that use the review loop or tell the check of a run in a wrong way; the kit must reject each."""

from __future__ import annotations

from typing import Any, ClassVar

import kairo_team as kt
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.coordinators import Reviewers, ReviewRounds
from kairo_team.errors import PlanRefused
from kairo_team.tck import TeamCoordinatorTCK
from kairo_team.verdicts import EvaluationContext, EvaluationVerdict, VerdictOutcome
from tests.mutants.kit_mutant import registry_of
from tests.mutants.reviewing import Reviewing, ReviewingTCK


class Using:
    """A right coordinator: `Reviewers` finds who reviews, and `ReviewRounds` does the rest."""

    def __init__(self, evaluator: EvaluationStrategy | None = None) -> None:
        self.evaluator = evaluator

    def reviewers(self, team: kt.Team) -> Reviewers:
        return Reviewers(team, self.evaluator)

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        return self.plan(request)

    def preflight(self, request: kt.TeamExecutionRequest, team: kt.Team) -> list[str]:
        return self.reviewers(team).problems(self.preview(request, team), request.config)

    def judges(self, plan: kt.TaskGraph | None, team: kt.Team) -> tuple[Any, ...]:
        return self.reviewers(team).models(plan)

    def worst_case(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        return self.plan(request)

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        async with kt.TeamRun.open(request, team) as run:
            graph = await run.plan(self.plan(request))
            reviewers = self.reviewers(run.team)
            self.check(reviewers, run, graph)
            async for task in run.ready(graph):
                run.go(self.work, run, task, reviewers)
        return run.result

    async def work(self, run: kt.TeamRun, task: kt.Task, reviewers: Reviewers) -> None:
        await self.carry(ReviewRounds(run, task, self.of(reviewers, task)))

    def plan(self, request: kt.TeamExecutionRequest) -> kt.TaskGraph:
        return request.plan or kt.TaskGraph([kt.Task("task", request.goal)])

    def check(self, reviewers: Reviewers, run: kt.TeamRun, graph: kt.TaskGraph) -> None:
        reviewers.check(run, graph)

    def of(self, reviewers: Reviewers, task: kt.Task) -> EvaluationStrategy | None:
        return reviewers.of(task)

    async def carry(self, rounds: ReviewRounds) -> None:
        await rounds.finish()


class UsingTCK(TeamCoordinatorTCK):
    """The kit of `Using`."""

    kind: ClassVar[type[Using]] = Using

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return cls.kind(evaluator)


MUTANTS, mutant = registry_of(UsingTCK, ReviewingTCK)

# ---------------------------------------------------------------- before a run


@mutant(clause="C23")
class PreviewsAPlanOfItsOwn(Using):
    """The preview is one task, whatever plan the request has."""

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        return kt.TaskGraph([kt.Task("task", request.goal)])


@mutant(clause="C23")
class PlansToPreview(Reviewing):
    """The preview calls the planner, and the check of a run costs money."""

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph | None:
        if self.planner is not None:
            asking = self.planner.plan(request, team, None)
            asking.send(None)
            asking.close()
        return super().preview(request, team)


@mutant(clause="C24")
class ChecksNothing(Using):
    """The check finds nothing, and the run is refused for a review without its gate."""

    def preflight(self, request: kt.TeamExecutionRequest, team: kt.Team) -> list[str]:
        return []


@mutant(clause="C24")
class RefusesInTheCheckAlone(Using):
    """The check refuses a review without its gate, and the run begins all the same."""

    def check(self, reviewers: Reviewers, run: kt.TeamRun, graph: kt.TaskGraph) -> None:
        return


@mutant(clause="C24")
class RefusesForAnotherReason(Using):
    """The run has another reason than the check, so that mending what the check said is not enough."""

    def check(self, reviewers: Reviewers, run: kt.TeamRun, graph: kt.TaskGraph) -> None:
        try:
            reviewers.check(run, graph)
        except PlanRefused:
            raise PlanRefused(["the reviews are not in order"]) from None


@mutant(clause="C25")
class NamesNoJudge(Using):
    """Nothing is set aside for the reviews, although their judge costs money."""

    def judges(self, plan: kt.TaskGraph | None, team: kt.Team) -> tuple[Any, ...]:
        return ()


@mutant(clause="C25")
class KnowsJudgesOfPlansAlone(Using):
    """Without a plan there are no judges, and a planned run has no share for them."""

    def judges(self, plan: kt.TaskGraph | None, team: kt.Team) -> tuple[Any, ...]:
        return () if plan is None else super().judges(plan, team)


@mutant(clause="C26")
class HopesForTheBest(Using):
    """The worst case is the best one: one task."""

    def worst_case(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph:
        return kt.TaskGraph([kt.Task("task", request.goal)])


# ---------------------------------------------------------------- the review loop


@mutant(clause="C27")
class OneReviewerForAll(Using):
    """The coordinator's own evaluator reviews every task, also one that names another."""

    def of(self, reviewers: Reviewers, task: kt.Task) -> EvaluationStrategy | None:
        return self.evaluator


class _Both:
    """Two evaluators, one after the other."""

    def __init__(self, first: EvaluationStrategy, second: EvaluationStrategy) -> None:
        self.first, self.second = first, second

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        await self.first.evaluate(context)
        return await self.second.evaluate(context)


@mutant(clause="C27")
class ReviewsByBoth(Using):
    """A task that names an evaluator is reviewed by the coordinator's too."""

    def of(self, reviewers: Reviewers, task: kt.Task) -> EvaluationStrategy | None:
        own = reviewers.of(task)
        return _Both(self.evaluator, own) if self.evaluator and own and own is not self.evaluator else own


@mutant(clause="C14")
class AcceptsTheLastOne(Using):
    """After the rounds the last artifact is accepted, whatever its review said."""

    async def carry(self, rounds: ReviewRounds) -> None:
        attempt = await rounds.attempt()
        while attempt.error is None and rounds.is_reviewed(attempt):
            if (await rounds.review()).outcome is not VerdictOutcome.REVISE:
                break
            attempt = await rounds.attempt()
        if attempt.error is not None:
            rounds.run.fail(rounds.task, attempt.error)
        else:
            rounds.run.accept(rounds.task, attempt, rounds.verdict)


@mutant(clause="C16")
class ReviewsOnce(Using):
    """A REVISE goes to nobody: what the first review left open is settled at once."""

    async def carry(self, rounds: ReviewRounds) -> None:
        attempt = await rounds.attempt()
        if attempt.error is None and rounds.is_reviewed(attempt):
            await rounds.review()
        await rounds.settle()


@mutant(clause="C16")
class StartsAfresh(Using):
    """Each revision is a loop of its own, so that the member never gets the findings."""

    async def carry(self, rounds: ReviewRounds) -> None:
        number = 1
        attempt = await rounds.run.attempt(rounds.task, number)
        verdict = None
        while attempt.error is None and self.evaluator is not None:
            verdict = await rounds.run.review(rounds.task, attempt, self.evaluator)
            if verdict.outcome is not VerdictOutcome.REVISE or number > rounds.run.config.max_feedback_rounds:
                break
            number += 1
            attempt = await rounds.run.attempt(rounds.task, number)
        if attempt.error is not None:
            rounds.run.fail(rounds.task, attempt.error)
        elif verdict is None or verdict.outcome is VerdictOutcome.PASS:
            rounds.run.accept(rounds.task, attempt, verdict)
        else:
            rounds.run.fail(rounds.task, "not accepted", best=attempt, verdict=verdict)
