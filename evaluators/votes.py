"""Several votes of one judge: the answer that most of them give, and when no further vote could change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kairo_team.evaluators.criterion import Answer, Criterion
from kairo_team.evaluators.judge_reply import Judgement

if TYPE_CHECKING:
    Level = bool | str | None


def is_decided(levels: Sequence[Level], votes: int) -> bool:
    """Return whether the answer of `votes` votes is certain after those that gave `levels`."""
    first, second = _two_largest(levels)
    return len(levels) >= votes or first - second > votes - len(levels)  # the missing votes may all go to the second


def leading(levels: Sequence[Level]) -> tuple[bool, Level]:
    """Return whether one answer was given more often than each other one, and that answer."""
    first, second = _two_largest(levels)
    return first > second, Counter(levels).most_common(1)[0][0]


def share(levels: Sequence[Level], votes: int) -> float:
    """Return the share of votes for the leading answer; votes that are missing for a decision count against it."""
    return _two_largest(levels)[0] / (len(levels) if is_decided(levels, votes) else votes)


def _two_largest(levels: Sequence[Level]) -> tuple[int, int]:
    counts = [count for _, count in Counter(levels).most_common(2)]
    first, second, *_ = *counts, 0, 0
    return first, second


def are_decided(given: Sequence[Judgement], criteria: Sequence[Criterion], votes: int) -> bool:
    """Return whether the answer to each criterion is certain after these votes."""
    return all(is_decided(_levels(given, one), votes) for one in _counting(criteria))


def counted(given: Sequence[Judgement], criteria: Sequence[Criterion], votes: int, unpaid: str) -> Judgement:
    """Join votes, in any order; `unpaid` is why the next was not asked.

    The confidence is the share of votes for the answer to a criterion, the smallest share of all criteria.
    """
    told = f"{len(given)} of {votes} votes were given, because the next cannot be paid: {unpaid}" if unpaid else ""
    suspected = [one.injection_suspected for one in given if one.injection_suspected]
    return Judgement(
        {one.id: _answer([vote.answers[one.id] for vote in given], told) for one in criteria},
        min(share(_levels(given, one), votes) for one in _counting(criteria)),
        min(suspected, default=None),
    )


def _counting(criteria: Sequence[Criterion]) -> Sequence[Criterion]:
    """Return the criteria that affect the outcome; all where none does."""
    return [one for one in criteria if one.kind != "info"] or criteria


def _levels(given: Sequence[Judgement], criterion: Criterion) -> list[Level]:
    return [one.answers[criterion.id].level for one in given]


def _answer(answers: Sequence[Answer], told: str) -> Answer:
    levels = [one.level for one in answers]
    leads, level = leading(levels)
    if not leads:
        said = ", ".join(sorted(f"{count} x {name or 'cannot tell'}" for name, count in Counter(levels).items()))
        return Answer(None, "; ".join(filter(None, (f"the votes of the judge are split: {said}", told))))
    # The first by its `repr`, so that the words do not depend on the order of the votes.
    answer = min((one for one in answers if one.level == level), key=repr)
    reason = "; ".join(filter(None, (answer.reason, told)))
    return Answer(answer.level, reason, answer.quote, answer.finding)
