"""Celery: a chain of tasks a lane, acknowledged late, with the settings that its documentation has for lost workers."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, chain, group
from celery.signals import worker_ready

from benchmarks.peers.machines.job import AT_ONCE, LANES, STEPS, Place, main, ready, step

app = Celery("lanes")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    worker_redirect_stdouts=False,
)


@app.task(name="call")
def call(before: list[str], lane: str, number: int) -> list[str]:
    """Make the call of a step, and hand on the answers of the lane."""
    return [*before, step(lane, number)]


def _connect(place: Place) -> None:
    broker, _, results = place.backend.partition(" ")
    app.conf.update(broker_url=broker, result_backend=results or broker)
    if place.way.startswith("visibility_timeout"):
        app.conf.broker_transport_options = {"visibility_timeout": int(place.way.partition("=")[2])}


def work(place: Place) -> None:
    """Be a worker of two processes."""
    _connect(place)
    worker_ready.connect(lambda **_: ready(), weak=False)
    os.environ["C_FORCE_ROOT"] = "1"
    app.worker_main(["worker", f"--concurrency={AT_ONCE}", "-n", f"{place.name}@%h", "-l", "ERROR"])


def do(place: Place) -> dict[str, Any]:
    """Send the lanes, and wait for them."""
    _connect(place)
    lanes = [chain(call.s([], lane, 0), *(call.s(lane, number) for number in range(1, STEPS))) for lane in LANES]
    return {"answers": sum(len(one) for one in group(lanes).apply_async().get())}


if __name__ == "__main__":
    main("celery", work, do)
