"""Later rounds of a review: the criteria stay, nothing new blocks, what is mended is closed, and no judge may flip."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.evaluators import Answer, Criterion, CriterionResult, PanelEvaluationStrategy, Rubric, checks
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.evaluators.score_range import Kind
from tests.evaluators.judge_rig import Judging, criteria_asked, reviewed
from tests.evaluators.rubric_rig import asked, context, one, said

pytestmark = pytest.mark.anyio

REVISE, ESCALATE, PASS = kt.VerdictOutcome.REVISE, kt.VerdictOutcome.ESCALATE, kt.VerdictOutcome.PASS
TEXT = "The moon pulls the sea, so the water rises twice a day."

Rounds = list[kt.EvaluationVerdict]


async def next_round(rubric: Rubric, text: str, before: Rounds) -> kt.EvaluationVerdict:
    verdict = await rubric.evaluate(context(text, attempt=len(before) + 1, prior_verdicts=tuple(before)))
    before.append(verdict)
    return verdict


def told(verdict: kt.EvaluationVerdict) -> list[tuple[str | None, str, str]]:
    return [(finding.criterion, finding.severity, finding.status) for finding in verdict.findings]


WORDS = Rubric([Criterion(name, f"it names the {name}", checks.contains(name)) for name in ("moon", "sea", "day")])


# ---------------------------------------------------------------- what a finding is in a later round


async def test_what_is_mended_is_closed_what_is_not_stays_open_and_what_got_worse_is_regressed() -> None:
    rounds = Rounds()
    first = await next_round(WORDS, "the day", rounds)
    assert told(first) == [("moon", "blocking", "open"), ("sea", "blocking", "open")]
    second = await next_round(WORDS, "the moon", rounds)
    assert told(second) == [
        ("sea", "blocking", "open"), ("day", "blocking", "regressed"), ("moon", "info", "closed")
    ]  # fmt: skip
    third = await next_round(WORDS, "the sea at day", rounds)
    assert told(third) == [("moon", "blocking", "regressed"), ("sea", "info", "closed"), ("day", "info", "closed")]
    last = await next_round(WORDS, "the moon, the sea, the day", rounds)
    assert (last.outcome, [status for *_, status in told(last)]) == (PASS, ["closed"] * 3)


async def test_a_closed_finding_says_what_to_leave_and_nothing_that_was_wrong_once() -> None:
    rounds = Rounds()
    await next_round(WORDS, "the day", rounds)
    (closed,) = [one for one in (await next_round(WORDS, "the moon", rounds)).findings if one.status == "closed"]
    assert closed == kt.Finding("moon", "moon", "info", expected="it names the moon", status="closed")


async def test_nothing_is_closed_that_was_never_open() -> None:
    assert (await next_round(WORDS, "the moon, the sea, the day", [])).findings == ()


async def test_a_criterion_that_is_decided_for_the_first_time_blocks_in_any_round() -> None:
    """The judge is not asked while a gate fails; its criterion is one of the frozen ones all the same."""
    rubric = Rubric([Criterion("moon", "it names the moon", checks.contains("moon")), asked("kind")])
    judge, rounds = Judging({"kind": "not met"}), Rounds()
    first = await judged(judge, rubric, "the sea", rounds)
    assert (told(first), judge.asked) == ([("moon", "blocking", "open")], [])
    second = await judged(judge, rubric, "the moon", rounds)
    assert (second.outcome, told(second)) == (REVISE, [("kind", "blocking", "open"), ("moon", "info", "closed")])


async def test_what_is_unknown_is_neither_closed_nor_open_and_keeps_its_history() -> None:
    answers: list[Any] = [False, OSError(), True, OSError(), False]
    rounds = Rounds()
    for answer in answers:
        await next_round(Rubric([one(answer), one(False, id="other")]), "x", rounds)
    statuses = [[status for name, _, status in told(verdict) if name == "c"] for verdict in rounds]
    assert statuses == [["open"], [], ["closed"], [], ["regressed"]]


async def test_what_no_judge_needs_to_see_is_regressed_once_a_judge_has_seen_the_artifact() -> None:
    judge, rounds = Judging({"kind": "not met"}), Rounds()
    rubric = Rubric([Criterion("few", "few words", checks.max_words(20)), asked("kind")])
    for text in ("...", TEXT, "..."):
        await judged(judge, rubric, text, rounds)
    assert [(v.findings[0].id, v.findings[0].status) for v in rounds] == [
        ("artifact", "open"), ("kind", "open"), ("artifact", "regressed")
    ]  # fmt: skip
    assert [result.passed for result in rounds[0].criteria] == [True, None], "what checks said is not lost"


async def test_findings_come_with_those_in_front_that_move_the_outcome_most() -> None:
    """Gates, then points lost; equals in the rubric's order."""
    verdict = await Rubric(
        [
            one(False, id="light", kind="graded", weight=1),
            one("middle", id="half", kind="graded", weight=8, levels=("not met", "half", "met")),
            one(False, id="note", kind="info"),
            one(False, id="gate-b"),
            one(Answer("half"), id="mid", kind="graded", weight=8, levels=("not met", "half", "met")),
            one(False, id="gate-a"),
            one(False, id="dear", kind="penalty", weight=5),
        ]
    ).evaluate(context())
    assert [name for name, *_ in told(verdict)] == ["gate-b", "gate-a", "half", "dear", "mid", "light", "note"]


# ---------------------------------------------------------------- a judge that contradicts itself


async def judged(judge: Judging, rubric: Rubric, text: str, before: Rounds) -> kt.EvaluationVerdict:
    strategy = AgentEvaluationStrategy("test:judge", rubric)
    verdict = await strategy.evaluate(
        reviewed(text, judge.model, attempt=len(before) + 1, prior=tuple(before)),
    )
    before.append(verdict)
    return verdict


def met(quote: str = "") -> dict[str, str]:
    return {"answer": "met", "quote": quote}


def wanting(quote: str = "", where: str = "") -> dict[str, str]:
    return {"answer": "not met", "quote": quote, "where": where, "observed": "it is hard"}


MORE = f"{TEXT} Gravitation does it."
FLIPS = {
    "met, then not met, of the same words": (met("the moon pulls"), TEXT, wanting("the moon pulls"), MORE, True),
    "of some of the same words": (met("the moon pulls the sea"), TEXT, wanting("The MOON"), MORE, True),
    "where the finding says they stand": (met("the moon pulls"), TEXT, wanting(where="the moon pulls"), MORE, True),
    "showing no others": (met("the moon pulls"), TEXT, wanting(), MORE, True),
    "of other words": (met("the moon pulls"), TEXT, wanting("Gravitation"), MORE, False),
    "of more words than that": (met("the water rises"), TEXT, wanting("so the water rises twice"), MORE, False),
    "in another place": (met("the moon pulls"), TEXT, wanting(where="line 2"), MORE, False),
    "of words that have changed": (met("the sea, so"), TEXT, wanting("the sea"), "The sea rises.", False),
    "met without a quote": (met(), TEXT, wanting("the moon pulls"), MORE, False),
    "not met, then met, of the same words": (wanting("twice a day"), TEXT, met("twice a day"), MORE, True),
    "where the finding said they stood": (wanting(where="twice a day"), TEXT, met("a day"), MORE, True),
    "of what was added": (wanting("twice a day"), TEXT, met("Gravitation"), MORE, False),
    "with no quote: it may be right by what was added": (wanting("twice a day"), TEXT, met(), MORE, False),
}


@pytest.mark.parametrize("name", FLIPS)
async def test_kf_e16_a_judge_that_flips_on_words_that_have_not_changed_decides_nothing(name: str) -> None:
    """E16: judging again until it passed. Nor does it fail by that: somebody else decides."""
    before, old, now, new, flips = FLIPS[name]
    rubric, judge, rounds = Rubric([asked("kind")]), Judging({"kind": before}), Rounds()
    await judged(judge, rubric, old, rounds)
    judge.says = {"kind": now}
    verdict = await judged(judge, rubric, new, rounds)
    if flips:
        assert (verdict.outcome, verdict.cause) == (ESCALATE, kt.Cause.CONTRADICTION)
        assert "has not changed" in verdict.feedback
        assert (verdict.score, verdict.criteria[0].level) == (None, "unknown")
        assert {severity for _, severity, _ in told(verdict)} <= {"info"}
    else:
        assert verdict.outcome is (PASS if now["answer"] == "met" else REVISE)


async def test_a_check_may_say_the_opposite_of_the_same_words() -> None:
    rounds = Rounds()
    await next_round(Rubric([one(Answer(True, quote="the moon"))]), TEXT, rounds)
    verdict = await next_round(Rubric([one(Answer(False, quote="the moon"))]), TEXT, rounds)
    assert (verdict.outcome, told(verdict)) == (REVISE, [("c", "blocking", "regressed")])


async def test_a_human_may_think_better_of_the_same_words() -> None:
    rubric = Rubric([asked("sign-off", "human")])
    first = (await rubric.review(context(TEXT))).answered("sign-off", Answer(True, quote="the moon")).verdict()
    review = await rubric.review(context(MORE, attempt=2, prior_verdicts=(first,)))
    assert review.answered("sign-off", Answer(False, quote="the moon")).verdict().outcome is REVISE


@pytest.mark.parametrize(
    ("others", "threshold", "outcome", "cause"),
    [
        ([one(False, id="gate")], 1.0, REVISE, None),
        ([one(True, id="most", kind="graded", weight=9)], 0.9, PASS, None),
        ([one(True, id="most", kind="graded", weight=8)], 0.9, ESCALATE, kt.Cause.CONTRADICTION),
        ([one(False, id="most", kind="graded", weight=9)], 0.9, REVISE, None),
        ([asked("sign-off", "human")], 1.0, ESCALATE, kt.Cause.HUMAN_REQUIRED),
    ],
)
async def test_a_contradiction_matters_where_the_outcome_hangs_on_it(
    others: list[Criterion], threshold: float, outcome: kt.VerdictOutcome, cause: kt.Cause | None
) -> None:
    rubric = Rubric([asked("kind", kind="graded"), *others], threshold)
    review = await rubric.review(context(TEXT))
    first = review.answered("kind", Answer(True, quote="the moon")).verdict()
    review = await rubric.review(context(MORE, attempt=2, prior_verdicts=(first,)))
    verdict = review.answered("kind", Answer(False, quote="the moon")).verdict()
    assert (verdict.outcome, verdict.cause) == (outcome, cause)


async def test_a_panel_contradicts_itself_by_its_quorum() -> None:
    judges = [Judging({"kind": met("the moon pulls")}) for _ in range(3)]
    panel = PanelEvaluationStrategy([judge.model for judge in judges], Rubric([asked("kind")]))
    first = await panel.evaluate(reviewed(TEXT))
    judges[0].says = {"kind": wanting("the moon pulls")}
    assert (await panel.evaluate(reviewed(MORE, attempt=2, prior=(first,)))).outcome is PASS
    judges[1].says = judges[0].says
    verdict = await panel.evaluate(reviewed(MORE, attempt=2, prior=(first,)))
    assert (verdict.outcome, verdict.cause) == (ESCALATE, kt.Cause.CONTRADICTION)


async def test_results_of_joined_strategies_that_disagree_are_no_contradiction() -> None:
    """Two strategies may have a criterion of the same name; the worse of their answers is remembered, and no place."""
    results = [CriterionResult("kind", "met", True, quote="the moon"), CriterionResult("kind", "not met", False)]
    for order in (results, results[::-1]):
        before = kt.EvaluationVerdict.revise("no", criteria=order)
        review = await Rubric([asked("kind")]).review(context(MORE, attempt=2, prior_verdicts=(before,)))
        assert review.answered("kind", Answer(False, quote="the moon")).verdict().outcome is REVISE


# ---------------------------------------------------------------- laws


KINDS: list[Kind] = ["gate", "graded", "penalty", "info"]
SAID = st.sampled_from([True, False, None])
Script = list[dict[str, Any]]


@st.composite
def rounds_of(draw: st.DrawFn) -> tuple[list[Criterion], Script]:
    """Criteria for a judge, and what it says of each, round by round."""
    kinds = [draw(st.sampled_from(["gate", "graded"])), *draw(st.lists(st.sampled_from(KINDS), max_size=7))]
    criteria = [asked(f"c{n}", kind=kind, weight=draw(st.integers(1, 4))) for n, kind in enumerate(kinds)]
    script = draw(st.lists(st.fixed_dictionaries({c.id: SAID for c in criteria}), min_size=1, max_size=5))
    return criteria, script


async def play(criteria: Sequence[Criterion], script: Script, threshold: float, *, remember: bool = True) -> Rounds:
    """Review every round as a strategy does that asks as long as the outcome depends on it."""
    rubric, rounds = Rubric(criteria, threshold), Rounds()
    for answers in script:
        prior = tuple(rounds) if remember else ()
        review = await rubric.review(context(attempt=len(rounds) + 1, prior_verdicts=prior))
        while left := review.open("judge"):
            review = review.answered(left[0].id, Answer(answers[left[0].id]))
        rounds.append(review.verdict())
    return rounds


def played(*args: Any, **fields: Any) -> Rounds:
    return anyio.run(partial(play, *args, **fields))


THRESHOLDS = st.sampled_from([0.3, 0.8, 1.0])


def known_before(rounds: Rounds, criterion: str | None) -> list[bool]:
    results = (result for verdict in rounds for result in verdict.criteria if result.id == criterion)
    return [result.passed for result in results if result.passed is not None]


@given(rounds_of(), THRESHOLDS)
def test_kf_e15_no_round_blocks_on_what_is_neither_open_nor_regressed_nor_decided_for_the_first_time(
    case: tuple[list[Criterion], Script], threshold: float
) -> None:
    """E15: moving goalposts."""
    criteria, script = case
    rounds = played(criteria, script, threshold)
    ids = {criterion.id for criterion in criteria}
    for number, verdict in enumerate(rounds):
        assert {finding.criterion for finding in verdict.findings} <= ids
        for finding in verdict.findings:
            before = known_before(rounds[:number], finding.criterion)
            if finding.status == "closed":
                assert False in before
                assert finding.severity == "info"
            else:
                assert finding.status == ("regressed" if True in before else "open")


@given(rounds_of(), THRESHOLDS)
def test_rounds_change_no_outcome(case: tuple[list[Criterion], Script], threshold: float) -> None:
    """What earlier rounds found changes what is told, not what is decided: PASS needs every gate met."""
    rounds = played(*case, threshold)
    alone = played(*case, threshold, remember=False)
    assert [(v.outcome, v.cause, v.score, v.criteria) for v in rounds] == [
        (v.outcome, v.cause, v.score, v.criteria) for v in alone
    ]
    blocking = [[f.criterion for f in v.findings if f.severity == "blocking"] for v in rounds]
    assert blocking == [[f.criterion for f in v.findings if f.severity == "blocking"] for v in alone]


@given(rounds_of(), THRESHOLDS)
def test_closing_is_for_good(case: tuple[list[Criterion], Script], threshold: float) -> None:
    """What was closed is closed, regressed or unknown ever after, and never simply open again."""
    closed: set[str | None] = set()
    for verdict in played(*case, threshold):
        standing = {finding.criterion: finding.status for finding in verdict.findings}
        met_now = {result.id for result in verdict.criteria if result.passed}
        for name in closed:
            assert standing.get(name) in ("closed", "regressed", None)
            assert (standing.get(name) == "closed") == (name in met_now)
        closed |= {name for name, status in standing.items() if status == "closed"}


@given(rounds_of(), THRESHOLDS, st.randoms(use_true_random=False))
def test_kf_e14_the_order_of_the_criteria_changes_nothing_in_later_rounds(
    case: tuple[list[Criterion], Script], threshold: float, shuffle: random.Random
) -> None:
    """Only equals change places. Checks decide here: which criteria a judge is asked first is another matter."""
    criteria, script = case

    async def rounds() -> Rounds:
        made = Rounds()
        for answers in script:
            checked = [Criterion(c.id, c.text, said(answers[c.id]), kind=c.kind, weight=c.weight) for c in criteria]
            await next_round(Rubric(checked, threshold), TEXT, made)
        return made

    one_way = anyio.run(rounds)
    shuffle.shuffle(criteria)
    other = anyio.run(rounds)
    assert [(v.outcome, v.cause, v.score) for v in one_way] == [(v.outcome, v.cause, v.score) for v in other]
    assert [sorted(map(str, told(v))) for v in one_way] == [sorted(map(str, told(v))) for v in other]
    assert [importance(v, criteria) for v in one_way] == [importance(v, criteria) for v in other]


def importance(verdict: kt.EvaluationVerdict, criteria: Sequence[Criterion]) -> list[tuple[str, Any]]:
    """What each finding that is wrong weighs, in their order."""
    weights: Mapping[str | None, Any] = {c.id: "gate" if c.kind == "gate" else c.weight for c in criteria}
    weights = {**weights, **{c.id: 0 for c in criteria if c.kind == "info"}}
    return [(f.severity, weights[f.criterion]) for f in verdict.findings if f.status != "closed"]


async def test_a_judge_is_asked_by_the_same_criteria_in_every_round() -> None:
    judge, rounds = Judging({"a": "not met", "b": "met"}), Rounds()
    for text in (TEXT, MORE):
        await judged(judge, Rubric([asked("a"), asked("b")]), text, rounds)
    assert [criteria_asked(request) for request in judge.asked] == [["a is good", "b is good"]] * 2
