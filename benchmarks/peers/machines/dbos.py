"""DBOS: a workflow a lane, a step a call, on a queue; two executors with ids of their own, as it documents."""

from __future__ import annotations

import signal
from typing import Any

from dbos import DBOS, DBOSClient

from benchmarks.peers.machines.job import AT_ONCE, LANES, STEPS, Place, main, ready, step


@DBOS.step()
def call(name: str, number: int) -> str:
    """Make the call of a step."""
    return step(name, number)


@DBOS.workflow()
def lane(name: str) -> list[str]:
    """Make the calls of a lane."""
    return [call(name, number) for number in range(STEPS)]


def work(place: Place) -> None:
    """Launch an executor, which recovers what it had before it died, and wait for ever."""
    config = {"name": "lanes", "system_database_url": place.backend, "log_level": "ERROR"}
    DBOS(config={**config, "application_version": "1", "executor_id": place.name})
    DBOS.launch()
    DBOS.register_queue("lanes", worker_concurrency=AT_ONCE)
    ready()
    signal.pause()


def do(place: Place) -> dict[str, Any]:
    """Enqueue the lanes, and wait for them."""
    client = DBOSClient(system_database_url=place.backend)
    handles = [client.enqueue({"queue_name": "lanes", "workflow_name": lane.__qualname__}, name) for name in LANES]
    return {"answers": sum(len(handle.get_result()) for handle in handles)}


if __name__ == "__main__":
    main("dbos", work, do)
