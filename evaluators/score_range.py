"""Compute what is certain about a rubric while criteria are still unknown: pure and exact arithmetic.

Everything is counted in whole points, so nothing is rounded. A graded criterion adds its points, a penalty takes its
points away. An unknown criterion counts as worst at the lower end of the interval and as best at the upper end. A
decision is made only when the whole interval lies on one side of the threshold: then no unknown criterion can change
it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final, Literal

Kind = Literal["gate", "graded", "penalty", "info"]
"""gate: must be met. graded: adds to the score. penalty: takes from the score when not met. info: only reported."""
KINDS: Final[tuple[Kind, ...]] = ("gate", "graded", "penalty", "info")
Number = int | float | Decimal | Fraction

Levels = Sequence[int | None]
"""For each criterion, how many levels it is above the worst; None is unknown."""


class Decision(StrEnum):
    """The certain outcome. OPEN: none is certain yet."""

    PASS = "pass"
    REVISE = "revise"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Item:
    """One criterion's kind, levels and points."""

    kind: Kind
    top: int
    """How many levels the best is above the worst."""
    step: int
    """Points of one level; 0 for gates and infos."""

    @property
    def points(self) -> int:
        """Points between the worst and the best level."""
        return self.step * self.top


@dataclass(frozen=True, slots=True)
class Standing:
    """The sums over all criteria, in points."""

    gates: int
    gates_met: int
    gates_failed: int
    lower: int
    """Points if every unknown criterion is at its worst; below 0 when penalties exceed them."""
    upper: int
    """Points if every unknown criterion is at its best."""
    total: int
    """Points of a full score; 0 when nothing is scored."""
    scored: bool
    """Whether a criterion is graded."""


def exact(number: Number) -> Fraction:
    """Return a number as it was written: 0.1 is one tenth, not the binary number next to it.

    Raises `ValueError` unless it is a finite number.
    """
    is_number = isinstance(number, int | float | Decimal | Fraction) and not isinstance(number, bool)
    # An int or a Fraction is finite, and may be too large for `math.isfinite`.
    if not is_number or (isinstance(number, Decimal | float) and not Decimal(number).is_finite()):
        raise ValueError(f"a finite number is needed, not {number!r}")
    # Numpy's floats have a repr of their own.
    return Fraction(repr(float(number))) if isinstance(number, float) else Fraction(number)


def positive(number: Number, must: str) -> Fraction:
    """Return the exact number; `ValueError`, worded by `must`, unless it is above 0."""
    try:
        found = exact(number)
    except ValueError:
        found = Fraction()
    if found <= 0:
        raise ValueError(f"{must}, not {number!r}")
    return found


def items_of(criteria: Iterable[tuple[Kind, Fraction, int]]) -> tuple[Item, ...]:
    """Scale criteria, given as (kind, weight, levels above the worst), so that each level is worth whole points."""
    given = list(criteria)
    steps = [weight / top if kind in ("graded", "penalty") else Fraction() for kind, weight, top in given]
    scale = math.lcm(*(step.denominator for step in steps))
    return tuple(Item(kind, top, int(step * scale)) for (kind, _, top), step in zip(given, steps, strict=True))


def stand(items: Sequence[Item], levels: Levels) -> Standing:
    """Add up the points. Without graded criteria, penalties are taken from a full score equal to their sum."""
    met = failed = gates = graded = penalties = lower = upper = 0
    scored = False
    for item, level in zip(items, levels, strict=True):
        if item.kind == "gate":
            gates += 1
            met += level == item.top
            failed += level is not None and level < item.top
        elif item.kind == "graded":
            scored = True
            graded += item.points
            lower += 0 if level is None else level * item.step
            upper += item.points if level is None else level * item.step
        elif item.kind == "penalty":
            penalties += item.points
            lower -= item.points if level is None else (item.top - level) * item.step
            upper -= 0 if level is None else (item.top - level) * item.step
    full = 0 if scored else penalties
    return Standing(gates, met, failed, lower + full, upper + full, graded + full, scored)


def decide(standing: Standing, threshold: Fraction) -> Decision:
    """Return the outcome that is certain whatever the unknown criteria turn out to be."""
    if standing.gates_failed:
        return Decision.REVISE
    if not standing.gates and not standing.scored:
        return Decision.OPEN  # without a gate or a graded criterion that applies, nothing supports a PASS
    if below(standing.upper, standing, threshold):
        return Decision.REVISE
    if standing.gates_met == standing.gates and not below(standing.lower, standing, threshold):
        return Decision.PASS
    return Decision.OPEN


def below(points: int, standing: Standing, threshold: Fraction) -> bool:
    """Return whether `points` are below the threshold."""
    return points * threshold.denominator < threshold.numerator * standing.total


def score(standing: Standing, threshold: Fraction) -> float:
    """Return the certain share of a full score, from 0 to 1: at least the threshold exactly when the decision is PASS.

    Once a gate has failed, the share is scaled down to below the threshold, by the share of gates that are met. So a
    better attempt has a higher score, and a score never contradicts the outcome.
    """
    share = Fraction(1)
    if standing.total:
        share = Fraction(min(max(standing.lower, 0), standing.total), standing.total)
    if standing.gates_failed:
        share *= threshold * standing.gates_met / standing.gates  # stays below the threshold, because a gate failed
    elif standing.gates_met == standing.gates and share >= threshold:
        return float(share)
    return min(float(share), math.nextafter(float(threshold), 0.0))  # rounding could reach the threshold


def relevant(items: Sequence[Item], levels: Levels, threshold: Fraction) -> list[int]:
    """Return the indices of the unknown criteria on which the decision still depends; none once it is made.

    While the decision is open, it depends on every unknown gate. It depends on criteria that only move the score while
    the lower end is below the threshold.
    """
    standing = stand(items, levels)
    if decide(standing, threshold) is not Decision.OPEN:
        return []
    short = below(standing.lower, standing, threshold)
    return [
        place
        for place, (item, level) in enumerate(zip(items, levels, strict=True))
        if level is None and (item.kind == "gate" or (item.step and short))
    ]


def in_order(items: Sequence[Item], places: Iterable[int], costs: Sequence[Number]) -> list[int]:
    """Sort criteria by how far each can move the interval for its cost, the best ratio first.

    A gate can move the whole interval. `costs` has one number > 0 for every criterion; equal ratios stay in their
    order.
    """
    total = sum(item.points for item in items)

    def bargain(place: int) -> Fraction:
        moved = max(total, 1) if items[place].kind == "gate" else items[place].points  # a gate may decide alone
        return -Fraction(moved) / exact(costs[place])

    return sorted(places, key=bargain)
