"""`Worker`: takes units from the database and does them until `stop`; a unit may be a whole run."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from kairo_team._util.context_values import set_for
from kairo_team._util.threads import poster, run_in_thread
from kairo_team.cluster.attempt_host import AttemptHost
from kairo_team.cluster.cluster import Cluster, version_of
from kairo_team.cluster.facts import DeliveryRefused, Outcome, Report, UnitBegun, UnitEnded, ignore_fact
from kairo_team.cluster.units import COLUMNS, RUNS, Claimed, Kind, Unit, at_work, claim, kind_of, queue_of
from kairo_team.durable.connection import NOW
from kairo_team.durable.processes import check_not_dead
from kairo_team.engine.records.digests import check_unchanged, digests_of, has_earlier_parts
from kairo_team.engine.work.runtime import Runtime, bind_runtime, runtime_of
from kairo_team.errors import (
    InsufficientBudget,
    JournalError,
    KairoError,
    Misuse,
    PlanMismatch,
    RunFinished,
    RunNotFound,
    known,
)
from kairo_team.gates import DeferGate
from kairo_team.recorded import ENDED

if TYPE_CHECKING:
    from kairo_team.cluster.delivery import Receiver, Take
    from kairo_team.cluster.mailbox import MessageQueue
    from kairo_team.durable.connection import Connection
    from kairo_team.durable.postgres_database import PostgresConnection
    from kairo_team.team import Team

_logger = logging.getLogger("kairo_team")

_MINUTE: Final = 60.0
_INTERRUPTED: Final = 5.0
"""Seconds that an interrupted run has to end."""
_UNSERVED: Final = f"""
SELECT {COLUMNS}, (SELECT digests FROM run WHERE run.run_id = unit.run_id) FROM unit
WHERE kind = 'run' AND state = 'sent' AND queue <> ?
 AND EXISTS (SELECT FROM run WHERE run.run_id = unit.run_id AND run.team = ?)
 AND NOT EXISTS (SELECT FROM process WHERE process.kind = 'worker' AND process.state <> 'dead'
  AND process.digest = split_part(unit.queue, ':', 1))
FOR UPDATE SKIP LOCKED"""
"""The runs of a team that wait in another queue, which no worker serves."""


class Worker:
    """Makes attempts and coordinates runs of one team, in this process.

    Makes at most `concurrency` attempts at once; `members`, if given, limits it to their attempts. A worker without
    `members` also coordinates runs. `report` receives the measured facts. Raises `ValueError` for a member that the
    team does not have, and for a `concurrency` below 1.
    """

    def __init__(
        self,
        cluster: Cluster,
        team: Team,
        *,
        concurrency: int = 8,
        members: Collection[str] | None = None,
        report: Report = ignore_fact,
    ) -> None:
        names = [member.id for member in team.everyone]
        wrong = [name for name in members or () if name not in names]
        if wrong:
            raise ValueError(f"team {team.name!r} has no member {wrong[0]!r}; it has {known(names)}")
        if concurrency < 1:
            raise ValueError(f"a worker's concurrency is at least 1, not {concurrency!r}")
        self._cluster = cluster
        self._team = team
        self._concurrency = concurrency
        self._base = base = runtime_of(bind_runtime(team))
        self._digests = digests_of(team, base.templates)
        version = version_of(team, self._digests)
        self.version = version
        self.serves: Sequence[str] = [*(members or names), *([] if members else [RUNS])]
        """The members whose attempts the worker makes, and `RUNS` if it coordinates runs."""
        self._queues: Sequence[str] = [queue_of(version, name) for name in self.serves]
        self._delivered: deque[tuple[str, int, Future[None]]] = deque()
        self._news = anyio.Event()
        self._rooms: Mapping[Kind, _Room] = {"run": _Room(), "attempt": _Room()}
        self._doing: set[tuple[str, int]] = set()
        """The deliveries that the worker works on, each a unit and its fence."""
        self._hosts: set[RunHost] = set()
        self._group: anyio.abc.TaskGroup | None = None
        self._all_done = anyio.Event()
        self._stopping = anyio.Event()
        self._members = None if members is None else sorted(members)
        self._report = report
        self._is_ready = anyio.Event()
        self.ready = False
        """Whether the worker takes units."""
        self.lost: str | None = None
        """Why the worker ended before `stop`: other workers do its units again; None if it did not."""

    @property
    def busy(self) -> int:
        """The number of units that the worker is doing now."""
        return len(self._doing)

    async def wait_ready(self) -> None:
        """Wait until the worker takes units for the first time."""
        await self._is_ready.wait()

    def stop(self) -> None:
        """Take no new units, and end when the current ones are done. Call it in the worker's event loop."""
        self._stopping.set()

    async def run(self, drain: float = 30.0) -> None:
        """Take and do units until `stop`; give back the units that are not done `drain` seconds later."""
        cluster = self._cluster
        await run_in_thread(cluster.start)
        post = poster()

        def take(unit: str, fence: int) -> Future[None]:
            done: Future[None] = Future()
            # The delivery engine calls this in a thread of its own.
            post(partial(self._take, unit, fence, done))
            return done

        process = cluster.journal.process
        process.on_dead(partial(_post_quietly, post, partial(self._end_lost, "it was declared dead")))
        unreachable = partial(self._end_lost, "it cannot reach the database")
        process.on_unreachable(partial(_post_quietly, post, unreachable))
        members = None if self._members is None else json.dumps(self._members)
        about = {"team": self._team.name, "digest": self.version, "members": members}
        process.describe(kind="worker", concurrency=self._concurrency, **about)
        cluster.monitor.watch(self._doing.copy)
        cluster.monitor.report = self._report
        if RUNS in self.serves:
            cluster.monitor.adopt = self._adopt
        begin = partial(self._receive, take)
        receiving, receiver = await run_in_thread(lambda: cluster.journal.insist(begin), on_late=_end_late)
        try:
            async with anyio.create_task_group() as self._group:
                self._group.start_soon(self._serve)
                self.ready = True
                self._is_ready.set()
                try:
                    await self._stopping.wait()
                finally:  # a lost worker too takes no more deliveries
                    self.ready = False
                    receiver.stop()
                await run_in_thread(partial(process.describe, state="draining"))
                with anyio.move_on_after(drain):
                    await self._until_done()
                await self._hand_over()
        finally:
            self._group = None
            for _, _, done in self._delivered:  # the receiver waits for these
                _settle(done, RuntimeError("the worker ends"))
            with anyio.CancelScope(shield=True):
                await run_in_thread(receiving.__exit__, None, None, None)

    def _adopt(self) -> None:
        """Send waiting runs of this team here that an earlier version of the library began, if no worker serves them.

        The version of a team depends on how the library lists its parts. Only runs whose list is an earlier one are
        sent, and only if all parts that both lists name are equal.
        """
        delivery, queue = self._cluster.delivery, queue_of(self.version, RUNS)

        def adopt(connection: PostgresConnection) -> None:
            for *row, written in connection.execute(_UNSERVED, (queue, self._team.name)).fetchall():
                unit, was = Unit(*row), json.loads(written)
                if not has_earlier_parts(was):
                    continue
                try:
                    check_unchanged(unit.run_id, was, self._digests)
                except PlanMismatch as error:
                    _logger.info("run %s of an earlier version waits: %s", unit.run_id, error)
                    continue
                delivery.forget(connection.raw, [unit.id])
                ours = replace(unit.next(), queue=queue)
                sql = f"UPDATE unit SET queue = ?, fence = ?, sent_at = {NOW} WHERE id = ?"
                connection.execute(sql, (ours.queue, ours.fence, ours.id))
                ours.deliver(delivery, connection)
                _logger.warning(
                    "run %s of an earlier version of kairo-team is sent to workers of this one", unit.run_id
                )

        self._cluster.journal.change(adopt)

    def _receive(self, take: Take) -> tuple[AbstractContextManager[Receiver], Receiver]:
        """Begin to receive; return the context manager to exit, and the receiver."""
        process = self._cluster.journal.process
        receiving = self._cluster.delivery.receiving(process.id, self._queues, self._concurrency, take)
        return receiving, receiving.__enter__()

    async def _hand_over(self) -> None:
        """End the unfinished work so that other workers resume it; record no run as cancelled."""
        for host in self._hosts:
            host.interrupt("the worker ended")
        with anyio.move_on_after(_INTERRUPTED):
            await self._until_done()
        # Unfinished work may record nothing more, because another worker takes it over.
        self._cluster.journal.database.lose("the worker ended")
        if self._group is not None:
            self._group.cancel_scope.cancel()

    async def _until_done(self) -> None:
        while self._doing:
            self._all_done = anyio.Event()
            await self._all_done.wait()

    def _end_lost(self, why: str) -> None:
        """End all work, before other workers do its units again."""
        if self.lost is not None:
            return
        self.lost = why
        self.ready = False
        self._cluster.journal.database.lose(f"this process ends: {why}")
        self._stopping.set()
        if self._group is not None:
            self._group.cancel_scope.cancel()

    def _take(self, unit: str, fence: int, done: Future[None]) -> None:
        """Accept a delivery, or refuse it if the worker ends."""
        # `_serve` begins it in a task, which has a context of its own.
        if self._group is None or self._stopping.is_set():
            done.set_exception(RuntimeError("the worker ends"))
            return
        self._delivered.append((unit, fence, done))
        self._news.set()

    async def _serve(self) -> None:
        """Begin the delivered units until the worker ends."""
        while self._group is not None:
            while self._delivered:
                self._group.start_soon(self._do_unit, *self._delivered.popleft())
            self._news = anyio.Event()
            await self._news.wait()

    async def _do_unit(self, unit: str, fence: int, done: Future[None]) -> None:
        """Claim a delivered unit and do it; acknowledge the delivery, however that ends."""
        if (unit, fence) in self._doing:  # it was delivered twice
            self._report(DeliveryRefused())
            _settle(done, None)
            return
        self._doing.add((unit, fence))
        try:
            room = self._rooms[kind_of(unit)]
            with self._cluster.mailbox.open(unit, "worker") as messages:  # before the claim: none is missed
                async with room.entered(alone=False):
                    if self._stopping.is_set():  # `stop` was called while it waited for room
                        _settle(done, RuntimeError("the worker ends"))
                        return
                    claimed = await run_in_thread(self._claim, unit, fence)
                    if claimed is None:
                        self._report(DeliveryRefused())
                    elif not claimed.suspect:
                        await self._work_on(claimed, messages, done)
                if claimed is not None and claimed.suspect:
                    async with room.entered(alone=True):
                        await self._work_on(claimed, messages, done)
        except JournalError as error:  # the worker could record nothing more
            _settle(done, error)
            self._end_lost(str(error))
        except BaseException as error:
            _settle(done, error)
            raise
        finally:
            _settle(done, None)
            self._doing.discard((unit, fence))
            if not self._doing:
                self._all_done.set()

    def _claim(self, unit: str, fence: int) -> Claimed | None:
        journal = self._cluster.journal
        if journal.problem is not None:
            raise JournalError(journal.place, journal.problem)

        def claim_alive(connection: Connection) -> Claimed | None:
            # Its claim would count as one more death that the unit caused.
            check_not_dead(connection, journal.process.id, journal.place)
            return claim(connection, unit, fence, journal.process.id)

        return journal.change(claim_alive)

    async def _work_on(self, claimed: Claimed, messages: MessageQueue, done: Future[None]) -> None:
        outcome: Outcome = "given_back"
        self._report(UnitBegun(claimed.unit.kind, claimed.waited))
        try:
            with set_for(at_work, claimed.unit):
                outcome = await self._try(claimed, messages, done)
        finally:
            self._report(UnitEnded(claimed.unit.kind, outcome))

    async def _try(self, claimed: Claimed, messages: MessageQueue, done: Future[None]) -> Outcome:
        unit = claimed.unit
        _logger.info("unit %s, delivery %d: begun", unit.id, unit.fence)
        try:
            if unit.kind == "run":
                _settle(done, None)  # from here on the unit's row says which process has it
                host = RunHost(self._cluster, self._team, self._base, unit)
                self._hosts.add(host)
                try:
                    outcome: Outcome = "finished" if await host.coordinate() else "refused"
                finally:
                    self._hosts.discard(host)
            else:
                # In a thread: the long texts in it are read from the database.
                work = await run_in_thread(self._cluster.journal.decode, claimed.body)
                attempt = AttemptHost(self._cluster, self._team, self._base, unit, work, self._report)
                outcome = "finished" if await attempt.make(messages) else "fenced"
        except Unrecorded as error:
            _logger.info("unit %s: %s", unit.id, error)
            await self._give_back(unit, "the worker ended")
            return "given_back"
        except Exception:
            _logger.exception("unit %s: the worker failed; another worker gets the unit", unit.id)
            await self._give_back(unit, "the worker failed", failed=True)
            return "failed"
        except BaseException:
            # Without this, the unit would wait until the process is found dead.
            with anyio.CancelScope(shield=True):
                await self._give_back(unit, "the worker ended")
            raise
        _logger.info("unit %s, delivery %d: ended", unit.id, unit.fence)
        return outcome

    async def _give_back(self, unit: Unit, reason: str, *, failed: bool = False) -> None:
        # If it fails, the monitor finds the unit later.
        with suppress(Exception), anyio.move_on_after(5):
            await run_in_thread(partial(self._cluster.monitor.give_back, unit, reason, failed=failed))


class _Room:
    """The units of one kind that a process works on: several at once, or one that must be alone."""

    def __init__(self) -> None:
        self._inside = 0
        self._alone = 0
        """The number of units that must be alone and are inside or wait."""
        self._changed = anyio.Event()

    @asynccontextmanager
    async def entered(self, *, alone: bool) -> AsyncGenerator[None]:
        """Wait for room, then run the block; after a minute, run it without room."""
        self._alone += alone
        try:
            # A waiting attempt holds budget, which the attempts inside may need: do not wait forever.
            with anyio.move_on_after(_MINUTE):
                while self._inside if alone else self._alone:
                    await self._changed.wait()
            self._inside += 1
            try:
                yield
            finally:
                self._inside -= 1
        finally:
            self._alone -= alone
            self._changed.set()
            self._changed = anyio.Event()


def _settle(done: Future[None], error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(RuntimeError(str(error)))


def _end_late(begun: tuple[AbstractContextManager[Receiver], Receiver] | None, _error: BaseException | None) -> None:
    """End the receiver of a worker that was cancelled while the receiver started."""
    if begun is not None:  # in a thread: it takes a moment, and this may be the event loop's thread
        threading.Thread(target=begun[0].__exit__, args=(None, None, None), daemon=True).start()


def _post_quietly(post: Any, call: Any) -> None:
    with suppress(RuntimeError):  # the event loop is gone
        post(call)


class RunHost:
    """One run that this process coordinates."""

    def __init__(self, cluster: Cluster, team: Team, base: Runtime, unit: Unit) -> None:
        self._cluster = cluster
        # Without its runtime, because `resume` refuses a team that is bound to another one.
        self._team = replace(team, runtime=None)
        self._unit = unit
        runtime = base.on(cluster.journal, cluster, base.subscribers)
        runtime.gate = runtime.gate or DeferGate()  # a question waits for `kairo answer`
        self._runtime = runtime

    def interrupt(self, reason: str) -> None:
        """End the work on the run here, so that another worker resumes it."""
        with suppress(Misuse, KeyError):  # the run has not begun, or has ended
            self._runtime.runs[self._unit.run_id].interrupt(reason)

    async def coordinate(self) -> bool:
        """Coordinate the run until it ends or waits for a person; return False if it is refused."""
        unit, journal = self._unit, self._cluster.journal
        try:
            await self._runtime.resume(unit.run_id, self._team, take_over=True)
        except (RunFinished, RunNotFound) as error:
            _logger.info("run %s: %s", unit.run_id, error)
        except (Misuse, InsufficientBudget) as error:  # another team than at first, or too little budget
            _logger.warning("run %s is refused: %s", unit.run_id, error)
            await run_in_thread(journal.end_unit, unit.id, unit.fence, str(error))
            return False
        else:
            state = (await run_in_thread(journal.show, unit.run_id)).state
            _logger.info("run %s: %s", unit.run_id, state)
            if state not in (*ENDED, "suspended"):
                raise Unrecorded(unit.run_id)
        await run_in_thread(journal.end_unit, unit.id, unit.fence, None)
        return True


class Unrecorded(KairoError):
    """The end of a run could not be recorded; another process resumes the run."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"the end of run {run_id!r} is not recorded: another worker resumes the run")
