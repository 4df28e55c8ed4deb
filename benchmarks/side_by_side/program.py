"""What each program is given, and what it hands back.

A program has one coroutine function, `run(given)`: it does its job with one library, and goes on with what an earlier
process left when there is any. This module needs nothing but Python: it runs in the environment of any library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

MODEL = "scripted"
"""The name of the model; it is served at `Given.url`, in OpenAI's format, and wants no key."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a program is given."""

    url: str
    """Where the model is, up to and with `/v1`."""
    folder: Path
    """Where to keep what a later process needs."""
    tokens: int | None
    """The most that may be spent in tokens; None has no limit."""
    calls: int | None
    """About the same, in calls of the model, for a library that counts nothing else."""
    again: bool
    """Whether an earlier process began with the same folder, and was killed or failed."""


def main(run: Callable[[Given], Awaitable[str]]) -> None:
    """Run the program as the command line says; the last line printed is its result or its error, as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--calls", type=int)
    parser.add_argument("--again", action="store_true")
    given = Given(**vars(parser.parse_args()))
    os.environ.setdefault("OPENAI_API_KEY", "none")
    try:
        said = {"result": asyncio.run(_awaited(run, given))}
    except Exception as error:  # noqa: BLE001 - whatever a library raises is what came back
        traceback.print_exc()
        said = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(said), flush=True)
    # Threads that a library left behind do not keep the program.
    sys.stderr.flush()
    os._exit(0)


async def _awaited(run: Callable[[Given], Awaitable[str]], given: Given) -> str:
    return await run(given)
