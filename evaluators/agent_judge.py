"""`AgentEvaluationStrategy`: checks first, then a model answers what is left, and code computes the outcome."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import EMPTY, known_arguments
from kairo_team.errors import FailedControl, HaltError, InsufficientBudget, KairoError, innermost
from kairo_team.evaluators.judged import JudgedStrategy, suspect, suspected
from kairo_team.evaluators.judging import asking_options, called, check_judge
from kairo_team.evaluators.rubric import Rubric
from kairo_team.plugin_calls import failure_of, log_error, sentence_of
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.evaluators.review import Review


@known_arguments
class AgentEvaluationStrategy(JudgedStrategy):
    """Review by a rubric that has criteria for a judge.

    `judge` is a model's name, a chat model or an agent; the member's own model judges only if it is given here. The
    judge is asked only about what the outcome still depends on, a few criteria at a time. It sees the artifact as data
    and answers from a menu; a quote it gives must be in the artifact or a source (`Criterion.evidence`). A failure of
    the judge is never a verdict about the artifact: it is REVIEW_EXCEEDED with `evaluator_error`, `evaluator_timeout`
    after `timeout` seconds, or `judge_budget`. An artifact that seems to talk to its judge never passes:
    ESCALATE(injection_suspected). `settings` are the model's sampling settings.

    Each call contains controls, which are statements whose answer is known: on its labels and its length, and canaries,
    which are worded like criteria and false. `canaries` are more of these for your domain: statements, each with a
    regular expression that matches any text of which the statement may be true. The call asks about each criterion both
    ways round. A judge that answers a control wrongly decides nothing: ESCALATE(injection_suspected) where a text seems
    to be the reason, else `evaluator_error`. A contradiction, or one wrong control without a sign of an attack, may be
    a slip: one more question, with new marks and controls, is about what was contradicted alone. A criterion on which
    the judge contradicts itself again is unknown. Where no text seems to be the reason of wrong controls, one more call
    is about a text of the library's own; a judge that is wrong there too is `evaluator_error`.

    `trusted=True` leaves all this out, for texts whose authors are trusted: calls are then shorter. `signs` are regular
    expressions, by name, for text that talks to its judge: None takes the built-in ones (`JUDGE_SIGNS`), `{}` none.
    `seed` makes the random ids and marks the same in each run, for recorded replies in tests; None draws new ones for
    each call.

    With `votes` above 1 (None: as the rubric says) the judge is asked up to so often, each time with other marks, order
    and wording, until no vote that is left could change an answer. The answer that most votes give counts, none where
    two lead; the confidence is its share of the votes, not what the judge states. A vote that cannot be paid is not
    asked: it counts against the answer in the confidence unless that was decided, and the criterion's reason says so.
    `timeout` is for all votes together, and a vote in which the judge fails ends the review as above.
    """

    def __init__(
        self,
        judge: str | ChatModel | Agent,
        rubric: Rubric,
        *,
        timeout: float = 60.0,
        settings: Mapping[str, Any] | None = None,
        trusted: bool = False,
        signs: Mapping[str, str | re.Pattern[str]] | None = None,
        canaries: Mapping[str, str | re.Pattern[str]] = EMPTY,
        seed: int | None = None,
        votes: int | None = None,
    ) -> None:
        check_judge(judge)
        if not isinstance(rubric, Rubric):
            raise ValueError(f"AgentEvaluationStrategy takes a Rubric, not {rubric!r}")
        if not rubric.decided_by("judge"):
            raise ValueError("no criterion of the rubric asks for a judge: say by='judge', or take the rubric alone")
        several = rubric.votes if votes is None else votes
        options = asking_options(settings, trusted=trusted, signs=signs, canaries=canaries, seed=seed, votes=several)
        super().__init__(called(judge), (judge,), rubric, timeout, options)
        self.judge = judge

    async def _review(self, context: EvaluationContext) -> EvaluationVerdict:
        try:
            return await super()._review(context)
        except (HaltError, InsufficientBudget) as short:
            return EvaluationVerdict.review_exceeded(Cause.JUDGE_BUDGET, str(short))
        except BaseException as raised:
            error = failure_of(raised)
            # A cancellation, or a call outside a run, which is the caller's mistake.
            if error is None or context.context is None:
                raise
            if not isinstance(innermost(error), KairoError):  # an invalid reply is named in the verdict and not logged
                log_error(called(self.judge), f"on task {context.task.id!r}", error)
            why = f"{called(self.judge)}: {sentence_of(error)}"
            return EvaluationVerdict.review_exceeded(Cause.EVALUATOR_ERROR, why)

    async def _ask(self, review: Review, context: EvaluationContext) -> EvaluationVerdict:
        """Ask the judge while the outcome depends on it."""
        judge = self.asks(self.judge, context, self.options)
        how: str | None = None
        confidence: list[float] = []
        while asked := self._next(review):
            try:
                judgement = await judge.ask(asked)
            except FailedControl as failed:
                if failed.suspected is None:
                    raise
                return suspected(review, failed.suspected)
            how = how or judgement.injection_suspected  # the first sign stays
            confidence += [] if judgement.confidence is None else [judgement.confidence]
            for criterion_id, answer in judgement.answers.items():
                review = review.answered(criterion_id, answer)
        verdict = replace(review.verdict(), confidence=min(confidence, default=None))  # as sure as its weakest answer
        return verdict if how is None else suspect(verdict, how)

    def __repr__(self) -> str:
        return f"AgentEvaluationStrategy({self.judge!r}, {self.rubric!r})"
