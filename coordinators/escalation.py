"""What follows a review that leads to no revision: acceptance, a senior, a person, or what the risk allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team.budget import HaltReason
from kairo_team.coordinators.progress import to_tell
from kairo_team.human import HumanRequest
from kairo_team.team import RiskProfile
from kairo_team.verdicts import Cause, EvaluationVerdict, Finding, VerdictOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

_WHY_ASKED: Final[Mapping[Cause, str]] = {
    Cause.UNDECIDED: "The review could not decide",
    Cause.JUDGE_DISAGREEMENT: "The judges do not agree",
    Cause.LOW_CONFIDENCE: "The judge is not sure",
    Cause.INJECTION_SUSPECTED: "The text may be written to influence its judge",
    Cause.HUMAN_REQUIRED: "Only a person may accept it",
    Cause.UNACTIONABLE: "The review found nothing that its author could change",
    Cause.CONTRADICTION: "The judge contradicts what it said before",
    Cause.EVALUATOR_ERROR: "The review failed",
    Cause.EVALUATOR_TIMEOUT: "The review took too long",
    Cause.JUDGE_BUDGET: "There was no budget left for the review",
    Cause.ROUNDS_EXHAUSTED: "No version passed its review, and no revision is left",
    Cause.NO_PROGRESS: "The revisions brought no progress",
    Cause.CYCLE: "An earlier version came back",
}
"""Why a person is asked, in words."""


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
        self._sent_back = 0
        """Revisions that a person asked for."""

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
            self._run.accept(self._task, chosen, verdict.approved(decision.feedback), by="a person")
        elif decision.action == "reject":
            await self._fail(verdict, chosen, decision.feedback or "a person rejected it")
        elif self._sent_back < self._run.config.max_human_rounds:
            self._sent_back += 1
            return await self._revise_for(decision, verdict)
        else:
            await self._end_rounds(decision)
        return None

    def _question(self, verdict: EvaluationVerdict, chosen: Attempt) -> HumanRequest:
        return HumanRequest(
            "review",
            f"is the work of {chosen.member!r} on {self._task.id!r} good enough? {_say_why(verdict)}",
            chosen.artifact.text if chosen.artifact else "",
            self._task.id,
            chosen.member,
            self._progress.tries,
            verdict.cause,
            [finding for finding in verdict.findings if finding.status != "closed"],
            consequences=self._consequences(verdict, chosen),
        )

    def _consequences(self, verdict: EvaluationVerdict, chosen: Attempt) -> Mapping[str, str]:
        """Say what follows from each answer."""
        left = self._run.config.max_human_rounds - self._sent_back
        silence = "it is accepted with a warning" if self._is_accepted_by_risk(verdict) else "the task fails"
        passes = "it is accepted: its verdict is a PASS"
        return {
            "approve": passes if verdict.awaits_approval else "it is accepted without a PASS: the run is DEGRADED",
            "revise": f"{chosen.member!r} makes another version from your words ({left} of these left)"
            if left
            else f"no further version is made, for {self._sent_back} were: {silence}",
            "reject": "the task fails",
            "silence": silence,
        }

    async def _end_rounds(self, decision: HumanDecision) -> None:
        """Leave it to the risk: the person wants another version, and no more are made."""
        made = f"{self._sent_back} were made already (TeamConfig.max_human_rounds)"
        why = f"a person wants another version ({decision.feedback}), and {made}"
        ended = self._progress.used_up(Cause.ROUNDS_EXHAUSTED, why)
        self._run.emit(events.TaskEscalated, self._task.id, self._last.member, Cause.ROUNDS_EXHAUSTED)
        await self._leave_to_risk(ended, self._chosen(ended))

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

    def _is_accepted_by_risk(self, verdict: EvaluationVerdict) -> bool:
        return self._run.config.risk_profile is RiskProfile.LOW and not verdict.no_risk_accepts

    async def _leave_to_risk(self, verdict: EvaluationVerdict, chosen: Attempt) -> None:
        if self._is_accepted_by_risk(verdict):
            self._run.accept(self._task, chosen, verdict)
        else:
            await self._fail(verdict, chosen, verdict.feedback or "the review did not pass it")

    async def _fail(self, verdict: EvaluationVerdict, chosen: Attempt, reason: str) -> None:
        cause = verdict.cause.value if verdict.cause else verdict.outcome.value
        await self._work.fail(self._task, f"not accepted ({cause}): {reason}", best=chosen, verdict=verdict)


def _say_why(verdict: EvaluationVerdict) -> str:
    """Say why a person is asked, and what they are to look at."""
    assert verdict.cause is not None, "a person is asked only what a review left open"
    left = "; ".join(one.text for one in verdict.criteria if one.left_to_a_person)
    told = left if left and verdict.awaits_approval else verdict.feedback
    return f"{_WHY_ASKED[verdict.cause]}: {told}" if told else f"{_WHY_ASKED[verdict.cause]}."
