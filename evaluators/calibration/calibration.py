"""`calibrate`: from labelled examples to thresholds with a finite-sample guarantee, or to the labels still needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team._util.narrowing import is_several
from kairo_team.artifacts import Artifact
from kairo_team.budget import check_count
from kairo_team.engine.run.lone_agent import part_of, work_alone
from kairo_team.evaluators.calibration.calibrated import CalibratedEvaluationStrategy, decided_by_itself, sureness
from kairo_team.evaluators.calibration.certificates import (
    Certificate,
    rubric_of,
    stages_of,
    subject_of,
    valid_for,
)
from kairo_team.evaluators.calibration.confidence_bounds import labels_needed
from kairo_team.evaluators.calibration.judge_report import JudgeReport, report_on
from kairo_team.evaluators.calibration.labelled import (
    Bucket,
    LabelledArtifact,
    bucket_of,
    data_digest,
    levels_by_id,
    without_doubles,
)
from kairo_team.evaluators.calibration.thresholds import ALL, BUCKETS, SIDES, Reviewed, Side, Walk, choose, standing
from kairo_team.evaluators.combined import CascadeEvaluationStrategy
from kairo_team.evaluators.rubric import Rubric
from kairo_team.evaluators.wired import evaluator_of
from kairo_team.tasks import Task
from kairo_team.team import Team
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.budget import Budget, Usage
    from kairo_team.contracts import ChatModel, EvaluationStrategy, MemberContext
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.engine.work.work_context import WorkContext


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of `calibrate`."""

    certificates: Sequence[Certificate]
    shortfalls: Sequence[str]
    """One sentence for each promise that cannot be made, with the number of labels it needs."""
    walks: Mapping[tuple[Bucket, Side], Walk]
    """The counts at each threshold."""
    report: JudgeReport
    """The strategy without thresholds: every decision counts."""
    usage: Usage
    """What the judges' calls cost."""


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """The result of `score_judge`."""

    report: JudgeReport
    """The strategy without thresholds: every decision counts."""
    calibrated: JudgeReport | None
    """The strategy under its certificates; None where none were given."""
    why_not: Sequence[str]
    """Why certificates do not count; one sentence each."""
    usage: Usage


async def calibrate(
    strategy: EvaluationStrategy | Team,
    labelled: Sequence[LabelledArtifact],
    alpha: float | Mapping[Side, float] = 0.1,
    delta: float = 0.1,
    *,
    repeats: int = 1,
    budget: Budget | None = None,
    models: Mapping[str, str | ChatModel] | None = None,
    templates: Mapping[str, str] | None = None,
    evaluator: str | None = None,
    concurrency: int = 4,
) -> Calibration:
    """Choose the confidence above which a strategy may decide by itself, and certify its error rate.

    Among the decisions it then takes by itself, the share that a human would have decided otherwise is at most `alpha`,
    for PASS and REVISE each, with a probability of `1 - delta` over the draw of the labels; for each bucket of attempts
    (1, 2, 3 and later) separately. With `alpha` by side, such as `{"pass": 0.05}`, the other side is left to humans.
    Where nothing can be promised there is no certificate, and a sentence in `shortfalls` names what is needed.

    Criteria that a person decides are not the judge's: a verdict that only awaits a person's approval counts as its
    PASS, and `report.awaits_person` counts such verdicts. A cascade has one threshold for all its stages, and each
    stage is asked about every example. `repeats` is how often each is reviewed, to count flips; the first answer
    counts. `budget` is all the judges may spend, `models` replaces them by name, `concurrency` examples are reviewed at
    once. Raises `ValueError` for arguments that are not possible, and `HaltError` when the budget is used up. An
    example that is given twice counts once.

    For a team, its coordinator's evaluator is calibrated, or the team's evaluator that `evaluator` names, with the
    coordinator's judge and the models and templates of the team's runtime. `templates` replace prompts by name, as a
    runtime's do.
    """
    alphas = _alphas(alpha, delta)
    strategy, runtime = _chosen(strategy, evaluator)
    labelled = checked_examples(labelled)
    stages = stages_of(strategy)
    async with work_alone("judge", budget=budget, models=models, templates=templates, runtime=runtime) as context:
        subject = subject_of(strategy, context)
        reviewed = await review_all(strategy, labelled, context, repeats=repeats, concurrency=concurrency)
        usage = context.usage
    walks = choose(reviewed, alphas, delta, together=len(stages) > 1)
    certificates: list[Certificate] = []
    shortfalls: list[str] = []
    data, sides = data_digest(labelled), tuple(alphas)
    for (bucket, side), walk in walks.items():
        step = walk.chosen
        if step is None:
            shortfalls.append(_shortfall(bucket, side, walk))
        else:
            found = (step.threshold, step.n, step.k, walk.examples)
            certificates.append(Certificate(side, bucket, walk.alpha, walk.delta, *found, subject, data, sides))
    return Calibration(certificates, shortfalls, walks, report_on(reviewed, levels=levels_of(strategy)), usage)


async def score_judge(
    strategy: EvaluationStrategy | Team,
    labelled: Sequence[LabelledArtifact],
    certificates: Sequence[Certificate] = (),
    *,
    repeats: int = 1,
    budget: Budget | None = None,
    models: Mapping[str, str | ChatModel] | None = None,
    templates: Mapping[str, str] | None = None,
    evaluator: str | None = None,
    concurrency: int = 4,
) -> JudgeScore:
    """Measure a strategy on labelled examples, without thresholds and under its certificates; promise nothing.

    Give examples that it was not calibrated on. Takes the same arguments as `calibrate`.
    """
    strategy, runtime = _chosen(strategy, evaluator)
    labelled = checked_examples(labelled)
    async with work_alone("judge", budget=budget, models=models, templates=templates, runtime=runtime) as context:
        subject, stages = subject_of(strategy, context), len(stages_of(strategy))
        reviewed = await review_all(strategy, labelled, context, repeats=repeats, concurrency=concurrency)
        usage = context.usage
    report = report_on(reviewed, levels=levels_of(strategy))
    if not certificates:
        return JudgeScore(report, None, (), usage)
    accepted, why_not = list[Reviewed](), list[str]()
    for bucket in BUCKETS:
        there = [one for one in reviewed if bucket_of(one.attempt) == bucket]
        valid = valid_for(certificates, subject, bucket, stages=stages)
        for one in there:  # with only the decision that the thresholds accept
            stands = standing(one.stages, valid.thresholds)
            accepted.append(replace(one, stages=() if stands is None else (stands,)))
        why_not += [valid.why_not] if there and valid.why_not else []
    return JudgeScore(report, report_on(accepted), why_not, usage)


def _shortfall(bucket: Bucket, side: Side, walk: Walk) -> str:
    """Return why no certificate is made, and what it needs."""
    promise = f"{side} on attempt {bucket}: no promise of at most {walk.alpha:.1%} wrong"
    needed = f"at least {walk.needed} that are decided so, without a single error"
    if walk.answered < walk.needed:
        return f"{promise}: it takes {needed}, and there are {walk.answered}: label more"
    if walk.start is None:
        return f"{promise}: both sides of a cascade are promised together, and the other has too few: label more"
    begun = f"of the {walk.start.n} it is surest about, {walk.start.k} are wrong (bound {walk.start.bound:.1%})"
    if walk.start.bound <= walk.alpha:
        return f"{promise}: both sides of a cascade are promised together, and the other is wrong too often"
    return f"{promise}: {begun}: take another judge or rubric, or a larger alpha"


_WITH_A_JUDGE: Final = "AgentEvaluationStrategy('openai:gpt-5-mini', rubric)"


def _chosen(strategy: EvaluationStrategy | Team, evaluator: str | None) -> tuple[EvaluationStrategy, Runtime | None]:
    """Return the strategy to calibrate and its team's runtime; of a calibrated strategy, the strategy inside.

    Raises `ValueError` for a name without a team, and for criteria that no check, judge or person decides.
    """
    if evaluator is not None and not isinstance(strategy, Team):
        raise ValueError(f"evaluator={evaluator!r} names one of a team's: give the team in place of {strategy!r:.80}")
    found = evaluator_of(strategy, evaluator) if isinstance(strategy, Team) else strategy
    if isinstance(found, CalibratedEvaluationStrategy):
        found = found.strategy  # the calibrated one hides the confidences that are needed here
    if not callable(getattr(found, "evaluate", None)):
        raise ValueError(f"calibrate takes a team or an evaluator, such as {_WITH_A_JUDGE}, not {found!r:.80}")
    ask: Any = getattr(found, "preflight", None)
    lacking: list[str] = [] if ask is None else ask(gate=True)
    if lacking and isinstance(found, Rubric) and not isinstance(strategy, Team):
        raise ValueError(f"calibrate a rubric together with its judge: {_WITH_A_JUDGE}, not {found!r:.80} alone")
    if lacking:
        raise ValueError(f"it cannot be calibrated: {'; '.join(lacking)}")
    return found, strategy.runtime if isinstance(strategy, Team) else None


def _alphas(alpha: float | Mapping[Side, float], delta: float) -> dict[Side, float]:
    """Return the allowed error rates by side; raises `ValueError` for a rate that is not possible."""
    given: Any = dict(alpha) if isinstance(alpha, Mapping) else dict.fromkeys(SIDES, alpha)
    if not given or not set(given) <= set(SIDES):
        raise ValueError(f"alpha is a number such as 0.1, or numbers for 'pass', 'revise' or both, not {alpha!r}")
    for one in given.values():
        labels_needed(one, delta)  # raises for an impossible rate
    return {side: given[side] for side in SIDES if side in given}


def checked_examples(labelled: Sequence[LabelledArtifact]) -> list[LabelledArtifact]:
    """Return each example once; `ValueError` for anything but labelled examples."""
    examples: list[Any] = list(labelled) if is_several(labelled) else []
    strangers = [one for one in examples if not isinstance(one, LabelledArtifact)]
    if strangers or not examples:
        wrong = repr(strangers[0] if strangers else labelled)
        raise ValueError(
            f"labelled examples are a list of LabelledArtifact objects, at least one, not {wrong:.80}: "
            "make one with LabelledArtifact(**fields), or read a file's text with read_labelled(text)"
        )
    return without_doubles(examples)


async def review_all(
    strategy: EvaluationStrategy,
    labelled: Sequence[LabelledArtifact],
    context: WorkContext,
    *,
    repeats: int = 1,
    concurrency: int = 4,
) -> list[Reviewed]:
    """Have every stage of a strategy review every example `repeats` times, in the order given."""
    check_count("repeats", repeats, 1)
    check_count("concurrency", concurrency, 1)
    levels = levels_of(strategy)
    by_human = [levels_by_id(one, levels) for one in labelled]
    stages, limiter = stages_of(strategy), anyio.CapacityLimiter(concurrency)
    reviews: list[list[Reviewed]] = [[] for _ in labelled]

    async def ask(place: int) -> None:
        async with limiter:
            for number in range(1, repeats + 1):
                with part_of(context, f"example {place + 1}:{number}") as part:
                    reviews[place].append(await _review(stages, labelled[place], by_human[place], part))

    async with anyio.create_task_group() as group:
        for place in range(len(labelled)):
            group.start_soon(ask, place)
    if repeats == 1:
        return [first for [first] in reviews]
    return [
        replace(first, flipped=any(one.decided(ALL) != first.decided(ALL) for one in again))
        for first, *again in reviews
    ]


def levels_of(strategy: EvaluationStrategy) -> dict[str, Sequence[str]]:
    """Return the levels of each criterion, worst first, by id; for a criterion of several stages, the first stage's."""
    # Reversed, because the last one that is put into the dict stays.
    rubrics = [rubric_of(stage) for stage in reversed(stages_of(strategy))]
    return {one.id: one.levels for rubric in rubrics if rubric is not None for one in rubric.criteria}


def asked_about(one: LabelledArtifact, context: MemberContext) -> EvaluationContext:
    """Return what a strategy is given for a labelled example."""
    return EvaluationContext(
        Task("task", one.task, reference=one.reference),
        Artifact(one.artifact),
        one.attempt,
        goal=one.goal or one.task,
        upstream={task_id: Artifact(text) for task_id, text in one.upstream.items()},
        context=context,
    )


async def _review(
    stages: Sequence[EvaluationStrategy], one: LabelledArtifact, by_human: Mapping[str, str], context: MemberContext
) -> Reviewed:
    """Ask the stages one after the other about an example; `by_human` are the human's levels."""
    heard: list[_Heard] = []
    cascade = CascadeEvaluationStrategy([_Recorded(stage, heard) for stage in stages])
    last = await cascade.evaluate(asked_about(one, context))
    decided: list[EvaluationVerdict] = []
    decisions: list[tuple[Side, float]] = []
    for verdict, side, sure in heard:
        if side is not None and sure is not None:
            decided.append(verdict)
            decisions.append((side, sure))
    # The first decision counts; without any, the levels of the last stage.
    first = decided[0] if decided else None
    told = first or (heard[-1][0] if heard else last)
    return Reviewed(
        one.passed,
        tuple(decisions),
        one.attempt,
        len(one.artifact),
        cause=None if first is not None or last.cause is None else last.cause.value,
        levels=by_human,
        said={result.id: result.level for result in told.criteria},
        why="" if first is not None else last.feedback,
        awaits_person=first is not None and first.awaits_approval,
    )


_Heard = tuple[EvaluationVerdict, Side | None, float | None]
"""A stage's verdict, its decision, and how sure it is."""


class _Recorded:
    """A stage that keeps each verdict and escalates a judge's decision, so that the cascade asks the next stage too."""

    def __init__(self, stage: EvaluationStrategy, heard: list[_Heard]) -> None:
        self._stage = stage
        self._heard = heard

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        verdict = await self._stage.evaluate(context)
        side, sure = decided_by_itself(verdict), sureness(verdict)  # raises for anything but a verdict
        self._heard.append((verdict, side, sure))
        # What code sends back ends a cascade under any threshold.
        if side is None or sure == math.inf:
            return verdict
        return EvaluationVerdict.escalate(Cause.LOW_CONFIDENCE, "it is only recorded")
