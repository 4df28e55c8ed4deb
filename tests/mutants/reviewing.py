"""A small coordinator that does everything the coordinator kit asks for: what its mutants change one decision of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import kairo_team as kt
from kairo_team.artifacts import Finding
from kairo_team.contracts import TeamCoordinator
from kairo_team.engine.plan.preflight import plan_problems
from kairo_team.errors import HaltError, InsufficientBudget, PlanRefused
from kairo_team.results import Attempt
from kairo_team.tck import TeamCoordinatorTCK
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict, VerdictOutcome
from tests.mutants.honest import Honest

USED_UP = {Cause.ROUNDS_EXHAUSTED, Cause.NO_PROGRESS, Cause.CYCLE}


@dataclass
class Work:
    """What is known of one task while it is worked on."""

    run: kt.TeamRun
    task: kt.Task
    rounds: int
    sent_back: int = 0
    reviewed: list[tuple[Attempt, EvaluationVerdict]] = field(default_factory=list[tuple[Attempt, EvaluationVerdict]])

    @property
    def last(self) -> Attempt:
        return self.reviewed[-1][0]

    @property
    def prior(self) -> list[EvaluationVerdict]:
        return [verdict for _, verdict in self.reviewed]


class Reviewing(Honest):
    """Plans, has everything done once, reviewed and revised, and asks a person; a method for each decision."""

    def __init__(self, evaluator: Any = None, planner: Any = None, *, fallback: bool = False) -> None:
        self.evaluator = evaluator
        self.planner = planner
        self.fallback = fallback

    def preview(self, request: kt.TeamExecutionRequest, team: kt.Team) -> kt.TaskGraph | None:
        return None if self.planner and request.plan is None else request.plan or self.one_task(request)

    # ------------------------------------------------------------------ planning

    async def plan(self, run: kt.TeamRun) -> kt.TaskGraph:
        return self.preview(run.request, run.team) or await self.ask_planner(run)

    async def ask_planner(self, run: kt.TeamRun) -> kt.TaskGraph:
        try:
            graph: Any = await self.planner.plan(run.request, run.team, self.planning_context(run))
            if not isinstance(graph, kt.TaskGraph):
                raise TypeError(f"the planner returned {graph!r:.200}, not a TaskGraph")
            if self.fallback and (problems := plan_problems(graph.tasks, run.team)):
                raise PlanRefused(problems)
            return graph
        except HaltError:
            raise
        except Exception as error:
            if not self.fallback:
                raise
            return self.fall_back(run, error)

    def fall_back(self, run: kt.TeamRun, error: Exception) -> kt.TaskGraph:
        run.degrade(f"there is no plan: {error}")
        return self.one_task(run.request)

    def planning_context(self, run: kt.TeamRun) -> Any:
        return run.context("plan")

    # ------------------------------------------------------------------ one task

    async def one(self, run: kt.TeamRun, task: kt.Task) -> None:
        work = Work(run, task, run.config.max_feedback_rounds)
        attempt = await run.attempt(task, 1)
        if attempt.error is None and self.evaluator is None and task.evaluator is None:
            run.accept(task, attempt)
            return
        while attempt.error is None:
            verdict = await self.review(work, attempt)
            if verdict.outcome is not VerdictOutcome.REVISE:
                await self.settle(work, verdict)
                return
            attempt = await self.revise(work, attempt, verdict.findings)
        run.fail(task, attempt.error, best=self.best(work) if work.reviewed else attempt)

    async def revise(self, work: Work, previous: Attempt, findings: Sequence[Finding]) -> Attempt:
        number = len(work.reviewed) + 1
        return await work.run.attempt(
            work.task, number, artifact_number=number, previous=previous.artifact, findings=findings
        )

    async def review(self, work: Work, attempt: Attempt) -> EvaluationVerdict:
        """Return what an artifact's review leads to."""
        verdict = self.standing(work, attempt)
        if verdict is None:
            verdict = await work.run.review(work.task, attempt, self.reviewer(work), prior=work.prior)
        work.reviewed.append((attempt, verdict))
        cause = self.used_up(work) if verdict.outcome is VerdictOutcome.REVISE else None
        return verdict if cause is None else EvaluationVerdict.review_exceeded(cause, verdict.feedback)

    def reviewer(self, work: Work) -> Any:
        named = work.task.evaluator
        return self.evaluator if named is None else work.run.team.evaluators[named]

    def standing(self, work: Work, attempt: Attempt) -> EvaluationVerdict | None:
        for age, (earlier, verdict) in enumerate(reversed(work.reviewed)):
            if earlier.artifact == attempt.artifact:
                return EvaluationVerdict.review_exceeded(Cause.CYCLE, "the same again") if age else verdict
        return None

    def used_up(self, work: Work) -> Cause | None:
        if len(work.reviewed) > work.rounds:
            return Cause.ROUNDS_EXHAUSTED
        last = work.prior[-3:]
        same = len(last) == 3 and all(one.findings == last[0].findings for one in last)
        return Cause.NO_PROGRESS if same and all((one.score or 0) <= (last[0].score or 0) for one in last) else None

    def best(self, work: Work) -> Attempt:
        return max(work.reviewed, key=lambda pair: pair[1].score or 0.0)[0]

    # ------------------------------------------------------------------ its end

    async def settle(self, work: Work, verdict: EvaluationVerdict) -> None:
        run, task = work.run, work.task
        chosen = self.best(work) if verdict.cause in USED_UP else work.last
        if verdict.outcome is VerdictOutcome.PASS:
            run.accept(task, chosen, verdict)
            return
        decision = await self.ask(work, chosen, verdict)
        if decision is not None and decision.action == "revise":
            if self.may_go_on(work):
                work.sent_back += 1
                await self.one_more(work, chosen, decision.feedback)
                return
            chosen, decision = self.best(work), None
            verdict = verdict.used_up(Cause.ROUNDS_EXHAUSTED, "a person wants another one, and no more are made")
        if self.is_accepted(run, verdict, decision):
            run.accept(task, chosen, self.shown(self.after(verdict, decision)))
        else:
            run.fail(task, f"not accepted: {verdict.feedback}", best=chosen, verdict=verdict)

    def is_accepted(self, run: kt.TeamRun, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> bool:
        if decision is not None:
            return decision.action == "approve"
        return run.config.risk_profile is kt.RiskProfile.LOW and not verdict.no_risk_accepts

    def may_go_on(self, work: Work) -> bool:
        return work.sent_back < work.run.config.max_human_rounds

    def after(self, verdict: EvaluationVerdict, decision: kt.HumanDecision | None) -> EvaluationVerdict:
        return verdict if decision is None else verdict.approved(decision.feedback)

    def shown(self, verdict: EvaluationVerdict) -> EvaluationVerdict:
        return verdict

    async def ask(self, work: Work, chosen: Attempt, verdict: EvaluationVerdict) -> kt.HumanDecision | None:
        return await work.run.ask(self.question(work, chosen, verdict))

    def question(self, work: Work, chosen: Attempt, verdict: EvaluationVerdict) -> kt.HumanRequest:
        text = chosen.artifact.text if chosen.artifact else ""
        question = kt.HumanRequest("review", "Is it good enough?", text, work.task.id, attempt=len(work.reviewed))
        return replace(question, member=chosen.member, cause=verdict.cause)

    async def one_more(self, work: Work, chosen: Attempt, feedback: str) -> None:
        attempt = await self.revise(work, chosen, [Finding("person", expected=feedback)])
        work.rounds = len(work.reviewed)
        if attempt.error is not None:
            work.run.fail(work.task, attempt.error, best=chosen)
            return
        await self.settle(work, await self.review(work, attempt))


class ReviewingTCK(TeamCoordinatorTCK):
    """The kit of `Reviewing`."""

    supports_planner = True
    kind: ClassVar[type[Reviewing]] = Reviewing

    @classmethod
    def make_coordinator(cls, *, evaluator: Any = None) -> TeamCoordinator:
        return cls.kind(evaluator)

    @classmethod
    def make_planning_coordinator(cls, planner: Any, *, fallback: bool = False) -> TeamCoordinator:
        return cls.kind(planner=planner, fallback=fallback)


class Around:
    """An evaluator around the real one."""

    def __init__(self, real: Any, instead: Callable[[Exception], EvaluationVerdict] | None = None) -> None:
        """`instead` makes a verdict of what the real one raised."""
        self.real = real
        self.instead = instead

    async def evaluate(self, context: EvaluationContext) -> Any:
        """Evaluate; what stands in the way of the money is left alone."""
        try:
            return await self.real.evaluate(context)
        except (HaltError, InsufficientBudget):
            raise
        except Exception as error:
            if self.instead is None:
                raise
            return self.instead(error)
