"""Sixty-four tasks on one tree: how fair waiting for a hold is, and what it costs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from benchmarks.table import Row, compare
from kairo_team.budget import Budget
from kairo_team.governance import Governor
from kairo_team.testing import run_in_virtual_time

TASKS: Final = 64
MEMBERS: Final = 8
FIT: Final = 8
"""Calls in flight that the limit allows at once."""
CALL: Final = 100
ROUNDS: Final = 25
REPEATS: Final = 7


def grow(limit: int) -> list[Governor]:
    """Make the tree: a team, eight members, eight tasks each; return the tasks."""
    team = Governor(Budget(tokens=limit), name="team")
    members = [team.carve(f"member-{number}") for number in range(MEMBERS)]
    return [members[number % MEMBERS].carve(f"task-{number}") for number in range(TASKS)]


@dataclass(slots=True)
class Crowd:
    """When each task asked and was served; the calls cost nothing, so that the same number of calls always fits."""

    sizes: Callable[[], int]
    lengths: Callable[[], float]
    asked: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Task and round, in the order they called `hold`."""
    served: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    """When each was served."""
    waits: list[float] = field(default_factory=list[float])
    """Seconds."""

    @property
    def out_of_turn(self) -> int:
        """Count the tasks that were served before one that had asked earlier."""
        moments = [self.served[each] for each in self.asked]
        return sum(before > after for before, after in pairwise(moments))

    async def run(self, rounds: int) -> None:
        """Run all tasks at once, each with this many calls."""
        async with anyio.create_task_group() as group:
            for number, governor in enumerate(grow(FIT * CALL)):
                group.start_soon(self._work, number, governor, rounds)

    async def _work(self, number: int, governor: Governor, rounds: int) -> None:
        for turn in range(rounds):
            self.asked.append((number, turn))
            began = anyio.current_time()
            size = self.sizes()
            with await governor.hold(tokens=size, minimum=Budget(tokens=size)) as hold:
                self.served[number, turn] = anyio.current_time()
                self.waits.append(anyio.current_time() - began)
                await anyio.sleep(self.lengths())
                hold.settle()


def watch(rounds: int = ROUNDS) -> Crowd:
    """Run a crowd whose calls are equal and last half a second to a second and a half, in virtual time."""
    chance = random.Random(64)  # noqa: S311 - repeatable, no secret
    crowd = Crowd(lambda: CALL, lambda: chance.uniform(0.5, 1.5))
    run_in_virtual_time(crowd.run, rounds)
    return crowd


def hold_in_turns(limit: int) -> None:
    """Let all tasks hold, yield and settle, under a limit that fits this many tokens at once."""

    async def work(governor: Governor) -> None:
        for _ in range(ROUNDS):
            with await governor.hold(tokens=CALL) as hold:
                await checkpoint()
                hold.settle()

    async def main() -> None:
        await asyncio.gather(*map(work, grow(limit)))

    asyncio.run(main())


def measure() -> list[Row]:
    """Measure how late the last one is served, and what a hold costs that has to wait for others."""
    crowd = watch()
    mean, latest = sum(crowd.waits) / len(crowd.waits), max(crowd.waits)
    turns = f"{latest:.1f} s, mean {mean:.1f} s; {crowd.out_of_turn} of {len(crowd.asked):,} served out of turn"
    works = {"fits": partial(hold_in_turns, TASKS * CALL), "waits": partial(hold_in_turns, FIT * CALL)}
    times = compare(works, REPEATS)
    fits, waits = (times[name].seconds / (TASKS * ROUNDS) * 1e6 for name in works)
    return [
        Row(f"{TASKS} tasks, {FIT} fit: the longest wait, against the mean", latest / mean, None, turns),
        Row("a hold that waits, against one that fits", times["waits"].ratio, None, f"{waits:.1f} us, {fits:.1f} us"),
    ]
