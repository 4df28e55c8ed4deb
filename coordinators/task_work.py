"""What both coordinators do with one task: try, try again, review, revise, and decide what a verdict leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team import events
from kairo_team.coordinators.progress import Progress
from kairo_team.team import RiskProfile
from kairo_team.verdicts import NEVER_BY_RISK, Cause, EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.attempts import Attempt
    from kairo_team.contracts import EvaluationStrategy
    from kairo_team.coordinators.failure_policy import FailurePolicy
    from kairo_team.tasks import Task
    from kairo_team.team_run import TeamRun
    from kairo_team.verdicts import Finding


class TaskWork:
    """The body of every task of one run. `evaluator` reviews tasks that name none; None reviews nothing else."""

    def __init__(self, run: TeamRun, policy: FailurePolicy, evaluator: EvaluationStrategy | None = None) -> None:
        self._run = run
        self._policy = policy
        self._evaluator = evaluator

    async def do(self, task: Task) -> None:
        """Bring one task to its end."""
        evaluator = self._run.team.evaluators[task.evaluator] if task.evaluator is not None else self._evaluator
        progress = Progress(self._run.config.max_feedback_rounds)
        attempt = await self._try(task, progress)
        while attempt is not None:
            if evaluator is None:
                self._run.accept(task, attempt)
                return
            verdict = progress.standing(attempt)
            if verdict is None:
                verdict = await self._run.review(task, attempt, evaluator, prior=progress.verdicts)
            verdict = progress.add(attempt, verdict)
            if verdict.outcome is not VerdictOutcome.REVISE:
                self._settle(task, progress, verdict)
                return
            attempt = await self._try(task, progress, attempt, verdict.findings)

    async def _try(
        self, task: Task, progress: Progress, previous: Attempt | None = None, findings: Sequence[Finding] = ()
    ) -> Attempt | None:
        """Attempt the next artifact, with retries; when it cannot be had the task is failed and None returned."""
        retry = 0
        while True:
            progress.tries += 1
            attempt = await self._run.attempt(
                task,
                progress.tries,
                artifact_number=len(progress.reviewed) + 1,
                previous=previous.artifact if previous else None,
                findings=findings,
            )
            if attempt.error is None:
                return attempt
            if attempt.halt is not None and await self._run.top_up(task, attempt):
                continue
            if attempt.final or retry >= self._policy.retries:
                self._give_up(task, progress, attempt)
                return None
            retry += 1
            await self._run.pause(self._policy.delay(retry, f"{self._run.request.run_id}:{task.id}:{progress.tries}"))

    def _give_up(self, task: Task, progress: Progress, attempt: Attempt) -> None:
        best, verdict = progress.best() if progress.reviewed else (attempt, None)
        self._run.fail(task, attempt.error or "the attempt failed", best=best, verdict=verdict)

    def _settle(self, task: Task, progress: Progress, verdict: EvaluationVerdict) -> None:
        """Act on a verdict that leads to no further attempt."""
        attempt = progress.reviewed[-1][0]
        if verdict.outcome is VerdictOutcome.PASS:
            self._run.accept(task, attempt, verdict)
            return
        assert verdict.cause is not None, "only PASS and REVISE have no cause"
        if verdict.cause in _USED_UP:
            attempt, _ = progress.best()
        self._run.emit(events.TaskEscalated, task.id, attempt.member, verdict.cause)
        if self._run.config.risk_profile is RiskProfile.LOW and verdict.cause not in NEVER_BY_RISK:
            self._run.accept(task, attempt, verdict)
        else:
            reason = verdict.feedback or "the review did not pass it"
            self._run.fail(task, f"not accepted ({verdict.cause.value}): {reason}", best=attempt, verdict=verdict)


_USED_UP = frozenset({Cause.ROUNDS_EXHAUSTED, Cause.NO_PROGRESS, Cause.CYCLE})
"""Causes for which the best attempt is taken, not the last."""
