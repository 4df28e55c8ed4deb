"""What the protection of a question costs, in refused good work and in tokens: two tables of docs/evaluation.md.

    python -m benchmarks.slips

The judge finds every work good, and answers each statement of a question the wrong way round with a fixed chance, also
the controls. What does not pass is refused: sent back, escalated or without a review.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team.engine.run.lone_agent import part_of, work_alone
from kairo_team.evaluators import AgentEvaluationStrategy, Criterion, Proportion, Rubric
from kairo_team.evaluators.attacks.corpus import Work, filler
from kairo_team.evaluators.attacks.trial import asked_about
from kairo_team.evaluators.judge_reply import Judgement
from kairo_team.evaluators.judge_texts import BATCH
from kairo_team.evaluators.judging import Judge
from kairo_team.testing import FunctionModel, read_question
from kairo_team.verdicts import VerdictOutcome

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest

JUDGE: Final = "test:slips"
RATES: Final = (0.01, 0.03, 0.05)
CRITERIA: Final = (1, 4, 8)
REVIEWS: Final = 1_000
WORK: Final = Work(
    "Explain to a new sailor why the tide rises twice a day.",
    "The moon pulls the sea. On the side towards the moon the water rises, and on the far side too, where the pull is "
    "weaker. The earth turns below both hills of water once a day, so each coast meets two of them.",
)

LONG: Final = replace(WORK, artifact=filler(840)[:840])
"""The same task, with a work of 210 tokens."""
_QUESTIONS: Final = 10


class Erring(FunctionModel):
    """A judge that finds everything good, and errs in a share of its answers."""

    def __init__(self, rate: float, seed: int = 0) -> None:
        super().__init__(self.answer, name=JUDGE)
        self._rate, self._lots = rate, Random(seed)  # noqa: S311 - a measurement

    def answer(self, request: ModelRequest) -> str:
        """Return the text of the reply."""
        asked = read_question(request)
        empty = dict.fromkeys(("where", "quote", "observed", "expected"), "")
        answers: list[dict[str, str]] = []
        for one in asked.statements:
            worst, *_, best, _ = one.levels.values()
            right = best if asked.holds(one.criterion) in (None, True) else worst
            wrong = worst if right == best else best
            answers.append({"id": one.id, **empty, "answer": wrong if self._lots.random() < self._rate else right})
        reply = {"token": asked.token, "addresses_the_judge": False, "answers": answers, "confidence": 1.0}
        return json.dumps(reply)


class _Once(Judge):
    """Asks one question only."""

    async def ask_about_work(self, criteria: Sequence[Criterion]) -> Judgement:
        return await self._asked(criteria, last=True)


class AskedOnce(AgentEvaluationStrategy):
    """Gives a slip no second question, as before."""

    asks = _Once


def rubric(criteria: int) -> Rubric:
    """Return a rubric of gates."""
    return Rubric(
        [Criterion(f"c{number}", f"it does part {number} of the task", by="judge") for number in range(criteria)]
    )


async def refused(
    rate: float, criteria: int, kind: type[AgentEvaluationStrategy], reviews: int, **fields: Any
) -> Proportion:
    """Count the good works that a judge refuses which errs at this rate."""
    asked, passed = rubric(criteria), 0
    async with work_alone("judge", models={JUDGE: Erring(rate)}) as context:
        for number in range(reviews):
            strategy = kind(JUDGE, asked, seed=number, **fields)
            with part_of(context, f"text {number}") as part:
                verdict = await strategy.evaluate(asked_about(WORK, part))
            passed += verdict.outcome is VerdictOutcome.PASS
    return Proportion(reviews - passed, reviews)


COLUMNS: Final[dict[str, tuple[type[AgentEvaluationStrategy], dict[str, Any]]]] = {
    "asked once": (AskedOnce, {}),
    "asked again after a slip": (AgentEvaluationStrategy, {}),
    "`trusted=True`": (AgentEvaluationStrategy, {"trusted": True}),
}
"""How a judge is asked."""


async def draw(reviews: int = REVIEWS) -> str:
    """Return the table in Markdown."""
    lines = [f"| criteria | slips | {' | '.join(COLUMNS)} |", f"|{'---|' * (len(COLUMNS) + 2)}"]
    for criteria in CRITERIA:
        for rate in RATES:
            counted = [str(await refused(rate, criteria, kind, reviews, **given)) for kind, given in COLUMNS.values()]
            lines.append(f"| {criteria} | {rate:.0%} | {' | '.join(counted)} |")
    return "\n".join(lines)


async def tokens(criteria: int, *, trusted: bool) -> int:
    """Return the tokens of prompts and replies of one review of `LONG`, at 4 characters a token, over ten questions."""
    size = 0
    for seed in range(_QUESTIONS):
        judge = Erring(0.0)
        strategy = AgentEvaluationStrategy(JUDGE, rubric(criteria), seed=seed, trusted=trusted)
        async with work_alone("judge", models={JUDGE: judge}) as context:
            await strategy.evaluate(asked_about(LONG, context))
        replies = sum(len(judge.answer(call)) for call in [*judge.calls])
        size += replies + sum(len(message.text) for call in judge.calls for message in call.messages)
    return round(size / _QUESTIONS / 4)


async def draw_tokens() -> str:
    """Return the table of tokens in Markdown."""
    lines = ["| criteria | `trusted=True` | now |", "|---|---|---|"]
    for criteria in CRITERIA:
        short, whole = [await tokens(criteria, trusted=trusted) for trusted in (True, False)]
        calls = " (two calls)" if criteria > BATCH else ""
        lines.append(f"| {criteria}{calls} | {short:,} | {whole:,} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(anyio.run(draw_tokens), anyio.run(draw), sep="\n\n")
