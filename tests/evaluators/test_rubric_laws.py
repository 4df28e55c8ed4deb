"""Rubrics with criteria for judges and humans, the laws they keep, and their digests."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.evaluators import Answer, Criterion, Decision, Review, Rubric, checks
from kairo_team.evaluators.score_range import Kind
from tests.evaluators.rubric_rig import asked, context, one, said, verdict

# ---------------------------------------------------------------- judges and humans


async def test_kf_e03_alone_a_rubric_with_a_criterion_for_a_judge_never_passes() -> None:
    """E03: a judge was wanted and not wired. It shows at every artifact, where the judge could change nothing too."""
    for criteria in (
        [one(True), asked("kind")],
        [one(True), asked("kind", kind="graded")],
        [one(True), asked("kind", kind="info")],
    ):
        escalated = await verdict(*criteria, threshold=0.5)
        assert (escalated.outcome, escalated.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.UNDECIDED)
        assert "kind" in escalated.feedback
    assert (await verdict(one(False), asked("kind"))).outcome is kt.VerdictOutcome.REVISE


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_a_human_criterion_is_for_the_human_whatever_else_is_unknown(order: Sequence[int]) -> None:
    """`undecided` may be accepted by a low risk, `human_required` never."""
    criteria = [asked("sign-off", "human"), one(OSError()), asked("kind")]
    escalated = await verdict(*(criteria[place] for place in order))
    assert (escalated.outcome, escalated.cause) == (kt.VerdictOutcome.ESCALATE, kt.Cause.HUMAN_REQUIRED)
    assert f"sign-off: {criteria[0].text} (a person decides it)" in escalated.feedback


_ANSWERS = st.sampled_from([None, True, False, "unknown"])
_KINDS: tuple[Kind, ...] = ("gate", "graded", "penalty", "info")
_CRITERIA = st.lists(
    st.tuples(st.sampled_from(["judge", "human"]), st.sampled_from(_KINDS), st.integers(1, 3), _ANSWERS),
    min_size=1,
    max_size=6,
).filter(lambda drawn: any(kind in ("gate", "graded") for _, kind, _, _ in drawn))


@given(drawn=_CRITERIA, threshold=st.sampled_from([0.3, 0.5, 1.0]))
def test_audit_g08_an_approval_is_a_pass_exactly_where_its_criteria_met_would_be_one(
    drawn: Sequence[tuple[Any, Kind, int, Any]], threshold: float
) -> None:
    """A person's approval says "met" of every criterion that is left to them, and nothing of any other."""
    criteria = [asked(f"c{n}", by, kind=kind, weight=weight) for n, (by, kind, weight, _) in enumerate(drawn)]
    rubric = Rubric(criteria, threshold)
    review = anyio.run(rubric.review, context())
    for criterion, (by, _, _, answer) in zip(criteria, drawn, strict=True):
        if answer is not None and by == "judge":
            review = review.answered(criterion.id, Answer(None if answer == "unknown" else answer))
    escalated = review.verdict()
    if escalated.cause is not kt.Cause.HUMAN_REQUIRED:
        assert escalated.approved() is escalated
        return
    met = review
    for criterion in criteria:
        if criterion.by == "human":
            met = met.answered(criterion.id, Answer(True))
    approved = escalated.approved("fine")
    assert (approved.outcome is kt.VerdictOutcome.PASS) is (met.decision is Decision.PASS)
    assert escalated.awaits_approval is (met.decision is Decision.PASS)
    if escalated.awaits_approval:
        of_people = {one.id: one.level for one in approved.criteria if one.by == "human"}
        assert set(of_people.values()) == {"approved"}
        assert (approved.cause, approved.other_causes) == (None, ())


async def test_a_human_is_not_asked_about_what_certainly_fails() -> None:
    assert (await verdict(one(False), asked("sign-off", "human"))).outcome is kt.VerdictOutcome.REVISE


async def review_of(*criteria: Criterion, threshold: float = 1.0, text: str = "The moon pulls the sea.") -> Review:
    return await Rubric(criteria, threshold).review(context(text))


async def test_a_strategy_asks_what_is_open_and_the_same_code_decides() -> None:
    review = await review_of(
        one(True), asked("a", kind="graded"), asked("b", kind="graded", weight=3), asked("h", "human")
    )
    assert [criterion.id for criterion in review.open("judge")] == ["b", "a"]
    assert [criterion.id for criterion in review.open("judge", costs={"b": 100})] == ["a", "b"]
    assert [criterion.id for criterion in review.open("human")] == ["h"]
    assert [review.lower, review.upper] == [0, 1]
    assert review.decision is Decision.OPEN
    review = review.answered("b", Answer(True))
    assert [review.lower, review.upper] == [0.75, 1]
    review = review.answered(
        "a", Answer(False, "it rambles", finding=kt.Finding("x", locus="line 1", observed="rambling"))
    )
    revise = review.verdict()
    assert (revise.outcome, revise.score) == (kt.VerdictOutcome.REVISE, 0.75)
    assert (revise.findings[0].criterion, revise.findings[0].observed) == ("a", "rambling")
    assert review.open("human") == []


async def test_a_judges_transcript_is_no_finding() -> None:
    review = (await review_of(asked("kind"))).answered("kind", Answer(False, "I think that the author of this text"))
    assert review.verdict().findings[0].observed == "not met: kind is good"


async def test_a_judge_who_cannot_tell_leaves_it_undecided() -> None:
    review = (await review_of(asked("kind"))).answered("kind", Answer(None, "no opinion"))
    assert review.open("judge") == []
    assert (review.verdict().cause, review.verdict().feedback) == (kt.Cause.UNDECIDED, "not decided: kind: no opinion")


async def test_nobody_overrules_a_check_or_is_asked_twice() -> None:
    review = await review_of(one(False), asked("kind"))
    with pytest.raises(ValueError, match="criterion 'c' has a ruling already"):
        review.answered("c", Answer(True))
    with pytest.raises(ValueError, match="no criterion 'kinds'; it has 'c', 'kind'"):
        review.answered("kinds", Answer(True))
    with pytest.raises(ValueError, match="criterion 'kind' has a ruling already"):
        review.answered("kind", Answer(False)).answered("kind", Answer(True))


@pytest.mark.parametrize(
    ("quote", "level"),
    [
        ("the MOON\n  pulls", "met"),
        ("The moon\u200b pulls the sea.", "met"),
        ("the moon pushes", "unknown"),
        ("", "unknown"),
        (" . ", "unknown"),
        (None, "unknown"),
    ],
)
async def test_met_needs_a_quote_that_stands_in_the_artifact(quote: str | None, level: str) -> None:
    review = (await review_of(asked("cause", evidence="quote"))).answered("cause", Answer(True, quote=quote))
    assert review.verdict().criteria[0].level == level
    worst = (await review_of(asked("cause", evidence="quote"))).answered("cause", Answer(False, quote=quote))
    assert worst.verdict().outcome is kt.VerdictOutcome.REVISE


# ---------------------------------------------------------------- laws


KINDS: list[Kind] = ["gate", "graded", "penalty", "info"]
SAID = st.sampled_from([True, False, None])


@st.composite
def mixed(draw: st.DrawFn) -> tuple[list[Criterion], dict[str, Any]]:
    """Criteria for a judge, and what it would say of each."""
    kinds = [draw(st.sampled_from(["gate", "graded"])), *draw(st.lists(st.sampled_from(KINDS), max_size=5))]
    criteria = [asked(f"c{n}", kind=kind, weight=draw(st.integers(1, 5))) for n, kind in enumerate(kinds)]
    return criteria, {criterion.id: draw(SAID) for criterion in criteria}


def begun(criteria: list[Criterion], threshold: float) -> Review:
    return anyio.run(partial(review_of, *criteria, threshold=threshold))


@given(mixed(), st.sampled_from([0.3, 0.5, 0.8, 1.0]), st.randoms(use_true_random=False))
def test_a_strategy_that_stops_early_ends_as_one_that_asks_everything(
    case: tuple[list[Criterion], dict[str, Any]], threshold: float, shuffle: random.Random
) -> None:
    criteria, truth = case
    early = full = begun(criteria, threshold)
    while early.decision is Decision.OPEN and (open_ones := early.open("judge")):
        early = early.answered(open_ones[0].id, Answer(truth[open_ones[0].id]))
    in_any_order = list(truth)
    shuffle.shuffle(in_any_order)
    for criterion_id in in_any_order:
        full = full.answered(criterion_id, Answer(truth[criterion_id]))
    assert (early.verdict().outcome, early.verdict().cause) == (full.verdict().outcome, full.verdict().cause)
    assert early.lower <= full.lower <= full.upper <= early.upper
    if full.verdict().score is not None:
        assert 0 <= (early.verdict().score or 0) <= 1


@given(mixed(), st.sampled_from([0.3, 0.8, 1.0]), st.randoms(use_true_random=False))
def test_kf_e14_the_order_of_the_criteria_changes_neither_outcome_nor_score(
    case: tuple[list[Criterion], dict[str, Any]], threshold: float, shuffle: random.Random
) -> None:
    criteria, truth = case
    ends: list[kt.EvaluationVerdict] = []
    for _ in range(2):
        checked = [Criterion(c.id, c.text, said(truth[c.id]), kind=c.kind, weight=c.weight) for c in criteria]
        ends.append(anyio.run(partial(verdict, *checked, threshold=threshold)))
        shuffle.shuffle(criteria)
    first, second = ends
    assert (first.outcome, first.cause, first.score) == (second.outcome, second.cause, second.score)
    assert sorted(r.id for r in first.criteria) == sorted(r.id for r in second.criteria)


def plainly(artifact: kt.Artifact) -> bool | str:
    return "moon" in artifact.text or "no moon"


async def later(artifact: kt.Artifact) -> bool | str:
    await anyio.sleep(5)
    return plainly(artifact)


@pytest.mark.parametrize("text", ["moon", "sun"])
async def test_kf_e14_a_plain_and_an_async_check_decide_alike(text: str) -> None:
    """E14: sync against async changed the score. A quick plain check takes no time where time is virtual."""
    ends = [await verdict(Criterion("moon", "it names the moon", check), text=text) for check in (plainly, later)]
    assert ends[0] == ends[1]
    assert ends[0].outcome is (kt.VerdictOutcome.PASS if text == "moon" else kt.VerdictOutcome.REVISE)


async def test_kf_e10_a_hundred_reviews_at_once_are_those_one_after_another() -> None:
    """E10: parallel evaluations mixed their results."""

    async def slowly(artifact: kt.Artifact) -> bool | str:
        await anyio.sleep(len(artifact.text) % 7)
        return len(artifact.text) % 2 == 0 or f"{len(artifact.text)} characters"

    rubric = Rubric([Criterion("even", "even", slowly), Criterion("short", "short", checks.max_chars(50))])
    contexts = [context("x" * (n + 1)) for n in range(100)]
    serial = [await rubric.evaluate(one) for one in contexts]
    together: dict[int, kt.EvaluationVerdict] = {}

    async def evaluate(number: int) -> None:
        together[number] = await rubric.evaluate(contexts[number])

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(evaluate, number)
    assert [together[number] for number in range(100)] == serial


# ---------------------------------------------------------------- digests


def base(**fields: Any) -> Rubric:
    return Rubric([Criterion("a", "short", checks.max_words(5)), asked("b", **fields)], fields.pop("threshold", 0.5))


def test_a_digest_is_that_of_what_decides_in_whatever_order() -> None:
    swapped = Rubric(base().criteria[::-1], 0.5)
    assert base().digest == swapped.digest == base().digest
    assert len(base().digest or "") == 64


def longer(limit: int) -> Callable[[kt.Artifact], bool]:
    return lambda artifact: len(artifact.text) > limit


class Longer:
    """A check that is an object."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, artifact: kt.Artifact) -> bool:
        return len(artifact.text) > self.limit


def closed_over(thing: object) -> Callable[[kt.Artifact], bool]:
    return lambda _: bool(thing)


def shorter(artifact: kt.Artifact) -> bool:
    return len(artifact.text) < 5


@pytest.mark.parametrize(
    "other",
    [
        Rubric([Criterion("a", "short", checks.max_words(5)), asked("b")], 0.6),
        Rubric([Criterion("a", "short", checks.max_words(6)), asked("b")], 0.5),
        Rubric([Criterion("a", "shorter", checks.max_words(5)), asked("b")], 0.5),
        Rubric([Criterion("a", "short", checks.min_words(5)), asked("b")], 0.5),
        base(weight=2),
        base(kind="graded"),
        base(evidence="quote"),
        base(levels=("no", "yes")),
        base(by="human"),
        base(applies=shorter),
    ],
)
def test_whatever_decides_changes_the_digest(other: Rubric) -> None:
    assert other.digest != base().digest


def test_functions_count_by_their_source_and_what_they_close_over() -> None:
    def digest(check: Any) -> str | None:
        return Rubric([Criterion("a", "short", check)]).digest

    assert digest(longer(3)) == digest(longer(3)) != digest(longer(4))
    assert digest(partial(shorter)) == digest(partial(shorter)) != digest(shorter)
    assert digest(checks.contains("a")) == digest(checks.contains("a")) != digest(checks.contains("b"))
    assert digest(len) != digest(max)
    assert digest(Longer(3)) == digest(Longer(3)) != digest(Longer(4))
    assert digest(closed_over(object())) == digest(closed_over(object())) != digest(closed_over([1]))
    assert digest(eval("lambda artifact: True")), "its source cannot be read"  # noqa: S307 - as typed at a prompt


def test_it_is_the_same_in_another_process() -> None:
    code = (
        "from kairo_team.evaluators import *\n"
        "criteria = [Criterion('a', 'short', checks.max_words(5)), Criterion('b', 'b is good', by='judge')]\n"
        "print(Rubric(criteria, 0.5).digest)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == base().digest
