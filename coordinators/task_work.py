"""One task in a coordinator's hands: attempts, reviews, revisions, and what follows when a review is not a PASS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team.budget import HaltReason
from kairo_team.coordinators.failure_policy import Retries
from kairo_team.human import HumanRequest
from kairo_team.team import RiskProfile
from kairo_team.verdicts import Cause, EvaluationVerdict, Finding, VerdictOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kairo_team.contracts import EvaluationStrategy
    from kairo_team.coordinators.failure_policy import FailurePolicy
    from kairo_team.coordinators.reviewers import Reviewers
    from kairo_team.engine.run.team_run import TeamRun
    from kairo_team.human import HumanDecision
    from kairo_team.messages import Message
    from kairo_team.results import Attempt
    from kairo_team.tasks import Task
    from kairo_team.tools.tool import Tool

Replan = Callable[["Task", str], Awaitable[bool]]
"""Called once a task is about to fail, with the reason, before its dependents are skipped; True: there is a new plan.
"""


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
        """Carry one task to its end."""
        run = self.run
        evaluator = self._reviewers.of(task)
        progress = Progress(run.config.max_feedback_rounds, bool(getattr(evaluator, "reads_transcript", False)))
        attempt = await self.try_once(task, progress, None, ())
        if attempt.error is not None:
            again = partial(self.try_once, task, progress, None, ())
            attempt = await Retries(run, self._policy, self.others).until_made(task, attempt, again)
        while attempt.error is None:
            if not self.is_reviewed(task, attempt) or evaluator is None:
                run.accept(task, attempt)
                return
            verdict = await self.review(task, progress, attempt, evaluator)
            if verdict.outcome is not VerdictOutcome.REVISE:
                await Escalation(self, task, progress, evaluator).settle(verdict)
                return
            previous, findings = attempt, findings_for_next_attempt(verdict)
            attempt = await self.try_once(task, progress, previous, findings)
            if attempt.error is not None:
                again = partial(self.try_once, task, progress, previous, findings)
                attempt = await Retries(run, self._policy, self.others).until_made(task, attempt, again)
        best, last = progress.best() if progress.reviewed else (attempt, None)
        await self.fail(task, attempt.error, best=best, verdict=last)

    def is_reviewed(self, task: Task, attempt: Attempt) -> bool:
        """Return whether an attempt's artifact is reviewed, if the task has an evaluator."""
        return True

    def tools(self, task: Task, number: int) -> Sequence[Tool]:
        """Return the tools that are offered to the member for an attempt, by its number."""
        return ()

    def others(self, task: Task) -> Sequence[str]:
        """Return the other members that may do a task once its own has failed."""
        return self.run.others(task)

    async def review(
        self, task: Task, progress: Progress, attempt: Attempt, evaluator: EvaluationStrategy | None
    ) -> EvaluationVerdict:
        """Return what follows from an attempt's review; an artifact that was reviewed before keeps its verdict."""
        verdict = progress.standing(attempt)
        if verdict is None:
            verdict = await self.run.review(task, attempt, evaluator, prior=progress.verdicts)
        return progress.add(attempt, verdict)

    async def fail(
        self, task: Task, error: str, *, best: Attempt | None = None, verdict: EvaluationVerdict | None = None
    ) -> None:
        """End a task that cannot be accepted, and the run too if the failure policy ends it."""
        going_on = self._replan is not None and not await self.run.is_over(task) and await self._replan(task, error)
        self.run.fail(task, error, best=best, verdict=verdict)
        if self._policy.abort_team and not going_on:
            self.run.abort(f"task {task.id!r} failed: {error}", failed=task)

    def try_once(
        self,
        task: Task,
        progress: Progress,
        previous: Attempt | None,
        findings: Sequence[Finding],
        *,
        offer: bool = True,
    ) -> Awaitable[Attempt]:
        """Let the task's member try once; `offer` says whether it gets the tools of `tools`."""
        progress.tries += 1
        return self.run.attempt(
            task,
            progress.tries,
            artifact_number=len(progress.reviewed) + 1,
            previous=previous.artifact if previous else None,
            findings=findings,
            tools=self.tools(task, progress.tries) if offer else (),
            repeat_writes=self._policy.repeat_writes,
        )


Reviewed = tuple["Attempt", EvaluationVerdict]

_STANDSTILL: Final = 3
"""Verdicts in a row with the same open findings and no better score that end the review."""

MOST_FINDINGS: Final = 5
"""The most blocking findings that a member gets at once; the others follow once these are resolved."""


@dataclass(slots=True)
class Progress:
    """How far one task has come."""

    most: int
    """Revisions that are allowed after the first artifact."""
    reads_transcript: bool = False
    """Whether reviews read the conversation too: then the same artifact with another conversation is a new one."""
    tries: int = 0
    reviewed: list[Reviewed] = field(default_factory=lambda: [])  # noqa: PIE807 - a generic alias is slow to call
    """Reviewed attempts with their verdicts, oldest first."""

    @property
    def verdicts(self) -> list[EvaluationVerdict]:
        """The verdicts, oldest first."""
        return [verdict for _, verdict in self.reviewed]

    def best(self) -> Reviewed:
        """Return the attempt with most gates met, then the highest score, the fewest open findings, the earliest.

        An attempt that only a person may accept comes after all others.
        """
        return max(self.reviewed, key=lambda pair: _rank(pair[1]))

    def standing(self, attempt: Attempt) -> EvaluationVerdict | None:
        """Return the verdict of an artifact that was reviewed before, which is never judged again; None for a new one.

        An artifact equal to the last keeps its verdict; one equal to an earlier one is a cycle, which ends the review.
        """
        for age, (earlier, verdict) in enumerate(reversed(self.reviewed)):
            if self._is_same(earlier, attempt):
                return verdict if age == 0 else self.used_up(Cause.CYCLE, "an earlier version came back unchanged")
        return None

    def _is_same(self, earlier: Attempt, attempt: Attempt) -> bool:
        if self.reads_transcript and _transcript(earlier) != _transcript(attempt):
            return False
        return _digest(earlier) == _digest(attempt)

    def add(self, attempt: Attempt, verdict: EvaluationVerdict) -> EvaluationVerdict:
        """Record a verdict; return it, or that the review is used up."""
        self.reviewed.append((attempt, verdict))
        if verdict.outcome is not VerdictOutcome.REVISE:
            return verdict
        if len(self.reviewed) > self.most:
            return self.used_up(Cause.ROUNDS_EXHAUSTED, f"no attempt passed in {len(self.reviewed)} reviews")
        if self._stands_still():
            return self.used_up(Cause.NO_PROGRESS, f"{_STANDSTILL} reviews in a row found the same problems")
        return verdict

    def _stands_still(self) -> bool:
        last = self.verdicts[-_STANDSTILL:]
        if len(last) < _STANDSTILL or any(_failing(verdict) != _failing(last[0]) for verdict in last):
            return False
        return max(verdict.score or 0.0 for verdict in last[1:]) <= (last[0].score or 0.0)

    def used_up(self, cause: Cause, why: str) -> EvaluationVerdict:
        """Return that the review is used up, with the findings on the best attempt."""
        return self.best()[1].used_up(cause, why)


def findings_for_next_attempt(verdict: EvaluationVerdict, first: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """Return the findings for the next attempt: blocking ones, remarks, resolved ones, and criteria that are met.

    The blocking ones are `first` and then the first of the verdict, which are those that change the outcome most.
    Scores, levels and a judge's remarks on met criteria are left out.
    """
    wrong = [finding for finding in (*first, *verdict.findings) if not finding.is_right]
    blocking = [finding for finding in wrong if finding.severity == "blocking"]
    remarks = [finding for finding in wrong if finding.severity != "blocking"]
    return (*blocking[:MOST_FINDINGS], *remarks, *_met(verdict, {finding.criterion or finding.id for finding in wrong}))


def _met(verdict: EvaluationVerdict, wrong: set[str]) -> Iterable[Finding]:
    """Return a finding for each criterion that is met; a closed finding if it was not met before."""
    right = [replace(finding, severity="info") for finding in verdict.findings if finding.is_right]
    met_now = [one for one in verdict.criteria if one.passed]
    right += [Finding(one.id, one.id, "info", expected=one.text, status="met") for one in met_now]
    met: dict[str, Finding] = {}
    for finding in right:
        met.setdefault(finding.criterion or finding.id, finding)
    return (finding for name, finding in met.items() if name not in wrong)


def _transcript(attempt: Attempt) -> Sequence[Message]:
    return () if attempt.output is None else attempt.output.transcript


def _digest(attempt: Attempt) -> str | None:
    return None if attempt.artifact is None else attempt.artifact.digest


def _failing(verdict: EvaluationVerdict) -> frozenset[tuple[str, str]]:
    """Return what failed in a verdict: its criteria, or without any its blocking findings."""
    criteria = frozenset((one.id, "") for one in verdict.criteria if one.passed is not True)
    return criteria or frozenset(
        (one.criterion or one.id, one.observed) for one in verdict.findings if one.severity == "blocking"
    )


def _rank(verdict: EvaluationVerdict) -> tuple[bool, int, float, int]:
    met = sum(criterion.passed is True for criterion in verdict.criteria)
    open_findings = sum(finding.severity == "blocking" for finding in verdict.findings)
    return not verdict.no_risk_accepts, met, verdict.score or 0.0, -open_findings


_USED_UP: Final = frozenset({Cause.ROUNDS_EXHAUSTED, Cause.NO_PROGRESS, Cause.CYCLE})
"""Causes for which the best attempt is used, not the last."""

_ABOUT_THE_WORK: Final = _USED_UP | {Cause.UNACTIONABLE, Cause.LOW_CONFIDENCE, Cause.UNDECIDED, Cause.CONTRADICTION}
"""Causes that a better author may resolve."""

_WHY_ASKED: Final[Mapping[Cause, str]] = {
    Cause.UNDECIDED: "The review could not decide",
    Cause.JUDGE_DISAGREEMENT: "The judges do not agree",
    Cause.LOW_CONFIDENCE: "The judge is not sure",
    Cause.INJECTION_SUSPECTED: "The text may be written to influence its judge",
    Cause.HUMAN_REQUIRED: "Only a person may accept it",
    Cause.UNACTIONABLE: "The review found nothing that its author could change",
    Cause.CONTRADICTION: "The judge contradicts its earlier answer",
    Cause.EVALUATOR_ERROR: "The review failed",
    Cause.EVALUATOR_TIMEOUT: "The review took too long",
    Cause.JUDGE_BUDGET: "There was no budget left for the review",
    Cause.ROUNDS_EXHAUSTED: "No version passed its review, and no revision is left",
    Cause.NO_PROGRESS: "The revisions brought no progress",
    Cause.CYCLE: "An earlier version came back",
}
"""Why a person is asked, in words."""


class Escalation:
    """Carries one task to its end after a verdict that does not ask for a revision."""

    def __init__(self, work: TaskWork, task: Task, progress: Progress, evaluator: EvaluationStrategy | None) -> None:
        self._work = work
        self._run = work.run
        self._task = task
        self._progress = progress
        self._evaluator = evaluator
        self._over = False
        """Whether the task has ended: then no other reviewer decides."""
        self._sent_back = 0
        """Number of revisions that a person requested."""

    async def settle(self, verdict: EvaluationVerdict) -> None:
        """Accept the artifact, or escalate: senior, person, risk."""
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
        """Return the attempt that a verdict is about: the best one if the review is used up, else the last."""
        return self._progress.best()[0] if verdict.cause in _USED_UP else self._last

    async def _ask_senior(self, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Give the member's senior one attempt; None without a senior, or if it makes nothing."""
        run, task = self._run, self._task
        senior = run.team.member(self._last.member).senior
        if senior is None or verdict.cause not in _ABOUT_THE_WORK or not await run.hand_over(task, senior.id):
            return None
        return await self._one_more(verdict, findings_for_next_attempt(verdict))

    async def _ask_person(self, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Ask the run's gate and carry out the person's decision; return the verdict of one more attempt, if any."""
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
            f"Is the work of {chosen.member!r} on {self._task.id!r} good enough? {_reason_to_ask(verdict)}",
            chosen.artifact.text if chosen.artifact else "",
            self._task.id,
            chosen.member,
            self._progress.tries,
            verdict.cause,
            [finding for finding in verdict.findings if not finding.is_right],
            consequences=self._consequences(verdict, chosen),
        )

    def _consequences(self, verdict: EvaluationVerdict, chosen: Attempt) -> Mapping[str, str]:
        """Return what follows from each answer."""
        left = self._run.config.max_human_rounds - self._sent_back
        silence = "it is accepted with a warning" if self._is_accepted_by_risk(verdict) else "the task fails"
        cut = chosen.artifact is not None and chosen.artifact.partial
        passes = "it is accepted: its verdict is a PASS" + (
            ", and the run is DEGRADED, because it was cut short" if cut else ""
        )
        return {
            "approve": passes if verdict.awaits_approval else "it is accepted without a PASS: the run is DEGRADED",
            "revise": f"{chosen.member!r} makes another version from your words (revisions left: {left})"
            if left
            else f"no further version is made (revisions: {self._sent_back}): {silence}",
            "reject": "the task fails",
            "silence": silence,
        }

    async def _end_rounds(self, decision: HumanDecision) -> None:
        """Let the risk profile decide: the person wants another version, and no revision is left."""
        made = f"{self._sent_back} were made already (TeamConfig.max_human_rounds)"
        why = f"a person wants another version ({decision.feedback}), and {made}"
        ended = self._progress.used_up(Cause.ROUNDS_EXHAUSTED, why)
        self._run.emit(events.TaskEscalated, self._task.id, self._last.member, Cause.ROUNDS_EXHAUSTED)
        await self._leave_to_risk(ended, self._chosen(ended))

    async def _revise_for(self, decision: HumanDecision, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Have the artifact's author make the attempt that a person requested; fail the task if it cannot be made."""
        chosen = self._chosen(verdict)
        wanted = Finding("person", observed="a person looked at it", expected=decision.feedback)
        again = None
        if await self._run.hand_over(self._task, chosen.member):
            again = await self._one_more(verdict, findings_for_next_attempt(verdict, first=[wanted]))
        if again is None and not self._over:
            await self._fail(verdict, chosen, "the attempt that a person asked for could not be made")
        return again

    async def _one_more(self, verdict: EvaluationVerdict, findings: Sequence[Finding]) -> EvaluationVerdict | None:
        """Make one attempt and return the verdict on it, which asks for no further revision; None if it fails."""
        progress, chosen = self._progress, self._chosen(verdict)
        attempt = await self._work.try_once(self._task, progress, chosen, findings, offer=False)
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


def _reason_to_ask(verdict: EvaluationVerdict) -> str:
    """Return why a person is asked, and what to look at."""
    assert verdict.cause is not None, "a person is asked only what a review left open"
    left = "; ".join(one.text for one in verdict.criteria if one.left_to_a_person)
    detail = left if left and verdict.awaits_approval else verdict.feedback
    return f"{_WHY_ASKED[verdict.cause]}: {detail}" if detail else f"{_WHY_ASKED[verdict.cause]}."
