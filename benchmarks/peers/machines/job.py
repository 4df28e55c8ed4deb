"""The job and the programs' common parts; nothing but Python is needed, so that any environment can run it.

The job has lanes, four unless the environment says so. A lane is steps, one after the other; a step is one call of a
provider.
"""

from __future__ import annotations

import argparse
import json
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlencode

LANES: Final = tuple(os.environ.get("PEERS_LANES", "a b c d").split())
STEPS: Final = int(os.environ.get("PEERS_STEPS", "5"))
"""Steps of a lane."""
AT_ONCE: Final = 2
"""Lanes that a worker does at once."""
WORKER: Final = "PEERS_WORKER"
PROVIDER: Final = "PEERS_PROVIDER"


@dataclass(frozen=True)
class Place:
    """What a program is told."""

    backend: str
    """The URL of the database or the broker."""
    way: str
    """How the library is used."""
    name: str
    """The worker's."""


def step(lane: str, number: int) -> str:
    """Make the call of a step, and return its answer."""
    query = urlencode({"step": f"{lane}.{number}", "worker": os.environ[WORKER]})
    with urllib.request.urlopen(f"{os.environ[PROVIDER]}/?{query}", timeout=60) as reply:  # noqa: S310 - the loopback
        return str(reply.read().decode())


def ready() -> None:
    """Say that the worker takes work."""
    print("ready", flush=True)


def main(package: str, work: Callable[[Place], object], do: Callable[[Place], dict[str, Any]]) -> None:
    """Be a worker, or do the job; the last line that the latter prints is what it has to say, as JSON."""
    parser = argparse.ArgumentParser(description=f"A job on two workers with {package}.")
    parser.add_argument("role", choices=("work", "do"))
    parser.add_argument("--backend", required=True)
    parser.add_argument("--way", required=True)
    given = parser.parse_args()
    place = Place(given.backend, given.way, os.environ[WORKER])
    if given.role == "work":
        work(place)
    else:
        print(json.dumps({"version": version(package), **do(place)}), flush=True)
