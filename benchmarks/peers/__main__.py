"""Put the same experiments to kairo-team and to other libraries, and print a table of each.

`budget`, `durable` and `machines` install every library in an environment of its own. `graph` and `turns` measure the
libraries that are installed beside kairo-team.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import budgets
from benchmarks.peers.durable import sitting as durable
from benchmarks.peers.graph import sitting
from benchmarks.peers.machines import sitting as machines
from benchmarks.peers.programs import Skipped, run
from benchmarks.peers.turns import sitting as turns

__all__ = ["Skipped", "main", "run"]


def main() -> None:
    """Run the named experiment; all without an argument."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "experiment",
        nargs="?",
        choices=["budget", "graph", "turns", "durable", "machines"],
        help="one of them; all by default",
    )
    parser.add_argument("--envs", type=Path, help="where the environments of all but `graph` and `turns` are kept")
    asked = parser.parse_args()
    experiments: dict[str, Callable[[], object]] = {
        "budget": lambda: budgets.main(asked.envs),
        "graph": sitting.main,
        "turns": turns.main,
        "durable": lambda: durable.main(asked.envs),
        "machines": lambda: machines.main(asked.envs),
    }
    for name, experiment in experiments.items():
        if asked.experiment in (None, name):
            experiment()
            print()


if __name__ == "__main__":
    main()
