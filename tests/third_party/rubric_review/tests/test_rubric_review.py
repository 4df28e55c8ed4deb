"""The contract kit on reviews by the `rubric` library."""

# The library is typed, but has no py.typed file.
# mypy: disable-error-code="import-untyped"
# pyright: reportMissingTypeStubs=false

from __future__ import annotations

import pytest

pytest.importorskip("rubric_review", reason="tests/third_party/rubric_review is not installed")

from rubric import Criterion, PerCriterionOutput, Rubric
from rubric_review import RubricReview

import kairo_team as kt
from kairo_team.contracts import ChatModel, EvaluationStrategy
from kairo_team.tck import EvaluationStrategyTCK

TIDES = Rubric([Criterion(weight=2, requirement="It names the moon."), Criterion(weight=1, requirement="It says why.")])


class TestRubricReview(EvaluationStrategyTCK):
    asks_a_judge = True
    good_artifacts = ("The moon pulls the sea, and the sea follows.",)
    bad_artifacts = ("The sea goes up and down.",)

    @classmethod
    def make_judged_strategy(cls, judge: ChatModel) -> EvaluationStrategy:
        return RubricReview(TIDES, judge)

    @classmethod
    def write_judgement(cls, request: kt.ModelRequest, *, met: bool | None, quote: str) -> str:
        if met is None:
            return "I cannot tell."
        status = "MET" if met else "UNMET"
        reply: str = PerCriterionOutput(criterion_status=status, explanation=quote).model_dump_json()
        return reply


def test_a_rubric_that_wants_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="positive weight"):
        RubricReview(Rubric([Criterion(weight=-1, requirement="It lies.")]), "test:judge")


@pytest.mark.parametrize("threshold", [0, -1, 1.5, float("nan")])
def test_a_threshold_is_a_share(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        RubricReview(TIDES, "test:judge", threshold=threshold)
