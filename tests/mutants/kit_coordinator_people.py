"""Coordinators that are wrong in one decision about plans, money or people; the kit must reject each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio

import kairo_team as kt
from kairo_team.errors import HaltError, Interrupted, PlanRefused
from kairo_team.results import Attempt
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict
from tests.mutants.honest import Context
from tests.mutants.kit_mutant import registry_of
from tests.mutants.reviewing import Around, Reviewing, ReviewingTCK, Work

MUTANTS, mutant = registry_of(ReviewingTCK)

# ---------------------------------------------------------------- planning


@mutant("T11", clause="C18")
class AnotherPlanUnasked(Reviewing):
    """A planner's failure is silently replaced by another plan."""

    async def ask_planner(self, run: kt.TeamRun) -> kt.TaskGraph:
        try:
            return await super().ask_planner(run)
        except HaltError:
            raise
        except Exception:  # noqa: BLE001 - that is what is wrong with it
            return self.one_task(run.request)


@mutant("T11", clause="C18")
class SilentFallback(Reviewing):
    """One task takes the place of the plan, and nobody is told."""

    def fall_back(self, run: kt.TeamRun, error: Exception) -> kt.TaskGraph:
        return self.one_task(run.request)


@mutant("T25", clause="C18")
class TakesAnyPlan(Reviewing):
    """Where a plan names a role that nobody has, whoever is free does it."""

    async def ask_planner(self, run: kt.TeamRun) -> kt.TaskGraph:
        graph: Any = await super().ask_planner(run)
        return kt.TaskGraph([replace(task, role=None) for task in graph.tasks]) if hasattr(graph, "tasks") else graph


@mutant("T25", clause="C18")
class FallsBackOnlyForErrors(Reviewing):
    """A plan that cannot be run is no planner's failure: with a fallback the run fails too."""

    def fall_back(self, run: kt.TeamRun, error: Exception) -> kt.TaskGraph:
        if isinstance(error, PlanRefused):
            raise error
        return super().fall_back(run, error)


@mutant("T03", clause="C10")
class SlowPlanningIsAFailure(Reviewing):
    """A planner that is not done by the deadline has failed."""

    async def ask_planner(self, run: kt.TeamRun) -> kt.TaskGraph:
        timeout = run.config.budget.seconds
        with anyio.fail_after(None if timeout is None else timeout - 1):
            return await super().ask_planner(run)


@mutant("T03", clause="C10")
class PlansBeforeTheClock(Reviewing):
    """Planning is not part of the run, and takes as long as it takes."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        if request.plan is None and self.planner is not None:
            request = replace(request, plan=await self.planner.plan(request, team, None))
        return await super().execute(request, team)


# ---------------------------------------------------------------- money


class FreeModels(Context):
    """A context whose models are not governed."""

    def model(self, model: Any) -> Any:
        """Return the model as it is."""
        return model


@mutant("B13", clause="C12")
class PlanningIsFree(Reviewing):
    """What a planner's model costs is not counted."""

    def planning_context(self, run: kt.TeamRun) -> Any:
        return FreeModels(run.context("plan"))


@mutant("B13", clause="C12")
class JudgesAreFree(Reviewing):
    """What judges cost is not counted."""

    def reviewer(self, work: Work) -> Any:
        class Free(Around):
            async def evaluate(self, context: EvaluationContext) -> Any:
                free: Any = FreeModels(context.context)
                return await self.real.evaluate(replace(context, context=free))

        return Free(self.evaluator)


@mutant("E04", clause="C12")
class NoMoneyIsAnError(Reviewing):
    """A judge that has no money left has the code of one that broke."""

    async def review(self, work: Work, attempt: Attempt) -> EvaluationVerdict:
        verdict = await super().review(work, attempt)
        if verdict.cause is not Cause.JUDGE_BUDGET:
            return verdict
        return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, verdict.feedback)


# ---------------------------------------------------------------- people


@mutant("T08", clause="C19")
class SilenceApproves(Reviewing):
    """Who is asked and says nothing has approved."""

    def is_accepted(self, run: kt.TeamRun, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> bool:
        return (run.gated and decision is None) or super().is_accepted(run, verdict, decision)


@mutant(clause="C19")
class RiskOverrulesARejection(Reviewing):
    """Under LOW risk a person's rejection changes nothing."""

    def is_accepted(self, run: kt.TeamRun, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> bool:
        return super().is_accepted(run, verdict, decision) or super().is_accepted(run, verdict, None)


@mutant(clause="C19")
class WishesAreRejections(Reviewing):
    """A person who wants changes has rejected it."""

    async def ask(self, work: Work, chosen: Attempt, verdict: EvaluationVerdict) -> kt.HumanDecision | None:
        decision = await super().ask(work, chosen, verdict)
        wanted = decision is not None and decision.action == "revise"
        return kt.HumanDecision.reject() if wanted else decision


@mutant(clause="C19")
class ApprovalIsNeverAPass(Reviewing):
    """What only a person was to decide stays open although they approved it."""

    def after(self, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> EvaluationVerdict:
        return verdict


@mutant("T07", clause="C19")
class ApprovalIsAlwaysAPass(Reviewing):
    """Whatever a review left open, a person's approval makes it a PASS."""

    def after(self, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> EvaluationVerdict:
        return verdict if decision is None else EvaluationVerdict.passed()


@mutant(clause="C19")
class TwiceIsEnough(Reviewing):
    """A person has one revision, however many are allowed."""

    def may_go_on(self, work: Work) -> bool:
        return work.sent_back < 1


@mutant(clause="C19")
class SendsBackForEver(Reviewing):
    """A person may send it back once more than is allowed."""

    def may_go_on(self, work: Work) -> bool:
        return work.sent_back <= work.run.config.max_human_rounds


class _Hasty:
    """A gate around the real one; who puts a question off has approved."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    async def decide(self, question: kt.HumanRequest) -> kt.HumanDecision | None:
        decision: kt.HumanDecision | None = await self.gate.decide(question)
        return kt.HumanDecision.approve() if decision == kt.HumanDecision.defer() else decision


@mutant("T28", clause="C19")
class PutOffIsDone(Reviewing):
    """A question that is put off is taken for answered: the run ends as if it were complete."""

    async def execute(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TeamResult:
        team.runtime.gate = _Hasty(team.runtime.gate)
        return await super().execute(request, team)


@mutant("G13", clause="C19")
class PauseParksEverything(Reviewing):
    """While one task waits for a person, nothing else is begun."""

    parked = False

    async def ask(self, work: Work, chosen: Attempt, verdict: EvaluationVerdict) -> kt.HumanDecision | None:
        try:
            return await super().ask(work, chosen, verdict)
        except Interrupted:
            self.parked = True
            raise

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        if task.depends_on:
            await anyio.sleep(1)
        if self.parked:
            run.fail(task, "something waits for a person")
        else:
            await super().one(run, task)


@mutant("G13", clause="C19")
class DoesItAgain(Reviewing):
    """Once a question is answered, what led to it is done again."""

    async def ask(self, work: Work, chosen: Attempt, verdict: EvaluationVerdict) -> kt.HumanDecision | None:
        decision = await super().ask(work, chosen, verdict)
        if decision is not None:
            await self.revise(work, chosen, ())
        return decision
