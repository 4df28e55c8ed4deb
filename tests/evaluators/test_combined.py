"""Strategies made of strategies: what is certain stays certain, and order never matters."""

from __future__ import annotations

from itertools import combinations_with_replacement, permutations
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.evaluators.combined import CascadeEvaluationStrategy, all_of, any_of

pytestmark = pytest.mark.anyio

PASS, REVISE = kt.VerdictOutcome.PASS, kt.VerdictOutcome.REVISE
ESCALATE, EXCEEDED = kt.VerdictOutcome.ESCALATE, kt.VerdictOutcome.REVIEW_EXCEEDED

VERDICTS: dict[str, Any] = {
    "pass": kt.EvaluationVerdict.passed(0.75),
    "better": kt.EvaluationVerdict.passed(0.875),
    "revise": kt.EvaluationVerdict.revise("too long", score=0.25),
    "undecided": kt.EvaluationVerdict.escalate("undecided", "cannot say"),
    "human": kt.EvaluationVerdict.escalate("human_required", "sign here"),
    "injection": kt.EvaluationVerdict.escalate("injection_suspected", "odd"),
    "ill": kt.EvaluationVerdict.review_exceeded("evaluator_error", "ill"),
    "raises": ValueError("broken"),
    "nothing": None,
}


class Says:
    """A strategy that always says the same."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    async def evaluate(self, context: kt.EvaluationContext) -> kt.EvaluationVerdict:
        self.asked += 1
        await anyio.lowlevel.checkpoint()
        said = VERDICTS[self.name]
        if isinstance(said, Exception):
            raise said.with_traceback(None)  # else it gets longer each time, and is written out each time
        verdict: kt.EvaluationVerdict = said
        return verdict


CONTEXT = kt.EvaluationContext(kt.Task("t", "do"), kt.Artifact("text"), 1)


def value(name: str) -> bool | None:
    """True, False and unknown: what three-valued logic makes of a verdict."""
    outcome = getattr(VERDICTS[name], "outcome", None)
    return {PASS: True, REVISE: False}.get(outcome) if outcome is not None else None


def conjunction(names: tuple[str, ...]) -> bool | None:
    values = [value(name) for name in names]
    return False if False in values else None if None in values else True


def disjunction(names: tuple[str, ...]) -> bool | None:
    values = [value(name) for name in names]
    return True if True in values else None if None in values else False


@pytest.mark.parametrize("many", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("combine", "oracle"), [(all_of, conjunction), (any_of, disjunction)])
async def test_kf_e14_three_valued_logic_over_all_combinations_in_any_order(
    combine: Any, oracle: Any, many: int
) -> None:
    for names in combinations_with_replacement(VERDICTS, many):
        verdicts = [await combine(*map(Says, order)).evaluate(CONTEXT) for order in permutations(names)]
        expected = oracle(names)
        decided = {PASS: True, REVISE: False}.get(verdicts[0].outcome)
        assert decided is expected, names
        assert all(verdict == verdicts[0] for verdict in verdicts), names


async def test_a_score_is_that_of_the_weakest_of_all_and_of_the_strongest_of_any() -> None:
    strategies = Says("pass"), Says("better")
    assert (await all_of(*strategies).evaluate(CONTEXT)).score == 0.75
    assert (await any_of(*strategies).evaluate(CONTEXT)).score == 0.875


async def test_what_stays_open_is_told_by_its_gravest_cause() -> None:
    verdict = await all_of(Says("undecided"), Says("human"), Says("injection")).evaluate(CONTEXT)
    assert (verdict.outcome, verdict.cause) == (ESCALATE, kt.Cause.INJECTION_SUSPECTED)
    verdict = await all_of(Says("pass"), Says("raises")).evaluate(CONTEXT)
    assert (verdict.outcome, verdict.cause, verdict.score) == (EXCEEDED, kt.Cause.EVALUATOR_ERROR, None)


async def test_a_broken_strategy_never_makes_a_pass() -> None:
    for broken in ("ill", "raises", "nothing"):
        assert (await all_of(Says(broken)).evaluate(CONTEXT)).outcome is EXCEEDED
        assert (await any_of(Says(broken)).evaluate(CONTEXT)).outcome is EXCEEDED
        assert (await CascadeEvaluationStrategy([Says(broken)]).evaluate(CONTEXT)).outcome is EXCEEDED


@pytest.mark.parametrize(
    ("names", "outcome", "asked"),
    [
        (("pass", "revise"), PASS, 1),
        (("revise", "pass"), REVISE, 1),
        (("undecided", "pass"), PASS, 2),
        (("undecided", "revise", "pass"), REVISE, 2),
        (("human", "pass"), ESCALATE, 1),
        (("injection", "pass"), ESCALATE, 1),
        (("ill", "pass"), PASS, 2),
        (("raises", "undecided"), ESCALATE, 2),
        (("undecided", "raises"), EXCEEDED, 2),
    ],
)
async def test_a_cascade_asks_the_next_only_about_what_is_undecided(
    names: tuple[str, ...], outcome: kt.VerdictOutcome, asked: int
) -> None:
    stages = [Says(name) for name in names]
    verdict = await CascadeEvaluationStrategy(stages).evaluate(CONTEXT)
    assert (verdict.outcome, sum(stage.asked for stage in stages)) == (outcome, asked)


async def test_a_judge_never_overrules_a_failed_gate() -> None:
    gate = Rubric([Criterion("short", "one word", check=checks.max_words(1))])
    context = kt.EvaluationContext(kt.Task("t", "do"), kt.Artifact("two words"), 1)
    assert (await CascadeEvaluationStrategy([gate, Says("pass")]).evaluate(context)).outcome is REVISE
    assert (await all_of(gate, Says("pass")).evaluate(context)).outcome is REVISE


@pytest.mark.parametrize("make", [lambda *s: CascadeEvaluationStrategy(list(s)), all_of, any_of])
def test_what_is_no_strategy_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="at least one"):
        make()
    for stranger in (7, Says, "rubric"):
        with pytest.raises(ValueError, match="strategies"):
            make(Says("pass"), stranger)


def test_what_nobody_could_decide_is_said_once() -> None:
    rubric = Rubric([Criterion("sign", "somebody signs", by="human"), Criterion("s", "s", check=checks.max_words(9))])
    assert len(all_of(rubric, CascadeEvaluationStrategy([rubric])).preflight()) == 1  # type: ignore[attr-defined]  # ours has it


@pytest.mark.parametrize("combine", [all_of, any_of, lambda *parts: CascadeEvaluationStrategy(parts)])
def test_what_is_combined_asks_the_judges_of_its_parts_and_says_so(combine: Any) -> None:
    """() says that no model is asked, None that nobody knows: a part that says nothing gets governed models too."""

    class Asks(Says):
        def __init__(self, *models: str) -> None:
            super().__init__("pass")
            self.models = models

    assert combine(Asks(), Asks()).models == ()
    assert combine(Asks("a"), Asks(), Asks("b")).models == ("a", "b")
    assert combine(Asks("a"), Says("pass")).models == ("a",)
    assert combine(Asks(), Says("pass")).models is None
