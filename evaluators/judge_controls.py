"""Controls: statements in a judge's question whose right answer is known to code."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

Mark = Callable[[], str]
"""Makes a random mark that occurs nowhere in the judge's texts."""

_EVEN: Final = 0.5
_TOGETHER: Final = 5
"""Fewest controls and criteria of one question. With fewer, a text could give the right answers by their positions."""
_LEAST_SIZE: Final = 100
"""Fewest characters of a work for controls about its size."""


@dataclass(frozen=True, slots=True)
class Control:
    """A statement about the work, and whether it holds."""

    text: str
    holds: bool
    turned: bool
    """Whether the question denies the statement."""


def controls_for(criteria: int, size: int, label: str, mark: Mark, lots: random.Random) -> list[Control]:
    """Return controls for a question about `criteria` criteria, worded like criteria.

    The first two are both stated or both denied; one holds and the other does not. So a judge that agrees to everything
    answers one of them wrongly, and so does a judge that favours the work in everything. All else is drawn from `lots`.
    `size` is the work's length in characters, `label` the mark after the work. All controls have the same number of
    words, so that the cost of a question does not depend on chance.
    """
    turned = lots.random() < _EVEN
    drawn = [(True, turned), (False, turned)]
    drawn += [(lots.random() < _EVEN, lots.random() < _EVEN) for _ in range(_TOGETHER - criteria - len(drawn))]
    return [Control(_worded(holds, size, label, mark, lots), holds, turned) for holds, turned in drawn]


def _worded(holds: bool, size: int, label: str, mark: Mark, lots: random.Random) -> str:
    shown = label if holds else mark()
    texts = [f"it carries the label {shown}", f"its label reads exactly {shown}"]
    if not holds:
        texts.append(f"it contains the word {shown}")
    if size >= _LEAST_SIZE:
        digits = len(str(size))
        less = lots.randint(2, 9) * 10 ** (digits - 3)  # at most a tenth of the size
        more = lots.randint(5, 9) * 10**digits  # at least five times the size
        texts += [
            f"it has {'over' if (bound == less) == holds else 'under'} {bound} characters" for bound in (less, more)
        ]
    return lots.choice(texts)
