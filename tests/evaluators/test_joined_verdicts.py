"""What a verdict joined of several says to the member: the words and the score of those that decided it."""

from __future__ import annotations

import pytest

import kairo_team as kt
from kairo_team.evaluators import all_of
from tests.evaluators.rubric_rig import context

pytestmark = pytest.mark.anyio

Verdict = kt.EvaluationVerdict
WRONG = Verdict.revise("it names no moon")


class Says:
    """A strategy that says this of every artifact."""

    def __init__(self, said: Verdict | Exception) -> None:
        self.said = said

    async def evaluate(self, context: kt.EvaluationContext) -> Verdict:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


@pytest.mark.parametrize(
    "other",
    [LookupError("secret"), Verdict.escalate("undecided", "secret"), Verdict.review_exceeded("judge_budget", "secret")],
    ids=["raises", "undecided", "broke"],
)
async def test_kf_e02_what_another_part_failed_at_is_not_told_beside_a_defect(other: Verdict | Exception) -> None:
    verdict = await all_of(Says(WRONG), Says(other)).evaluate(context())
    assert verdict.outcome is kt.VerdictOutcome.REVISE
    assert verdict.feedback == "it names no moon"


async def test_kf_e07_what_is_sent_back_has_no_score_of_those_that_passed_it() -> None:
    verdict = await all_of(Says(WRONG), Says(Verdict.passed(1.0))).evaluate(context())
    assert (verdict.outcome, verdict.score) == (kt.VerdictOutcome.REVISE, None)
