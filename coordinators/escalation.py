"""What follows a review that leads to no revision: acceptance, a senior, a person, or what the risk allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team.budget import HaltReason
from kairo_team.coordinators.progress import to_tell
from kairo_team.human import HumanRequest
from kairo_team.team import RiskProfile
from kairo_team.verdicts import NEVER_BY_RISK, Cause, EvaluationVerdict, Finding, VerdictOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.attempts import Attempt
    from kairo_team.contracts import EvaluationStrategy
    from kairo_team.coordinators.progress import Progress
    from kairo_team.coordinators.task_work import TaskWork
    from kairo_team.human import HumanDecision
    from kairo_team.tasks import Task

_USED_UP: Final = frozenset({Cause.ROUNDS_EXHAUSTED, Cause.NO_PROGRESS, Cause.CYCLE})
"""Causes for which the best attempt is taken, not the last."""

_ABOUT_THE_WORK: Final = _USED_UP | {Cause.UNACTIONABLE, Cause.LOW_CONFIDENCE, Cause.UNDECIDED, Cause.CONTRADICTION}
"""Causes that somebody better may mend."""


class Escalation:
    """Takes one task from a verdict that asks for no revision to its end."""

    def __init__(self, work: TaskWork, task: Task, progress: Progress, evaluator: EvaluationStrategy | None) -> None:
        self._work = work
        self._run = work.run
        self._task = task
        self._progress = progress
        self._evaluator = evaluator
        self._over = False
        """The task ended on the way: nobody else is asked."""

    async def settle(self, verdict: EvaluationVerdict) -> None:
        """Accept the artifact, or go up: senior, person, risk."""
        while verdict.outcome is not VerdictOutcome.PASS:
            assert verdict.cause is not None, "only PASS and REVISE have no cause"
            self._run.emit(events.TaskEscalated, self._task.id, self._last.member, verdict.cause)
            again = await self._ask_senior(verdict)
            if again is None and not self._over:
                again = await self._ask_person(verdict)
            if again is None:
                return
            verdict = again
        self._run.accept(self._task, self._last, verdict)

    @property
    def _last(self) -> Attempt:
        return self._progress.reviewed[-1][0]

    def _chosen(self, verdict: EvaluationVerdict) -> Attempt:
        """Return the attempt that a verdict is about: the best one, where review is used up."""
        return self._progress.best()[0] if verdict.cause in _USED_UP else self._last

    async def _ask_senior(self, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Give the member's senior one attempt; None when there is none, or it makes nothing."""
        run, task = self._run, self._task
        senior = run.team.member(self._last.member).senior
        if senior is None or verdict.cause not in _ABOUT_THE_WORK or not await run.hand_over(task, senior.id):
            return None
        return await self._one_more(verdict, to_tell(verdict))

    async def _ask_person(self, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Ask the run's gate and do what it says; the verdict of the one more attempt that it may buy."""
        chosen = self._chosen(verdict)
        decision = await self._run.ask(self._question(verdict, chosen)) if self._run.gated else None
        if decision is None:
            await self._leave_to_risk(verdict, chosen)
        elif decision.action == "approve":
            self._run.accept(self._task, chosen, verdict, by="a person")
        elif decision.action == "reject":
            await self._fail(verdict, chosen, decision.feedback or "a person rejected it")
        else:
            return await self._revise_for(decision, verdict)
        return None

    def _question(self, verdict: EvaluationVerdict, chosen: Attempt) -> HumanRequest:
        cause = verdict.cause.value if verdict.cause else ""
        text = f"is the work of {chosen.member!r} on {self._task.id!r} good enough? The review left it open: {cause}"
        return HumanRequest(
            "review",
            f"{text}. {verdict.feedback}" if verdict.feedback else f"{text}.",
            chosen.artifact.text if chosen.artifact else "",
            self._task.id,
            chosen.member,
            self._progress.tries,
            verdict.cause,
            [finding for finding in verdict.findings if finding.status != "closed"],
        )

    async def _revise_for(self, decision: HumanDecision, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Have its maker make the attempt that a person asked for; one that cannot be made fails the task."""
        chosen = self._chosen(verdict)
        wanted = Finding("person", observed="a person looked at it", expected=decision.feedback)
        again = None
        if await self._run.hand_over(self._task, chosen.member):
            again = await self._one_more(verdict, to_tell(verdict, first=[wanted]))
        if again is None and not self._over:
            await self._fail(verdict, chosen, "the attempt that a person asked for could not be made")
        return again

    async def _one_more(self, verdict: EvaluationVerdict, findings: Sequence[Finding]) -> EvaluationVerdict | None:
        """Make one attempt and return what its review leads to, which is no further revision; None if it fails."""
        progress, chosen = self._progress, self._chosen(verdict)
        attempt = await self._work.try_once(self._task, progress, chosen, findings)
        if attempt.halt is HaltReason.EMERGENCY_STOP:
            self._over = True
            await self._work.fail(self._task, attempt.error or attempt.halt, best=chosen, verdict=verdict)
        if attempt.error is not None:
            return None
        progress.most = len(progress.reviewed)
        return await self._work.review(self._task, progress, attempt, self._evaluator)

    async def _leave_to_risk(self, verdict: EvaluationVerdict, chosen: Attempt) -> None:
        low = self._run.config.risk_profile is RiskProfile.LOW
        if low and verdict.cause not in NEVER_BY_RISK:
            self._run.accept(self._task, chosen, verdict)
        else:
            await self._fail(verdict, chosen, verdict.feedback or "the review did not pass it")

    async def _fail(self, verdict: EvaluationVerdict, chosen: Attempt, reason: str) -> None:
        cause = verdict.cause.value if verdict.cause else verdict.outcome.value
        await self._work.fail(self._task, f"not accepted ({cause}): {reason}", best=chosen, verdict=verdict)
