"""The coordinator kit with every attempt made by a worker: runs keep the contract wherever their members work."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster, version_of
from kairo_team.cluster.worker import Worker
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.coordinators import ExpertTeamCoordinator, HandoffCoordinator, TaskDispatchCoordinator
from kairo_team.engine.digests import digests_of
from kairo_team.tck import TeamCoordinatorTCK
from tests.cluster.stage import BEAT, new_database

pytestmark = [pytest.mark.real_time, pytest.mark.exhaustive]


class Workers:
    """An engine that starts workers of a team, in the event loop of the test, when it is to make the first attempt."""

    def __init__(self, url: str, group: anyio.abc.TaskGroup, clusters: list[Cluster]) -> None:
        self._url = url
        self._group = group
        self.clusters = clusters
        self.clusters.append(Cluster(url, engine="procrastinate", beat=BEAT))
        self._served: set[str] = set()

    @property
    def journal(self) -> Any:
        """Where the runs are recorded."""
        return self.clusters[0].journal

    async def attempt(
        self, team: kt.Team, assignment: kt.Assignment, context: kt.MemberContext, number: int, timeout: float | None
    ) -> Any:
        """Have a worker make it."""
        version = version_of(team, digests_of(team, {}))
        if version not in self._served:
            self._served.add(version)
            self.clusters.append(Cluster(self._url, engine="procrastinate", beat=BEAT))
            self._group.start_soon(Worker(self.clusters[-1], team, concurrency=50).run)
        return await self.clusters[0].attempt(team, assignment, context, number, timeout)


@pytest.fixture(autouse=True)
async def over_workers() -> AsyncGenerator[None]:
    """Let the runs of a test be made over workers."""
    url = new_database("procrastinate")
    clusters: list[Cluster] = []
    async with anyio.create_task_group() as group:
        OverWorkers.engine = Workers(url, group, clusters)
        yield
        group.cancel_scope.cancel()
    for cluster in clusters:
        await to_thread.run_sync(cluster.close)


class OverWorkers(TeamCoordinatorTCK):
    """The kit, with the engine in every runtime."""

    __test__ = False

    virtual_time = False
    engine: ClassVar[Workers]

    @classmethod
    def stage(cls, agent: Any, *, runtime: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """Put a run together whose attempts are made by workers."""
        return super().stage(agent, runtime={**(runtime or {}), "engine": cls.engine}, **fields)


class TestTaskBoard(OverWorkers):
    __test__ = True

    reviews_named_tasks = True
    tolerates_failures = True

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return TaskDispatchCoordinator()


class TestExpertTeam(OverWorkers):
    __test__ = True

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return ExpertTeamCoordinator(evaluator=evaluator)


class TestHandoff(OverWorkers):
    __test__ = True

    supports_plan = False

    @classmethod
    def make_coordinator(cls, *, evaluator: EvaluationStrategy | None = None) -> TeamCoordinator:
        return HandoffCoordinator(evaluator=evaluator)
