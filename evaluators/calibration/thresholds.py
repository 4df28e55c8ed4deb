"""Choosing a confidence threshold that keeps a promise: exact tests along one path, from strict to lax."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kairo_team.evaluators.calibration.confidence_bounds import labels_needed, upper_bound
from kairo_team.evaluators.calibration.labelled import Bucket, bucket_of

Side = Literal["pass", "revise"]
"""What a strategy decides by itself, and can be wrong about in its own way."""
SIDES: Final[tuple[Side, ...]] = ("pass", "revise")
Said = tuple[tuple[Side, float], ...]
"""What stages decided, in their order, and how sure each was."""
BUCKETS: Final[tuple[Bucket, ...]] = ("1", "2", "3+")


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What a human and the stages of a strategy decided of one artifact."""

    passed: bool
    """By the human."""
    stages: Said
    """What each stage decided, in their order, and how sure it was: from 0 to 1, infinite where code sent it back.

    Who decided nothing is not in it.
    """
    attempt: int = 1
    length: int = 0
    """Characters of the artifact."""
    flipped: bool | None = None
    """Asked again it decided otherwise; None: it was asked once."""
    cause: str | None = None
    """Why the last stage decided nothing; None where one decided."""

    def decided(self, thresholds: Mapping[Side, float]) -> Side | None:
        """Return what stands: the first stage that is sure enough; None where it is left to a human."""
        stands = standing(self.stages, thresholds)
        return None if stands is None else stands[0]


def standing(stages: Said, thresholds: Mapping[Side, float]) -> tuple[Side, float] | None:
    """Return the decision of the stages that stands, and how sure it is; None where it is left to a human."""
    return next((one for one in stages if one[1] >= thresholds.get(one[0], math.inf)), None)


ALL: Final[Mapping[Side, float]] = dict.fromkeys(SIDES, 0.0)
"""Thresholds under which everything stands that was decided."""


@dataclass(frozen=True, slots=True)
class Step:
    """One threshold of a walk."""

    threshold: float
    n: int
    """Answered at it."""
    k: int
    """Wrong among them."""
    bound: float
    """Upper bound of the share of wrong answers."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What the labels show of each threshold, for one side and one bucket of attempts."""

    alpha: float
    delta: float
    examples: int
    steps: Sequence[Step]
    """Every threshold, from strict to lax, those behind the chosen one too."""
    chosen: Step | None
    """The laxest that can be promised; None: none can, and all is left to a human."""

    @property
    def needed(self) -> int:
        """The number of answers needed if all of them are right."""
        return labels_needed(self.alpha, self.delta)

    @property
    def answered(self) -> int:
        """How many there are at most."""
        return self.steps[-1].n if self.steps else 0


def choose(
    reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, *, together: bool = False
) -> dict[tuple[Bucket, Side], Walk]:
    """Choose thresholds for each bucket of attempts and each side of `alphas`, which share `delta` equally.

    `together`: both sides take one threshold, as they must where stages follow each other, because what one stage
    leaves open goes to the next. A side that is not in `alphas` never stands.
    """
    share = delta / len(alphas)
    found: dict[tuple[Bucket, Side], Walk] = {}
    examples = list(reviewed)
    for bucket in BUCKETS:
        there = [one for one in examples if bucket_of(one.attempt) == bucket]
        if not there:
            continue
        groups: list[tuple[Side, ...]] = [tuple(alphas)] if together else [(side,) for side in alphas]
        for sides in groups:
            limits: dict[Side, float] = {side: alphas[side] for side in sides}
            walks = _walk(there, limits, share)
            found |= {(bucket, side): walk for side, walk in walks.items()}
    return found


def _walk(reviewed: Sequence[Reviewed], alphas: Mapping[Side, float], delta: float) -> dict[Side, Walk]:
    """Test each threshold, from strict to lax, and stop at the first that cannot be promised for all these sides.

    It begins where there are answers enough for a promise at all; their number does not depend on which were right.
    """
    steps = {side: list[Step]() for side in alphas}
    needed = {side: labels_needed(alpha, delta) for side, alpha in alphas.items()}
    last, begun, stopped = -1, False, False
    for number, (threshold, answered, wrong) in enumerate(_counts(reviewed, alphas)):
        now: dict[Side, Step] = {
            side: Step(threshold, answered[side], wrong[side], upper_bound(wrong[side], answered[side], delta))
            for side in alphas
        }
        for side, step in now.items():
            steps[side].append(step)
        begun = begun or all(step.n >= needed[side] for side, step in now.items())
        stopped = stopped or (begun and any(step.bound > alphas[side] for side, step in now.items()))
        last = number if begun and not stopped else last
    return {
        side: Walk(alpha, delta, len(reviewed), tuple(steps[side]), steps[side][last] if last >= 0 else None)
        for side, alpha in alphas.items()
    }


def _counts(
    reviewed: Iterable[Reviewed], sides: Collection[Side]
) -> Iterator[tuple[float, Counter[Side], Counter[Side]]]:
    """Yield the counts at each threshold, from strict to lax; the counters are the same ones every time.

    A stage decides from its own confidence down to the highest of those before it; there the earlier one takes over.
    What code sends back is no judge's.
    """
    changes: defaultdict[float, list[tuple[Side, int, bool]]] = defaultdict(list)
    for one in reviewed:
        earlier = -math.inf
        for side, sure in one.stages:
            if side not in sides and sure < math.inf:
                continue
            begins, ends = changes[sure], changes[earlier]
            if earlier < sure < math.inf:
                bad = one.passed != (side == "pass")
                begins.append((side, 1, bad))
                ends.append((side, -1, bad))
            earlier = max(earlier, sure)
    answered, wrong = Counter[Side](), Counter[Side]()
    for threshold in sorted(changes.keys() - {math.inf, -math.inf}, reverse=True):
        for side, more, bad in changes[threshold]:
            answered[side] += more
            wrong[side] += more * bad
        yield threshold, answered, wrong
