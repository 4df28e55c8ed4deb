"""Databases for tests of the cluster, and workers in the event loop of the test."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final, TypeVar
from uuid import uuid4

import anyio
import psycopg
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import EngineName
from kairo_team.cluster.service import WorkerService
from kairo_team.cluster.worker import Worker
from tests.cluster.server import server

BEAT: Final = 0.2

Found = TypeVar("Found")


@cache
def template(engine: EngineName) -> str:
    """Make a database with all tables, to be copied: an engine takes seconds to make its own."""
    url = server().new_database()
    cluster = Cluster(url, engine=engine, beat=BEAT)
    cluster.delivery.install()
    cluster.close()
    return url.rpartition("/")[2]


def new_database(engine: EngineName) -> str:
    """Make a database with all tables; return its URL."""
    source = template(engine)
    name = f"test_{uuid4().hex[:12]}"
    with psycopg.connect(server().url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"'.encode())
    return server().url_of(name)


def execute(url: str, sql: str, *values: Any) -> list[Any]:
    """Execute one statement on the tables of a database; return the rows that it finds."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=kairo") as connection:
        cursor = connection.execute(sql.encode(), values)
        return [] if cursor.description is None else cursor.fetchall()


async def until(holds: Callable[[], Found]) -> Found:
    """Wait until a function, called in a thread, returns something true; return that."""
    with anyio.fail_after(60):
        while not (found := await to_thread.run_sync(holds)):
            await anyio.sleep(0.02)
        return found


def warned(result: kt.TeamResult) -> tuple[str, ...]:
    """Return what a result warns of, but for who blocked the event loop: on a busy machine that may be anybody."""
    return tuple(one for one in result.warnings if "blocked the event loop" not in one)


class Crew:
    """The cluster of a coordinator, `here`, and workers on its database; `options` are those of `here`."""

    def __init__(self, url: str, *, engine: EngineName = "procrastinate", beat: float = BEAT, **options: Any) -> None:
        self.url = url
        self.engine: EngineName = engine
        self.beat = beat
        self.clusters: list[Cluster] = []
        self.here = self.new_cluster(**options)
        self.group: anyio.abc.TaskGroup

    def new_cluster(self, **options: Any) -> Cluster:
        """Make the cluster of one more process."""
        self.clusters.append(Cluster(self.url, engine=self.engine, beat=self.beat, **options))
        return self.clusters[-1]

    def add_worker(self, team: kt.Team, **options: Any) -> Cluster:
        """Let one more worker work until the end; return its cluster."""
        cluster = self.new_cluster()
        self.group.start_soon(Worker(cluster, team, **options).run)
        return cluster

    def add_service(self, team: kt.Team, **options: Any) -> None:
        """Let one more worker work until the end, and another after it where a busy machine makes it look lost."""
        self.group.start_soon(WorkerService(self.new_cluster, team, **options).run)


@asynccontextmanager
async def crew(url: str, **options: Any) -> AsyncGenerator[Crew]:
    """Let the workers that are added work in this event loop for the block; `options` are those of `Crew`."""
    made = Crew(url, **options)
    try:
        async with anyio.create_task_group() as made.group:
            yield made
            made.group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            for cluster in made.clusters:
                await to_thread.run_sync(cluster.close)


@asynccontextmanager
async def working(
    url: str, team: kt.Team, *, engine: EngineName = "procrastinate", workers: int = 1, concurrency: int = 8
) -> AsyncGenerator[Cluster]:
    """Let workers of a team work for the block; yields the cluster of a coordinator.

    None of them is lost: their heartbeat is slow enough for a busy machine.
    """
    async with crew(url, engine=engine, beat=5 * BEAT) as made:
        for _ in range(workers):
            made.add_service(team, concurrency=concurrency)
        yield made.here
