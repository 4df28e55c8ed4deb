"""The common parts for every library: the graph, the calls, and a provider that writes down what it was asked.

The provider syncs a line to its file when it is asked, and another before it answers: after a kill the file says which
calls had been answered and which were under way. This module needs nothing but Python, so that it runs in the
environment of any library.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

LAYERS: Final = 10
FAN_IN: Final = 3
PAUSE: Final = 0.05
"""Seconds that a call takes."""
PROMPT: Final = "Explain how the moon pulls the sea, and why. " * 45
REPLY: Final = "The moon pulls the near side of the sea more. " * 65
RUN: Final = "run-1"
ACCOUNT: Final = "account"

Graph = Mapping[str, Sequence[str]]
"""What each node depends on, in an order that has every dependency first."""
Ask = Callable[[str, str], Awaitable[str]]
"""Asks the provider, for a node, with a prompt."""
Go = Callable[[bool], Awaitable[Sequence[str]]]
"""Begins the run, or goes on with it when it is given True; returns the names of all nodes that have an answer."""
Prepare = Callable[[Graph, Ask, Path, str], AbstractAsyncContextManager[Go]]
"""Takes the graph, a folder for files, and one of the ways to use the library."""


class Wrong(Exception):
    """A library did not do what was asked."""


def layered(nodes: int) -> Graph:
    """Make a graph of `LAYERS` layers; every node but those of the first depends on `FAN_IN` of the layer before."""
    width = nodes // LAYERS
    places = [divmod(number, width) for number in range(nodes)]
    return {f"n{layer}-{place}": _needs(layer, place, width) for layer, place in places}


def _needs(layer: int, place: int, width: int) -> tuple[str, ...]:
    before = {f"n{layer - 1}-{(place + step) % width}": None for step in range(FAN_IN)} if layer else {}
    return tuple(before)


def layers(graph: Graph) -> list[list[str]]:
    """Return the names of the nodes layer by layer."""
    width = len(graph) // LAYERS
    names = list(graph)
    return [names[start : start + width] for start in range(0, len(names), width)]


class Provider:
    """Answers after a while, and syncs what it is asked and answers to its file."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / ACCOUNT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def ask(self, node: str, prompt: str) -> str:
        """Answer the question of a node."""
        self._write("asked", node)
        await asyncio.sleep(PAUSE)
        self._write("answered", node)
        return f"{node}: {len(prompt)} characters. {REPLY}"

    def _write(self, what: str, node: str) -> None:
        os.write(self._file, f"{what} {node}\n".encode())
        os.fsync(self._file)


@dataclass(frozen=True, slots=True)
class Bill:
    """What a provider was asked."""

    asked: int
    answered: int
    """Different nodes among those that had an answer."""
    again: int
    """Calls for a node that had been answered before."""
    cut: int
    """Calls that were never answered: they were under way at a kill."""


def read(folder: Path) -> Bill:
    """Read a provider's file; a line that a kill cut short had not been answered."""
    path = folder / ACCOUNT
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    counts, answered, again = Counter[str](), set[str](), 0
    for line in lines:
        what, _, node = line.partition(" ")
        counts[what] += 1
        if what == "asked":
            again += node in answered
        else:
            answered.add(node)
    return Bill(counts["asked"], len(answered), again, counts["asked"] - counts["answered"])


def main(peer: str, prepare: Prepare, ways: Sequence[str]) -> None:
    """Run what the command line asks for, or go on with it; the last line printed is the result, as JSON."""
    parser = argparse.ArgumentParser(description=f"What it costs that {peer} records a graph of model calls.")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--folder", type=Path, required=True, help="where the run is recorded, empty for a new one")
    parser.add_argument("--way", choices=ways, default=ways[0])
    asked = parser.parse_args()
    print(json.dumps({"peer": peer, "version": version(peer), **asyncio.run(_run(prepare, asked))}))


async def _run(prepare: Prepare, asked: argparse.Namespace) -> dict[str, float]:
    folder: Path = asked.folder
    graph, again = layered(asked.nodes), (folder / ACCOUNT).exists()
    if not again:
        await _warm_up(prepare, asked.way)
    async with prepare(graph, Provider(folder).ask, folder, asked.way) as go:
        wall, processor = time.perf_counter(), time.process_time()
        done = await go(again)
        figures = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
    if set(done) != set(graph):
        raise Wrong(f"{len(set(done))} of {len(graph)} nodes have an answer")
    return figures


async def _warm_up(prepare: Prepare, way: str) -> None:
    """Run a small graph first, recorded elsewhere: imports and caches are no cost of a node."""

    async def answer(_node: str, _prompt: str) -> str:
        return REPLY

    with tempfile.TemporaryDirectory() as folder:
        async with prepare(layered(LAYERS), answer, Path(folder), way) as go:
            await go(False)
