"""`ReviewRounds`: one task through attempts, reviews and revisions, and what follows when a review is not a PASS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team._util.counts import count
from kairo_team.artifacts import Finding
from kairo_team.budget import HaltReason
from kairo_team.coordinators.failure_policy import FailurePolicy
from kairo_team.errors import Misuse
from kairo_team.human import HumanDecision, HumanRequest, subject_of
from kairo_team.plugin_calls import plain_failure_of, problem_of
from kairo_team.team import RiskProfile
from kairo_team.verdicts import Cause, EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy
    from kairo_team.engine.run.team_run import TeamRun
    from kairo_team.messages import Message
    from kairo_team.results import Attempt
    from kairo_team.tasks import Task
    from kairo_team.tools.tool import Tool

Replan = Callable[["Task", str], Awaitable[bool]]
"""Called once a task is about to fail, with the reason, before its dependents are skipped; True: there is a new plan.
"""

Reviewed = tuple["Attempt", EvaluationVerdict]

_STANDSTILL: Final = 3
"""Verdicts in a row with the same open findings and no better score that end the review."""

MOST_FINDINGS: Final = 5
"""The most blocking findings that a member gets at once; the others follow once these are resolved."""

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


class ReviewRounds:
    """One task through attempts, reviews and revisions to its end, for authors of coordinators.

    Call `finish` in the task's body, or take the steps yourself: `attempt`, then `review`, again as long as the verdict
    is a REVISE, then `settle`. Failed attempts are retried by `policy`, then given to other members. An artifact that
    was reviewed before is never judged again. The review ends after `TeamConfig.max_feedback_rounds` revisions, when an
    earlier version comes back, and when reviews in a row find the same problems. What it leaves open goes to the
    member's senior, then to the run's gate, then to the risk profile. Everything is recorded.

    Subclasses may override `tools`, `others` and `is_reviewed`. Here `evaluator` reviews every task:

    >>> async for task in run.ready(graph): run.go(lambda task: ReviewRounds(run, task, evaluator).finish(), task)
    """

    def __init__(
        self,
        run: TeamRun,
        task: Task,
        evaluator: EvaluationStrategy | None,
        policy: FailurePolicy = FailurePolicy(),
        *,
        replan: Replan | None = None,
    ) -> None:
        """Take a task from `run.ready`. Without an evaluator the first artifact is accepted unreviewed.

        `replan` is called when the task is about to fail, with the task and the reason; it returns whether there is a
        new plan, which keeps `FailurePolicy.abort_team` from ending the run.
        """
        self.run = run
        self.task = task
        self.last: Attempt | None = None
        """The attempt that `attempt` returned last."""
        self.reviewed: list[Reviewed] = []
        """Reviewed attempts with their verdicts, oldest first."""
        self.verdict: EvaluationVerdict | None = None
        """What follows from the last review."""
        self._evaluator = evaluator
        self._policy = policy
        self._replan = replan
        self._tries = 0
        self._most = run.config.max_feedback_rounds
        """Revisions that are allowed after the first artifact."""
        self._sent_back = 0
        """Number of revisions that a person requested."""
        self._over = False
        """Whether the task has ended: then no other reviewer decides."""

    def is_reviewed(self, attempt: Attempt) -> bool:
        """Return whether a successful attempt's artifact is reviewed; else it is accepted as it is."""
        return self._evaluator is not None

    def tools(self, number: int) -> Sequence[Tool]:
        """Return the tools that are offered to the member for an attempt, by its number from 1."""
        return ()

    def others(self) -> Sequence[str]:
        """Return the other members that may do the task once its own has failed."""
        return self.run.others(self.task)

    # ------------------------------------------------------------------ the steps

    async def finish(self) -> None:
        """Carry the task to its end."""
        while (attempt := await self.attempt()).error is None and self.is_reviewed(attempt):
            if (await self.review()).outcome is not VerdictOutcome.REVISE:
                break
        await self.settle()

    async def attempt(self) -> Attempt:
        """Have an artifact made, or the last one revised by its verdict; after a failure, retry by the policy.

        Returns the first attempt that succeeded, or the last one with its error.
        """
        previous: Attempt | None = None
        findings: Sequence[Finding] = ()
        if self.verdict is not None:
            previous, findings = self.reviewed[-1][0], findings_for_next_attempt(self.verdict)
        made = await self.try_once(previous, findings)
        if made.error is not None:
            made = await self._until_made(made, partial(self.try_once, previous, findings))
        self.last = made
        return made

    async def review(self) -> EvaluationVerdict:
        """Have the last attempt's artifact reviewed, and return what follows: a REVISE asks for another attempt.

        An artifact that was reviewed before keeps its verdict.
        """
        self.verdict = await self._review(self._last_attempt())
        return self.verdict

    async def settle(self) -> None:
        """End the task: accept what passed or needs no review; escalate what a review left open; fail the rest.

        A REVISE that no attempt followed counts as a review that is used up.
        """
        attempt = self._last_attempt()
        if attempt.error is not None:
            best, verdict = self.best() if self.reviewed else (attempt, None)
            await self._fail(attempt.error, best, verdict)
        elif not self.is_reviewed(attempt):
            self.run.accept(self.task, attempt)
        elif self.verdict is None or self.reviewed[-1][0] is not attempt:
            raise Misuse(f"the last attempt at task {self.task.id!r} was not reviewed: call `review`, then `settle`")
        elif self.verdict.outcome is VerdictOutcome.REVISE:
            await self._escalate(self._used_up(Cause.ROUNDS_EXHAUSTED, "no further revision was made"))
        else:
            await self._escalate(self.verdict)

    def best(self) -> Reviewed:
        """Return the attempt with most gates met, then the highest score, the fewest open findings, the earliest.

        An attempt that only a person may accept comes after all others. Raises `Misuse` if nothing was reviewed.
        """
        if not self.reviewed:
            raise Misuse(f"task {self.task.id!r} has no reviewed attempt yet: call `review` first")
        # `max` returns the first of equals, which is the earliest.
        return max(self.reviewed, key=lambda pair: _rank(pair[1]))

    def try_once(
        self, previous: Attempt | None, findings: Sequence[Finding], *, offer: bool = True
    ) -> Awaitable[Attempt]:
        """Let the task's member try once; `offer` says whether it gets the tools of `tools`."""
        self._tries += 1
        return self.run.attempt(
            self.task,
            self._tries,
            artifact_number=len(self.reviewed) + 1,
            previous=previous.artifact if previous else None,
            findings=findings,
            tools=self.tools(self._tries) if offer else (),
            repeat_writes=self._policy.repeat_writes,
        )

    def _last_attempt(self) -> Attempt:
        if self.last is None:
            raise Misuse(f"task {self.task.id!r} has no attempt yet: call `attempt` first")
        return self.last

    async def _fail(self, error: str, best: Attempt | None, verdict: EvaluationVerdict | None) -> None:
        """End a task that cannot be accepted, and the run too if the failure policy ends it."""
        run, task, going_on = self.run, self.task, False
        # Before the failure, which would skip the dependents that a new plan may keep.
        if self._replan is not None and not await run.is_over(task):
            run.give_back(task)
            going_on = await self._replan(task, error)
        run.fail(task, error, best=best, verdict=verdict)
        if self._policy.abort_team and not going_on:
            run.abort(f"task {task.id!r} failed: {error}", failed=task)

    # ------------------------------------------------------------------ retries

    async def _until_made(self, attempt: Attempt, again: Callable[[], Awaitable[Attempt]]) -> Attempt:
        """Retry after a failed attempt; return the first that succeeded, or the last one with its error."""
        others = None
        while True:
            attempt = await self._with_same_member(attempt, again)
            ended = attempt.over or attempt.interrupted is not None or attempt.halt is HaltReason.EMERGENCY_STOP
            if attempt.error is None or not self._policy.try_others or ended or await self.run.is_over(self.task):
                return attempt
            others = list(self.others()) if others is None else others  # once: each other member gets one turn of tries
            while others and not await self.run.hand_over(self.task, others[0]):  # it has no budget for the task
                del others[0]
            if not others:
                return attempt
            del others[0]
            attempt = await again()

    async def _with_same_member(self, attempt: Attempt, again: Callable[[], Awaitable[Attempt]]) -> Attempt:
        """Let the member that made an attempt try again, as often as its task or the policy allows."""
        run, task, policy, retry = self.run, self.task, self._policy, 0
        retries = policy.retries if task.retries is None else task.retries
        while attempt.error is not None and attempt.interrupted is None and not attempt.over:
            # A top-up costs no retry: the member was stopped by its share, not by a mistake.
            if attempt.halt is None or not await run.top_up(task, attempt):
                if attempt.final or retry >= retries or not policy.tries_again(attempt.kinds):
                    break
                retry += 1
                await run.pause(task, policy.delay(retry, f"{run.request.run_id}:{task.id}:{attempt.number}"))
            before, attempt = attempt, await again()
            if attempt.halt is not None and attempt.error is not None and before.halt is None:
                # The failures may have used up the budget, so the error has their reason too.
                attempt = attempt._replace(error=f"{attempt.error}; the attempt before failed: {before.error}")
        return attempt

    # ------------------------------------------------------------------ reviews

    async def _review(self, attempt: Attempt) -> EvaluationVerdict:
        verdict = self._earlier_verdict(attempt)
        if verdict is None:
            prior = [verdict for _, verdict in self.reviewed]
            verdict = await self.run.review(self.task, attempt, self._evaluator, prior=prior)
        self.reviewed.append((attempt, verdict))  # also an unchanged one, which counts as a round
        if verdict.outcome is not VerdictOutcome.REVISE:
            return verdict
        if len(self.reviewed) > self._most:
            return self._used_up(Cause.ROUNDS_EXHAUSTED, f"no attempt passed in {count(len(self.reviewed), 'review')}")
        last = [verdict for _, verdict in self.reviewed[-_STANDSTILL:]]
        same = len(last) == _STANDSTILL and all(_failing(one) == _failing(last[0]) for one in last)
        # A better score is progress, with the same findings.
        if same and max(one.score or 0.0 for one in last[1:]) <= (last[0].score or 0.0):
            return self._used_up(Cause.NO_PROGRESS, f"{_STANDSTILL} reviews in a row found the same problems")
        return verdict

    def _earlier_verdict(self, attempt: Attempt) -> EvaluationVerdict | None:
        """Return the verdict of an artifact that was reviewed before, which is never judged again; None for a new one.

        An artifact equal to the last keeps its verdict; one equal to an earlier one is a cycle, which ends the review.
        The conversations count too if reviews read them; an evaluator that cannot say whether they do has failed.
        """
        if not self.reviewed:
            return None
        try:
            reads = bool(getattr(self._evaluator, "reads_transcript", False))
        except BaseException as raised:
            error = plain_failure_of(raised)
            if error is None:
                raise
            why = f"{type(self._evaluator).__name__}: its reads_transcript raised {problem_of(error, None)}"
            return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, why)
        for age, (earlier, verdict) in enumerate(reversed(self.reviewed)):
            if _identity(earlier, reads=reads) == _identity(attempt, reads=reads):
                return verdict if age == 0 else self._used_up(Cause.CYCLE, "an earlier version came back unchanged")
        return None

    def _used_up(self, cause: Cause, why: str) -> EvaluationVerdict:
        """Return that the review is used up, with the findings on the best attempt."""
        return self.best()[1].used_up(cause, why)

    # ------------------------------------------------------------------ what a review left open

    async def _escalate(self, verdict: EvaluationVerdict) -> None:
        """Accept a PASS, or ask who decides: the member's senior by one more attempt, then a person, then the risk."""
        run, task = self.run, self.task
        while verdict.outcome is not VerdictOutcome.PASS:
            assert verdict.cause is not None, "only PASS and REVISE have no cause"
            run.emit(events.TaskEscalated, task.id, self._latest.member, verdict.cause)
            senior, again = run.team.member(self._latest.member).senior, None
            if senior is not None and verdict.cause in _ABOUT_THE_WORK and await run.hand_over(task, senior.id):
                again = await self._one_more(verdict, findings_for_next_attempt(verdict))
            if again is None and not self._over:
                again = await self._ask_person(verdict)
            if again is None:
                return
            verdict = again
        run.accept(task, self._latest, verdict)

    @property
    def _latest(self) -> Attempt:
        return self.reviewed[-1][0]

    def _chosen(self, verdict: EvaluationVerdict) -> Attempt:
        """Return the attempt that a verdict is about: the best one if the review is used up, else the last."""
        return self.best()[0] if verdict.cause in _USED_UP else self._latest

    async def _ask_person(self, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Ask the run's gate and carry out the person's decision; return the verdict of one more attempt, if any."""
        chosen = self._chosen(verdict)
        if self.run.gated and not self._revisions_left:  # whatever the answer is, no attempt follows
            self.run.give_back(self.task)
        decision = await self.run.ask(self._question(verdict, chosen)) if self.run.gated else None
        if decision is None:
            await self._leave_to_risk(verdict, chosen)
        elif decision.action == "approve":
            self.run.accept(self.task, chosen, verdict.approved(decision.feedback), by="a person")
        elif decision.action == "reject":
            await self._refuse(verdict, chosen, decision.feedback or "a person rejected it")
        elif self._revisions_left:
            self._sent_back += 1
            return await self._revise_for(decision, verdict)
        else:  # the person wants another version, and no revision is left
            made = f"{self._sent_back} were made already (TeamConfig.max_human_rounds)"
            why = f"a person wants another version ({decision.feedback}), and {made}"
            ended = self._used_up(Cause.ROUNDS_EXHAUSTED, why)
            self.run.emit(events.TaskEscalated, self.task.id, self._latest.member, Cause.ROUNDS_EXHAUSTED)
            await self._leave_to_risk(ended, self._chosen(ended))
        return None

    @property
    def _revisions_left(self) -> int:
        """How many more revisions a person may request."""
        return self.run.config.max_human_rounds - self._sent_back

    def _question(self, verdict: EvaluationVerdict, chosen: Attempt) -> HumanRequest:
        assert verdict.cause is not None, "a person is asked only what a review left open"
        left = "; ".join(one.text for one in verdict.criteria if one.left_to_a_person)
        detail = left if left and verdict.awaits_approval else verdict.feedback
        why = f"{_WHY_ASKED[verdict.cause]}: {detail}" if detail else f"{_WHY_ASKED[verdict.cause]}."
        before = next((one for one, _ in reversed(self.reviewed) if one.number < chosen.number), None)
        return HumanRequest(
            "review",
            f"Is the work of {chosen.member!r} on {self.task.id!r} good enough? {why}",
            subject_of(chosen.artifact),
            self.task.id,
            chosen.member,
            self._tries,
            verdict.cause,
            [finding for finding in verdict.findings if not finding.is_right],
            consequences=self._consequences(verdict, chosen),
            before="" if before is None else subject_of(before.artifact),
        )

    def _consequences(self, verdict: EvaluationVerdict, chosen: Attempt) -> Mapping[str, str]:
        """Return what follows from each answer."""
        left = self._revisions_left
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

    async def _revise_for(self, decision: HumanDecision, verdict: EvaluationVerdict) -> EvaluationVerdict | None:
        """Have the artifact's author make the attempt that a person requested; fail the task if it cannot be made."""
        chosen = self._chosen(verdict)
        wanted = Finding("person", observed="a person looked at it", expected=decision.feedback)
        again = None
        if await self.run.hand_over(self.task, chosen.member):  # a senior may have it now
            again = await self._one_more(verdict, findings_for_next_attempt(verdict, first=[wanted]))
        if again is None and not self._over:
            await self._refuse(verdict, chosen, "the attempt that a person asked for could not be made")
        return again

    async def _one_more(self, verdict: EvaluationVerdict, findings: Sequence[Finding]) -> EvaluationVerdict | None:
        """Make one attempt and return the verdict on it, which asks for no further revision; None if it fails."""
        chosen = self._chosen(verdict)
        # No tools of the coordinator: the task ends after this.
        attempt = await self.try_once(chosen, findings, offer=False)
        if attempt.halt is HaltReason.EMERGENCY_STOP:
            self._over = True
            await self._fail(attempt.error or attempt.halt, chosen, verdict)
        if attempt.error is not None:
            return None
        self._most = len(self.reviewed)  # so that its verdict cannot ask for another
        return await self._review(attempt)

    def _is_accepted_by_risk(self, verdict: EvaluationVerdict) -> bool:
        return self.run.config.risk_profile is RiskProfile.LOW and not verdict.no_risk_accepts

    async def _leave_to_risk(self, verdict: EvaluationVerdict, chosen: Attempt) -> None:
        if self._is_accepted_by_risk(verdict):
            self.run.accept(self.task, chosen, verdict)
        else:
            await self._refuse(verdict, chosen, verdict.feedback or "the review did not pass it")

    async def _refuse(self, verdict: EvaluationVerdict, chosen: Attempt, reason: str) -> None:
        cause = verdict.cause.value if verdict.cause else verdict.outcome.value
        await self._fail(f"not accepted ({cause}): {reason}", chosen, verdict)


def findings_for_next_attempt(verdict: EvaluationVerdict, first: Sequence[Finding] = ()) -> tuple[Finding, ...]:
    """Return the findings for the next attempt: blocking ones, remarks, resolved ones, and criteria that are met.

    The blocking ones are `first` and then the first of the verdict, which are those that change the outcome most.
    Suggestions are remarks, and so is the feedback of a REVISE that does more than repeat findings. Scores, levels and
    a judge's remarks on met criteria are left out.
    """
    wrong = [finding for finding in (*first, *verdict.findings) if not finding.is_right]
    blocking = [finding for finding in wrong if finding.severity == "blocking"]
    remarks = [finding for finding in wrong if finding.severity != "blocking"]
    remarks += [Finding("suggestion", severity="info", observed=text) for text in verdict.suggestions]
    repeats = any(one.observed and one.observed in verdict.feedback for one in verdict.findings)
    if verdict.outcome is VerdictOutcome.REVISE and verdict.feedback and not repeats:
        remarks.append(Finding("feedback", severity="info", observed=verdict.feedback))
    right = [replace(finding, severity="info") for finding in verdict.findings if finding.is_right]
    met_now = [one for one in verdict.criteria if one.passed]
    right += [Finding(one.id, one.id, "info", expected=one.text, status="met") for one in met_now]
    met: dict[str, Finding] = {}
    for finding in right:
        # The closed finding comes first, and says what was wrong.
        met.setdefault(finding.criterion or finding.id, finding)
    for finding in wrong:
        met.pop(finding.criterion or finding.id, None)
    return (*blocking[:MOST_FINDINGS], *remarks, *met.values())


def _identity(attempt: Attempt, *, reads: bool) -> tuple[str | None, Sequence[Message]]:
    """Return what equal attempts have in common: the artifact, and the conversation too if reviews read it."""
    digest, output = None if attempt.artifact is None else attempt.artifact.digest, attempt.output
    return digest, () if output is None or not reads else output.transcript


def _failing(verdict: EvaluationVerdict) -> frozenset[tuple[str, str]]:
    """Return what failed in a verdict: its criteria, or without any its blocking findings."""
    # Criteria have ids, while judges word the same finding in new ways.
    criteria = frozenset((one.id, "") for one in verdict.criteria if one.passed is not True)
    return criteria or frozenset(
        (one.criterion or one.id, one.observed) for one in verdict.findings if one.severity == "blocking"
    )


def _rank(verdict: EvaluationVerdict) -> tuple[bool, int, float, int]:
    met = sum(criterion.passed is True for criterion in verdict.criteria)
    open_findings = sum(finding.severity == "blocking" for finding in verdict.findings)
    return not verdict.no_risk_accepts, met, verdict.score or 0.0, -open_findings  # `max` keeps the earliest of equals
