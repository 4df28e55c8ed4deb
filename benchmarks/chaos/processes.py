"""The processes to which everything happens: workers, and programs that coordinate a run of their own."""

from __future__ import annotations

import faulthandler
import logging
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

import kairo_team as kt
from benchmarks.chaos import desk
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import EngineName
from kairo_team.cluster.service import WorkerService
from kairo_team.errors import RunFinished, RunNotFound
from kairo_team.recorded import ENDED

_logger = logging.getLogger("chaos")


@dataclass(frozen=True)
class Place:
    """Where a process works."""

    url: str
    engine: EngineName
    beat: float
    provider: int
    clock: float
    """Seconds that its wall clock is wrong by."""
    log: Path

    def prepare(self) -> None:
        """Set the clock, and say what happens in a file."""
        faulthandler.enable(self.log.with_suffix(".stacks").open("w"))  # SIGABRT: where does it hang?
        right, wrong = time.time, self.clock
        time.time = lambda: right() + wrong
        logging.basicConfig(filename=self.log, level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
        logging.getLogger("kairo_team").setLevel(logging.DEBUG)

    def cluster(self) -> Cluster:
        """Reach the database."""
        return Cluster(self.url, engine=self.engine, beat=self.beat)


def work(place: Place) -> None:
    """Be a worker until SIGTERM, as `kairo worker` is."""
    place.prepare()
    anyio.run(_work, place)


async def _work(place: Place) -> None:
    service = WorkerService(place.cluster, desk.team(place.provider), concurrency=4, drain=20, tell=_logger.info)

    async def wait_for_the_end() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                service.stop()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_the_end)
            await service.run()
            group.cancel_scope.cancel()
    except Exception:
        _logger.exception("THE WORKER RAISED")
        raise


def coordinate(place: Place, run_id: str) -> None:
    """Coordinate one run to its end; where its session is lost, take it up again."""
    place.prepare()
    anyio.run(_coordinate, place, run_id)


async def _coordinate(place: Place, run_id: str) -> None:
    while True:
        cluster: Cluster | None = None
        try:
            cluster = await run_sync(place.cluster)
            await _session(cluster, place, run_id)
            if (await run_sync(cluster.journal.show, run_id)).state in ENDED:
                return
        except RunFinished:
            return
        except Exception:
            _logger.exception("THE COORDINATOR RAISED")
        finally:
            if cluster is not None:
                with anyio.CancelScope(shield=True):
                    await run_sync(cluster.close)
        await anyio.sleep(place.beat)


async def _session(cluster: Cluster, place: Place, run_id: str) -> None:
    team = replace(desk.team(place.provider), runtime=None)
    async with desk.runtime(place.provider, engine=cluster) as runtime:
        try:
            await run_sync(cluster.journal.digests, run_id)
        except RunNotFound:
            result = await kt.run(team, desk.request(run_id), runtime=runtime)
        else:
            result = await runtime.resume(run_id, team)
        _logger.info("THE RUN is %s: %s", result.status, result.error)
