"""Let faults happen, and print what came of the runs: `python -m benchmarks.chaos --faults 100`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from benchmarks.chaos.account import Account
from benchmarks.chaos.server import chaos_server
from benchmarks.chaos.stage import FAULTS, Stage
from tests.cluster.pooler import pooler

POOLER: Final = {"default_pool_size": 150, "server_login_retry": 1}
"""Settings of PgBouncer: sessions for all processes, and a server that was away is tried again soon."""
AT_ONCE: Final = 100
"""Faults of one stage; then a new one begins, with a new database."""


def measure(
    engine: Any, faults: int, seed: int, folder: Path, *, pooled: bool = False, **stage: Any
) -> tuple[Account, Counter[str]]:
    """Let so many faults happen with an engine; return what came of the runs, and how often each fault happened.

    `pooled`: the processes reach the server through PgBouncer in session mode.
    """
    total, happened = Account(), Counter[str]()
    with ExitStack() as stack:
        server = stack.enter_context(chaos_server())
        if pooled:
            way = stack.enter_context(pooler(server.url, "session", **POOLER))
            stage["port"] = urlsplit(way).port
        while total.faults < faults:
            place = folder / f"{engine}-{seed}"
            place.mkdir(parents=True, exist_ok=True)
            one = Stage(server, engine, place, seed, **stage)
            account = anyio.run(one.run, min(AT_ONCE, faults - total.faults))
            for problem in account.problems:
                print(f"PROBLEM {engine} {seed}: {problem}", flush=True)
            waited = one.observer.longest
            print(f"{engine} {seed}: {account.runs} runs, on nobody's way at most {waited:.1f} s", flush=True)
            total += account
            happened += one.happened
            seed += 1
    return total, happened


def show(accounts: dict[str, tuple[Account, Counter[str]]]) -> None:
    """Print a table of the faults and of what came of the runs, a column for each engine."""
    print(f"| {'':28} |" + "".join(f" {name:>13} |" for name in accounts))
    print(f"|{'-' * 30}|" + "".join(f"{'-' * 14}:|" for _ in accounts))
    for name in FAULTS:
        print(f"| {name:28} |" + "".join(f" {happened[name]:13} |" for _, happened in accounts.values()))
    for one in fields(Account)[:-1]:
        values = [getattr(account, one.name) for account, _ in accounts.values()]
        print(f"| {one.name.replace('_', ' '):28} |" + "".join(f" {value:13} |" for value in values))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 when anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--engine", choices=("procrastinate", "dbos", "both"), default="both")
    parser.add_argument("--faults", type=int, default=100, help="for each engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--beat", type=float, default=0.4, help="seconds")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two faults, in the middle")
    parser.add_argument("--only", action="append", choices=tuple(FAULTS), default=[], help="a fault; may be repeated")
    parser.add_argument("--pooled", action="store_true", help="through PgBouncer in session mode")
    parser.add_argument("--keep", type=Path, help="a folder for the logs")
    given = parser.parse_args(arguments)
    folder = given.keep or Path(tempfile.mkdtemp(prefix="kairo-chaos-"))
    engines = ("procrastinate", "dbos") if given.engine == "both" else (given.engine,)
    stage = {"workers": given.workers, "beat": given.beat, "pace": given.pace, "only": tuple(given.only)}
    accounts = {name: measure(name, given.faults, given.seed, folder, pooled=given.pooled, **stage) for name in engines}
    show(accounts)
    wrong = sum(account.wrong for account, _ in accounts.values())
    if not given.keep and not wrong:
        shutil.rmtree(folder)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
