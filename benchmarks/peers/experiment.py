"""The common parts for every library: the limit, the calls, the callers, and a provider that keeps its own bill.

Callers start at once; each asks until its library refuses, five times at most, as an agent in a loop does. Every call
is a prompt of 20 tokens and a reply as long as it may be, at most 80: 100 tokens, unless the library asks for fewer.
What a library spent is what the provider billed, not what the library counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from importlib.metadata import version

LIMIT = 250
PROMPT = 20
REPLY = 80
PRICE = 0.001
"""Dollars for one token, for libraries that limit money alone: 250 tokens are 25 cents."""
QUESTION = " ".join(["word"] * PROMPT)

_CALLS = 5
_SECONDS = 0.2


class Provider:
    """Answers after a while, and bills its replies."""

    def __init__(self) -> None:
        self.billed = 0

    async def answer(self, most: int | None) -> int:
        """Return how many tokens the reply has, of at most so many."""
        await asyncio.sleep(_SECONDS)
        reply = REPLY if most is None else min(REPLY, most)
        self.billed += PROMPT + reply
        return reply


async def at_once(width: int, call: Callable[[], Awaitable[object]], refusals: tuple[type[Exception], ...]) -> None:
    """Run this many callers at once, each until it is refused."""

    async def caller() -> None:
        for _ in range(_CALLS):
            try:
                await call()
            except refusals:
                return

    await asyncio.gather(*(caller() for _ in range(width)))


def main(peer: str, spend: Callable[[int], Awaitable[int]]) -> None:
    """Run the experiment at the `--width` asked for, and print one line of JSON."""
    parser = argparse.ArgumentParser(description="How many tokens callers at once spend under one limit.")
    parser.add_argument("--width", type=int, default=16, help="how many callers")
    width = parser.parse_args().width

    async def measure() -> int:
        return await spend(width)

    spent = asyncio.run(measure())
    print(json.dumps({"peer": peer, "version": version(peer), "limit": LIMIT, "width": width, "spent": spent}))
