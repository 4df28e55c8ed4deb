"""The arithmetic of rubrics: a decision made early is the decision made with everything known."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.evaluators.score_range import (
    KINDS,
    Decision,
    Item,
    Kind,
    decide,
    exact,
    in_order,
    items_of,
    relevant,
    score,
    stand,
)

Level = int | None
GATE: tuple[Kind, ...] = ("gate",)
GRADED: tuple[Kind, ...] = ("graded",)
ONE: tuple[tuple[Kind, Fraction, int], ...] = (("graded", Fraction(1), 1),)
WEIGHTS = st.one_of(
    st.integers(1, 9).map(Fraction),
    st.fractions(Fraction(1, 1000), 1000),
    st.sampled_from([Fraction(1, 10**30), Fraction(10**30)]),
)
THRESHOLDS = st.one_of(st.sampled_from([Fraction(1), Fraction(4, 5), Fraction(1, 10**9)]), st.fractions(0, 1)).filter(
    bool
)
CRITERIA = st.tuples(st.sampled_from(KINDS), WEIGHTS, st.integers(1, 3))


@st.composite
def rubrics(draw: st.DrawFn, most: int = 6) -> tuple[tuple[Item, ...], Fraction]:
    """Items and a threshold, as a rubric that is not vacuous would have them."""
    first: tuple[Kind, Fraction, int] = (draw(st.sampled_from(["gate", "graded"])), draw(WEIGHTS), 1)
    rest = draw(st.lists(CRITERIA, max_size=most - 1))
    return items_of(draw(st.permutations([first, *rest]))), draw(THRESHOLDS)


def level(item: Item) -> st.SearchStrategy[Level]:
    return st.one_of(st.none(), st.integers(0, item.top))


@st.composite
def cases(draw: st.DrawFn, most: int = 6) -> tuple[tuple[Item, ...], Fraction, tuple[Level, ...]]:
    items, threshold = draw(rubrics(most))
    return items, threshold, tuple(draw(level(item)) for item in items)


def completions(items: Sequence[Item], levels: Sequence[Level]) -> list[tuple[Level, ...]]:
    """Every way in which the unknown can still turn out, staying unknown being one of them."""
    choices = [
        [known] if known is not None else [None, *range(item.top + 1)]
        for item, known in zip(items, levels, strict=True)
    ]
    return list(itertools.product(*choices))


def decision(items: Sequence[Item], levels: Sequence[Level], threshold: Fraction) -> Decision:
    return decide(stand(items, levels), threshold)


def plainly(items: Sequence[Item], levels: Sequence[int], threshold: Fraction) -> Decision:
    """The rule for a rubric of which everything is known, written down once more without intervals."""
    if any(item.kind == "gate" and at < item.top for item, at in zip(items, levels, strict=True)):
        return Decision.REVISE
    graded = sum((Fraction(item.step * item.top) for item in items if item.kind == "graded"), Fraction())
    penalties = sum((Fraction(item.step * item.top) for item in items if item.kind == "penalty"), Fraction())
    total = graded or penalties
    earned = sum((Fraction(i.step * at) for i, at in zip(items, levels, strict=True) if i.kind == "graded"), Fraction())
    lost = sum(
        (Fraction(i.step * (i.top - at)) for i, at in zip(items, levels, strict=True) if i.kind == "penalty"),
        Fraction(),
    )
    earned = earned if graded else total
    return Decision.PASS if not total or (earned - lost) / total >= threshold else Decision.REVISE


# ---------------------------------------------------------------- the law of early stopping


@given(cases())
def test_an_early_decision_stands_for_every_completion_of_the_unknowns(
    case: tuple[tuple[Item, ...], Fraction, tuple[Level, ...]],
) -> None:
    items, threshold, levels = case
    early = decision(items, levels, threshold)
    if early is not Decision.OPEN:
        assert {decision(items, full, threshold) for full in completions(items, levels)} == {early}


@given(cases())
def test_a_decision_is_open_only_while_completions_differ_or_a_gate_stays_unknown(
    case: tuple[tuple[Item, ...], Fraction, tuple[Level, ...]],
) -> None:
    """The interval is not wider than it must be: what is OPEN can still end either way."""
    items, threshold, levels = case
    known = {decision(items, full, threshold) for full in completions(items, levels) if None not in full}
    assert (decision(items, levels, threshold) is Decision.OPEN) == (len(known) > 1)


@given(rubrics(), st.data())
def test_with_everything_known_the_decision_is_the_plain_rule(
    rubric: tuple[tuple[Item, ...], Fraction], data: st.DataObject
) -> None:
    items, threshold = rubric
    levels = [data.draw(st.integers(0, item.top)) for item in items]
    assert decision(items, levels, threshold) is plainly(items, levels, threshold)


def asked_one_by_one(
    items: Sequence[Item], threshold: Fraction, truth: Sequence[Level], costs: Sequence[int]
) -> tuple[Decision, int]:
    """Ask for what matters most until it is decided or nothing is left; `None` is an answer nobody could give."""
    levels: list[Level] = [None] * len(items)
    asked: set[int] = set()
    while left := [place for place in relevant(items, levels, threshold) if place not in asked]:
        place = in_order(items, left, costs)[0]
        levels[place] = truth[place]
        asked.add(place)
    return decision(items, levels, threshold), len(asked)


@given(rubrics(), st.data())
def test_asking_only_while_it_matters_ends_as_asking_everything(
    rubric: tuple[tuple[Item, ...], Fraction], data: st.DataObject
) -> None:
    items, threshold = rubric
    truth = [data.draw(level(item)) for item in items]
    costs = [data.draw(st.integers(1, 100)) for _ in items]
    ended, _ = asked_one_by_one(items, threshold, truth, costs)
    assert ended is decision(items, truth, threshold)


@pytest.mark.exhaustive
def test_twelve_unknowns_are_brute_forced() -> None:
    """Every one of the 3^12 ways in which twelve criteria can be met, not met or unknown."""
    kinds: list[Kind] = [*2 * GATE, *7 * GRADED, "penalty", "penalty", "info"]
    items = items_of((kind, Fraction(1 + place % 3), 1) for place, kind in enumerate(kinds))
    threshold = Fraction(3, 5)
    ends: dict[tuple[Level, ...], frozenset[Decision]] = {}
    for levels in itertools.product((0, 1, None), repeat=len(items)):
        if None not in levels:
            ends[levels] = frozenset({plainly(items, [at for at in levels if at is not None], threshold)})
            continue
        place = levels.index(None)
        possible = frozenset[Decision]().union(*(ends[(*levels[:place], at, *levels[place + 1 :])] for at in (0, 1)))
        ends[levels] = possible
        early = decision(items, levels, threshold)
        assert early is (next(iter(possible)) if len(possible) == 1 else Decision.OPEN), levels
    assert len(ends) == 3 ** len(items)


def test_paid_questions_are_saved() -> None:
    """A cheap gate that fails saves all; without one the heavy criterion is asked before the light ones."""
    items = items_of([("gate", Fraction(1), 1), *(("graded", Fraction(weight), 1) for weight in (8, 1, 1))])
    assert asked_one_by_one(items, Fraction(4, 5), [0, 1, 1, 1], [1] * 4) == (Decision.REVISE, 1)
    assert asked_one_by_one(items, Fraction(4, 5), [1, 1, 1, 1], [1] * 4) == (Decision.PASS, 2)
    assert asked_one_by_one(items, Fraction(4, 5), [1, 0, 1, 1], [1] * 4) == (Decision.REVISE, 2)


# ---------------------------------------------------------------- the score


@given(cases())
def test_kf_e07_a_score_is_from_0_to_1_and_says_pass_exactly_when_the_decision_does(
    case: tuple[tuple[Item, ...], Fraction, tuple[Level, ...]],
) -> None:
    """E07: pass and score contradicted each other."""
    items, threshold, levels = case
    standing = stand(items, levels)
    points = score(standing, threshold)
    assert 0.0 <= points <= 1.0
    if decide(standing, threshold) is not Decision.OPEN:
        assert (points >= float(threshold)) == (decide(standing, threshold) is Decision.PASS)


@given(cases(), st.data())
def test_a_better_level_never_lowers_the_score(
    case: tuple[tuple[Item, ...], Fraction, tuple[Level, ...]], data: st.DataObject
) -> None:
    items, threshold, levels = case
    place = data.draw(st.integers(0, len(items) - 1))
    at = levels[place]
    better = items[place].top if at is None else data.draw(st.integers(at, items[place].top))
    raised = [better if n == place else one for n, one in enumerate(levels)]
    assert score(stand(items, raised), threshold) >= score(stand(items, levels), threshold)


@given(cases(), st.randoms())
def test_kf_e14_the_order_of_criteria_changes_nothing(
    case: tuple[tuple[Item, ...], Fraction, tuple[Level, ...]], random: object
) -> None:
    """E14: the order of evaluators changed the score."""
    items, threshold, levels = case
    pairs = list(zip(items, levels, strict=True))
    random.shuffle(pairs)  # type: ignore[attr-defined]  # hypothesis types it as object
    shuffled = stand([item for item, _ in pairs], [at for _, at in pairs])
    assert shuffled == stand(items, levels)
    assert score(shuffled, threshold) == score(stand(items, levels), threshold)


# ---------------------------------------------------------------- cases by hand


def graded(*weights: int | str) -> tuple[Item, ...]:
    return items_of(("graded", Fraction(weight), 1) for weight in weights)


@pytest.mark.parametrize(
    ("number", "fraction"),
    [
        (0.1, Fraction(1, 10)),
        (0.8, Fraction(4, 5)),
        (1e-7, Fraction(1, 10**7)),
        (3, Fraction(3)),
        (Decimal("0.3"), Fraction(3, 10)),
        pytest.param(10**400, Fraction(10**400), id="a whole number beyond floats"),
        pytest.param(Decimal("1e400"), Fraction(10**400), id="an amount beyond floats"),
    ],
)
def test_a_number_counts_as_it_is_written(number: float | Decimal, fraction: Fraction) -> None:
    assert exact(number) == fraction


@pytest.mark.parametrize("number", [float("nan"), float("inf"), Decimal("nan"), True, "1", None])
def test_what_is_no_finite_number_is_refused(number: object) -> None:
    with pytest.raises(ValueError, match="a finite number is needed"):
        exact(number)  # type: ignore[arg-type]  # that is the point


def test_four_of_five_reach_a_threshold_of_four_fifths() -> None:
    """In floating point 0.1 + 0.2 is not 0.3, and 0.8 is a little more than four fifths."""
    assert decision(graded(1, 1, 1, 1, 1), [1, 1, 1, 1, 0], exact(0.8)) is Decision.PASS
    assert decision(graded("1/10", "2/10", "7/10"), [1, 1, 0], exact(0.3)) is Decision.PASS


def test_unknown_penalties_subtract_from_the_lower_end_only() -> None:
    items = items_of([("graded", Fraction(10), 1), ("penalty", Fraction(4), 1), ("penalty", Fraction(2), 1)])
    standing = stand(items, [1, None, 0])
    assert (standing.lower, standing.upper, standing.total) == (4, 8, 10)


def test_levels_between_earn_their_share() -> None:
    items = items_of([("graded", Fraction(1), 2), ("graded", Fraction(1), 3)])
    standing = stand(items, [1, 2])
    assert Fraction(standing.lower, standing.total) == Fraction(1, 2) * (Fraction(1, 2) + Fraction(2, 3))


def test_penalties_beside_gates_alone_take_from_a_full_score() -> None:
    items = items_of([("gate", Fraction(1), 1), ("penalty", Fraction(1), 1), ("penalty", Fraction(3), 1)])
    assert decision(items, [1, 1, 1], Fraction(1)) is Decision.PASS
    assert score(stand(items, [1, 0, 1]), Fraction(1)) == 0.75


def test_penalties_never_push_a_score_below_0() -> None:
    items = items_of([("graded", Fraction(1), 1), ("penalty", Fraction(9), 1)])
    assert score(stand(items, [1, 0]), Fraction(1, 2)) == 0.0


@pytest.mark.parametrize("items", [(), items_of([("info", Fraction(1), 1), ("penalty", Fraction(1), 1)])])
def test_kf_e06_where_nothing_could_fail_nothing_is_decided(items: tuple[Item, ...]) -> None:
    """E06: an empty rubric passed."""
    assert decision(items, [1] * len(items), Fraction(1)) is Decision.OPEN


def test_an_unknown_gate_keeps_a_full_score_from_passing() -> None:
    items = items_of([("gate", Fraction(1), 1), ("graded", Fraction(1), 1)])
    assert decision(items, [None, 1], Fraction(1)) is Decision.OPEN
    assert relevant(items, [None, 1], Fraction(1)) == [0]


def test_what_only_moves_a_score_that_is_certain_is_not_asked() -> None:
    items = items_of([("gate", Fraction(1), 1), *5 * ONE, ("info", Fraction(1), 1)])
    assert relevant(items, [None, 1, 1, 1, 1, None, None], Fraction(4, 5)) == [0]


def test_the_best_bargain_is_asked_first() -> None:
    items = items_of(
        [("graded", Fraction(1), 1), ("graded", Fraction(6), 1), ("penalty", Fraction(5), 1), ("gate", Fraction(1), 1)]
    )
    assert in_order(items, range(4), [1, 1, 1, 1]) == [3, 1, 2, 0]
    assert in_order(items, range(4), [1, 10, 1, 100]) == [2, 0, 1, 3]


def test_while_a_gate_has_failed_each_gate_more_is_a_higher_score() -> None:
    gate: tuple[Kind, Fraction, int] = ("gate", Fraction(1), 1)
    items = items_of([gate, gate, gate, *ONE])
    scores = [
        score(stand(items, [*levels, 1]), Fraction(1, 2)) for levels in ([0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1])
    ]
    assert scores == [0.0, pytest.approx(1 / 6), pytest.approx(1 / 3), 1.0]


def test_a_score_is_never_rounded_up_to_the_threshold() -> None:
    items = graded(10**17, 10**17 + 1)
    standing = stand(items, [1, 0])
    assert standing.lower / standing.total == 0.5
    assert (decide(standing, Fraction(1, 2)), score(standing, Fraction(1, 2)) < 0.5) == (Decision.REVISE, True)
