"""`PanelEvaluationStrategy`: several judges with a quorum for each criterion."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import anyio

from kairo_team._util.frozen import EMPTY, known_arguments
from kairo_team.errors import FailedControl, HaltError, InsufficientBudget
from kairo_team.evaluators.criterion import Answer, Criterion
from kairo_team.evaluators.judge_reply import Judgement
from kairo_team.evaluators.judged import JudgedStrategy, suspect, suspected
from kairo_team.evaluators.judging import Judge, asking_options, check_judge
from kairo_team.evaluators.rubric import Rubric
from kairo_team.evaluators.score_range import Number, positive
from kairo_team.plugin_calls import failure_of, problem_of
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.contracts import Agent, ChatModel
    from kairo_team.evaluators.review import Review


@known_arguments
class PanelEvaluationStrategy(JudgedStrategy):
    """Review by a rubric, asking several judges concurrently about each criterion for a judge.

    A level counts when the judges that name it have at least the weight `quorum` and no other level has as much. A
    criterion without such a level is unknown; where the outcome depends on it, the verdict is
    ESCALATE(judge_disagreement). A judge that fails has no vote. When less weight than `quorum` is left, the verdict is
    REVIEW_EXCEEDED, or ESCALATE(injection_suspected) where a text seems to be the reason. The order of the judges never
    matters. `weights` are numbers > 0, one for each judge in their order; without them each judge counts 1. Each
    criterion's result has the `agreement`: the weight that named its level as a share of the weight that answered.
    `timeout` is in seconds, for all judges together; the other options are as for `AgentEvaluationStrategy`.
    """

    def __init__(
        self,
        judges: Sequence[str | ChatModel | Agent],
        rubric: Rubric,
        quorum: Number = 2,
        *,
        weights: Sequence[Number] | None = None,
        timeout: float = 60.0,
        settings: Mapping[str, Any] | None = None,
        trusted: bool = False,
        signs: Mapping[str, str | re.Pattern[str]] | None = None,
        canaries: Mapping[str, str | re.Pattern[str]] = EMPTY,
        seed: int | None = None,
        votes: int | None = None,
    ) -> None:
        if not isinstance(judges, list | tuple):
            raise ValueError(f"a panel takes a list of at least two judges, not {judges!r:.80}")
        if len(judges) < 2:  # noqa: PLR2004 - one is an AgentEvaluationStrategy
            raise ValueError(f"a panel needs at least two judges, not {judges!r}; one is an AgentEvaluationStrategy")
        for judge in judges:
            check_judge(judge)
        self.weights = _weights(weights, len(judges))
        self.quorum = positive(quorum, "the quorum must be a number > 0")
        if self.quorum > sum(self.weights):
            raise ValueError(f"the quorum is at most {sum(self.weights)}, the weight of all judges, not {quorum!r}")
        if not isinstance(rubric, Rubric) or not rubric.decided_by("judge"):
            raise ValueError(f"a panel takes a Rubric with criteria by='judge', not {rubric!r}")
        several = rubric.votes if votes is None else votes
        options = asking_options(settings, trusted=trusted, signs=signs, canaries=canaries, seed=seed, votes=several)
        super().__init__("the panel", tuple(judges), rubric, timeout, options)
        self.judges = self.models

    async def _ask(self, review: Review, context: EvaluationContext) -> EvaluationVerdict:
        judges = [self.asks(judge, context, self.options) for judge in self.judges]
        sitting = _Sitting(dict(zip(judges, self.weights, strict=True)), self.quorum)
        while asked := self._next(review):
            review = await sitting.answer(review, asked)
            if sitting.failure is not None:
                return sitting.failure if sitting.turned is None else suspected(review, sitting.turned)
        return sitting.verdict(review)

    def __repr__(self) -> str:
        return f"PanelEvaluationStrategy({list(self.judges)!r}, {self.rubric!r}, {self.quorum})"


def _weights(given: Sequence[Number] | None, judges: int) -> tuple[Fraction, ...]:
    if given is None:
        return (Fraction(1),) * judges
    if not isinstance(given, list | tuple) or len(given) != judges:
        raise ValueError(
            f"a panel takes a weight for each of its {judges} judges, in a list in their order, not {given!r}"
        )
    return tuple(positive(weight, "a judge's weight must be a finite number > 0") for weight in given)


class _Sitting:
    """The review of one artifact by a panel."""

    def __init__(self, judges: Mapping[Judge, Fraction], quorum: Fraction) -> None:
        """Start without answers; `judges` are given with their weights."""
        self._judges = judges
        self._quorum = quorum
        self._agreement: dict[str, float] = {}
        self._suspected: str | None = None
        self.turned: str | None = None
        """How a text seems to have turned judges whose votes are missing; None if none has."""
        self._disagreed = False
        self._confidence: list[float] = []
        self.failure: EvaluationVerdict | None = None
        """The verdict, once too few judges are left."""

    async def answer(self, review: Review, criteria: Sequence[Criterion]) -> Review:
        """Ask all judges about some criteria, and answer each criterion by its quorum."""
        judgements = await self._ask(criteria)
        if self.failure is not None:
            return review
        # Sorted, because judges end in any order.
        suspicions = sorted(one.injection_suspected for one, _ in judgements if one.injection_suspected)
        self._suspected = self._suspected or self.turned or next(iter(suspicions), None)
        self._confidence += [one.confidence for one, _ in judgements if one.confidence is not None]
        for criterion in criteria:
            answer = self._vote(criterion, [(one.answers[criterion.id], weight) for one, weight in judgements])
            review = review.answered(criterion.id, answer)
        return review

    async def _ask(self, criteria: Sequence[Criterion]) -> list[tuple[Judgement, Fraction]]:
        """Return the judgement of each judge that answered, with its weight."""
        judgements: list[tuple[Judgement, Fraction]] = []
        failures: list[tuple[Cause, str]] = []
        turned: list[str] = []

        async def ask(judge: Judge, weight: Fraction) -> None:
            try:
                judgements.append((await judge.ask(criteria), weight))
            except (HaltError, InsufficientBudget) as short:
                failures.append((Cause.JUDGE_BUDGET, str(short)))
            except FailedControl as wrong:
                failures.append((Cause.EVALUATOR_ERROR, str(wrong)))
                turned.extend([wrong.suspected] if wrong.suspected else [])
            except BaseException as raised:
                error = failure_of(raised)
                if error is None:  # a cancellation, not a failure of the judge
                    raise
                failures.append((Cause.EVALUATOR_ERROR, problem_of(error, None)))

        async with anyio.create_task_group() as group:
            for judge, weight in self._judges.items():
                group.start_soon(ask, judge, weight)
        self.turned = min(turned, default=None)
        if sum(weight for _, weight in judgements) < self._quorum:
            cause = min(cause for cause, _ in failures)  # `min`: the order of the failures does not matter
            why = "; ".join(sorted({text for _, text in failures}))
            are_equal = set(self._judges.values()) == {Fraction(1)}
            needed = f"{self._quorum} are needed" if are_equal else f"a weight of {self._quorum} is needed"
            few = f"{len(judgements)} of {len(self._judges)} judges answered, {needed}"
            self.failure = EvaluationVerdict.review_exceeded(cause, f"{few}: {why}")
        return judgements

    def _vote(self, criterion: Criterion, answers: Sequence[tuple[Answer, Fraction]]) -> Answer:
        """Return the answer that has the quorum; unknown where none has."""
        weights: defaultdict[bool | str | None, Fraction] = defaultdict(Fraction)
        for answer, weight in answers:
            weights[answer.level] += weight
        most = max(weights.values())
        leading = [level for level, weight in weights.items() if weight == most]
        level = leading[0]
        self._agreement[criterion.id] = float(most / sum(weights.values()))
        if len(leading) > 1 or most < self._quorum or level is None:  # `None`, even with a quorum, decides nothing
            self._disagreed = self._disagreed or len(weights) > 1
            counted = ", ".join(
                # Sorted by their texts, because levels of several types cannot be compared.
                f"{weight} x {name or 'cannot tell'}"
                for name, weight in sorted(weights.items(), key=str)
            )
            return Answer(None, f"no quorum of {self._quorum} on {criterion.id!r}: {counted}")
        # The first by its `repr`, so that the words do not depend on which judge was quickest.
        return min((answer for answer, _ in answers if answer.level == level), key=repr)

    def verdict(self, review: Review) -> EvaluationVerdict:
        """Return the verdict that follows from the answers."""
        verdict = replace(review.verdict(), confidence=min(self._confidence, default=None))
        shares = [replace(one, agreement=self._agreement.get(one.id)) for one in verdict.criteria]
        verdict = replace(verdict, criteria=shares)
        if self._suspected is not None:
            verdict = suspect(verdict, self._suspected)
        if verdict.cause is Cause.UNDECIDED and self._disagreed:
            return replace(verdict, cause=Cause.JUDGE_DISAGREEMENT)
        return verdict
