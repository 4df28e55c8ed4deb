"""How much the governor costs, in units of one plain unlocked Python check-and-record pair.

Empty chains of constraints and guardrails are measured in awaited calls that do nothing. The work and its unit are
timed in turns, in processor time, and the best turn of each counts: a busy machine slows down both.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kairo_team.budget import Budget
from kairo_team.governance import (
    ConstraintChain,
    Governor,
    GuardrailChain,
    GuardrailContext,
    GuardrailPhase,
    ResourceContext,
    ToolOutput,
)

Row = tuple[str, float, float]
"""What, how many units it takes, how many it may take."""

Work = Callable[[int], None]

WIDE = Budget(tokens=10**15, dollars=10**9, loops=10**9, tool_calls=10**9)
NOW = ResourceContext()
RETURNED = GuardrailContext(GuardrailPhase.POST_TOOL, "member", "tool", ToolOutput("tool", "done"))
PRICE = "0.000015"
TURNS = 40
ROUNDS = 500
NAMES = [f"task-{number}" for number in range(ROUNDS)]


@dataclass(frozen=True, slots=True)
class PlainLimits:
    """The limits as a user writes them; None is no limit."""

    tokens: int | None = None
    dollars: float | None = None
    loops: int | None = None


class PlainCounter:
    """What people write by hand: three counters and their limits, no lock, no tree, no exact money."""

    def __init__(self, limits: PlainLimits) -> None:
        self.limits = limits
        self.tokens = self.loops = 0
        self.dollars = 0.0

    def check(self) -> None:
        """Raise if a limit is reached."""
        if self.limits.tokens is not None and self.tokens >= self.limits.tokens:
            raise RuntimeError("tokens")
        if self.limits.dollars is not None and self.dollars >= self.limits.dollars:
            raise RuntimeError("dollars")
        if self.limits.loops is not None and self.loops >= self.limits.loops:
            raise RuntimeError("loops")

    def record(self, tokens: int = 0, dollars: float = 0.0, loops: int = 0) -> None:
        """Book the usage."""
        self.tokens += tokens
        self.dollars += dollars
        self.loops += loops


def plain_pair(rounds: int) -> None:
    """Check and record, the unit."""
    counter = PlainCounter(PlainLimits(10**12, 1e9, 10**9))
    for _ in range(rounds):
        counter.check()
        counter.record(tokens=15, dollars=0.000015, loops=1)


def governed_pair(rounds: int) -> None:
    """Check and record with a governor, in tokens and dollars under four limits."""
    governor = Governor(WIDE)
    for _ in range(rounds):
        governor.can_proceed()
        governor.record_usage(prompt_tokens=10, completion_tokens=5, dollars=PRICE)


def hold_and_settle(rounds: int) -> None:
    """Hold and settle tokens and dollars through team, member and task."""
    task = Governor(WIDE).carve("member", Budget(tokens=10**12, dollars=10**6)).carve("task")

    async def main() -> None:
        for _ in range(rounds):
            hold = await task.hold(tokens=100, dollars=PRICE)
            hold.settle(prompt_tokens=10, completion_tokens=5, dollars=PRICE)

    _drive(main())


def carve_and_close(rounds: int) -> None:
    """Carve a task's child with a share of the tokens, and close it."""
    member = Governor(WIDE).carve("member", Budget(tokens=10**12))
    share = Budget(tokens=100)
    for name in NAMES[:rounds]:
        member.carve(name, guarantee=share).close()


def empty_await(rounds: int) -> None:
    """Await a call that does nothing, the unit of what must cost next to nothing."""

    async def nothing(_: object) -> None:
        return None

    async def main() -> None:
        for _ in range(rounds):
            await nothing(NOW)

    _drive(main())


def empty_constraints(rounds: int) -> None:
    """Evaluate a chain without constraints."""
    chain = ConstraintChain()

    async def main() -> None:
        for _ in range(rounds):
            await chain.evaluate(NOW)

    _drive(main())


def empty_guardrails(rounds: int) -> None:
    """Evaluate a chain without guardrails."""
    chain = GuardrailChain()

    async def main() -> None:
        for _ in range(rounds):
            await chain.evaluate(RETURNED)

    _drive(main())


def _drive(coroutine: object) -> None:
    """Run a coroutine that never suspends, without an event loop's share in the figure."""
    try:
        coroutine.send(None)  # type: ignore[attr-defined]
    except StopIteration:
        return
    raise AssertionError("an uncontended hold suspended")


def ratio(work: Work, unit: Work = plain_pair, *, rounds: int = ROUNDS, turns: int = TURNS) -> float:
    """Return how many rounds of `unit`, by default plain pairs, one round of `work` takes."""
    best_unit = best_work = float("inf")
    with _no_garbage_left():
        for _ in range(turns):
            best_unit = min(best_unit, _seconds(unit, rounds))
            best_work = min(best_work, _seconds(work, rounds))
    return best_work / best_unit


def _seconds(work: Work, rounds: int) -> float:
    start = time.thread_time()
    work(rounds)
    return time.thread_time() - start


@contextmanager
def _no_garbage_left() -> Iterator[None]:
    """Begin with an empty heap; the collector stays on, its work belongs to the figure."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def rows() -> list[Row]:
    """Measure what section 7 of the governance page limits and is the governor's to keep."""
    return [
        ("can_proceed + record_usage", ratio(governed_pair), 8),
        ("hold + settle through a depth-3 tree", ratio(hold_and_settle), 20),
        ("carve + close", ratio(carve_and_close), 12),
        ("empty constraint chain, in empty awaits", ratio(empty_constraints, empty_await), 3),
        ("empty guardrail chain, in empty awaits", ratio(empty_guardrails, empty_await), 3),
    ]


def main() -> None:
    """Print the figures."""
    for what, measured, limit in rows():
        print(f"{what:40} {measured:5.1f} x  (at most {limit:g} x)")


if __name__ == "__main__":
    main()
