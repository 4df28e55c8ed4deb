"""`WorkerService`: runs a worker, and starts a new one when it is lost, until `stop`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import anyio

from kairo_team._util.threads import poster, run_in_thread
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.facts import Fact, Measuring, WorkerRestarted
from kairo_team.cluster.units import RUNS
from kairo_team.cluster.worker import Worker
from kairo_team.durable.processes import LATE
from kairo_team.errors import JournalError

if TYPE_CHECKING:
    from kairo_team.team import Team

_AGAIN: Final = 1.0
"""Seconds between two attempts to reach the database."""

Phase = Literal["starting", "ready", "draining", "ended"]


class WorkerService:
    """Serves one team in this process.

    `connect` creates the cluster of one worker. A worker that was declared dead, or could not reach the database, ends
    its work, and a new worker starts under a new id. `tell` receives a line when something changes. `drain` is the time
    in seconds that the current work may take after `stop`. Each subscriber of the team's runtime that is `Measuring`
    measures the workers.
    """

    def __init__(
        self,
        connect: Callable[[], Cluster],
        team: Team,
        *,
        concurrency: int = 8,
        members: Collection[str] | None = None,
        drain: float = 30.0,
        tell: Callable[[str], object] = lambda _line: None,
    ) -> None:
        self._connect = connect
        self._team = team
        self._concurrency = concurrency
        self._members = members
        self._drain = drain
        self._tell = tell
        self._cluster: Cluster | None = None
        self._worker: Worker | None = None
        self._stop_now: Callable[[], object] | None = None
        self._stopped = False
        self._ended = False
        several: Sequence[object] = () if team.runtime is None else team.runtime.subscribers
        measuring = [one for one in several if isinstance(one, Measuring)]
        self._measures = [one.measure_worker(team.name, lambda: self.silence) for one in measuring]

    @property
    def phase(self) -> Phase:
        """The current phase; from any thread."""
        if self._ended:
            return "ended"
        if self._stopped:
            return "draining"
        worker = self._worker
        return "ready" if worker is not None and worker.ready else "starting"

    @property
    def silence(self) -> float | None:
        """Seconds since the process reached the database; None before it has connected."""
        cluster = self._cluster
        return None if cluster is None else cluster.journal.process.silence

    @property
    def sends_heartbeat(self) -> bool:
        """Whether the process's heartbeat is recent enough that no other process declares it dead."""
        cluster, silence = self._cluster, self.silence
        return cluster is not None and silence is not None and silence < LATE * cluster.journal.beat

    def stop(self) -> None:
        """Take no new units and end; from any thread or signal handler, also before `run`."""
        self._stopped = True
        stop_now = self._stop_now  # read once: `run` may end meanwhile
        if stop_now is not None:
            with suppress(RuntimeError):  # the event loop is gone
                stop_now()

    async def run(self) -> None:
        """Serve until `stop`. Raises the errors of the first connection; retries later ones until they succeed."""
        stopping = anyio.Event()
        self._stop_now = partial(poster(), stopping.set)
        first = True
        try:
            while not self._stopped:
                self._cluster = cluster = await self._reach(stopping, first=first)
                if cluster is None:
                    break
                first = False
                try:
                    await self._serve(cluster, stopping)
                finally:
                    with anyio.CancelScope(shield=True):
                        # Shielded, so that a cancelled service closes its connections too.
                        await run_in_thread(cluster.close)
        finally:
            self._ended = True
            self._stop_now = None

    async def _reach(self, stopping: anyio.Event, *, first: bool) -> Cluster | None:
        """Connect; return None if `stop` was called meanwhile."""
        told = False
        while not self._stopped:
            try:
                return await run_in_thread(self._begin, on_late=_close_late)
            except JournalError as error:
                if first:
                    raise
                if not told:
                    self._tell(f"{error}; it tries again")
                    told = True
            with anyio.move_on_after(_AGAIN):
                await stopping.wait()
        return None

    def _begin(self) -> Cluster:
        cluster = self._connect()
        try:
            cluster.start()
        except BaseException as error:
            cluster.close()
            if isinstance(error, cluster.journal.connection_errors):
                raise JournalError(cluster.journal.place, f"it cannot be reached: {str(error).strip()}") from None
            raise
        return cluster

    async def _serve(self, cluster: Cluster, stopping: anyio.Event) -> None:
        """Serve with one worker, until it is lost or `stop` is called."""
        worker = self._worker = Worker(
            cluster, self._team, concurrency=self._concurrency, members=self._members, report=self._measure
        )

        async def wait_for_stop() -> None:
            await stopping.wait()
            busy = worker.busy
            left = f"; {busy} under way, for at most {self._drain:g} s" if busy else ""
            self._tell(f"draining: takes nothing new{left}")
            worker.stop()

        async def say_ready() -> None:
            await worker.wait_ready()
            served = ", ".join(name for name in worker.serves if name != RUNS)
            runs = "; and whole runs" if RUNS in worker.serves else ""
            self._tell(
                f"ready: process {cluster.journal.process.id[:8]}, team {self._team.name!r}, version {worker.version}; "
                f"{self._concurrency} attempts at once, of {served}{runs}"
            )

        async with anyio.create_task_group() as group:
            group.start_soon(wait_for_stop)
            group.start_soon(say_ready)
            await worker.run(self._drain)
            group.cancel_scope.cancel()
        self._worker = None
        if worker.lost is not None:
            self._measure(WorkerRestarted())
            self._tell(f"process {cluster.journal.process.id[:8]} is lost: {worker.lost}; a new worker starts")

    def _measure(self, fact: Fact) -> None:
        for take in self._measures:
            take(fact)


def _close_late(cluster: Cluster | None, _error: BaseException | None) -> None:
    """Close the cluster of a service that was cancelled while it connected; else its threads would never end."""
    if cluster is not None:  # in a thread: it takes a moment, and this may be the event loop's thread
        threading.Thread(target=cluster.close, name="kairo-close", daemon=True).start()
