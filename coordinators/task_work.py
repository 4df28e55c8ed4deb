"""What both coordinators do with one task: try, try again, try others, review, revise, and act on the verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kairo_team.budget import HaltReason
from kairo_team.coordinators.escalation import Escalation
from kairo_team.coordinators.progress import Progress, to_tell
from kairo_team.verdicts import EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.attempts import Attempt
    from kairo_team.contracts import EvaluationStrategy
    from kairo_team.coordinators.failure_policy import FailurePolicy
    from kairo_team.coordinators.reviewers import Reviewers
    from kairo_team.tasks import Task
    from kairo_team.team_run import TeamRun
    from kairo_team.verdicts import Finding

Replan = Callable[["Task", str], Awaitable[bool]]
"""Asked once a task is about to fail, with the reason, before its dependents are skipped; True: there is a new plan."""


class TaskWork:
    """The body of every task of one run."""

    def __init__(
        self,
        run: TeamRun,
        policy: FailurePolicy,
        reviewers: Reviewers,
        replan: Replan | None = None,
    ) -> None:
        self.run = run
        self._policy = policy
        self._reviewers = reviewers
        self._replan = replan

    async def do(self, task: Task) -> None:
        """Bring one task to its end."""
        run = self.run
        evaluator = self._reviewers.of(task)
        progress = Progress(run.config.max_feedback_rounds)
        attempt = await self.try_until_made(task, progress)
        if evaluator is None and attempt.error is None:
            run.accept(task, attempt)
            return
        while attempt.error is None:
            verdict = await self.review(task, progress, attempt, evaluator)
            if verdict.outcome is not VerdictOutcome.REVISE:
                await Escalation(self, task, progress, evaluator).settle(verdict)
                return
            attempt = await self.try_until_made(task, progress, attempt, to_tell(verdict))
        best, last = progress.best() if progress.reviewed else (attempt, None)
        await self.fail(task, attempt.error, best=best, verdict=last)

    async def review(
        self, task: Task, progress: Progress, attempt: Attempt, evaluator: EvaluationStrategy | None
    ) -> EvaluationVerdict:
        """Return what an attempt's review leads to; one that was reviewed before keeps its verdict."""
        verdict = progress.standing(attempt)
        if verdict is None:
            verdict = await self.run.review(task, attempt, evaluator, prior=progress.verdicts)
        return progress.add(attempt, verdict)

    async def fail(
        self, task: Task, error: str, *, best: Attempt | None = None, verdict: EvaluationVerdict | None = None
    ) -> None:
        """End a task that cannot be accepted, and with it the run if the policy says so."""
        going_on = self._replan is not None and not await self.run.is_over(task) and await self._replan(task, error)
        self.run.fail(task, error, best=best, verdict=verdict)
        if self._policy.abort_team and not going_on:
            self.run.abort(f"task {task.id!r} failed: {error}", failed=task)

    # ------------------------------------------------------------------ tries

    async def try_until_made(
        self, task: Task, progress: Progress, previous: Attempt | None = None, findings: Sequence[Finding] = ()
    ) -> Attempt:
        """Attempt the next artifact, with retries and others; one with an error is the last that could be made."""
        attempt = await self.try_once(task, progress, previous, findings)
        if attempt.error is None:
            return attempt
        others = None
        while True:
            attempt = await self._try_again(task, progress, previous, findings, attempt)
            if attempt.error is None or not self._policy.try_others or await self._is_over(task, attempt):
                return attempt
            others = list(self.run.others(task)) if others is None else others
            if not await self._hand_over(task, others):
                return attempt
            attempt = await self.try_once(task, progress, previous, findings)

    async def _hand_over(self, task: Task, others: list[str]) -> bool:
        """Give the task to the next of the others that has budget for it; they are used up."""
        while others:
            if await self.run.hand_over(task, others.pop(0)):
                return True
        return False

    async def _is_over(self, task: Task, attempt: Attempt) -> bool:
        """Say whether nobody else is to try: a person or a constraint ended it, or the team has nothing left."""
        ended = attempt.over or attempt.interrupted is not None or attempt.halt is HaltReason.EMERGENCY_STOP
        return ended or await self.run.is_over(task)

    async def _try_again(
        self, task: Task, progress: Progress, previous: Attempt | None, findings: Sequence[Finding], attempt: Attempt
    ) -> Attempt:
        """Let the member that made an attempt try again, as often as its task or the policy says."""
        policy, retry = self._policy, 0
        retries = policy.retries if task.retries is None else task.retries
        while attempt.error is not None and attempt.interrupted is None and not attempt.over:
            if attempt.halt is None or not await self.run.top_up(task, attempt):
                if attempt.final or retry >= retries or not policy.tries_again(attempt.kinds):
                    break
                retry += 1
                seed = f"{self.run.request.run_id}:{task.id}:{progress.tries}"
                await self.run.pause(task, policy.delay(retry, seed))
            attempt = await self.try_once(task, progress, previous, findings)
        return attempt

    def try_once(
        self, task: Task, progress: Progress, previous: Attempt | None, findings: Sequence[Finding]
    ) -> Awaitable[Attempt]:
        """Let the task's member try once."""
        progress.tries += 1
        return self.run.attempt(
            task,
            progress.tries,
            artifact_number=len(progress.reviewed) + 1,
            previous=previous.artifact if previous else None,
            findings=findings,
        )
