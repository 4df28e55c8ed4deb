"""Compare many pairs of works: count which one a judge prefers, and how often that depends on the order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from kairo_team.artifacts import Artifact
from kairo_team.budget import Budget, Usage, check_count
from kairo_team.engine.run.lone_agent import part_of, work_alone
from kairo_team.errors import HaltError, innermost
from kairo_team.evaluators.calibration.confidence_bounds import Proportion
from kairo_team.evaluators.pairwise import PairwiseStrategy, Preference
from kairo_team.plugin_calls import failure_of, sentence_of
from kairo_team.tasks import Task
from kairo_team.verdicts import EvaluationContext

if TYPE_CHECKING:
    from kairo_team.engine.work.work_context import WorkContext


@dataclass(frozen=True, slots=True)
class Pair:
    """Two works for the same task."""

    name: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """A judge's preference for one pair."""

    pair: Pair
    preference: Preference | None
    """None: the judge gave no valid answer."""
    why: str = ""
    """The reason if it has no preference."""


@dataclass(frozen=True, slots=True)
class PairReport:
    """A judge's preferences for all pairs, in their order."""

    pairs: Sequence[ComparedPair]
    usage: Usage

    @property
    def decided(self) -> list[Preference]:
        """The preferences of the pairs that have one."""
        return [one.preference for one in self.pairs if one.preference is not None]

    @property
    def first(self) -> Proportion:
        """Share of decided pairs in which the first work won."""
        return self._share("first")

    @property
    def second(self) -> Proportion:
        """Share of decided pairs in which the second work won."""
        return self._share("second")

    @property
    def ties(self) -> Proportion:
        """Share of decided pairs in which neither won."""
        return self._share("tie")

    @property
    def flips(self) -> Proportion:
        """Share of decided pairs in which the answer depended on the order: the judge's swap-flip rate."""
        return Proportion(sum(one.flipped for one in self.decided), len(self.decided))

    def _share(self, better: str) -> Proportion:
        return Proportion(sum(one.better == better for one in self.decided), len(self.decided))

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        shares = {name: getattr(self, name) for name in ("first", "second", "ties", "flips")}
        return {
            **{name: {"k": one.k, "n": one.n, "low": one.low, "high": one.high} for name, one in shares.items()},
            "pairs": [
                {
                    "name": one.pair.name,
                    "better": None if one.preference is None else one.preference.better,
                    "flipped": None if one.preference is None else one.preference.flipped,
                    "reason": one.why if one.preference is None else one.preference.reason,
                    "injection_suspected": None if one.preference is None else one.preference.injection_suspected,
                }
                for one in self.pairs
            ],
            "usage": {"tokens": self.usage.tokens, "dollars": str(self.usage.dollars)},
        }


async def compare_pairs(
    strategy: PairwiseStrategy,
    pairs: Sequence[Pair],
    *,
    task: str = "Do the task.",
    budget: Budget | None = None,
    concurrency: int = 4,
) -> PairReport:
    """Compare each pair, in both orders. `budget` is all the judge may spend, `concurrency` pairs are asked at once.

    A comparison that fails has no preference, but a reason in `why`. Raises `HaltError` when the budget is used up,
    `ValueError` without pairs.
    """
    check_count("compare_pairs: concurrency", concurrency, 1)
    if not pairs:
        raise ValueError("compare_pairs takes at least one pair")
    found: dict[int, ComparedPair] = {}
    limiter = anyio.CapacityLimiter(concurrency)

    async def ask(place: int, pair: Pair, context: WorkContext) -> None:
        async with limiter:
            with part_of(context, f"pair {place}") as part:
                found[place] = await _compare_pair(strategy, pair, task, part)

    async with work_alone("judge", budget=budget) as context:
        async with anyio.create_task_group() as group:
            for place, pair in enumerate(pairs):
                group.start_soon(ask, place, pair, context)
        usage = context.usage
    return PairReport([found[place] for place in range(len(pairs))], usage)


async def _compare_pair(strategy: PairwiseStrategy, pair: Pair, task: str, context: WorkContext) -> ComparedPair:
    asked = EvaluationContext(Task("task", task), Artifact(pair.first), 1, goal=task, context=context)
    try:
        return ComparedPair(pair, await strategy.compare(pair.first, pair.second, asked))
    except BaseException as raised:
        error = failure_of(raised)
        if error is None or isinstance(innermost(error), HaltError):  # the budget is used up for all pairs
            raise
        return ComparedPair(pair, None, sentence_of(error))
