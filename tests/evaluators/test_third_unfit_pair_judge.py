"""A judge of pairs that is not fit to judge is said to be that, and so is one that is late each time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import FailedControl
from kairo_team.evaluators import PairwiseStrategy
from kairo_team.testing import FunctionModel, ScriptedPairJudge
from tests.evaluators.judge_rig import reviewed
from tests.evaluators.test_judge_question import verdict_of

SHORT, LONG = "The moon.", "The moon pulls the sea, twice a day."
NOT_FIT = "it is not fit to judge, name a larger model"
LATE = "took longer than 5 seconds: a judge that is late each time is not fit to judge: name a faster model"


def shorter(first: str, second: str) -> str:
    return "first" if len(first) < len(second) else "second"


class Flatters(ScriptedPairJudge):
    """Gives one answer to every question, also to those whose answer is known; about some works or about all."""

    def __init__(self, about: str = "") -> None:
        super().__init__(shorter)
        self.about = about

    def reply(self, request: kt.ModelRequest) -> dict[str, Any]:
        reply = super().reply(request)
        if self.about not in "\n".join(message.text for message in request.messages):
            return reply
        return reply | {"answers": [one | {"answer": reply["answers"][0]["answer"]} for one in reply["answers"]]}


def pair(judge: ChatModel) -> kt.EvaluationContext:
    context = reviewed(SHORT, judge)
    return replace(context, task=replace(context.task, reference=LONG))


async def test_third_o60_an_unfit_judge_of_pairs_is_said_to_be_unfit_once() -> None:
    for seed in range(5):
        judge = Flatters()
        verdict = await PairwiseStrategy("test:judge", seed=seed).evaluate(pair(judge))
        assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.REVIEW_EXCEEDED, kt.Cause.EVALUATOR_ERROR)
        assert verdict.feedback.count(NOT_FIT) == 1
        asked = ["\n".join(message.text for message in call.messages) for call in judge.calls]
        assert len(asked) == 4, "each order, and once more about the library's own texts"
        assert sum(SHORT in one or LONG in one for one in asked) == 2


async def test_third_o60_a_judge_of_pairs_that_is_right_about_other_texts_is_not_said_to_be_unfit() -> None:
    with pytest.raises(FailedControl) as failed:
        await PairwiseStrategy("test:judge").compare(SHORT, LONG, reviewed("", Flatters(about=SHORT)))
    assert NOT_FIT not in str(failed.value)


async def hang(request: kt.ModelRequest) -> str:
    await anyio.sleep_forever()
    raise AssertionError


async def test_third_o60_a_judge_that_is_late_is_said_to_be_unfit_where_that_goes_on() -> None:
    late = FunctionModel(hang, name="test:judge")
    for verdict in (
        await verdict_of(late, timeout=5.0),
        await PairwiseStrategy("test:judge", timeout=5.0).evaluate(pair(late)),
    ):
        assert verdict.outcome is kt.VerdictOutcome.REVIEW_EXCEEDED
        assert verdict.feedback.count(LATE) == 1
