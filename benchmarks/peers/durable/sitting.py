"""Run the graph with every library, in one sitting, kill it in the middle, and print one table.

Each library has an environment of its own, made for this and removed at the end, unless a folder for it is named. A
library that cannot be installed is skipped, with the reason.
"""

from __future__ import annotations

import json
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.peers.budgets import environment
from benchmarks.peers.durable.experiment import ACCOUNT, LAYERS, PAUSE, Bill, read
from benchmarks.peers.programs import ROOT, Skipped, line, run

SIZES: Final = (20, 200)
REPEATS: Final = 3
KILLS: Final = 6
"""Runs of each size that are killed, at random moments."""
SECONDS: Final = 120
PLAIN: Final = "nothing recorded"


class Peer(NamedTuple):
    """A library's name in the table, what to install, and a way to use it."""

    module: str
    name: str
    requirements: Sequence[str]
    way: str


_GRAPH: Final = ("langgraph", "langgraph-checkpoint-sqlite")
PEERS: Final = (
    Peer("kairo_team", "kairo-team", (), 'sync="full"'),
    Peer("kairo_team", "kairo-team", (), 'sync="normal"'),
    Peer("kairo_team", "kairo-team", (), PLAIN),
    Peer("langgraph", "LangGraph", _GRAPH, 'durability="async"'),
    Peer("langgraph", "LangGraph", _GRAPH, 'durability="sync"'),
    Peer("langgraph", "LangGraph", _GRAPH, PLAIN),
    Peer("dbos", "DBOS", ("dbos",), "SQLite"),
)


@dataclass(slots=True)
class Measured:
    """What came of one library at one size."""

    wall: list[float] = field(default_factory=list[float])
    """Seconds that a run took."""
    processor: list[float] = field(default_factory=list[float])
    disk: list[int] = field(default_factory=list[int])
    """Bytes of all files of a run."""
    bills: list[Bill] = field(default_factory=list[Bill])
    """Of the runs that were killed once."""

    def cells(self, nodes: int) -> list[str]:
        """Write the entries of the table."""
        disk = f"{median(self.disk) / nodes / 1e3:.1f}" if self.bills else "-"
        cut, again = sum(bill.cut for bill in self.bills), sum(bill.again for bill in self.bills)
        bill = [f"{cut}", f"{again}"] if self.bills else ["-", "-"]
        return [
            f"{median(self.wall):.2f}",
            f"{median(self.processor) / nodes * 1e3:.2f}",
            disk,
            *bill,
        ]


def main(kept: Path | None) -> None:
    """Measure everybody and print a table for each size; `kept` is where the environments are kept."""
    print(f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    print(f"a run cannot be shorter than {LAYERS * PAUSE:g} s")
    with tempfile.TemporaryDirectory() as temporary:
        pythons = _pythons((kept or Path(temporary)).absolute())
        for nodes in SIZES:
            titles = ["wall, s", "processor, ms a node", "disk, kB a node", "under way at a kill", "paid again"]
            print(line(f"{nodes} nodes", titles))
            print(line("---", ["---:"] * len(titles)))
            for name, found in _measure_all(pythons, nodes).items():
                print(line(name, found.cells(nodes)), flush=True)


def _pythons(envs: Path) -> Mapping[Peer, str]:
    """Return the Python for each library that can be installed."""
    found: dict[Peer, str] = {}
    for peer in PEERS:
        try:
            found[peer] = environment(peer.requirements, envs / peer.module) if peer.requirements else sys.executable
        except Skipped as reason:
            print(f"{peer.name}, {peer.way}, skipped: {reason}", file=sys.stderr)
    return found


def _measure_all(pythons: Mapping[Peer, str], nodes: int) -> dict[str, Measured]:
    """Measure the libraries in turn, round by round, then kill each."""
    found: dict[str, Measured] = {}
    for number in range(REPEATS):
        for peer, python in pythons.items():
            with tempfile.TemporaryDirectory() as folder:
                command = _command(peer, python, nodes, Path(folder))
                try:
                    said: Mapping[str, Any] = json.loads(run(command, SECONDS).splitlines()[-1])
                except Skipped as reason:
                    print(f"{peer.name}, {peer.way}: {reason}", file=sys.stderr)
                    continue
                name = f"{peer.name} {said['version']}, {peer.way}"
                measured = found.setdefault(name, Measured())
                measured.wall.append(said["wall"])
                measured.processor.append(said["processor"])
                measured.disk.append(_size(Path(folder)))
            if not number and peer.way != PLAIN:
                chance = random.Random(nodes)  # noqa: S311 - moments, not secrets
                measured.bills += [_killed(peer, python, nodes, chance) for _ in range(KILLS)]
    return found


def _command(peer: Peer, python: str, nodes: int, folder: Path) -> list[str]:
    module = f"benchmarks.peers.durable.{peer.module}"
    return [python, "-m", module, "--nodes", str(nodes), "--folder", str(folder), "--way", peer.way]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.name != ACCOUNT)


def _killed(peer: Peer, python: str, nodes: int, chance: random.Random) -> Bill:
    """Kill a run somewhere in the middle, let it go on, and return what the provider was asked."""
    wanted, later = chance.uniform(0.1, 0.8) * nodes, chance.uniform(0, PAUSE)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = _command(peer, python, nodes, folder)
        process = subprocess.Popen(  # noqa: S603 - our own programs
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            while read(folder).answered < wanted and process.poll() is None:
                time.sleep(0.002)
            time.sleep(later)
        finally:
            process.kill()
            process.wait()
        run(command, SECONDS)
        return read(folder)
