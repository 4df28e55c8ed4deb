"""The coordinator kit with every attempt made by a worker: runs keep the contract wherever their members work."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.worker import Worker
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.coordinators import ExpertTeamCoordinator, HandoffCoordinator, TaskDispatchCoordinator
from kairo_team.tck import TeamCoordinatorTCK
from tests.cluster.stage import BEAT, new_database

pytestmark = [pytest.mark.real_time, pytest.mark.long]


class Workers:
    """An engine of one run, with a worker in the event loop of the test that it starts for the first attempt."""

    def __init__(self, group: anyio.abc.TaskGroup, clusters: list[Cluster]) -> None:
        self._url = new_database("procrastinate")
        self._group = group
        self._clusters = clusters
        self._here = self._cluster()
        self._works = False

    def _cluster(self) -> Cluster:
        self._clusters.append(Cluster(self._url, engine="procrastinate", beat=BEAT))
        return self._clusters[-1]

    @property
    def journal(self) -> Any:
        """Where the runs are recorded."""
        return self._here.journal

    async def attempt(
        self, team: kt.Team, assignment: kt.Assignment, context: kt.MemberContext, number: int, timeout: float | None
    ) -> Any:
        """Have the worker make it."""
        if not self._works:
            self._works = True
            self._group.start_soon(Worker(self._cluster(), team, concurrency=50).run)
        return await self._here.attempt(team, assignment, context, number, timeout)


@pytest.fixture(autouse=True)
async def over_workers() -> AsyncGenerator[None]:
    """Let the runs of a test be made over workers."""
    clusters: list[Cluster] = []
    async with anyio.create_task_group() as group:
        OverWorkers.engine = partial(Workers, group, clusters)
        yield
        group.cancel_scope.cancel()
    for cluster in clusters:
        await to_thread.run_sync(cluster.close)


class OverWorkers(TeamCoordinatorTCK):
    """The kit, with the engine in every runtime."""

    __test__ = False

    virtual_time = False
    engine: ClassVar[Callable[[], Workers]]

    @classmethod
    def stage(cls, agent: Any, *, runtime: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """Put a run together whose attempts are made by workers."""
        return super().stage(agent, runtime={**(runtime or {}), "engine": cls.engine()}, **fields)


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
