"""How a judge's answers stand beside a human's: against the definition, by criterion, and in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kairo_team.evaluators import (
    AgentEvaluationStrategy,
    Criterion,
    LabelledArtifact,
    Rubric,
    calibrate,
    read_labelled,
    score_judge,
)
from kairo_team.evaluators.calibration.agreement import agreement
from tests.evaluators.calibration_doubles import Told, labels
from tests.evaluators.judge_rig import Judging

LEVELS = ("poor", "fair", "good")
answers = st.lists(st.tuples(st.sampled_from(LEVELS), st.sampled_from([*LEVELS, "unknown", None])), max_size=30)


def by_pairs(pairs: Sequence[tuple[int, int]], *, weighted: bool) -> float | None:
    """Kappa as it is defined: the mean disagreement, beside that of every answer with every other's label."""

    def distance(human: int, judge: int) -> float:
        return float((human - judge) ** 2 if weighted else human != judge)

    if not pairs:
        return None
    seen = sum(distance(human, judge) for human, judge in pairs) / len(pairs)
    chance = sum(distance(human, judge) for human, _ in pairs for _, judge in pairs) / len(pairs) ** 2
    return None if chance == 0 else 1 - seen / chance


@given(answers)
def test_agreement_is_counted_cell_by_cell_and_kappa_is_as_defined(given: list[tuple[str, str | None]]) -> None:
    made = agreement("tone", LEVELS, given)
    pairs = [(LEVELS.index(human), LEVELS.index(judge)) for human, judge in given if judge in LEVELS]
    assert made.counts == tuple(tuple(pairs.count((row, column)) for column in range(3)) for row in range(3))
    assert sum(made.unanswered) == len(given) - len(pairs)
    assert (made.agreed.k, made.agreed.n) == (sum(human == judge for human, judge in pairs), len(pairs))
    assert made.majority.k == max([[human for human, _ in pairs].count(place) for place in range(3)])
    for weighted, kappa in ((False, made.kappa), (True, made.weighted_kappa)):
        expected = by_pairs(pairs, weighted=weighted)
        assert kappa == (None if expected is None else pytest.approx(expected, abs=1e-12))


@given(answers)
def test_with_two_levels_the_weighted_kappa_is_the_plain_one(given: list[tuple[str, str | None]]) -> None:
    two = [(human, judge) for human, judge in given if human != "fair"]
    made = agreement("tone", ("poor", "good"), two)
    assert made.kappa == made.weighted_kappa


@given(answers)
def test_the_most_frequent_level_is_what_the_baseline_counts(given: list[tuple[str, str | None]]) -> None:
    made = agreement("tone", LEVELS, given)
    assume(made.agreed.n)
    assert sum(made.counts[LEVELS.index(made.most_frequent)]) == made.majority.k


def test_near_misses_cost_less_than_far_ones() -> None:
    right = [(level, level) for level in LEVELS] * 5
    near, far = agreement("t", LEVELS, [*right, ("poor", "fair")]), agreement("t", LEVELS, [*right, ("poor", "good")])
    assert near.kappa == pytest.approx(far.kappa, abs=0.01)
    assert near.weighted_kappa is not None
    assert far.weighted_kappa is not None
    assert near.weighted_kappa > far.weighted_kappa + 0.05


# ---------------------------------------------------------------- of a judge

RUBRIC = Rubric(
    [
        Criterion("tone", "the tone is right", by="judge", kind="graded", levels=LEVELS),
        Criterion("plain", "a child understands it", by="judge"),
    ]
)


def labelled(*rows: tuple[str, bool, Any, Any]) -> list[LabelledArtifact]:
    return [
        LabelledArtifact(f"{text} #{number}", "Explain tides.", passed, levels={"tone": tone, "plain": plain})
        for number, (text, passed, tone, plain) in enumerate(rows)
    ]


@pytest.mark.anyio
async def test_the_report_compares_each_criterion_that_the_labels_speak_of() -> None:
    judge = Judging({"tone": "fair", "child": "met"})
    rows = labelled(("a", True, "fair", True), ("b", False, "good", False), ("c", True, "poor", "met"))
    only_passed = LabelledArtifact("The sea.", "Explain tides.", True)
    strategy = AgentEvaluationStrategy("test:judge", RUBRIC)
    scored = await score_judge(strategy, [*rows, only_passed], models={"test:judge": judge.model})
    tone, plain = scored.report.criteria
    assert (tone.name, tone.levels, tone.counts) == ("tone", LEVELS, ((0, 1, 0), (0, 1, 0), (0, 1, 0)))
    assert (plain.counts, plain.agreed.k, plain.most_frequent) == (((0, 1), (0, 2)), 2, "met")
    found = await calibrate(strategy, rows, models={"test:judge": judge.model})
    assert found.report.criteria == scored.report.criteria
    document = scored.report.to_json()
    assert [one["name"] for one in document["criteria"]] == ["tone", "plain"]
    assert document["decisions"]["levels"] == ["revise", "pass"]


@pytest.mark.anyio
async def test_what_the_judge_left_open_is_unanswered() -> None:
    judge = Judging({"tone": "cannot tell", "child": "cannot tell"})
    rows = labelled(("a", True, "fair", True))
    scored = await score_judge(AgentEvaluationStrategy("test:judge", RUBRIC), rows, models={"test:judge": judge.model})
    assert [one.unanswered for one in scored.report.criteria] == [(0, 1, 0), (0, 1)]
    assert scored.report.decisions.unanswered == (0, 1)


@pytest.mark.anyio
async def test_a_label_for_a_criterion_or_level_that_there_is_not_is_refused_before_a_judge_is_asked() -> None:
    judge = Judging({"tone": "fair", "child": "met"})
    strategy = AgentEvaluationStrategy("test:judge", RUBRIC)
    (one,) = labelled(("a", True, "fair", True))
    for levels, complaint in (
        ({"tome": "fair"}, "names the criterion 'tome'; there are 'plain', 'tone'"),
        ({"tone": "great"}, "has 'great' for 'tone'; its levels are"),
    ):
        for ask in (calibrate, score_judge):
            with pytest.raises(ValueError, match=complaint):
                await ask(strategy, [replace(one, levels=levels)], models={"test:judge": judge.model})
    assert judge.asked == []


@pytest.mark.anyio
async def test_the_same_artifact_with_other_levels_is_labelled_in_two_ways() -> None:
    (one,) = labels((1, "pass 0.9", True))
    with pytest.raises(ValueError, match="is labelled with two levels for a criterion"):
        await score_judge(Told(), [one, replace(one, levels={"tone": True})])


def test_levels_are_read_from_lines() -> None:
    line = '{"artifact": "a", "task": "t", "passed": true, "levels": {"tone": "fair", "plain": false}}'
    (one,) = read_labelled(line)
    assert one.levels == {"tone": "fair", "plain": False}
    with pytest.raises(ValueError, match=r"line 1: LabelledArtifact\.levels\['plain'\] must be True or False or"):
        read_labelled(line.replace("false", "7"))
