"""The common parts for every library: what the model says, what the tool returns, the unit, and the check of a run.

The model suspends once a call, as every client does that waits for a network. Prompts have 2 kB, replies 3 kB. The unit
is the same conversation without any library, timed in the same process and the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from statistics import median
from typing import Any, Final

from benchmarks.table import seconds_of

Run = Callable[[], Coroutine[Any, Any, str]]

GOAL: Final = "Say when the tide is high. " * 75
"""What the agent is asked: 2 kB."""
INSTRUCTIONS: Final = "Answer plainly."
FOUND: Final = "14:20 " * 170
"""What the tool returns: 1 kB."""
ANSWER: Final = "The tide is high at 14:20. " * 112
"""What the model says in the end: 3 kB."""
RUNS: Final = 200
"""Runs of an agent that are timed together."""
ROUNDS: Final = 7
WARM_UP: Final = 20


def look(port: str) -> str:
    """Look up the tides of a port."""
    return FOUND if port == "Oslo" else "unknown"


async def suspend() -> None:
    """Wait as long as a reply takes that is there at once."""
    await asyncio.sleep(0)


async def bare() -> str:
    """Have the conversation without a library."""
    messages = [INSTRUCTIONS, GOAL]
    await suspend()
    messages.append(look(json.loads('{"port": "Oslo"}')["port"]))
    await suspend()
    return ANSWER


def measure(run: Run) -> dict[str, float]:
    """Time the unit and the run in turn: microseconds of processor time a run, and the median of the ratios."""

    async def many(one: Run, times: int) -> None:
        for _ in range(times):
            answer = await one()
            assert answer == ANSWER, answer[:200]

    asyncio.run(many(run, WARM_UP))
    units, taken = list[float](), list[float]()
    for _ in range(ROUNDS):
        units.append(seconds_of(lambda: asyncio.run(many(bare, RUNS)), time.process_time))
        taken.append(seconds_of(lambda: asyncio.run(many(run, RUNS)), time.process_time))
    return {"running": median(taken) / RUNS * 1e6, "bare": median(units) / RUNS * 1e6}


def main(peer: str, ways: dict[str, Run]) -> None:
    """Measure the way that the command line asks for; the last line printed is the result, as JSON."""
    parser = argparse.ArgumentParser(description=f"What an agent run of two turns costs with {peer}.")
    parser.add_argument("way", nargs="?", choices=list(ways), default=next(iter(ways)))
    asked = parser.parse_args()
    print(json.dumps({"peer": peer, "version": version(peer), **measure(ways[asked.way])}))
