"""The handle on a run, and the runtime's register of runs."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from kairo_team.engine.live.event_bus import Bus, EventLog, ModelTally
from kairo_team.engine.records.suspension import WAITING, Suspension
from kairo_team.errors import Misuse, RunExists, RunFinished, RunNotFound

if TYPE_CHECKING:
    from kairo_team._util.masking import Masker
    from kairo_team.budget import Budget
    from kairo_team.contracts import Subscriber
    from kairo_team.events import Event
    from kairo_team.governance.governor import Governor
    from kairo_team.results import TeamResult
    from kairo_team.team import Team, TeamExecutionRequest

_CANCELLED = "the run was cancelled"


class RunControl(Protocol):
    """The run behind a handle."""

    bus: Bus
    governor: Governor
    request: TeamExecutionRequest
    team: Team
    tolerate_failures: bool
    """Whether a task that was not accepted leaves the run DEGRADED at most, whatever its risk."""

    def cancel(self, reason: str) -> None:
        """Kill the run."""
        ...

    def interrupt(self, reason: str) -> None:
        """End the session; the journal keeps the run as it is."""
        ...

    def cancel_task(self, task_id: str, reason: str) -> None:
        """End one task."""
        ...

    def steer(self, directive: str, task_id: str | None, by: str) -> None:
        """Give a directive to one task or to all."""
        ...

    def top_up_run(self, budget: Budget, by: str) -> None:
        """Raise the run's limits."""
        ...


class Run:
    """A handle on a run: watch it, steer it, cancel it, wait for its result.

    Every method except `events` and `result` may be called from any thread. Those that change the run raise
    `RunFinished` once it has ended.
    """

    def __init__(
        self,
        run_id: str,
        forget: Callable[[Run], None],
        *,
        within: str | None = None,
        keep_events: bool = False,
    ) -> None:
        """With `keep_events` every event is kept, so that `events` can begin at the first."""
        self.run_id = run_id
        self.within = within
        """Id of the enclosing run, when this one belongs to a member that is a team; None otherwise."""
        self._forget = forget
        self.log: EventLog | None = EventLog(0) if keep_events else None
        self.suspension: Suspension | None = None
        """Set while the run waits for a person."""
        self.resuming = False
        self.sessions = 0
        """Number of sessions that have begun."""
        self.served = keep_events
        """Whether the runtime executes the run and calls `settle` at the end."""
        self._control: RunControl | None = None
        self._result: TeamResult | None = None
        self._error: BaseException | None = None
        self._begun = anyio.Event()
        self._ended = anyio.Event()
        self._cancelled: str | None = None
        """Why to cancel the run as soon as it begins; None: not cancelled."""

    # ------------------------------------------------------------------ for the caller

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Iterate over the events with a number above `after`, old and new, until the session ends.

        A run begun by `Runtime.start` or `stream` keeps all its events. Any other run keeps events from the first call
        of `events` on. Any number of watchers may come and go, each as slow as it likes. Raises `RunFinished` for a run
        that has ended and kept no events.
        """
        if type(after) is not int or after < 0:
            raise ValueError(f"events(after=) takes the number of the last event that is known, from 0, not {after!r}")
        if self.log is None:
            self.log = EventLog(self._live().bus.seq)
            self._live().bus.keep(self.log.put)
        return self.log.read(after)

    async def result(self) -> TeamResult:
        """Wait for the run's end, or suspension, and return its result; raise what the coordinator raised.

        Raises `RunFinished` if the runtime's block was left before the run began.
        """
        await self._ended.wait()
        if self._result is None:
            raise self._error if isinstance(self._error, Exception) else RunFinished(self.run_id)
        return self._result

    def cancel(self, reason: str = _CANCELLED) -> None:
        """Kill the run: interrupt work in flight and keep its partial output. From any thread or signal handler.

        A suspended run is dropped.
        """
        if self._control is None and (self.live or self.resuming):  # it is about to begin
            self._cancelled = self._cancelled or reason
            begun = self._control  # it may have begun meanwhile, before it could see the reason
            if begun is not None:
                begun.cancel(reason)
        elif self._control is None and self.suspension is not None:
            self.give_up()
        else:
            self._live().cancel(reason)

    def interrupt(self, reason: str = "the run was interrupted") -> None:
        """End this session of a run with a journal on disk, so that `Runtime.resume` can resume it later.

        Work in flight is interrupted; calls that have no answer yet are in doubt. From any thread or signal handler.
        Raises `Misuse` for a run without such a journal.
        """
        self._live().interrupt(reason)

    def cancel_task(self, task_id: str, reason: str = "the task was cancelled") -> None:
        """End one task: SKIPPED if it never started, CANCELLED with its partial output if it is in flight.

        Raises `Misuse` for a task that has ended or is not in the plan.
        """
        self._live().cancel_task(task_id, reason)

    def steer(self, directive: str, task_id: str | None = None, *, by: str = "") -> None:
        """Give a directive to one task, or to all: members at work see it at their next turn, later ones at the start.

        `by` names the author, for the event. Raises `Misuse` for a task that has ended or is not in the plan.
        """
        self._live().steer(directive, task_id, by)

    def top_up(self, budget: Budget, *, by: str = "") -> None:
        """Raise the run's limits by a budget; fields that are None stay. Tasks that wait for budget try again.

        `by` names the author, for the event. Raises `InsufficientBudget`, and changes nothing, if the runtime's shared
        budget does not have that much.
        """
        self._live().top_up_run(budget, by)

    def _live(self) -> RunControl:
        control = self._control
        if control is not None:
            return control
        if not self._begun.is_set():
            raise Misuse(f"run {self.run_id!r} has not begun yet: there is nothing to watch or change, only to cancel")
        raise RunFinished(self.run_id)

    def __repr__(self) -> str:
        waiting = "suspended" if self.suspension else "ended"
        return f"<Run {self.run_id!r} {'running' if self._control else 'starting' if self.live else waiting}>"

    # ------------------------------------------------------------------ for the run itself

    @property
    def begun(self) -> bool:
        """Whether a session is open."""
        return self._control is not None

    @property
    def session(self) -> RunControl | None:
        """The open session's run; None before the first session and after the last."""
        return self._control

    def tell(self, listener: Callable[[Event], object]) -> Sequence[Event]:
        """Send every event from now on to a listener, and return the kept ones; one event may come in both ways.

        Raises `RunFinished` for a run that has ended.
        """
        self._live().bus.keep(listener)
        return () if self.log is None else self.log.kept

    @property
    def live(self) -> bool:
        """Whether the run has begun, or is about to, and has not ended."""
        return not self._ended.is_set()

    def give_up(self) -> None:
        """Drop the suspended run; only the id is kept."""
        self.suspension = None
        self._forget(self)

    async def wait(self) -> None:
        """Wait for the end of the session."""
        await self._ended.wait()

    async def wait_until_begun(self) -> None:
        """Wait for the first session to begin, or for the end of a run that never begins."""
        await self._begun.wait()

    def open_bus(self, subscribers: Sequence[Subscriber], masker: Masker | None, tally: ModelTally) -> Bus:
        """Make the bus of a session: numbering continues, and task ends that were emitted are not emitted again."""
        earlier = self.suspension
        bus = Bus(self.run_id, subscribers, masker, seq=earlier.seq if earlier else 0, log=self.log, tally=tally)
        if earlier is not None:
            bus.ended_before = frozenset(name for name, one in earlier.outcomes.items() if one.status not in WAITING)
        return bus

    def begin(self, control: RunControl) -> None:
        """Attach the run: a session begins."""
        self._control = control
        self.sessions += 1
        self._begun.set()
        self._result = None
        if self._ended.is_set():  # a caller that waits already keeps its event
            self._ended = anyio.Event()
        if self.log is not None:
            self.log.open()
        if self._cancelled is not None:
            control.cancel(self._cancelled)

    def end(self, result: TeamResult | None) -> None:
        """Release the run: the session has ended, with a result or without."""
        self._begun.set()
        self._control = None
        self._result = result
        if self.log is not None:
            self.log.close()
        # `settle` wakes the callers of a run that the runtime serves: its coordinator may still raise.
        if not self.served:
            self._ended.set()

    def settle(self, result: TeamResult | None, error: BaseException | None = None) -> None:
        """Store what the coordinator returned or raised, once it is done."""
        self.served = False
        self._error = error
        self.end(result or self._result)


_MOST_ENDED: Final = 10_000
"""How many ids of ended runs are remembered."""


class Runs(Mapping[str, Run]):
    """The runs in progress and the suspended ones, by run id; remembers the ids of the last ended ones."""

    def __init__(self) -> None:
        self._begins = threading.Lock()
        """Held while an id is assigned: runs begin in several threads."""
        self._known: dict[str, Run] = {}
        self._ended: dict[str, None] = {}
        """The ids of the last runs that ended, oldest first."""
        self._inner: dict[str, dict[str, Run]] = {}
        """Suspended runs inside other runs, by the outer run's id and their own."""

    def __getitem__(self, run_id: str) -> Run:
        """Return the run of that id; raises `RunFinished` or `RunNotFound`."""
        if run_id in self._known:
            return self._known[run_id]
        if run_id in self._ended:
            raise RunFinished(run_id)
        raise RunNotFound(run_id, self._known)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._known))

    def __len__(self) -> int:
        return len(self._known)

    def handles(self) -> tuple[Run, ...]:
        """Return all handles, oldest first; from any thread."""
        return tuple(self._known.values())

    def sessions_in(self, run_id: str) -> list[RunControl]:
        """Return the open sessions of the runs inside a run."""
        inside = [run.session for run in self.handles() if run.within == run_id]
        return [one for one in inside if one is not None]

    def is_telling_in(self, run_id: str) -> bool:
        """Return whether a subscriber is called with an event of a run inside a run."""
        inside = self.sessions_in(run_id)
        return any(one.bus.is_delivering or self.is_telling_in(one.request.run_id) for one in inside)

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._known

    def live(self, run_id: str) -> Run | None:
        """Return the run of that id while a session of it is open; from any thread."""
        run = self._known.get(run_id)
        return run if run is not None and run.begun else None

    def check_new(self, run_id: str) -> None:
        """Raise `RunExists` for an id that is in use or was used before."""
        if run_id in self._known or run_id in self._ended:
            raise RunExists(run_id)

    def prepare(self, run_id: str) -> Run:
        """Register a run that is about to begin and keeps its events."""
        with self._begins:
            self.check_new(run_id)
            self._known[run_id] = run = Run(run_id, self.leave, keep_events=True)
        return run

    def enter(self, run_id: str, within: str | None = None) -> Run:
        """Return the handle for a session that begins: a new one, a prepared one, or one that is being resumed.

        `within` is the id of the enclosing run. Raises `RunExists` for any other id that was used before.
        """
        with self._begins:
            run = self._known.get(run_id)
            if run is None or run.begun or (run.suspension is not None and not run.resuming):
                self.check_new(run_id)
                self._known[run_id] = run = Run(run_id, self.leave, within=within)
        return run

    def recover(self, suspension: Suspension, within: str | None) -> None:
        """Register a run that resumes from its journal."""
        run_id = suspension.request.run_id
        run = Run(run_id, self.leave, within=within)
        run.suspension = suspension
        run.end(None)
        # Known before it is forgotten: to another thread its id is in use all the time.
        self._known[run_id] = run
        self._ended.pop(run_id, None)
        if within is not None:
            self._inner.setdefault(within, {})[run_id] = run

    def leave(self, run: Run) -> None:
        """Forget an ended run except for its id, and the runs suspended inside it; keep a suspended one."""
        if run.suspension is not None:
            if run.within is not None:
                self._inner.setdefault(run.within, {})[run.run_id] = run
            return
        # Ended before it is forgotten: to another thread its id is in use all the time.
        self._ended[run.run_id] = None
        self._known.pop(run.run_id, None)
        if len(self._ended) > _MOST_ENDED:  # a journal knows all; without one a process of many runs would only grow
            del self._ended[next(iter(self._ended))]
        if run.within in self._inner:
            self._inner[run.within].pop(run.run_id, None)
        for inner in self._inner.pop(run.run_id, {}).values():
            inner.give_up()

    def waiting_in(self, run_id: str) -> Sequence[Run]:
        """Return a run and the suspended runs inside it; from any thread."""
        found = [self[run_id]]
        for run in found:  # the loop appends to the list
            found += tuple(self._inner.get(run.run_id, {}).values())
        return found
