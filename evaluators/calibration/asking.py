"""Ask every stage of a strategy about every labelled example."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from kairo_team.engine.run.lone_agent import part_of
from kairo_team.evaluators.calibration.calibrated import DECIDED, sureness
from kairo_team.evaluators.calibration.certificates import rubric_of, stages_of
from kairo_team.evaluators.calibration.labelled import LabelledArtifact, levels_by_id
from kairo_team.evaluators.calibration.thresholds import Reviewed, Side
from kairo_team.evaluators.combined import CascadeEvaluationStrategy
from kairo_team.results import Artifact
from kairo_team.tasks import Task
from kairo_team.verdicts import Cause, EvaluationContext, EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.contracts import EvaluationStrategy, MemberContext
    from kairo_team.engine.work.work_context import WorkContext

Path = Sequence[Sequence[float]]
"""For each stage, the sorted confidences among which its confidence is ranked; empty: confidences are taken as
given."""


async def review_all(
    strategy: EvaluationStrategy,
    labelled: Sequence[LabelledArtifact],
    context: WorkContext,
    *,
    path: Path = (),
    repeats: int = 1,
    concurrency: int = 4,
) -> list[Reviewed]:
    """Have every stage of a strategy review every example, in the order given."""
    levels = levels_of(strategy)
    by_human = [levels_by_id(one, levels) for one in labelled]
    asked = await ask_all(strategy, labelled, context, path=path, repeats=repeats, concurrency=concurrency)
    return [_reviewed(*one) for one in zip(labelled, by_human, asked, strict=True)]


def levels_of(strategy: EvaluationStrategy) -> dict[str, Sequence[str]]:
    """Return the levels of each criterion, worst first, by id; for a criterion of several stages, the first stage's."""
    rubrics = [rubric_of(stage) for stage in reversed(stages_of(strategy))]
    return {one.id: one.levels for rubric in rubrics if rubric is not None for one in rubric.criteria}


async def ask_all(
    strategy: EvaluationStrategy,
    labelled: Sequence[LabelledArtifact],
    context: WorkContext,
    *,
    path: Path,
    repeats: int,
    concurrency: int,
) -> list[list[Heard]]:
    """Return the stages' answers, `repeats` for each example, in the order given."""
    for name, number in (("repeats", repeats), ("concurrency", concurrency)):
        if type(number) is not int or number < 1:
            raise ValueError(f"{name} must be a whole number >= 1, not {number!r}")
    stages, limiter = stages_of(strategy), anyio.CapacityLimiter(concurrency)
    heard: list[list[Heard]] = [[Heard(path) for _ in range(repeats)] for _ in labelled]

    async def ask(place: int, one: LabelledArtifact, answers: Sequence[Heard]) -> None:
        async with limiter:
            for number, answer in enumerate(answers, 1):
                with part_of(context, f"example {place}:{number}") as part:
                    await answer.listen(stages, one, part)

    async with anyio.create_task_group() as group:
        for place, (one, answers) in enumerate(zip(labelled, heard, strict=True), 1):
            group.start_soon(ask, place, one, answers)
    return heard


class Heard:
    """The stages' decisions on one artifact."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[tuple[int, Side, float]] = []
        """The number of the stage, its decision, and how sure it was."""
        self.cause: Cause | None = None
        self.levels: dict[str, str] = {}
        """Levels by criterion, from the first stage that decided; from the last stage where none did."""

    async def listen(self, stages: Sequence[EvaluationStrategy], one: LabelledArtifact, context: MemberContext) -> None:
        """Ask the stages one after the other and keep their decisions."""
        asked = EvaluationContext(
            Task("task", one.task, reference=one.reference),
            Artifact(one.artifact),
            one.attempt,
            goal=one.goal or one.task,
            upstream={task_id: Artifact(text) for task_id, text in one.upstream.items()},
            context=context,
        )
        cascade = CascadeEvaluationStrategy([_Recorded(stage, number, self) for number, stage in enumerate(stages)])
        verdict = await cascade.evaluate(asked)
        self.cause = verdict.cause

    @property
    def outcome(self) -> Side | None:
        """The first decision, whatever its confidence; None where no stage decided."""
        return self.said[0][1] if self.said else None


class _Recorded:
    """A stage that keeps each decision and escalates a judge's, so that the cascade asks the next stage too."""

    def __init__(self, stage: EvaluationStrategy, number: int, heard: Heard) -> None:
        self._stage = stage
        self._number = number
        self._heard = heard

    async def evaluate(self, context: EvaluationContext) -> EvaluationVerdict:
        """Review one artifact."""
        verdict = await self._stage.evaluate(context)
        if not self._heard.said:
            self._heard.levels = {one.id: one.level for one in verdict.criteria}
        side = DECIDED.get(verdict.outcome)
        if side is None:
            return verdict
        path = self._heard.path
        sure = sureness(verdict, path[self._number] if path else ())
        if sure is not None:
            self._heard.said.append((self._number, side, sure))
        return verdict if sure == math.inf else EvaluationVerdict.escalate(Cause.LOW_CONFIDENCE, "it is only recorded")


def _reviewed(one: LabelledArtifact, by_human: Mapping[str, str], heard: Sequence[Heard]) -> Reviewed:
    first = heard[0]
    return Reviewed(
        one.passed,
        tuple((side, sure) for _, side, sure in first.said),
        one.attempt,
        len(one.artifact),
        any(again.outcome != first.outcome for again in heard[1:]) if len(heard) > 1 else None,
        None if first.said or first.cause is None else first.cause.value,
        by_human,
        first.levels,
    )
