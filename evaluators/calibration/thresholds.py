"""Choose a confidence threshold that keeps a promise: exact tests along one path, from strict to lax."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kairo_team._util.frozen import EMPTY
from kairo_team.evaluators.calibration.confidence_bounds import labels_needed, upper_bound
from kairo_team.evaluators.calibration.labelled import Bucket, bucket_of

Side = Literal["pass", "revise"]
"""A decision that a strategy can take by itself; each side has an error rate of its own."""
SIDES: Final[tuple[Side, ...]] = ("pass", "revise")
Said = tuple[tuple[Side, float], ...]
"""The stages' decisions in order, each with how sure the stage was."""
BUCKETS: Final[tuple[Bucket, ...]] = ("1", "2", "3+")
START: Final = 0.4
"""The walk starts where a side decides this share of all that it decides; fixed before any label is seen."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The decisions of a human and of a strategy's stages on one artifact."""

    passed: bool
    """Whether the human passed it."""
    stages: Said
    """The stages' decisions in order, each with how sure it was: from 0 to 1, infinite where code sent the artifact
    back. Stages that decided nothing are left out.
    """
    attempt: int = 1
    length: int = 0
    """Characters of the artifact."""
    flipped: bool | None = None
    """Whether a repeated review decided otherwise; None: it was reviewed once."""
    cause: str | None = None
    """Why the last stage decided nothing; None where one decided."""
    levels: Mapping[str, str] = EMPTY
    """The human's levels, by criterion id."""
    said: Mapping[str, str] = EMPTY
    """The strategy's levels, by criterion id, from the first stage that decided."""
    why: str = ""
    """What the last stage said where none decided."""
    awaits_person: bool = False
    """Whether its PASS still needs a person's approval."""

    def decided(self, thresholds: Mapping[Side, float]) -> Side | None:
        """Return the decision of the first stage that is sure enough; None where it is left to a human."""
        stands = standing(self.stages, thresholds)
        return None if stands is None else stands[0]


def standing(stages: Said, thresholds: Mapping[Side, float]) -> tuple[Side, float] | None:
    """Return the first decision that is sure enough, and how sure it is; None where it is left to a human."""
    return next((one for one in stages if one[1] >= thresholds.get(one[0], math.inf)), None)


ALL: Final[Mapping[Side, float]] = dict.fromkeys(SIDES, 0.0)
"""Thresholds that accept every decision."""


@dataclass(frozen=True, slots=True)
class Step:
    """One threshold of a walk."""

    threshold: float
    n: int
    """How many decisions are accepted at this threshold."""
    k: int
    """How many of them are wrong."""
    bound: float
    """Upper bound of the share of wrong decisions."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The counts at each threshold, for one side and one bucket of attempts."""

    alpha: float
    delta: float
    examples: int
    steps: Sequence[Step]
    """Every threshold, from strict to lax, including those before the start and after the chosen one."""
    start: Step | None
    """The first threshold that is tested; None: no threshold has enough answers."""
    chosen: Step | None
    """The laxest threshold that keeps the promise; None: no threshold does, and all is left to a human."""

    @property
    def needed(self) -> int:
        """The number of answers needed if all of them are right."""
        return labels_needed(self.alpha, self.delta)

    @property
    def answered(self) -> int:
        """The number of answers at the laxest threshold."""
        return self.steps[-1].n if self.steps else 0


def choose(
    reviewed: Iterable[Reviewed], alphas: Mapping[Side, float], delta: float, *, together: bool = False
) -> dict[tuple[Bucket, Side], Walk]:
    """Choose thresholds for each bucket of attempts and each side of `alphas`, which share `delta` equally.

    `together`: both sides share one threshold. Stages that follow each other need this, because what one stage leaves
    open goes to the next. Decisions of a side that is not in `alphas` are left to humans.
    """
    share = delta / len(alphas)  # either promise may fail, so each gets a half
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
    """Test each threshold, from the start to lax, and stop at the first that cannot be promised for all these sides.

    This is fixed-sequence testing (Maurer, Hothorn and Lehmacher, 1995).
    """
    counts = list(_counts(reviewed, alphas))
    needed: dict[Side, int] = {side: labels_needed(alpha, delta) for side, alpha in alphas.items()}
    begin = start([answered for _, answered, _ in counts], needed)
    steps: dict[Side, list[Step]] = {
        side: [Step(at, n[side], k[side], upper_bound(k[side], n[side], delta)) for at, n, k in counts]
        for side in alphas
    }
    last = -1
    # Each is tested at the whole `delta`, because thresholds after the first that fails do not count.
    for number in range(begin, len(counts)):
        if any(steps[side][number].bound > alphas[side] for side in alphas):
            break
        last = number
    return {
        side: Walk(
            alpha,
            delta,
            len(reviewed),
            tuple(steps[side]),
            steps[side][begin] if begin < len(counts) else None,
            steps[side][last] if last >= 0 else None,
        )
        for side, alpha in alphas.items()
    }


def start(answered: Sequence[Mapping[Side, int]], needed: Mapping[Side, int]) -> int:
    """Return the index of the first threshold to test, from strict to lax; their number where none can be tested.

    `answered` is how much each side decides at each threshold, and `needed` is the least number of decisions for a
    promise. The first threshold is the strictest at which each side decides at least `needed` and the share `START` of
    what it decides at the laxest. The walk may begin there because no label is read for this. It does not begin earlier
    because with few answers a single error would end it.
    """
    if not answered:
        return 0
    least: dict[Side, int] = {side: max(many, math.ceil(START * answered[-1][side])) for side, many in needed.items()}
    enough = (number for number, now in enumerate(answered) if all(now[side] >= least[side] for side in least))
    return next(enough, len(answered))


def _counts(
    reviewed: Iterable[Reviewed], sides: Collection[Side]
) -> Iterator[tuple[float, Counter[Side], Counter[Side]]]:
    """Yield the counts at each threshold, from strict to lax: answered, and wrong among them.

    A stage decides at thresholds from its own confidence down to the highest confidence of the stages before it; below,
    an earlier stage decides. What code sends back is not counted.
    """
    changes: defaultdict[float, list[tuple[Side, int, bool]]] = defaultdict(list)
    for one in reviewed:
        earlier = -math.inf
        for side, sure in one.stages:
            if side not in sides and sure < math.inf:  # left to humans; a REVISE by code still ends the cascade
                continue
            begins, ends = changes[sure], changes[earlier]
            if earlier < sure < math.inf:  # a later stage decides only where earlier ones are less sure
                bad = one.passed != (side == "pass")
                begins.append((side, 1, bad))
                ends.append((side, -1, bad))
            earlier = max(earlier, sure)
    answered, wrong = Counter[Side](), Counter[Side]()
    for threshold in sorted(changes.keys() - {math.inf, -math.inf}, reverse=True):
        for side, more, bad in changes[threshold]:
            answered[side] += more
            wrong[side] += more * bad
        yield threshold, Counter(answered), Counter(wrong)  # copies, because the sums change further
