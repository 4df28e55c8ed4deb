"""The coordinator kit over workers: its runs are coordinated by the test, and every attempt is made by a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from contextvars import Context
from functools import cached_property
from typing import Any, ClassVar, Final

import anyio
import pytest
import trio
from anyio import to_thread
from anyio.lowlevel import RunVar
from sniffio import current_async_library

import kairo_team as kt
from kairo_team.cluster.cluster import Cluster, version_of
from kairo_team.cluster.mailbox import MessageQueue
from kairo_team.cluster.units import Claimed
from kairo_team.cluster.worker import Worker
from kairo_team.engine.records.digests import digests_of
from kairo_team.engine.work.work_context import WorkContext
from kairo_team.tck import TeamCoordinatorTCK
from tests.cluster.stage import Crew, new_database

BEGUN: Final = RunVar[dict[str, object]]("BEGUN")
"""What is begun beside the work of an event loop, by its name."""


SAMPLE: Final = (
    "test_every_contract_test_is_in_force",
    "test_c16_the_next_attempt_has_the_findings_and_the_artifact",
    "test_c19_an_answered_run_goes_on_and_repeats_nothing",
)
"""Tests of each coordinator that take a second, and in which much is sent to and fro."""


class AnyTeam(Worker):
    """A worker that makes each attempt with the team of its run: the kit changes agents, which have no version."""

    def __init__(self, cluster: Cluster, team: kt.Team, teams: Mapping[str, kt.Team]) -> None:
        super().__init__(cluster, team, concurrency=50)
        self._teams = teams

    async def _work_on(self, claimed: Claimed, messages: MessageQueue, done: Future[None]) -> None:
        self._team = self._teams[claimed.unit.run_id]
        self._base = self._team.runtime
        await super()._work_on(claimed, messages, done)


class Workers:
    """An engine with a worker of each version, which begins in the event loop of its first attempt, and ends with it.

    A law of the kit opens an event loop for each example, so no fixture can begin the workers.
    """

    def __init__(self) -> None:
        self._teams: dict[str, kt.Team] = {}

    @cached_property
    def crew(self) -> Crew:
        """Them, once they are needed: tests of what a coordinator cannot do are skipped.

        A worker that is told to end has a minute to say that it has, and not a beat: on a busy machine it takes longer.
        """
        made = Crew(new_database("procrastinate"))
        assert made.here.mailbox is not None, "it is read at the beat of the others"
        made.here.journal.beat = 60.0
        return made

    @property
    def journal(self) -> Any:
        """Where the runs are recorded."""
        return self.crew.here.journal

    async def attempt(
        self, team: kt.Team, assignment: kt.Assignment, context: kt.MemberContext, number: int, timeout: float | None
    ) -> Any:
        """Have the worker make it."""
        assert isinstance(context, WorkContext)
        self._teams[context.services.run_id] = team
        version = version_of(team, digests_of(team, {}))
        begun = BEGUN.get({})
        BEGUN.set(begun)
        if version not in begun:
            begun[version] = begin_beside(self._worker(team))
        return await self.crew.here.attempt(team, assignment, context, number, timeout)

    def _worker(self, team: kt.Team) -> Callable[[], Awaitable[None]]:
        async def work() -> None:
            lost = True
            while lost:  # a busy machine makes it look so: another one begins, as with `kairo worker`
                cluster = await to_thread.run_sync(self.crew.new_cluster)
                worker = AnyTeam(cluster, team, self._teams)
                try:
                    await worker.run()
                finally:
                    with anyio.CancelScope(shield=True):
                        await to_thread.run_sync(cluster.close)
                lost = worker.lost is not None

        return work

    def close(self) -> None:
        """End what the coordinator began; the workers have ended with their event loops."""
        if "crew" in vars(self):
            for cluster in self.crew.clusters:
                cluster.close()


def begin_beside(work: Callable[[], Awaitable[None]]) -> object:
    """Let something run beside all else in this event loop, until that ends; what comes back has to be kept."""
    if current_async_library() == "trio":
        return trio.lowlevel.spawn_system_task(work)
    return asyncio.get_running_loop().create_task(_as_coroutine(work), context=Context())


async def _as_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()


class OverWorkers(TeamCoordinatorTCK):
    """The kit, with workers in every runtime."""

    __test__ = False

    virtual_time = False
    engine: ClassVar[Workers]

    @classmethod
    def mark(cls, name: str) -> str | None:
        """Return the mark of a test: the suite has a sample; the rest takes a minute for every fifty."""
        test, _, parameters = name.partition("[")
        return None if test in SAMPLE and parameters != "trio]" else "long"

    @pytest.fixture(autouse=True)
    def over_workers(self) -> Generator[None]:
        """Give each test workers and a database of its own."""
        OverWorkers.engine = Workers()
        yield
        self.engine.close()

    @classmethod
    def stage(cls, agent: Any, *, runtime: Mapping[str, Any] | None = None, **fields: Any) -> Any:
        """Put a run together whose attempts are made by workers."""
        return super().stage(agent, runtime={**(runtime or {}), "engine": cls.engine}, **fields)
