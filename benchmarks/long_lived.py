"""Memory of a process that runs many teams in one runtime: `python -m benchmarks.long_lived --runs 100000`.

A thousand runs are at work at once. Each has two tasks, a budget and a model that waits. One line is printed
for every tenth of the runs: resident memory, and Python's objects after a collection. The exit code is 1 when
the second half of the runs left more than an object for each ten runs.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import anyio
import anyio.lowlevel

import kairo_team as kt
from benchmarks.memory import resident
from kairo_team.testing import FunctionModel

AT_ONCE: Final = 1_000
MOST: Final = 0.1
"""Objects that a run may leave: caches fill for a while."""


async def say(request: kt.ModelRequest) -> str:
    """Wait as a provider does, and answer."""
    model.calls.clear()  # else it keeps them all
    await anyio.sleep(0.01)
    return f"heard {request.messages[-1].text[:20]}"


model = FunctionModel(say, name="test:m", dollars_per_token=0)


def make() -> kt.Team:
    """Make a team: a mini agent, and a function after it."""

    async def write(_: kt.Assignment) -> str:
        await anyio.lowlevel.checkpoint()
        return "x" * 1_000

    return kt.Team("desk", [kt.Member("asks", kt.MiniAgent(model)), kt.Member("writes", write)])


async def one(runtime: kt.Runtime, number: int) -> None:
    """Run one team."""
    ask = kt.Task("ask", f"Say {number}.", member="asks")
    plan = kt.TaskGraph([ask, kt.Task("write", "Write.", member="writes", depends_on=["ask"])])
    result = await kt.run(make(), f"Goal {number}.", plan=plan, budget=kt.Budget(tokens=5_000), runtime=runtime)
    assert result.status is kt.TeamStatus.COMPLETED, result


async def lane(runtime: kt.Runtime, numbers: Iterator[int]) -> None:
    """Run one team after the other."""
    for number in numbers:
        await one(runtime, number)


async def work(runs: int) -> list[tuple[int, int]]:
    """Run them, and return for every tenth: the runs so far, and the objects then."""
    found: list[tuple[int, int]] = []
    begun = time.monotonic()
    async with kt.Runtime() as runtime:
        for done in range(runs // 10, runs + 1, runs // 10):
            numbers = iter(range(runs // 10))
            async with anyio.create_task_group() as lanes:
                for _ in range(AT_ONCE):
                    lanes.start_soon(lane, runtime, numbers)
            gc.collect()
            found.append((done, len(gc.get_objects())))
            seconds = time.monotonic() - begun
            memory = resident(os.getpid())
            shown = "" if memory is None else f" {memory:7.1f} MB"
            print(f"{done:9,} runs{shown} {found[-1][1]:9,} objects {seconds:6.0f} s", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and judge what was left."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.long_lived", description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    given: Any = parser.parse_args(arguments)
    found = anyio.run(work, given.runs)
    middle, last = found[len(found) // 2 - 1], found[-1]
    left = (last[1] - middle[1]) / (last[0] - middle[0])
    print(f"{left:.3f} objects left by a run in the second half")
    return int(left > MOST)


if __name__ == "__main__":
    sys.exit(main())
