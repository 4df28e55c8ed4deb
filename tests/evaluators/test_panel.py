"""`PanelEvaluationStrategy`: a quorum for each criterion, whatever the order of the judges."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric
from kairo_team.evaluators.panel import PanelEvaluationStrategy
from kairo_team.testing import FunctionModel
from tests.evaluators.judge_rig import Judging, reviewed

pytestmark = pytest.mark.anyio

RUBRIC = Rubric([Criterion("plain", "a child understands it", by="judge")])
TEXT = "The moon pulls the sea."
ANSWERS = ("met", "not met", "cannot tell", "crash")


async def crash(request: kt.ModelRequest) -> str:
    raise OSError("gone")


def model(says: str) -> kt.ChatModel:
    return FunctionModel(crash, name="test:ill") if says == "crash" else Judging({"plain": says}).model


async def decide(says: tuple[str, ...], quorum: int = 2, **fields: Any) -> kt.EvaluationVerdict:
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
