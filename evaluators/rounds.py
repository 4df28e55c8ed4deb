"""What earlier reviews of a task decided of each criterion: what is still open, what is worse, where a judge flips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kairo_team.evaluators.quotes import stands_in
from kairo_team.frozen import EMPTY

if TYPE_CHECKING:
    from kairo_team.verdicts import CriterionResult, EvaluationVerdict


@dataclass(frozen=True, slots=True)
class Decided:
    """How a criterion was decided in one review."""

    met: bool
    place: str
    """What it was decided on, in the artifact's own words or by where it is; "" is the artifact as a whole."""

    def flips_on(self, place: str, text: str) -> bool:
        """Tell whether the opposite, said now of `place` in `text`, is said of words that have not changed since.

        The words that were decided on still stand there, and those of now are among them; or they were quoted for
        "met", and "not met" shows no others. Something added elsewhere can make right what was wrong, so "met" without
        a quote is no flip. What is said of the artifact as a whole never is: an unchanged one is not judged again.
        """
        if not stands_in(self.place, text):
            return False
        return stands_in(place, self.place) or (self.met and not place)


@dataclass(frozen=True, slots=True)
class History:
    """What earlier reviews decided, by criterion id."""

    last: Mapping[str, Decided] = EMPTY
    """How each was decided when it last was; what has always been unknown is not in it."""
    met: AbstractSet[str] = frozenset()
    """Criteria that were met once."""
    wanting: AbstractSet[str] = frozenset()
    """Criteria that were found wanting once."""

    def status(self, criterion_id: str) -> Literal["open", "regressed"]:
        """Say what a criterion is that is not met now: worse than it was, or open, still or for the first time."""
        return "regressed" if criterion_id in self.met else "open"


NOTHING_YET: Final = History()
"""Of an artifact that is the first."""


def history_of(prior: Sequence[EvaluationVerdict]) -> History:
    """Return what earlier verdicts, oldest first, decided."""
    if not prior:
        return NOTHING_YET
    last: dict[str, Decided] = {}
    met: set[str] = set()
    wanting: set[str] = set()
    for verdict in prior:
        decided = _decided(verdict)
        last |= decided
        met |= {name for name, one in decided.items() if one.met}
        wanting |= {name for name, one in decided.items() if not one.met}
    return History(last, met, wanting)


def _decided(verdict: EvaluationVerdict) -> dict[str, Decided]:
    """Return what one verdict decided; of results that disagree, as joined strategies can, the worse counts."""
    loci = {finding.criterion: finding.locus for finding in verdict.findings if finding.status != "closed"}
    decided: dict[str, Decided] = {}
    for result in verdict.criteria:
        if result.passed is None:
            continue
        here = Decided(result.passed, _place(result, loci))
        other = decided.get(result.id, here)
        decided[result.id] = here if other.met == here.met else Decided(met=False, place="")
    return decided


def _place(result: CriterionResult, loci: Mapping[str | None, str]) -> str:
    return result.quote or ("" if result.passed else loci.get(result.id, ""))
