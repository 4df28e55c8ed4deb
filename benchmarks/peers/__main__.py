"""Put the same experiments to kairo-team and to other libraries, and print a table of each.

`budget` installs every library in an environment of its own. `graph` measures the libraries that are installed beside
kairo-team, and prints how to install the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.peers import budgets
from benchmarks.peers.graph import sitting
from benchmarks.peers.programs import Skipped, run

__all__ = ["Skipped", "main", "run"]


def main() -> None:
    """Run the named experiment; both without an argument."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("experiment", nargs="?", choices=["budget", "graph"], help="one of them; both by default")
    parser.add_argument("--envs", type=Path, help="where the environments of `budget` are kept")
    asked = parser.parse_args()
    if asked.experiment != "graph":
        budgets.main(asked.envs)
    if asked.experiment is None:
        print()
    if asked.experiment != "budget":
        sitting.main()


if __name__ == "__main__":
    main()
