"""Databases for tests of the cluster, and workers in the event loop of the test."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from typing import Final

import anyio
import psycopg
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import EngineName
from kairo_team.cluster.worker import Worker
from tests.cluster.server import server

BEAT: Final = 0.2


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
    url = server().new_database()
    name = url.rpartition("/")[2]
    with psycopg.connect(server().url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}"'.encode())
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"'.encode())
    return url


@asynccontextmanager
async def working(
    url: str, team: kt.Team, *, engine: EngineName = "procrastinate", workers: int = 1, concurrency: int = 8
) -> AsyncGenerator[Cluster]:
    """Let workers of a team work for the block; yields the cluster of a coordinator."""
    clusters = [Cluster(url, engine=engine, beat=BEAT) for _ in range(workers + 1)]
    try:
        async with anyio.create_task_group() as group:
            for cluster in clusters[1:]:
                group.start_soon(Worker(cluster, team, concurrency=concurrency).run)
            yield clusters[0]
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            for cluster in clusters:
                await to_thread.run_sync(cluster.close)
