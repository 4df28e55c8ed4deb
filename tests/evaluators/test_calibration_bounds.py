"""The bounds are exact: against closed forms, rational arithmetic, and a table of the inverse beta distribution."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.evaluators.calibration.confidence_bounds import (
    Proportion,
    binomial_tail,
    labels_needed,
    lower_bound,
    upper_bound,
)

# scipy.stats.beta.ppf(1 - delta, k + 1, n - k), scipy 1.17
TABLE = [
    # k, n, delta, bound
    (0, 22, 0.1, 0.09937197978872149),
    (0, 29, 0.05, 0.0981446276772957),
    (1, 50, 0.1, 0.07558059884532793),
    (3, 60, 0.05, 0.12418721047743608),
    (4, 60, 0.025, 0.1619867551977289),
    (17, 100, 0.05, 0.24401675622436267),
    (50, 400, 0.01, 0.16848892526378206),
    (90, 100, 0.1, 0.9368887431514368),
    (250, 1_000, 0.05, 0.2735536313237202),
    (700, 2_000, 0.001, 0.38367332845098673),
]


@pytest.mark.parametrize(("k", "n", "delta", "bound"), TABLE)
def test_the_bound_is_the_inverse_of_the_beta_distribution(k: int, n: int, delta: float, bound: float) -> None:
    assert upper_bound(k, n, delta) == pytest.approx(bound, rel=1e-9)


@given(st.integers(-1, 60), st.integers(0, 60), st.fractions(0, 1, max_denominator=97))
def test_the_tail_is_that_of_rational_arithmetic(k: int, n: int, share: Fraction) -> None:
    exact = sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(min(k, n) + 1))
    assert binomial_tail(k, n, float(share)) == pytest.approx(float(exact), rel=1e-9, abs=1e-12)


@given(st.integers(1, 5_000), st.floats(0.001, 0.5))
def test_where_there_is_a_closed_form_it_is_that(n: int, delta: float) -> None:
    assert upper_bound(0, n, delta) == pytest.approx(1 - delta ** (1 / n), rel=1e-8)
    assert upper_bound(n - 1, n, delta) == pytest.approx((1 - delta) ** (1 / n), rel=1e-8)
    assert lower_bound(n, n, delta) == pytest.approx(delta ** (1 / n), rel=1e-8)


@given(st.integers(1, 300), st.data())
def test_more_errors_raise_it_more_answers_and_a_greater_delta_lower_it(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n - 1))
    bound = upper_bound(k, n, 0.1)
    assert k / n < bound < upper_bound(k + 1, n, 0.1)
    assert upper_bound(k, n + 1, 0.1) < bound
    assert upper_bound(k, n, 0.2) < bound


@pytest.mark.parametrize(("k", "n"), [(0, 0), (5, 5)])
def test_nothing_is_promised_of_nothing_nor_where_all_is_wrong(k: int, n: int) -> None:
    assert upper_bound(k, n, 0.1) == 1


@pytest.mark.parametrize(
    ("alpha", "delta", "needed"),
    [
        (0.1, 0.1, 22),
        (0.05, 0.1, 45),
        (0.1, 0.05, 29),
        (0.2, 0.1, 11),
        (0.01, 0.05, 299),
        (0.5, 0.5, 1),
        (0.5, 0.25, 2),
    ],
)
def test_the_number_of_labels_needed(alpha: float, delta: float, needed: int) -> None:
    assert labels_needed(alpha, delta) == needed


@given(st.floats(0.005, 0.9), st.floats(0.001, 0.5))
def test_the_number_needed_is_the_least_that_does(alpha: float, delta: float) -> None:
    needed = labels_needed(alpha, delta)
    assert upper_bound(0, needed, delta) <= alpha
    assert needed == 1 or upper_bound(0, needed - 1, delta) > alpha


@pytest.mark.parametrize(("k", "n", "delta"), [(3, 2, 0.1), (-1, 2, 0.1), (0, 5, 0.0), (0, 5, 1.0)])
def test_what_cannot_be_is_refused(k: int, n: int, delta: float) -> None:
    with pytest.raises(ValueError, match=r"k <= n|delta must be"):
        upper_bound(k, n, delta)


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1, math.nan])
def test_no_number_of_labels_promises_that(alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha must be a number above 0 and below 1"):
        labels_needed(alpha, 0.1)


def test_a_proportion_says_its_interval() -> None:
    assert str(Proportion(4, 60)) == "4 of 60, 6.7% (1.8% to 16.2%)"
    assert (Proportion(0, 0).rate, str(Proportion(0, 0))) == (None, "none")
    with pytest.raises(ValueError, match="0 <= k <= n"):
        Proportion(2, 1)
