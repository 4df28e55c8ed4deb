"""Ray: a task a call, each given the one before it; two nodes beside the head, and retries as they are by default."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray

from benchmarks.peers.machines.job import AT_ONCE, LANES, STEPS, Place, main, ready, step


@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def call(before: list[str], lane: str, number: int) -> list[str]:
    """Make the call of a step, and hand on the answers of the lane."""
    return [*before, step(lane, number)]


def work(place: Place) -> None:
    """Be a node with two processors."""
    command = [str(Path(sys.executable).with_name("ray")), "start", f"--address={place.backend}", "--block"]
    command += [f"--num-cpus={AT_ONCE}", f"--object-store-memory={100 << 20}"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - Ray's own program
    assert node.stdout is not None
    for line in node.stdout:
        if "Ray runtime started" in line:
            ready()


def do(place: Place) -> dict[str, Any]:
    """Send the lanes once both nodes are there, and wait for them."""
    ray.init(address=place.backend, log_to_driver=False, logging_level="ERROR")
    while ray.cluster_resources().get("CPU", 0) < 2 * AT_ONCE:
        time.sleep(0.1)
    lanes: list[Any] = []
    for lane in LANES:
        before: Any = []
        for number in range(STEPS):
            before = call.remote(before, lane, number)
        lanes.append(before)
    return {"answers": sum(len(one) for one in ray.get(lanes))}


if __name__ == "__main__":
    main("ray", work, do)
