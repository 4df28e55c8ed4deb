"""Starts the processes, does the faults, looks on, and counts at the end."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

import anyio
import psycopg

from benchmarks.chaos import desk, processes
from benchmarks.chaos.account import LEFT, WATCH, Account, compare, left_over
from benchmarks.chaos.network import Provider, Proxy
from benchmarks.chaos.observer import Observer
from benchmarks.chaos.processes import Place
from benchmarks.chaos.server import ChaosServer
from kairo_team.cluster.cluster import Cluster
from kairo_team.cluster.delivery import EngineName
from kairo_team.errors import RunExists
from kairo_team.recorded import ENDED

CLOCKS: Final = (0.0, 600.0, -600.0)
"""Seconds by which the wall clocks of processes are wrong."""
FAULTS: Final = {
    "kill a worker": 22,
    "kill a coordinator": 12,
    "stop a worker": 16,
    "stop a coordinator": 10,
    "stall the network": 14,
    "cut the network": 14,
    "restart the database": 4,
    "restart it at once": 3,
    "crash the database": 3,
    "fill the connections": 2,
}
"""How often each happens, in a hundred."""
RUNS: Final = 6
"""Runs that are under way at once."""
QUIET: Final = 150.0
"""Seconds without any progress after which what is awaited never comes; a slow machine makes progress too."""


@dataclass
class Child:
    """A process, and its way to the database."""

    proxy: Proxy
    place: Place
    process: ForkServerProcess
    run_id: str | None = None
    """The run that it coordinates; None for a worker."""
    busy: bool = False
    """A fault befalls it."""

    def tell(self, what: signal.Signals) -> None:
        """Send a signal, if it lives."""
        if self.process.is_alive():
            os.kill(self.process.pid or 0, what)


async def until(is_so: Callable[[], bool], most: float = math.inf) -> None:
    """Wait until something is so, at most so many seconds."""
    end = time.monotonic() + most
    while not is_so():
        if time.monotonic() > end:
            return
        await anyio.sleep(0.1)


@dataclass
class Stage:
    """One chaos: a server, workers, coordinators, and what happens to them."""

    server: ChaosServer
    engine: EngineName
    folder: Path
    seed: int
    workers: int = 4
    beat: float = 0.4
    pace: float = 1.0
    """Seconds between two faults, in the middle."""
    only: tuple[str, ...] = ()
    """Faults that happen; all, where none is named."""
    port: int | None = None
    """The port of a pooler in front of the server, for all processes; None: they go to the server itself."""
    children: list[Child] = field(default_factory=list[Child])
    begun: list[str] = field(default_factory=list[str])
    happened: Counter[str] = field(default_factory=Counter[str])
    problems: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - moments, not secrets
        self.provider = Provider(self.seed)
        self.url = self.server.new_database()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["benchmarks.chaos.preload"])
        self.cluster = Cluster(self.url, engine=self.engine, beat=self.beat)
        self.cluster.delivery.install()
        with psycopg.connect(self.url) as connection:
            connection.execute(WATCH.encode())
        self.observer = Observer(self.url, self.cluster.delivery, self.beat)
        self.database = threading.Lock()
        """Held while something happens to the database."""
        self.started = 0
        self.born = time.monotonic()

    # ------------------------------------------------------------------ all of it

    async def run(self, faults: int) -> Account:
        """Let so many faults happen, and return what came of the runs."""
        async with anyio.create_task_group() as network:
            self.network = network
            await self.provider.start(network)
            for _ in range(self.workers):
                await self.start(None)
            with self.observer:
                async with anyio.create_task_group() as keeping:
                    keeping.start_soon(self.keep)
                    await self.disturb(faults)
                    await self.wait_for_the_end()
                    keeping.cancel_scope.cancel()
                await self.drain()  # only now: a process that is just being started is among the children by then
            network.cancel_scope.cancel()
        return await anyio.to_thread.run_sync(self.count)

    async def disturb(self, faults: int) -> None:
        """Let them happen, several at a time; return when all are over."""
        names = self.only or tuple(FAULTS)
        weights = [FAULTS[name] for name in names]
        async with anyio.create_task_group() as group:
            await anyio.sleep(2)
            for _ in range(faults):
                group.start_soon(self.happen, self.chance.choices(names, weights)[0])
                await anyio.sleep(self.chance.uniform(0.2, 1.8) * self.pace)

    async def wait_for_the_end(self) -> None:
        """Begin no more runs, and wait for those that were."""
        self.ending = True
        await self.expect(lambda: not self.left(), lambda: f"runs did not end: {self.left()}")

    def left(self) -> list[str]:
        """Return the runs that have not ended."""
        return [run_id for run_id in self.begun if self.observer.states.get(run_id) not in ENDED]

    async def drain(self) -> None:
        """End all processes in order: coordinators when their runs have ended, then workers.

        Workers live until they have tidied up: what happened last may have left something to them.
        """
        coordinators = [child for child in self.children if child.run_id is not None]
        await self.expect_end(coordinators)
        looks = self.observer.looks + 1  # the one under way may have begun before
        await self.expect(
            lambda: self.observer.looks > looks and not self.observer.left,
            lambda: f"{self.observer.left} rows were not tidied up",
        )
        for child in self.children:
            child.tell(signal.SIGTERM)
        await self.expect_end(self.children)

    async def expect_end(self, children: list[Child]) -> None:
        """Wait until all of them have ended; those that do not end write their stacks, and are killed."""
        living = [child for child in children if child.process.is_alive()]
        names = ", ".join(child.place.log.stem for child in living)

        def have_ended() -> bool:
            return not any(child.process.is_alive() for child in living)

        if not await self.expect(have_ended, lambda: f"some of these did not end: {names}"):
            for child in living:
                child.tell(signal.SIGABRT)
            await until(have_ended, 30)
            for child in living:
                child.tell(signal.SIGKILL)

    async def expect(self, is_so: Callable[[], bool], problem: Callable[[], str]) -> bool:
        """Wait until something is so; note a problem, and return False, once nothing has moved on for too long."""
        begun = time.monotonic()

        def is_over() -> bool:
            return time.monotonic() - max(begun, self.observer.changed) > QUIET

        await until(lambda: is_so() or is_over())
        if not is_so():
            self.problems.append(problem())
            return False
        return True

    # ------------------------------------------------------------------ processes

    ending = False

    async def start(self, run_id: str | None, clock: float | None = None) -> Child:
        """Start a worker, or the coordinator of a run."""
        self.started += 1
        proxy = Proxy(self.port or self.server.port)
        await proxy.start(self.network)
        url = self.url.replace(f":{self.server.port}/", f":{proxy.port}/")
        wrong = self.chance.choice(CLOCKS) if clock is None else clock
        log = self.folder / f"{self.started}-{run_id or 'worker'}.log"
        place = Place(url, self.engine, self.beat, self.provider.port, wrong, log)
        given = (place,) if run_id is None else (place, run_id)
        target: Any = processes.work if run_id is None else processes.coordinate
        process = self.context.Process(target=target, args=given, daemon=True)
        await anyio.to_thread.run_sync(process.start)
        child = Child(proxy, place, process, run_id)
        self.children.append(child)
        self.note(f"started {log.stem}, pid {process.pid}, clock {wrong:+.0f}")
        return child

    def note(self, text: str) -> None:
        """Write down what happens, and when."""
        with (self.folder / "happened.log").open("a", encoding="utf-8") as file:
            file.write(f"{time.monotonic() - self.born:8.2f} {text}\n")

    async def keep(self) -> None:
        """Keep workers and runs there: start what has died, and new runs for those that have ended."""
        while True:
            for child in list(self.children):
                if not child.process.is_alive() and not child.busy:
                    self.children.remove(child)
                    run_id = child.run_id
                    if run_id is None or child.process.exitcode != 0:
                        await self.start(run_id)
            if not self.ending and len(self.left()) < RUNS:
                await self.begin()
            await anyio.sleep(0.1)

    async def begin(self) -> None:
        """Begin a run: every second one is submitted."""
        run_id = f"run-{self.seed}-{len(self.begun)}"
        self.begun.append(run_id)
        if len(self.begun) % 2:
            await self.start(run_id)
        else:
            await anyio.to_thread.run_sync(self.submit, run_id)

    def submit(self, run_id: str) -> None:
        """Submit a run, until the database has it."""
        team = replace(desk.team(self.provider.port), runtime=None)
        while True:
            try:
                self.cluster.submit(team, desk.request(run_id))
                return
            except RunExists:  # it was recorded before the connection broke
                return
            except Exception as error:  # noqa: BLE001 - the database is away
                self.note(f"{run_id} cannot be submitted: {error!r:.200}")
                time.sleep(0.2)

    # ------------------------------------------------------------------ faults

    async def happen(self, what: str) -> None:
        """Do a fault, from its beginning to its end."""
        if "database" in what or "at once" in what or "connections" in what:
            await anyio.to_thread.run_sync(self.disturb_database, what)
            return
        child = await self.pick(what)
        self.happened[what] += 1
        self.note(f"{what}: {child.place.log.stem}")
        longest = 10 * self.beat
        child.busy = True
        if what.startswith("kill"):
            child.tell(signal.SIGKILL)
        elif what.startswith("stop"):
            child.tell(signal.SIGSTOP)
            await anyio.sleep(self.chance.uniform(2 * self.beat, longest))
            child.tell(signal.SIGCONT)
        else:
            await (child.proxy.stall if what.startswith("stall") else child.proxy.cut)()
            await anyio.sleep(self.chance.uniform(0.1, longest))
            await child.proxy.heal()
        child.busy = False
        self.note(f"over: {what}: {child.place.log.stem}")

    async def pick(self, what: str) -> Child:
        """Choose a process that nothing befalls; wait for one if need be."""
        while True:
            coordinators = what.endswith("coordinator")
            either = what.endswith("network")
            living = [
                child
                for child in self.children
                if not child.busy
                and child.process.is_alive()
                and (either or coordinators == (child.run_id is not None))
            ]
            if living:
                return self.chance.choice(living)
            await anyio.sleep(0.1)

    def disturb_database(self, what: str) -> None:
        """Restart, crash or fill the server; one at a time."""
        with self.database:
            self.happened[what] += 1
            self.note(what)
            with self.observer.away():
                if what == "fill the connections":
                    self.server.fill(self.chance.uniform(0.5, 2))
                else:
                    ends = {"restart the database": signal.SIGINT, "restart it at once": signal.SIGQUIT}
                    self.server.end(ends.get(what, signal.SIGKILL))
                    time.sleep(self.chance.uniform(0, 1))
                    self.server.start_again()
            self.note(f"over: {what}")

    # ------------------------------------------------------------------ the end

    def keep_rows(self, run_id: str) -> None:
        """Write down all that the database has of a run, and of those inside it."""
        with psycopg.connect(self.url) as connection, (self.folder / f"{run_id}.rows").open("w") as file:
            for table in ("run", "step", "call", "unit"):
                sql = f"SELECT * FROM kairo.{table} WHERE run_id = %s OR run_id LIKE %s"  # noqa: S608 - of these names
                for row in connection.execute(sql.encode(), (run_id, f"{run_id}.%")).fetchall():
                    file.write(f"{table} {row}\n")

    def count(self) -> Account:
        """Compare every run, and what is left in the database."""
        total = Account(faults=sum(self.happened.values()), problems=self.problems)
        journal = self.cluster.journal
        for run_id in self.begun:
            try:
                found = compare(journal, run_id, self.provider.account[run_id])
                total += found
                if found.wrong:
                    self.keep_rows(run_id)
            except Exception as error:  # noqa: BLE001 - it is a problem like the others
                total += Account(runs=1, lost=1, problems=[f"{run_id}: {error!r:.300}"])
        self.cluster.close()
        with psycopg.connect(self.url) as connection:
            total += left_over(connection, LEFT)
        stuck = self.observer.stuck
        total += Account(stuck=len(stuck), problems=[f"stuck: {one}" for one in stuck])
        total += Account(left_over=len(self.problems), problems=[])
        for log in self.folder.glob("*.log"):
            with suppress(OSError):
                if "THE WORKER RAISED" in log.read_text(encoding="utf-8", errors="replace"):
                    self.note(f"raised: {log.stem}")
        return total
