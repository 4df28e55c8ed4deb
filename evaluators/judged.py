"""The base of reviews with judges: checks first, judges for what is left, within a time, at a known cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import anyio

from kairo_team._util.counts import in_seconds
from kairo_team.budget import difference
from kairo_team.evaluators.artifact_view import obvious_defect
from kairo_team.evaluators.claims import ClaimsJudge
from kairo_team.evaluators.judge_texts import BATCH, texts_not_shown
from kairo_team.evaluators.judging import LATE, AskingOptions, Judge, called, files_not_shown
from kairo_team.team import check_positive
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict, VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.evaluators.criterion import Criterion
    from kairo_team.evaluators.review import Review
    from kairo_team.evaluators.rubric import Rubric


class JudgedStrategy(ABC):
    """A review by a rubric with criteria for judges; subclasses decide which judges, and how they are asked."""

    models: tuple[Any, ...]
    """The judges that the strategy asks."""
    vacuous = False
    """False: judges can fail more than a blank artifact."""
    asks: ClassVar[type[Judge]] = ClaimsJudge
    """The class that asks one judge about one artifact."""

    def __init__(
        self, who: str, models: tuple[Any, ...], rubric: Rubric, timeout: float, options: AskingOptions
    ) -> None:
        """Set up the review; `who` names the judges in its verdicts, `timeout` is in seconds."""
        check_positive(f"{type(self).__name__}.timeout", timeout)
        self._who = who
        self.models = models
        self.rubric = rubric
        self.timeout = timeout
        self.options = options

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        account = None if context.context is None else context.context.governor
        before = None if account is None else account.usage
        verdict: EvaluationVerdict | None = None
        with anyio.move_on_after(self.timeout):
            verdict = await self._review(context)
        if verdict is None:
            why = f"{self._who} took longer than {in_seconds(self.timeout)}: {LATE}"
            verdict = EvaluationVerdict.review_exceeded(Cause.EVALUATOR_TIMEOUT, why)
        if account is None or before is None:
            return verdict
        return replace(verdict, usage=difference(account.usage, before, 0.0))  # by the ledger: failed calls count too

    async def _review(self, context: EvaluationContext) -> EvaluationVerdict:
        review = await self.rubric.review(context)
        if not self._left(review):
            return review.verdict()
        defect = obvious_defect(context.artifact)  # after the checks, before any call is paid
        if defect is not None:
            return review.defective(defect)
        verdict = await self._ask(review, context)
        hidden = [(judge, files_not_shown(judge, context)) for judge in self.models]
        told = [f"{called(judge)} was not shown {'; '.join(map(str, files))}" for judge, files in hidden if files]
        cut = texts_not_shown(context, self._left(review))
        told += [f"{self._who} was not shown the end of {', '.join(cut)}"] if cut else []
        return replace(verdict, feedback="; ".join(filter(None, [verdict.feedback, *told]))) if told else verdict

    def _next(self, review: Review) -> Sequence[Criterion]:
        """Return the criteria of the next question: the first that are left and have the same `on`.

        A criterion about claims has questions of its own.
        """
        left = self._left(review)
        if not left or left[0].evidence == "sources":
            return left[:1]
        return [one for one in left if one.on == left[0].on and one.evidence != "sources"][:BATCH]

    def _left(self, review: Review) -> Sequence[Criterion]:
        """Return the criteria to ask a judge about, in the order to ask them."""
        return review.open("judge")

    @property
    def settings(self) -> Mapping[str, Any]:
        """The sampling settings of the judges."""
        return self.options.settings

    @property
    def reads_transcript(self) -> bool:
        """Whether a criterion is about the member's conversation."""
        return self.rubric.reads_transcript

    @abstractmethod
    async def _ask(self, review: Review, context: EvaluationContext) -> EvaluationVerdict:
        """Ask while the outcome depends on a judge, and return the verdict."""

    def preflight(self, *, judge: bool = True, gate: bool = False) -> list[str]:
        """Return one sentence for each criterion that no check, judge or person can decide; see `Rubric.preflight`."""
        return self.rubric.preflight(judge=True, gate=gate)  # whatever was given: it has judges


def suspected(review: Review, how: str) -> EvaluationVerdict:
    """Decide nothing, because the artifact may have dictated the judge's answers."""
    return replace(review.undecided(f"the judge cannot be believed: {how}"), cause=Cause.INJECTION_SUSPECTED)


def suspect(verdict: EvaluationVerdict, how: str) -> EvaluationVerdict:
    """Turn a PASS into ESCALATE, because the artifact seems to instruct its judge; keep any other verdict."""
    if verdict.outcome is not VerdictOutcome.PASS:
        return verdict
    why = f"the artifact seems to instruct its judge: {how}"
    return replace(verdict, outcome=VerdictOutcome.ESCALATE, score=None, cause=Cause.INJECTION_SUSPECTED, feedback=why)
