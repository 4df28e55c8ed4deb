"""Compare a judge's answers with a human's: counted cell by cell, with agreement beyond chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kairo_team.evaluators.calibration.confidence_bounds import Proportion


@dataclass(frozen=True, slots=True)
class Agreement:
    """Answers of a judge and of a human to one question; `levels` are in order, worst first."""

    name: str
    """The criterion's id."""
    levels: Sequence[str]
    counts: Sequence[Sequence[int]]
    """Numbers of artifacts: a row for each level of the human, a column for each level of the judge."""
    unanswered: Sequence[int]
    """Numbers of artifacts for which the judge named no level, by the human's level."""

    @property
    def agreed(self) -> Proportion:
        """Share of the judge's answers that equal the human's."""
        return Proportion(sum(row[place] for place, row in enumerate(self.counts)), sum(map(sum, self.counts)))

    @property
    def majority(self) -> Proportion:
        """A baseline: the share that is right if the judge always answers `most_frequent`."""
        return Proportion(max(map(sum, self.counts)), sum(map(sum, self.counts)))

    @property
    def most_frequent(self) -> str:
        """The human's most frequent level among what the judge answered; the better one of equals."""
        totals = list(map(sum, self.counts))
        return self.levels[max(range(len(totals)), key=lambda place: (totals[place], place))]

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa, agreement beyond chance (1960): (observed - by chance) / (1 - by chance).

        1 is full agreement, 0 the agreement expected by chance. None where chance agrees fully, or nothing was
        answered.
        """
        return _kappa(self.counts, [[float(row != column) for column in self._places] for row in self._places])

    @property
    def weighted_kappa(self) -> float | None:
        """Cohen's weighted kappa (1968): a disagreement counts by the square of its distance in levels.

        1 - sum(w * observed) / sum(w * by chance), with w = (i - j)^2. With two levels it equals `kappa`.
        """
        return _kappa(self.counts, [[float((row - column) ** 2) for column in self._places] for row in self._places])

    @property
    def _places(self) -> range:
        return range(len(self.levels))

    def to_json(self) -> dict[str, Any]:
        """Return the counts, shares and kappas as JSON values."""
        return {
            "name": self.name,
            "levels": list(self.levels),
            "counts": [list(row) for row in self.counts],
            "unanswered": list(self.unanswered),
            "agreed": self.agreed.to_json(),
            "majority": self.majority.to_json(),
            "kappa": self.kappa,
            "weighted_kappa": self.weighted_kappa,
        }


def agreement(name: str, levels: Sequence[str], answers: Iterable[tuple[str, str | None]]) -> Agreement:
    """Count pairs of the human's level and the judge's; a judge's answer that is not a level counts as unanswered."""
    counts = [[0] * len(levels) for _ in levels]
    unanswered = [0] * len(levels)
    for human, judge in answers:
        row = levels.index(human)
        if judge in levels:
            counts[row][levels.index(judge)] += 1
        else:
            unanswered[row] += 1
    return Agreement(name, tuple(levels), tuple(map(tuple, counts)), tuple(unanswered))


def _kappa(counts: Sequence[Sequence[int]], weights: Sequence[Sequence[float]]) -> float | None:
    rows, columns = list(map(sum, counts)), [sum(column) for column in zip(*counts, strict=True)]
    places = range(len(counts))
    seen = sum(weights[i][j] * counts[i][j] for i in places for j in places)
    chance = sum(weights[i][j] * rows[i] * columns[j] for i in places for j in places) / (sum(rows) or 1)
    return None if chance == 0 else 1 - seen / chance  # 0: chance agrees fully
