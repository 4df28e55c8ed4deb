"""Run the same agent with every library that is installed, round by round in one sitting, and print one table.

Every figure is the median of the rounds; a round measures every library, each in a process of its own.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Final, NamedTuple

from benchmarks.peers.programs import Skipped, line, run

ROUNDS: Final = 3


class Peer(NamedTuple):
    """A line of the table: what is run, its package and distribution, its module here, and the way to run it."""

    name: str
    package: str
    distribution: str
    module: str
    way: str


PEERS: Final = (
    Peer(
        "Microsoft Agent Framework, `Agent.run`", "agent_framework", "agent-framework-core", "agent_framework", "agent"
    ),
    Peer("kairo-team, `MiniAgent.run`", "kairo_team", "kairo-team", "kairo_team", "alone"),
    Peer("kairo-team, `kt.run` of a team of one", "kairo_team", "kairo-team", "kairo_team", "team"),
    Peer("LangChain, `create_agent`", "langchain", "langchain", "langchain", "agent"),
    Peer("OpenAI Agents SDK, `Runner.run`", "agents", "openai-agents", "openai_agents", "agent"),
    Peer("pydantic-ai, `Agent.run`", "pydantic_ai", "pydantic-ai-slim", "pydantic_ai", "agent"),
    Peer("the same, in `PydanticAIAgent.run`", "pydantic_ai", "pydantic-ai-slim", "pydantic_ai", "governed"),
)


def main() -> None:
    """Measure everybody and print the table."""
    taken: dict[Peer, list[float]] = {}
    for _ in range(ROUNDS):
        for peer in PEERS:
            if find_spec(peer.package) is None:
                continue
            try:
                said = run([sys.executable, "-m", f"benchmarks.peers.turns.{peer.module}", peer.way], 120)
            except Skipped as reason:
                print(f"{peer.name}: {reason}", file=sys.stderr)
                continue
            taken.setdefault(peer, []).append(json.loads(said.splitlines()[-1])["running"])
    print(f"Python {sys.version.split()[0]}")
    print(line("an agent run of two turns", ["version", "microseconds", "times the first"]))
    print(line("---", ["---", "---:", "---:"]))
    first = median(next(iter(taken.values())))
    for peer, figures in taken.items():
        found = median(figures)
        print(line(peer.name, [version(peer.distribution), f"{found:,.0f}", f"{found / first:.1f}"]))


if __name__ == "__main__":
    main()
