"""`fit_weights`: how much each judge of a panel should count, from labelled examples."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team.artifacts import Artifact
from kairo_team.budget import check_count
from kairo_team.engine.run.lone_agent import run_alone
from kairo_team.errors import NoAnswer
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.evaluators.calibration.calibrated import decided_by_itself
from kairo_team.evaluators.calibration.calibration import asked_about, checked_examples
from kairo_team.evaluators.calibration.certificates import subject_of
from kairo_team.evaluators.calibration.confidence_bounds import Proportion
from kairo_team.evaluators.calibration.labelled import LabelledArtifact, data_digest
from kairo_team.evaluators.fingerprint import digest_of
from kairo_team.evaluators.judging import called
from kairo_team.evaluators.panel import PanelEvaluationStrategy
from kairo_team.results import AgentOutput, AgentStatus
from kairo_team.verdicts import Cause

if TYPE_CHECKING:
    from kairo_team.budget import Budget, Usage
    from kairo_team.contracts import ChatModel, Journal, MemberContext
    from kairo_team.tasks import Assignment

_LEAST_LABELS: Final = 20
_LEAST_OF_A_KIND: Final = 5
_LEAST_WEIGHT: Final = 0.01
"""A weight must be above 0: the weight of a judge that is not right more often than wrong."""


@dataclass(frozen=True, slots=True)
class FittedWeights:
    """The result of `fit_weights`."""

    weights: Sequence[float]
    """One for each judge, in the panel's order, for `PanelEvaluationStrategy(weights=...)`."""
    quorum: float
    """Just above half of all weights, for `PanelEvaluationStrategy(quorum=...)`."""
    right: Sequence[Proportion]
    """For each judge, the share of its decisions that a human shares."""
    usage: Usage
    """What the judges' calls cost."""


async def fit_weights(
    strategy: PanelEvaluationStrategy,
    labelled: Sequence[LabelledArtifact],
    *,
    budget: Budget | None = None,
    models: Mapping[str, str | ChatModel] | None = None,
    journal: Journal | None = None,
    run_id: str | None = None,
    concurrency: int = 4,
) -> FittedWeights:
    """Return weights for a panel: the log-odds that a judge's decision is a human's, and 0.01 where those are lower.

    Each judge reviews each example alone, as it would in the panel, votes included. Measure the weighted panel on other
    examples. `budget` is all the judges may spend, `models` replaces them by name, `concurrency` examples are reviewed
    at once. With a `journal` the fit is recorded under `run_id`: the same call in another process asks only what is not
    recorded, and nothing after the fit has ended.

    Raises `ValueError` for fewer than 20 examples, or fewer than 5 that a human passes or does not pass, before a judge
    is asked; and where a judge decides nothing, or the judges get equal weights. Raises `NoAnswer` where the budget
    does not reach.
    """
    if not isinstance(strategy, PanelEvaluationStrategy):
        raise ValueError(f"weights are for the judges of a PanelEvaluationStrategy, not for {strategy!r:.80}")
    check_count("concurrency", concurrency, 1)
    examples = checked_examples(labelled)
    _check_labels(examples)
    made = await run_alone(
        _Fit(strategy, examples, models or {}, concurrency),
        "say how often each judge is right",
        role="weights" if journal is None else f"weights-{_digest(strategy, examples)}",
        budget=budget,
        journal=journal,
        run_id=run_id,
    )
    if made.status is not AgentStatus.COMPLETED:
        raise NoAnswer("the fit of weights", made.status.value, made.error)
    counts = json.loads(made.text)
    right = [Proportion(k, n) for k, n, _ in counts]
    for judge, (_, n, why) in zip(strategy.judges, counts, strict=True):
        if not n:
            raise ValueError(f"{called(judge):.100} decided none of {len(examples)} examples, the last: {why}")
    weights = [weight_of(one) for one in right]
    if len(set(weights)) == 1:
        shares = ", ".join(f"{one.k} of {one.n}" for one in right)
        raise ValueError(
            f"the judges get equal weights, {weights[0]} each, so weights change nothing: they are right in {shares} "
            "of their decisions; take other judges, or a panel without weights"
        )
    # 0.01 more than half, so that a tie does not reach the quorum: weights have two digits.
    return FittedWeights(tuple(weights), round(sum(weights) / 2 + 0.01, 2), tuple(right), made.usage)


def _digest(strategy: PanelEvaluationStrategy, examples: Sequence[LabelledArtifact]) -> str:
    """Return a digest of labels and judges; a team with another one in its name does not resume the fit."""
    subject, options = subject_of(strategy, None), strategy.options
    asked = [repr(dict(options.settings)), options.votes, options.trusted]
    return digest_of([data_digest(examples), subject.rubric, subject.judge, asked])[:12]


def weight_of(right: Proportion) -> float:
    """Return the log-odds of being right, as after one more right and one more wrong decision."""
    return max(round(math.log((right.k + 1) / (right.n - right.k + 1)), 2), _LEAST_WEIGHT)


def _check_labels(examples: Sequence[LabelledArtifact]) -> None:
    passed = sum(one.passed for one in examples)
    if len(examples) < _LEAST_LABELS:
        raise ValueError(
            f"weights need at least {_LEAST_LABELS} labelled examples, not {len(examples)}: label more, or give equal "
            "weights"
        )
    if min(passed, len(examples) - passed) < _LEAST_OF_A_KIND:
        raise ValueError(
            f"weights need at least {_LEAST_OF_A_KIND} examples that a human passes and {_LEAST_OF_A_KIND} that a "
            f"human does not pass, not {passed} and {len(examples) - passed}: label more of the rarer kind"
        )


class _Fit:
    """An agent whose work is to have each judge review each example."""

    def __init__(
        self,
        panel: PanelEvaluationStrategy,
        examples: Sequence[LabelledArtifact],
        models: Mapping[str, str | ChatModel],
        concurrency: int,
    ) -> None:
        judges: list[Any] = [models.get(one, one) if isinstance(one, str) else one for one in panel.judges]
        self._strategies = [AgentEvaluationStrategy(one, panel.rubric, timeout=panel.timeout) for one in judges]
        for strategy in self._strategies:
            strategy.options = panel.options  # votes, signs and canaries as in the panel
        self._examples = examples
        self._concurrency = concurrency

    async def run(self, assignment: Assignment, context: MemberContext) -> AgentOutput:
        """Return JSON, for each judge: right decisions, all decisions, and why it left the last example open."""
        limiter, right = anyio.CapacityLimiter(self._concurrency), list[list[Any]]()
        right += [[0, 0, ""] for _ in self._strategies]
        short: list[str] = []

        async def review(one: LabelledArtifact) -> None:
            async with limiter:
                for strategy, counts in zip(self._strategies, right, strict=True):
                    if short:
                        return  # reviews without a budget would count as missing decisions
                    verdict = await strategy.evaluate(asked_about(one, context))
                    side = decided_by_itself(verdict)
                    counts[0] += side == ("pass" if one.passed else "revise")
                    counts[1] += side is not None
                    counts[2] = verdict.feedback if side is None else counts[2]
                    short.extend([verdict.feedback] if verdict.cause is Cause.JUDGE_BUDGET else [])

        async with anyio.create_task_group() as group:
            for one in self._examples:
                group.start_soon(review, one)
        status = AgentStatus.HALTED if short else AgentStatus.COMPLETED
        why = next(iter(short), None)
        return AgentOutput(Artifact(json.dumps(right)), status, usage=context.governor.usage, error=why)
