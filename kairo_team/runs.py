"""Runs as their watchers see them: a handle on each, and the runtime's register."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import anyio

from kairo_team.bus import EventLog
from kairo_team.errors import RunExists, RunFinished, RunNotFound

if TYPE_CHECKING:
    from kairo_team.budget import Budget, Usage
    from kairo_team.contracts import Journal
    from kairo_team.events import Event
    from kairo_team.questions import Inbox
    from kairo_team.results import TeamResult
    from kairo_team.team import TeamExecutionRequest
    from kairo_team.team_run import TeamRun

_CANCELLED = "the run was cancelled"


class Suspension(NamedTuple):
    """What a suspended run goes on from."""

    request: TeamExecutionRequest
    begun_with: Mapping[str, object]
    """What must be the same when it goes on, by name."""
    journal: Journal
    usage: Usage
    budget: Budget
    """The run's budget, with what it was topped up by."""
    seq: int
    inbox: Inbox


class Run:
    """A handle on a run: watch it, steer it, cancel it, wait for its result.

    But for `events` and `result` everything may be called from any thread. What changes a run raises `RunFinished`
    once it has ended.
    """

    def __init__(self, run_id: str, *, keep_events: bool = False) -> None:
        """With `keep_events` every event is kept, for `events` to begin at the first."""
        self.run_id = run_id
        self.log: EventLog | None = EventLog(0) if keep_events else None
        self.suspension: Suspension | None = None
        """Set while the run waits for a person."""
        self.resuming = False
        self._control: TeamRun | None = None
        self._result: TeamResult | None = None
        self._error: BaseException | None = None
        self._ended = anyio.Event()
        self._cancelled: str | None = None
        """Why it is to be killed as soon as it begins."""

    # ------------------------------------------------------------------ for whoever watches

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Iterate over the events with a number above `after`, then over those to come, until the session ends.

        A run that was begun by `Runtime.start` or `stream` keeps all of them; of any other only those from now on are
        there. Any number of watchers may come and go.
        """
        if type(after) is not int or after < 0:
            raise ValueError(f"events(after=) takes the number of the last event that is known, from 0, not {after!r}")
        if self.log is None:
            self.log = EventLog(self._live().bus.seq)
            self._live().bus.keep(self.log)
        async for event in self.log.read(after):
            yield event

    async def result(self) -> TeamResult:
        """Wait for the run's end, or suspension, and return its result; raises what the coordinator raised."""
        await self._ended.wait()
        if self._result is None:
            raise self._error or RunFinished(self.run_id)
        return self._result

    def cancel(self, reason: str = _CANCELLED) -> None:
        """Kill the run: in-flight work is interrupted, what was kept comes back. From any thread or signal handler.

        A suspended run is given up.
        """
        if self.suspension is not None and self._control is None:
            self.suspension = None
            return
        if self._control is None and self.live:  # it is about to begin
            self._cancelled = reason
            return
        self._live().cancel(reason)

    def cancel_task(self, task_id: str, reason: str = "the task was cancelled") -> None:
        """End one task: one that never started is SKIPPED, one in flight is CANCELLED with what it kept.

        Raises `Misuse` for a task that has ended, or is not in the plan.
        """
        self._live().cancel_task(task_id, reason)

    def steer(self, directive: str, task_id: str | None = None) -> None:
        """Tell the members of one task, or of all: in flight they see it at their next turn, later ones from the start.

        Raises `Misuse` for a task that has ended, or is not in the plan.
        """
        self._live().steer(directive, task_id)

    def top_up(self, budget: Budget) -> None:
        """Raise the run's limits by a budget; fields that are None stay. What waits for budget looks again.

        Raises `InsufficientBudget`, and changes nothing, where the runtime's shared budget does not have it.
        """
        self._live().top_up_run(budget)

    def _live(self) -> TeamRun:
        if self._control is None:
            raise RunFinished(self.run_id)
        return self._control

    def __repr__(self) -> str:
        waiting = "suspended" if self.suspension else "ended"
        return f"<Run {self.run_id!r} {'running' if self._control else 'starting' if self.live else waiting}>"

    # ------------------------------------------------------------------ for the run itself

    @property
    def begun(self) -> bool:
        """A session has been opened, and has not ended."""
        return self._control is not None

    @property
    def live(self) -> bool:
        """It has begun, or is about to, and has not ended."""
        return not self._ended.is_set()

    async def wait(self) -> None:
        """Wait for the end of the session, whatever comes of it."""
        await self._ended.wait()

    def begin(self, control: TeamRun) -> None:
        """Take the run that this is the handle of: a session begins."""
        self._control = control
        self._result = None
        self._ended = anyio.Event()
        if self.log is not None:
            self.log.open()
        if self._cancelled is not None:
            control.cancel(self._cancelled)

    def end(self, result: TeamResult | None, error: BaseException | None = None) -> None:
        """Let go of it: the session has ended, with a result, or before there was any with an error."""
        self._control = None
        self._result = result or self._result
        self._error = error
        self._ended.set()
        if self.log is not None:
            self.log.close()


class Runs(Mapping[str, Run]):
    """The runs in progress and the suspended ones, by run id; remembers the ids of the ended ones."""

    def __init__(self) -> None:
        self._known: dict[str, Run] = {}
        self._ended: set[str] = set()

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

    def __contains__(self, run_id: object) -> bool:
        return run_id in self._known

    def check_new(self, run_id: str) -> None:
        """Raise `RunExists` for an id that was used before."""
        if run_id in self._known or run_id in self._ended:
            raise RunExists(run_id)

    def prepare(self, run_id: str) -> Run:
        """Register a run that is about to begin and keeps its events."""
        self.check_new(run_id)
        self._known[run_id] = run = Run(run_id, keep_events=True)
        return run

    def enter(self, run_id: str) -> Run:
        """Return the handle for a session that begins: a new one, a prepared one, or one that is being resumed.

        Raises `RunExists` for any other id that was used before.
        """
        run = self._known.get(run_id)
        if run is None or run.begun or (run.suspension is not None and not run.resuming):
            self.check_new(run_id)
            self._known[run_id] = run = Run(run_id)
        return run

    def leave(self, run: Run) -> None:
        """Forget a run that has ended, but for its id; a suspended one stays."""
        if run.suspension is None:
            self._known.pop(run.run_id, None)
            self._ended.add(run.run_id)
