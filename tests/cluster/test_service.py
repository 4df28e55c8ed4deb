"""The worker as a service: it begins anew when it was lost, hands its work over, and answers probes."""

from __future__ import annotations

import http.client
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cli.databases import DatabaseUrl, connect, tell_if_away
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import EngineName
from kairo_team.cluster.health import HealthServer, read_address
from kairo_team.cluster.service import WorkerService
from kairo_team.errors import JournalError, Misuse
from tests.cluster.server import own_server
from tests.cluster.stage import BEAT, execute, new_database, until

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
LONG = 60.0
"""Seconds after which something will never happen."""


class Desk:
    """A team whose member waits until it may go on."""

    def __init__(self, *, waits: bool = False) -> None:
        self.begun = 0
        self.go = anyio.Event()
        if not waits:
            self.go.set()
        self.team = kt.Team("desk", [kt.Member("clerk", self.work)])
        self.plan = kt.TaskGraph([kt.Task("letter", "Write it.")])

    async def work(self, assignment: kt.Assignment) -> str:
        self.begun += 1
        await self.go.wait()
        return f"{assignment.task.id} is written"

    def request(self, run_id: str) -> kt.TeamExecutionRequest:
        return kt.TeamExecutionRequest("Write.", plan=self.plan, run_id=run_id)


class Watched:
    """A service that runs, and what it told."""

    def __init__(self, url: str, desk: Desk, drain: float, beat: float) -> None:
        self.clusters: list[Cluster] = []
        self.lines: list[str] = []
        self.url = url
        self.beat = beat
        self.service = WorkerService(self.connect, desk.team, drain=drain, tell=self.lines.append)

    def connect(self) -> Cluster:
        self.clusters.append(Cluster(self.url, engine="procrastinate", beat=self.beat, patience=1.0))
        return self.clusters[-1]

    def ready(self) -> int:
        """How often a worker was ready."""
        return sum(line.startswith("ready: ") for line in self.lines)


@asynccontextmanager
async def serving(url: str, desk: Desk, drain: float = LONG, beat: float = BEAT) -> AsyncGenerator[Watched]:
    """Let a service work for the block, from when it is ready."""
    watched = Watched(url, desk, drain, beat)
    async with anyio.create_task_group() as group:
        group.start_soon(watched.service.run)
        await until(watched.ready)
        try:
            yield watched
        finally:
            watched.service.stop()


def state(cluster: Cluster, run_id: str) -> str:
    return cluster.journal.show(run_id).state


@pytest.fixture
def url() -> str:
    return new_database("procrastinate")


async def test_a_service_is_stopped_from_another_thread_as_it_ends() -> None:
    async def never(_assignment: kt.Assignment) -> str:
        raise AssertionError("nothing is connected")

    def connect_never() -> Cluster:
        raise JournalError("nowhere", "it cannot be reached")

    team, over, services = kt.Team("desk", [kt.Member("clerk", never)]), threading.Event(), list[WorkerService]()

    def stop() -> None:
        while not over.is_set():
            for service in services[-1:]:
                service.stop()

    switching = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(to_thread.run_sync, stop)
            for _ in range(1_000):
                services.append(WorkerService(connect_never, team))
                with suppress(JournalError):
                    await services[-1].run()
            over.set()
    finally:
        over.set()
        sys.setswitchinterval(switching)


async def test_a_service_that_is_cancelled_while_it_connects_leaves_no_process_behind(url: str) -> None:
    """The thread that connects cannot be stopped: what it makes is closed once it is made."""
    connecting, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    class Closed(Cluster):
        def close(self) -> None:
            super().close()
            closed.set()

    def connect_late() -> Cluster:
        connecting.set()
        assert go_on.wait(LONG)
        return Closed(url, engine="procrastinate", beat=5 * BEAT)

    async with anyio.create_task_group() as group:
        group.start_soon(WorkerService(connect_late, Desk().team).run)
        await until(connecting.is_set)
        group.cancel_scope.cancel()
    go_on.set()
    await until(closed.is_set)
    assert execute(url, "SELECT 1 FROM process") == []


async def test_a_worker_that_was_declared_dead_begins_anew_under_another_id(url: str) -> None:
    desk = Desk()
    async with serving(url, desk, beat=5 * BEAT) as watched:  # a busy machine must not look like a lost database
        first = watched.clusters[0].journal.process.id
        execute(url, "UPDATE process SET state = 'dead' WHERE id = %s", first)
        await until(lambda: watched.ready() == 2)
        assert watched.clusters[1].journal.process.id != first
        assert f"process {first[:8]} is lost: it was declared dead; a new worker starts" in watched.lines
        await to_thread.run_sync(watched.clusters[1].submit, desk.team, desk.request("after"))
        await until(lambda: state(watched.clusters[1], "after") == "completed")


async def test_a_worker_that_cannot_reach_the_database_ends_its_work_and_begins_anew() -> None:
    desk = Desk(waits=True)
    with own_server() as server:
        url = server.new_database()
        async with serving(url, desk) as watched:
            await to_thread.run_sync(watched.clusters[0].submit, desk.team, desk.request("cut"))
            await until(lambda: desk.begun == 1)
            said, ready, begun = len(watched.lines), watched.ready(), desk.begun  # a busy machine may lose one before
            await to_thread.run_sync(server.stop)
            await until(lambda: not watched.service.sends_heartbeat)
            await until(lambda: any("cannot reach the database" in line for line in watched.lines[said:]))
            await to_thread.run_sync(server.start)
            await until(lambda: watched.ready() > ready)
            desk.go.set()
            await until(lambda: state(watched.clusters[-1], "cut") == "completed")
            assert desk.begun > begun, "the attempt was made again"
            assert watched.service.sends_heartbeat


@pytest.mark.parametrize("engine", [None, "dbos"])
async def test_a_worker_that_starts_before_its_database_waits_and_says_so(engine: EngineName | None) -> None:
    desk, lines = Desk(), list[str]()
    with own_server() as server:
        place = DatabaseUrl(server.new_database())
        server.stop()
        service = WorkerService(partial(connect, place, engine, patience=LONG), desk.team, tell=lines.append)
        tell_if_away(place, lines.append)
        assert "cannot be reached yet, and the worker waits at most 60 s: connection" in lines[0]
        async with anyio.create_task_group() as group:
            group.start_soon(service.run)
            await to_thread.run_sync(server.start)
            await until(lambda: service.phase == "ready")
            service.stop()
        assert [line.partition(":")[0] for line in lines[1:]] == ["ready", "draining"]
        tell_if_away(place, pytest.fail)


async def test_work_in_hand_is_finished_after_stop_and_nothing_new_is_taken(url: str) -> None:
    desk = Desk(waits=True)
    async with serving(url, desk) as watched:
        cluster = watched.clusters[0]
        await to_thread.run_sync(cluster.submit, desk.team, desk.request("in-hand"))
        await until(lambda: desk.begun == 1)
        watched.service.stop()
        await until(lambda: watched.service.phase == "draining" and "draining" in watched.lines[-1])
        assert watched.lines[-1] == "draining: takes nothing new; 2 under way, for at most 60 s"
        await to_thread.run_sync(cluster.submit, desk.team, desk.request("later"))
        desk.go.set()
    reader = journal_of(url)
    assert reader.show("in-hand").state == "completed"
    assert reader.show("later").state == "queued"
    reader.close()
    assert watched.service.phase == "ended"


async def test_work_that_comes_while_a_worker_drains_goes_to_others_at_once(url: str) -> None:
    busy, other = Desk(waits=True), Desk()
    async with serving(url, busy) as draining:
        cluster = draining.clusters[0]
        await to_thread.run_sync(cluster.submit, busy.team, busy.request("in-hand"))
        await until(lambda: busy.begun == 1)
        draining.service.stop()
        async with serving(url, other) as taking:
            await to_thread.run_sync(cluster.submit, busy.team, busy.request("later"))
            await until(lambda: state(taking.clusters[0], "later") == "completed")
            assert draining.service.phase == "draining", "it still does what it had"
            assert state(cluster, "in-hand") == "running"
            busy.go.set()
            await until(lambda: state(taking.clusters[0], "in-hand") == "completed")


async def test_a_run_that_is_not_done_in_time_goes_on_at_another_worker(url: str) -> None:
    desk = Desk(waits=True)
    async with serving(url, desk, drain=0.0) as watched:
        await to_thread.run_sync(watched.clusters[0].submit, desk.team, desk.request("handed"))
        await until(lambda: desk.begun == 1)
    reader = journal_of(url)
    assert reader.show("handed").state in ("interrupted", "running"), "it is not cancelled"
    reader.close()
    desk.go.set()
    async with serving(url, desk) as watched:
        await until(lambda: state(watched.clusters[0], "handed") == "completed")
    assert desk.begun == 2


async def test_probes_are_answered_and_tell_of_a_drain(url: str) -> None:
    desk = Desk(waits=True)
    async with serving(url, desk) as watched:
        await to_thread.run_sync(watched.clusters[0].submit, desk.team, desk.request("in-hand"))
        await until(lambda: desk.begun == 1)
        with HealthServer(watched.service, "0") as health:
            assert await to_thread.run_sync(probe, health.port, "/healthz") == (200, "beats\n")
            assert await to_thread.run_sync(probe, health.port, "/readyz") == (200, "ready\n")
            assert (await to_thread.run_sync(probe, health.port, "/runs"))[0] == 404
            watched.service.stop()
            assert await to_thread.run_sync(probe, health.port, "/readyz") == (503, "draining\n")
            assert await to_thread.run_sync(probe, health.port, "/healthz") == (200, "beats\n")
            desk.go.set()


def test_a_worker_that_has_not_begun_is_not_ready() -> None:
    service = WorkerService(lambda: pytest.fail("it connects only when it runs"), Desk().team)
    with HealthServer(service, "127.0.0.1:0") as health:
        assert probe(health.port, "/healthz") == (503, "not connected yet\n")
        assert probe(health.port, "/readyz") == (503, "starting\n")
        with pytest.raises(Misuse, match=f"cannot listen on '127.0.0.1:{health.port}'"):
            HealthServer(service, f"127.0.0.1:{health.port}")


@pytest.mark.parametrize(
    ("text", "read"),
    [("80", ("127.0.0.1", 80)), ("10.0.0.1:8080", ("10.0.0.1", 8080)), ("[::1]:9", ("::1", 9)), ("db:0", ("db", 0))],
)
def test_a_health_address_is_a_port_or_a_host_and_a_port(text: str, read: tuple[str, int]) -> None:
    assert read_address(text) == read


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "70000", ":-1"])
def test_another_health_address_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="PORT or HOST:PORT"):
        read_address(text)


def probe(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def journal_of(url: str) -> kt.PostgresJournal:
    return kt.PostgresJournal(url)
