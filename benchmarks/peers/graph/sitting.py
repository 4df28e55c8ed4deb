"""Run the graph with every library that is installed, in one sitting, and print one table.

Every library runs at every size in a process of its own, size by size, so that compared figures were measured within
minutes. A library that is not installed is skipped; a run that takes more than a minute, or fails, is noted in its
place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from benchmarks.peers.programs import Skipped, line, run

SIZES: Final = (100, 1_000, 3_000)
MORE: Final = 20_000
"""Tasks of a run that kairo-team alone is put to."""
OURS: Final = "kairo_team"
SECONDS: Final = 60
UNMEASURED: Final = "-"
"""The entry of a library that was not measured."""


class Peer(NamedTuple):
    """A library's name in the table, its module, and the package to install."""

    name: str
    package: str
    distribution: str
    how: str = ""
    """The difference of this way to use it."""


PEERS: Final[Mapping[str, Peer]] = {
    OURS: Peer("kairo-team", "kairo_team", "kairo-team"),
    "langgraph": Peer("LangGraph", "langgraph", "langgraph"),
    "agent_framework": Peer("Microsoft Agent Framework", "agent_framework", "agent-framework-core"),
    "strands": Peer("Strands Agents", "strands", "strands-agents"),
    "pydantic_graph": Peer("pydantic-graph", "pydantic_graph", "pydantic-graph"),
    "pydantic_graph_layers": Peer("pydantic-graph", "pydantic_graph", "pydantic-graph", ", by layers"),
    "llama_index": Peer("LlamaIndex Workflows", "workflows", "llama-index-workflows"),
    "llama_index_one_step": Peer("LlamaIndex Workflows", "workflows", "llama-index-workflows", ", one step"),
}
"""The modules of this package."""

Figures = Mapping[str, Any]


@dataclass(slots=True)
class Measured:
    """The results of one library: figures, or the reason why there are none."""

    peer: Peer
    instant: dict[int, Figures | str] = field(default_factory=dict)
    sleeping: Figures | str = UNMEASURED

    @property
    def building(self) -> str:
        """Microseconds a task to build the graph of the middle size."""
        figures = self.instant.get(SIZES[1], UNMEASURED)
        return figures if isinstance(figures, str) else f"{figures['building']:,.1f} us"

    @property
    def growth(self) -> str:
        """What a task of the largest measured size takes, against one of the smallest."""
        costs = [figures["running"] for figures in self.instant.values() if not isinstance(figures, str)]
        return f"{costs[-1] / costs[0]:.2f}" if len(costs) > 1 else UNMEASURED

    @property
    def makespan(self) -> str:
        """The sleeping graph's makespan against its critical path."""
        if isinstance(self.sleeping, str):
            return self.sleeping
        return f"{self.sleeping['makespan'] / self.sleeping['path']:.3f}"

    def cells(self) -> list[str]:
        """Write the line of the table."""
        costs = [_cost(self.instant.get(size, UNMEASURED)) for size in (*SIZES, MORE)]
        return [*costs, self.growth, self.building, self.makespan]


def main() -> None:
    """Measure everybody and print the table."""
    there = {module: Measured(peer) for module, peer in PEERS.items() if installed(peer)}
    for size in (*SIZES, MORE):
        for module, found in there.items():
            if size != MORE or module == OURS:
                found.instant[size] = _measure(module, "--tasks", str(size))
    for module, found in there.items():
        found.sleeping = _measure(module, "--sleeping")
    print(f"Python {sys.version.split()[0]}")
    print(line("microseconds a task", [*(f"{size:,}" for size in (*SIZES, MORE)), "growth", "building", "makespan"]))
    print(line("---", ["---:"] * (len(SIZES) + 4)))
    print(line("bare gather", _bare(there[OURS])))
    for found in there.values():
        print(line(f"{found.peer.name} {version(found.peer.distribution)}{found.peer.how}", found.cells()))


def installed(peer: Peer) -> bool:
    """Return whether a library is installed; if not, print how to install it."""
    if find_spec(peer.package):
        return True
    if not peer.how:
        print(f"{peer.name} skipped: it is not installed; pip install {peer.distribution}", file=sys.stderr)
    return False


def _measure(module: str, *how: str) -> Figures | str:
    """Measure one library once; a reason in place of figures is a few words, all of it goes to stderr."""
    try:
        said = run([sys.executable, "-m", f"benchmarks.peers.graph.{module}", *how], SECONDS)
    except Skipped as reason:
        print(f"{module} {' '.join(how)}: {reason}", file=sys.stderr)
        return str(reason) if str(reason).startswith("over") else "failed"
    figures: Figures = json.loads(said.splitlines()[-1])
    print(f"{module} {' '.join(how)}: {said.splitlines()[-1]}", file=sys.stderr)
    return figures


def _cost(figures: Figures | str) -> str:
    return figures if isinstance(figures, str) else f"{figures['running']:,.1f} us, {figures['ratio']:,.1f} x"


def _bare(ours: Measured) -> list[str]:
    """Write the unit as kairo-team's own processes had it, and what no schedule of the sleeping graph can beat."""
    bare = [f"{figures['bare']:.1f} us, 1 x" for figures in ours.instant.values() if not isinstance(figures, str)]
    return [*bare, UNMEASURED, UNMEASURED, UNMEASURED]
