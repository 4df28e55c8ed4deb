"""The figures of the measured rows: shares that pass, their cost, and the rows that only one of two ways passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from benchmarks.revising.arms import REVISIONS, Try
from benchmarks.revising.rows import Row
from kairo_team.evaluators.calibration.confidence_bounds import Proportion, binomial_tail

TEXTS: Final = range(1, REVISIONS + 2)
"""Texts that a loop may take: the first, and the revisions."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a way got with a number of texts: which rows have one that passes, and the tokens of all of them."""

    passed: tuple[bool, ...]
    """One for each row."""
    tokens: int

    @property
    def share(self) -> Proportion:
        """Return how many pass."""
        return Proportion(sum(self.passed), len(self.passed))


def reached(made: Sequence[Sequence[Try]]) -> Reached:
    """Count the texts, row by row."""
    return Reached(tuple(any(one.passed for one in tries) for tries in made), sum(map(_tokens, made)))


def revised(arm: str) -> Callable[[Sequence[Row], int], Reached]:
    """Count the texts of a loop up to the k-th."""

    def first(rows: Sequence[Row], k: int) -> Reached:
        made: list[list[Try]] = [getattr(row, arm) for row in rows]
        return reached([tries[:k] for tries in made])

    return first


def anew_each(rows: Sequence[Row], k: int) -> Reached:
    """Ask anew for each row while it takes at most the tokens of its loop with findings, up to the k-th text."""
    return reached([row.anew[: _affordable(row.anew, _tokens(row.findings[:k]))] for row in rows])


def anew_in_all(rows: Sequence[Row], k: int) -> Reached:
    """Ask anew for every row that has nothing yet, in rounds, while all tokens are at most those of that loop."""
    most = revised("findings")(rows, k).tokens
    asked = max((len(row.anew) for row in rows), default=0)
    rounds = [reached([row.anew[:texts] for row in rows]) for texts in range(asked + 1)]
    return next(one for one in reversed(rounds) if one.tokens <= most)


WAYS: Final[dict[str, Callable[[Sequence[Row], int], Reached]]] = {
    "revised with findings": revised("findings"),
    'revised with "Try again."': revised("again"),
    "fresh texts, the same tokens in all": anew_in_all,
    "fresh texts, the same tokens for each": anew_each,
    "revised with findings, never stopped early": revised("findings_on"),
    'revised with "Try again.", never stopped early': revised("again_on"),
}
"""By the name in the tables: the results with k texts."""


def gains(rows: Sequence[Row], arm: str) -> list[Proportion]:
    """Return, for the k-th text, how many pass of those that came to it."""
    came = [
        [row_tries[k - 1] for row_tries in (getattr(row, arm) for row in rows) if len(row_tries) >= k] for k in TEXTS
    ]
    return [Proportion(sum(one.passed for one in some), len(some)) for some in came]


@dataclass(frozen=True, slots=True)
class Compared:
    """Two ways, row by row."""

    one_only: int
    """Rows that pass in the first way alone."""
    other_only: int

    @property
    def chance(self) -> float:
        """How likely it is that chance alone sets them so far apart: the exact sign test, two-sided."""
        apart = self.one_only + self.other_only
        return min(1.0, 2 * binomial_tail(min(self.one_only, self.other_only), apart, 0.5))


def compare(one: Reached, other: Reached) -> Compared:
    """Count the rows that pass in one way and not in the other."""
    pairs = list(zip(one.passed, other.passed, strict=True))
    return Compared(pairs.count((True, False)), pairs.count((False, True)))


def stopped(rows: Sequence[Row]) -> tuple[int, Proportion]:
    """Return how many loops with findings ended early, and how many pass of those that went on when they could."""
    early = [row for row in rows if len(row.findings) <= REVISIONS and not any(one.passed for one in row.findings)]
    went_on = [row.findings_on for row in early if len(row.findings_on) > len(row.findings)]
    return len(early), Proportion(reached(went_on).share.k, len(went_on))


def unchanged(rows: Sequence[Row], arm: str) -> Proportion:
    """Return how many revisions are the text that was to be revised."""
    made: list[list[Try]] = [getattr(row, arm) for row in rows]
    pairs = [pair for tries in made for pair in pairwise(tries)]
    return Proportion(sum(before.digest == after.digest for before, after in pairs), len(pairs))


def kinds(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return, for each kind of instruction, the places of its rows."""
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.instruction.partition("-")[0], []).append(place)
    return places


def _tokens(tries: Sequence[Try]) -> int:
    return sum(one.tokens for one in tries)


def _affordable(tries: Sequence[Try], most: int) -> int:
    """Return how many of the texts, from the first on, take at most so many tokens."""
    return sum(spent <= most for spent in accumulate(one.tokens for one in tries))
