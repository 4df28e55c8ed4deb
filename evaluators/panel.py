"""`PanelEvaluationStrategy`: several judges, and a quorum for each criterion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio

from kairo_team.errors import HaltError, InsufficientBudget
from kairo_team.evaluators.criterion import Answer, Criterion
from kairo_team.evaluators.judged import BATCH, JudgedStrategy, suspect
from kairo_team.evaluators.judging import Judge, Judgement
from kairo_team.evaluators.rubric import Rubric
from kairo_team.plugin_calls import failure_of, problem_of
from kairo_team.verdicts import Cause, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.evaluators.review import Review
    from kairo_team.verdicts import EvaluationContext


class PanelEvaluationStrategy(JudgedStrategy):
    """Reviews by a rubric whose criteria for a judge are answered by several, side by side.

    A level counts when at least `quorum` judges name it and no other has as many; what has none is unknown, and where
    the outcome hangs on it that is ESCALATE(judge_disagreement). A judge that fails has no voice; with fewer than
    `quorum` left it is REVIEW_EXCEEDED. The order of the judges never matters. `timeout` is in seconds, for all of them
    together.
    """

    def __init__(
        self,
        judges: Sequence[str | ChatModel | Agent],
        rubric: Rubric,
        quorum: int = 2,
        *,
        timeout: float = 60.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(judges, str) or len(judges) < 2:  # noqa: PLR2004 - one is an AgentEvaluationStrategy
            raise ValueError(f"a panel has two judges at least, not {judges!r}; one is an AgentEvaluationStrategy")
        if type(quorum) is not int or not 1 <= quorum <= len(judges):
            raise ValueError(f"the quorum must be from 1 to the {len(judges)} judges, not {quorum!r}")
        if not isinstance(rubric, Rubric) or not rubric.decided_by("judge"):
            raise ValueError(f"a panel takes a Rubric with criteria by='judge', not {rubric!r}")
        super().__init__("the panel", tuple(judges), rubric, timeout, settings)
        self.judges = self.models
        self.quorum = quorum

    async def _ask(self, review: Review, context: EvaluationContext) -> EvaluationVerdict:
        sitting = _Sitting([Judge(judge, context, self.settings) for judge in self.judges], self.quorum)
        while left := review.open("judge"):
            review = await sitting.answer(review, left[:BATCH])
            if sitting.failure is not None:
                return sitting.failure
        return sitting.verdict(review)

    def __repr__(self) -> str:
        return f"PanelEvaluationStrategy({list(self.judges)!r}, {self.rubric!r}, {self.quorum})"


class _Sitting:
    """One panel on one artifact."""

    def __init__(self, judges: Sequence[Judge], quorum: int) -> None:
        self._judges = judges
        self._quorum = quorum
        self._suspected: str | None = None
        self._disagreed = False
        self._confidence: list[float] = []
        self.failure: EvaluationVerdict | None = None
        """Set once too few judges are left."""

    async def answer(self, review: Review, criteria: Sequence[Criterion]) -> Review:
        """Ask all judges about some criteria, and answer each by its quorum."""
        judgements = await self._ask(criteria)
        if len(judgements) < self._quorum:
            return review
        suspicions = sorted(one.injection_suspected for one in judgements if one.injection_suspected)
        self._suspected = self._suspected or next(iter(suspicions), None)
        self._confidence += [one.confidence for one in judgements if one.confidence is not None]
        for criterion in criteria:
            answer = self._vote(criterion, [one.answers[criterion.id] for one in judgements])
            review = review.answered(criterion.id, answer)
        return review

    async def _ask(self, criteria: Sequence[Criterion]) -> list[Judgement]:
        judgements: list[Judgement] = []
        failures: list[tuple[Cause, str]] = []

        async def ask(judge: Judge) -> None:
            try:
                judgements.append(await judge.ask(criteria))
            except (HaltError, InsufficientBudget) as short:
                failures.append((Cause.JUDGE_BUDGET, str(short)))
            except BaseException as raised:
                error = failure_of(raised)
                if error is None:  # a judge that fails has no voice
                    raise
                failures.append((Cause.EVALUATOR_ERROR, problem_of(error, None)))

        async with anyio.create_task_group() as group:
            for judge in self._judges:
                group.start_soon(ask, judge)
        if len(judgements) < self._quorum:
            cause = min(cause for cause, _ in failures)
            why = "; ".join(sorted({text for _, text in failures}))
            few = f"{len(judgements)} of {len(self._judges)} judges answered, {self._quorum} are needed"
            self.failure = EvaluationVerdict.review_exceeded(cause, f"{few}: {why}")
        return judgements

    def _vote(self, criterion: Criterion, answers: Sequence[Answer]) -> Answer:
        """Return the answer that has its quorum, in the words of the first by the alphabet; unknown where none has."""
        counts = Counter(answer.level for answer in answers)
        level, most = counts.most_common(1)[0]
        tied = list(counts.values()).count(most) > 1
        if tied or most < self._quorum or level is None:
            self._disagreed = self._disagreed or len(counts) > 1
            counted = ", ".join(
                f"{number} x {name or 'cannot tell'}" for name, number in sorted(counts.items(), key=str)
            )
            return Answer(None, f"no quorum of {self._quorum} on {criterion.id!r}: {counted}")
        return min((answer for answer in answers if answer.level == level), key=repr)

    def verdict(self, review: Review) -> EvaluationVerdict:
        """Return what follows from the answers."""
        verdict = replace(review.verdict(), confidence=min(self._confidence, default=None))
        if self._suspected is not None:
            verdict = suspect(verdict, self._suspected)
        if verdict.cause is Cause.UNDECIDED and self._disagreed:
            return replace(verdict, cause=Cause.JUDGE_DISAGREEMENT)
        return verdict
