"""The coordinator kit with every attempt made by a worker: runs keep the contract wherever their members work."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar

import anyio
import pytest
from anyio import to_thread

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster, version_of
from kairo_team.cluster.mailbox import Letters
from kairo_team.cluster.units import Claimed
from kairo_team.cluster.worker import Worker
from kairo_team.contracts import EvaluationStrategy, TeamCoordinator
from kairo_team.coordinators import ExpertTeamCoordinator, HandoffCoordinator, TaskDispatchCoordinator
from kairo_team.engine.digests import digests_of
from kairo_team.engine.work_context import WorkContext
from kairo_team.tck import TeamCoordinatorTCK
from tests.cluster.stage import BEAT, new_database

pytestmark = [pytest.mark.real_time, pytest.mark.long]


class AnyTeam(Worker):
    """A worker that makes each attempt with the team of its run: the kit changes agents, which have no version."""

    def __init__(self, cluster: Cluster, team: kt.Team, teams: Mapping[str, kt.Team]) -> None:
        super().__init__(cluster, team, concurrency=50)
        self._teams = teams

    async def _work_on(self, claimed: Claimed, letters: Letters, done: Future[None]) -> None:
        self._team = self._teams[claimed.unit.run_id]
        self._base = self._team.runtime
        await super()._work_on(claimed, letters, done)


class Workers:
    """An engine with a worker of each version, in the event loop of the test, started for its first attempt."""

    def __init__(self, group: anyio.abc.TaskGroup, clusters: list[Cluster]) -> None:
        self._url = new_database("procrastinate")
        self._group = group
        self._clusters = clusters
        self._here = self._cluster()
        self._teams: dict[str, kt.Team] = {}
        self._versions: set[str] = set()

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
        assert isinstance(context, WorkContext)
        self._teams[context.services.run_id] = team
        version = version_of(team, digests_of(team, {}))
        if version not in self._versions:
            self._versions.add(version)
            self._group.start_soon(AnyTeam(self._cluster(), team, self._teams).run)
        return await self._here.attempt(team, assignment, context, number, timeout)


@pytest.fixture(autouse=True)
async def over_workers() -> AsyncGenerator[None]:
    """Let the runs of a test be made over workers."""
    clusters: list[Cluster] = []
    async with anyio.create_task_group() as group:
        OverWorkers.engine = Workers(group, clusters)
        yield
        group.cancel_scope.cancel()
    for cluster in clusters:
        await to_thread.run_sync(cluster.close)


in_virtual_time = pytest.mark.xfail(
    reason="it compares seconds exactly; time is real here, and a delivery takes some", strict=False
)


class OverWorkers(TeamCoordinatorTCK):
    """The kit, with the engine in every runtime."""

    __test__ = False

    virtual_time = False
    engine: ClassVar[Workers]

    @classmethod
    def stage(cls, agent: Any, *, runtime: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """Put a run together whose attempts are made by workers."""
        return super().stage(agent, runtime={**(runtime or {}), "engine": cls.engine}, **fields)

    @in_virtual_time
    async def test_c08_a_task_waits_for_nobody_it_does_not_depend_on(self) -> None:
        await super().test_c08_a_task_waits_for_nobody_it_does_not_depend_on()

    @in_virtual_time
    async def test_c08_what_can_start_starts_at_once(self) -> None:
        await super().test_c08_what_can_start_starts_at_once()

    @in_virtual_time
    async def test_c08_with_needs_it_starts_once_enough_are_accepted_and_the_rest_have_ended(self) -> None:
        await super().test_c08_with_needs_it_starts_once_enough_are_accepted_and_the_rest_have_ended()

    @in_virtual_time
    async def test_c09_no_more_tasks_at_once_than_the_request_allows(self) -> None:
        await super().test_c09_no_more_tasks_at_once_than_the_request_allows()

    @in_virtual_time
    async def test_c09_a_member_that_is_busy_holds_up_nobody_else(self) -> None:
        await super().test_c09_a_member_that_is_busy_holds_up_nobody_else()


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
