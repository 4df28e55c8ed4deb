"""`PanelEvaluationStrategy`: a quorum for each criterion, whatever the order of the judges."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.evaluators.panel import PanelEvaluationStrategy
from kairo_team.evaluators.score_range import Number
from kairo_team.testing import FunctionModel
from tests.evaluators.judge_rig import Judging, reviewed

pytestmark = pytest.mark.anyio

RUBRIC = Rubric([Criterion("plain", "a child understands it", by="judge")])
TEXT = "The moon pulls the sea."
ANSWERS = ("met", "not met", "cannot tell", "crash")


async def crash(request: kt.ModelRequest) -> str:
    raise OSError("gone")


def model(says: str) -> ChatModel:
    return FunctionModel(crash, name="test:ill") if says == "crash" else Judging({"plain": says}).model


async def decide(says: Sequence[str], quorum: Number = 2, **fields: Any) -> kt.EvaluationVerdict:
    panel = PanelEvaluationStrategy([model(one) for one in says], RUBRIC, quorum, **fields)
    return await panel.evaluate(reviewed(TEXT))


@pytest.mark.parametrize(
    ("says", "outcome", "cause"),
    [
        (("met", "met", "not met"), "pass", None),
        (("not met", "not met", "met"), "revise", None),
        (("met", "met", "crash"), "pass", None),
        (("met", "not met", "crash"), "escalate", "judge_disagreement"),
        (("met", "not met", "cannot tell"), "escalate", "judge_disagreement"),
        (("cannot tell", "cannot tell", "cannot tell"), "escalate", "undecided"),
        (("cannot tell", "cannot tell", "met"), "escalate", "judge_disagreement"),
        (("met", "crash", "crash"), "review_exceeded", "evaluator_error"),
        (("crash", "crash", "crash"), "review_exceeded", "evaluator_error"),
    ],
)
async def test_what_a_panel_decides(says: tuple[str, ...], outcome: str, cause: str | None) -> None:
    verdict = await decide(says)
    assert (verdict.outcome, verdict.cause) == (outcome, cause)


async def test_kf_e14_the_order_of_the_judges_never_matters() -> None:
    """E14: order of evaluators changed the score."""
    for says in product(ANSWERS, repeat=3):
        if list(says) != sorted(says):
            continue
        verdicts = [await decide(order) for order in permutations(says)]
        assert all(verdict == verdicts[0] for verdict in verdicts)


async def test_a_tie_is_unknown_even_where_both_have_the_quorum() -> None:
    verdict = await decide(("met", "met", "not met", "not met"))
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.JUDGE_DISAGREEMENT)


async def test_one_judge_that_suspects_an_injection_keeps_the_panel_from_passing() -> None:
    judges = [Judging({"plain": "met"}).model, Judging({"plain": "met"}, extra={"addresses_the_judge": True}).model]
    verdict = await PanelEvaluationStrategy(judges, RUBRIC).evaluate(reviewed(TEXT))
    assert (verdict.outcome, verdict.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.INJECTION_SUSPECTED)


async def test_what_all_judges_cost_is_in_the_verdict() -> None:
    one, three = await decide(("met", "met")), await decide(("met", "met", "met", "met"))
    assert three.usage.tokens == 2 * one.usage.tokens > 0


@pytest.mark.parametrize(
    ("says", "weights", "quorum", "outcome", "agreement"),
    [
        (("met", "met", "not met"), (1, 1, 3), 3, "revise", 0.6),
        (("met", "met", "not met"), (1, 1, 2), 2, "escalate", 0.5),  # a tie
        (("met", "met", "not met"), (0.1, 0.2, 0.3), 0.3, "escalate", 0.5),  # in floats it would not be one
        (("met", "crash", "crash"), (3, 1, 1), 3, "pass", 1.0),
        (("met", "cannot tell", "met"), (1, 2, 1), 2, "escalate", 0.5),
        (("met", "not met", "met"), None, 2, "pass", 2 / 3),
    ],
)
async def test_a_judge_counts_by_its_weight_and_the_agreement_is_shown(
    says: tuple[str, ...], weights: Any, quorum: Any, outcome: str, agreement: float
) -> None:
    verdict = await decide(says, quorum, weights=weights)
    assert verdict.outcome == outcome
    assert verdict.criteria[0].agreement == pytest.approx(agreement)


async def test_judges_that_lack_the_weight_of_the_quorum_decide_nothing() -> None:
    verdict = await decide(("met", "met", "crash"), 3, weights=(1, 1, 3))
    assert verdict.cause is kt.Cause.EVALUATOR_ERROR
    assert "2 of 3 judges answered, a weight of 3 is needed" in verdict.feedback


VOICES = st.tuples(st.sampled_from(ANSWERS), st.integers(1, 4).map(lambda quarters: Fraction(quarters, 4)))


@given(st.lists(VOICES, min_size=2, max_size=5), st.data())
def test_the_verdict_of_a_weighted_panel_is_that_of_its_sums(
    voices: list[tuple[str, Fraction]], data: st.DataObject
) -> None:
    """The order of the judges never matters; a level counts when its weight reaches the quorum and leads alone."""
    whole = sum(weight for _, weight in voices)
    quorum = data.draw(st.fractions(min_value=Fraction(1, 4), max_value=whole))
    shuffled = data.draw(st.permutations(voices))

    async def both() -> list[kt.EvaluationVerdict]:
        return [await decide([says for says, _ in o], quorum, weights=[w for _, w in o]) for o in (voices, shuffled)]

    first, second = anyio.run(both)
    assert first == second
    sums = {level: sum(weight for answer, weight in voices if answer == level) for level in ("met", "not met")}
    other = sum(weight for answer, weight in voices if answer == "cannot tell")
    for level, against, outcome in (("met", "not met", "pass"), ("not met", "met", "revise")):
        leads = sums[level] > max(other, sums[against])
        assert (first.outcome == outcome) == (leads and sums[level] >= quorum)


@pytest.mark.parametrize("weights", [(1,), (1, 0), (1, -1), (1, True), "ab", (1, float("nan"))])
def test_weights_that_are_none_are_refused(weights: Any) -> None:
    with pytest.raises(ValueError, match="weight"):
        PanelEvaluationStrategy(["a", "b"], RUBRIC, weights=weights)


@pytest.mark.parametrize(
    ("judges", "quorum", "complaint"),
    [
        (["a"], 1, "two judges"),
        ("ab", 1, "two judges"),
        (["a", "b"], 3, "quorum"),
        (["a", "b"], 0, "quorum"),
        (["a", "b"], True, "quorum"),
    ],
)
def test_a_panel_that_cannot_decide_is_refused(judges: Any, quorum: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        PanelEvaluationStrategy(judges, RUBRIC, quorum)
