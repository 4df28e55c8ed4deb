"""The base of the journal kit's tests: the factories, and processes that share a store and die on demand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Final

import anyio

from kairo_team._util.threads import run_in_thread
from kairo_team.artifacts import Artifact
from kairo_team.budget import Usage
from kairo_team.contracts import Journal, RunJournal
from kairo_team.errors import JournalError
from kairo_team.events import AttemptProgress, Event
from kairo_team.human import HumanRequest
from kairo_team.recorded import Place, RecoveredRun
from kairo_team.results import TaskOutcome, TeamResult, TeamStatus
from kairo_team.tasks import Assignment, Task, TaskGraph, TaskStatus
from kairo_team.tck.calls import skip_unless
from kairo_team.tck.kit import ContractTCK, make_it
from kairo_team.team import Member, Team, TeamExecutionRequest

# Single picodollars: a journal that keeps floats would round them.
HELD: Final = Usage(700, 300, Decimal("0.000000000125"))
USED: Final = Usage(20, 5, Decimal("0.000000000007"))
ONE_CALL: Final = Usage(tool_calls=1)
NOTHING: Final = Usage()
STEP: Final = "attempt:1:tides:1"
"""The step in which calls are made, unless the test gives another."""
OPTIONAL: Final = ("runs", "show", "calls", "forget", "fork")
"""Methods that a journal may leave out."""
DIGESTS: Final = {"instructions of role 'writer'": "0a1b", "template 'task'": "2c3d"}


class Process:
    """A process with its own journal, which is called in threads, like the engine does."""

    def __init__(self, kit: type[JournalStage], journal: Journal) -> None:
        self._kit = kit
        self.journal = journal

    async def begin(self, run_id: str = "r", place: Place | None = None) -> RunJournal:
        """Begin a run."""
        return await run_in_thread(partial(self.journal.begin, request_of(run_id), team_of(), DIGESTS, place))

    async def recover(self, run_id: str = "r", *, take_over: bool = False) -> dict[str, RecoveredRun]:
        """Recover a run; return it and its inner runs by id."""
        found = await run_in_thread(partial(self.journal.recover, run_id, take_over=take_over))
        runs = {one.request.run_id: one for one in found}
        assert len(runs) == len(found), f"it recovered {sorted(one.request.run_id for one in found)}: each once"
        return runs

    async def do(self, name: str, *args: Any, **named: Any) -> Any:
        """Call a method of the journal; skip the contract test if the journal does not have this optional one."""
        skip_unless(name not in OPTIONAL or hasattr(self.journal, name), f"the journal has no `{name}`")
        return await run_in_thread(partial(getattr(self.journal, name), *args, **named))

    async def die(self) -> None:
        """Let the process die."""
        await run_in_thread(partial(self._kit.crash, self.journal))

    async def lose_its_disk(self) -> None:
        """Let the journal fail: it records nothing more."""
        await run_in_thread(partial(self._kit.fail, self.journal))


class Served:
    """A served run: its progress, and the calls of its `on_cancel` and `on_lost`."""

    def __init__(self, session: RunJournal, run_id: str = "r", seconds: float = 0.0, seq: int = 0) -> None:
        self.session = session
        self.run_id = run_id
        self.seconds = seconds
        self.seq = seq
        self.cancelled: list[str] = []
        self.lost: list[JournalError] = []
        self._take = session.serve(lambda: (self.seconds, self.seq), self.cancelled.append, self.lost.append)

    def emit(self, events: int) -> None:
        """Emit this number of events."""
        for _ in range(events):
            self.give(event_of(self.run_id, self.seq + 1))

    def give(self, event: Event) -> None:
        """Emit this event, which has the next number."""
        self.seq = event.seq
        if self._take is not None:
            self._take(event)

    async def told(self, what: list[Any], within: float) -> list[Any]:
        """Wait until `what` has an entry, at most `within` seconds; return `what`."""
        with anyio.move_on_after(within):
            while not what:  # noqa: ASYNC110 - any thread may add the entry
                await anyio.sleep(0.01)
        return what


class Store:
    """The store that the journals of several processes share."""

    def __init__(self, kit: type[JournalStage]) -> None:
        self._kit = kit
        self._processes: list[Process] = []

    async def process(self) -> Process:
        """Start another process."""
        others = [one.journal for one in self._processes]
        make = partial(self._kit.make_another, others[0]) if others else self._kit.make_journal
        self._processes.append(Process(self._kit, await run_in_thread(make)))
        return self._processes[-1]

    async def after(self, died: Process, run_id: str = "r") -> dict[str, RecoveredRun]:
        """Let a process die, and recover its run in a new one."""
        await died.die()
        return await (await self.process()).recover(run_id)

    async def taken(self, run_id: str = "r") -> dict[str, RecoveredRun]:
        """Take a run over in a new process."""
        return await (await self.process()).recover(run_id, take_over=True)

    async def close(self) -> None:
        """Release what the journals hold."""
        for process in self._processes:
            await run_in_thread(partial(self._kit.close, process.journal))


class JournalStage(ContractTCK):
    """The factories and capabilities of the journal kit."""

    contract: ClassVar[type] = Journal
    virtual_time: ClassVar[bool] = False

    can_fail: ClassVar[bool] = True
    """Whether the kit can make it fail: `fail`."""
    keeps_events: ClassVar[bool] = True
    """Whether it records events."""
    can_be_killed: ClassVar[bool] = True
    """Whether another program can open its store: `place_of` and `open_at`. The kit kills programs that record."""
    patience: ClassVar[float] = 10.0
    """Seconds within which a living run learns that it was cancelled or lost."""

    @classmethod
    def make_journal(cls) -> Journal:
        """Make a journal on a new, empty store. A fresh one each time."""
        raise make_it(cls, "make_journal(cls)")

    @classmethod
    def make_another(cls, journal: Journal) -> Journal:
        """Make another journal on the same store, as another process does."""
        raise make_it(cls, "make_another(cls, journal)")

    @classmethod
    def crash(cls, journal: Journal) -> None:
        """Let the process of this journal die: records that are not written yet are lost."""
        raise make_it(cls, "crash(cls, journal)")

    @classmethod
    def fail(cls, journal: Journal) -> None:
        """Let the journal fail from now on, as with a full disk; its process lives on."""
        raise make_it(cls, "fail(cls, journal), or say can_fail = False,")

    @classmethod
    def place_of(cls, journal: Journal) -> str:
        """Return the place of a journal's store, from which another program opens it: a path or an address."""
        raise make_it(cls, "place_of(cls, journal) with open_at(cls, place), or say can_be_killed = False,")

    @classmethod
    def open_at(cls, place: str) -> Journal:
        """Open the journal of the store at this place, in another program that imports the kit's class."""
        raise make_it(cls, "open_at(cls, place), or say can_be_killed = False,")

    @classmethod
    def close(cls, journal: Journal) -> None:
        """Release a journal's resources, such as its thread; called once for each journal, also after a crash.

        Override it if there are any.
        """

    @asynccontextmanager
    async def store(self) -> AsyncGenerator[Store]:
        """Provide a new store for one test."""
        store = Store(type(self))
        try:
            yield store
        finally:
            await store.close()


def request_of(run_id: str) -> TeamExecutionRequest:
    """Make the request of a run."""
    plan = TaskGraph([Task("tides", "Explain tides."), Task("moon", "Explain the moon.", depends_on=["tides"])])
    return TeamExecutionRequest("Explain the sea.", plan=plan, run_id=run_id)


async def _write(assignment: Assignment) -> str:
    return "the moon"


def team_of(**output_types: Any) -> Team:
    """Make the team of every run."""
    return Team("newsroom", [Member("writer", _write)], output_types=output_types)


def result_of(run_id: str, status: TeamStatus) -> TeamResult:
    """Make the result of a run."""
    outcome = TaskOutcome("tides", TaskStatus.COMPLETED, artifact=Artifact("the moon"), usage=USED)
    done = status in (TeamStatus.COMPLETED, TeamStatus.DEGRADED)
    return TeamResult(run_id, status, (outcome,), Artifact("the moon") if done else None, usage=USED)


def question_of(run_id: str, number: int = 1) -> HumanRequest:
    """Make one of a run's questions."""
    name = f"{run_id}:human:{number}"
    return HumanRequest("tool", f"May it, question {number}?", f"mail({number})", "tides", id=name, run_id=run_id)


def event_of(run_id: str, seq: int) -> Event:
    """Make one of a run's events."""
    at = datetime(2026, 3, 29, 2, 30, tzinfo=UTC) + timedelta(milliseconds=seq)
    return AttemptProgress(run_id, seq, at, "tides", "writer", f"step {seq}\nof many", {"done": seq})


def check_same(what: str, found: object, wanted: object) -> None:
    """Fail unless `found` equals `wanted`."""
    assert found == wanted, f"{what}: it must be {wanted!r:.300}, and is {found!r:.300}"


async def send(session: RunJournal, what: str = "model", held: Usage = HELD, **given: Any) -> int:
    """Record that a call is about to be sent; return its number."""
    usual: Mapping[str, Any] = {
        "step": STEP,
        "key": "",
        "task_id": "tides",
        "member": "writer",
        "side_effect": None,
        "loops": 1,
    }
    return await session.sent(what, f"test:{what}", held, **{**usual, **given})
