"""The sum of a run's events: a row for each task and the team's totals. This module uses no terminal."""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team._util.counts import count
from kairo_team.budget import NO_USAGE, Usage, to_dollars
from kairo_team.verdicts import EvaluationVerdict, VerdictOutcome
from kairo_team.views.open_tasks import BUDGET, Chains, Waits, describe_dependencies
from kairo_team.views.set_aside import SetAside
from kairo_team.views.text import clock, describe_findings, one_line

if TYPE_CHECKING:
    from kairo_team.events import Event, PlannedTask

_NOTHING: Final = Decimal(0)
_LATEST: Final = 50
"""Tasks that ended last, from which the pace is measured."""
_FEWEST: Final = 5
"""Ends that a pace needs at least."""
_MANY: Final = 100
"""A pace that is written without a fraction."""
_HOUR, _MINUTE, _SECOND = (3_600.0, "an hour"), (60.0, "a minute"), (1.0, "a second")


class RowState(StrEnum):
    """The state of a task, in words for a person."""

    PENDING = "pending"
    RUNNING = "running"
    REVIEWING = "reviewing"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"


END_STATES: Final[Mapping[type[events.Event], RowState]] = {
    events.TaskCompleted: RowState.DONE,
    events.TaskFailed: RowState.FAILED,
    events.TaskSkipped: RowState.SKIPPED,
    events.TaskCancelled: RowState.CANCELLED,
    events.TaskSuspended: RowState.SUSPENDED,
}


STATES: Final[Mapping[str, RowState]] = {
    "pending": RowState.PENDING,
    "in_flight": RowState.RUNNING,
    "completed": RowState.DONE,
    "failed": RowState.FAILED,
    "skipped": RowState.SKIPPED,
    "cancelled": RowState.CANCELLED,
    "suspended": RowState.SUSPENDED,
}
"""States by the status of a task."""
_OPEN: Final = (RowState.PENDING, RowState.RUNNING, RowState.REVIEWING, RowState.SUSPENDED)
"""States of tasks that others may wait for."""


@dataclass(slots=True, eq=False)
class TaskRow:
    """The current state of one task."""

    id: str
    number: int
    """Place in the plan, from 0."""
    state: RowState = RowState.PENDING
    member: str | None = None
    attempt: int = 0
    verdict: EvaluationVerdict | None = None
    """The last review."""
    error: str | None = None
    """Why the last attempt made nothing to review; None while it still may."""
    guarantee: int | None = None
    """Tokens carved for the task; None if no tokens were."""
    booked: Usage = NO_USAGE
    """Usage of the finished attempts."""
    flying: Usage = NO_USAGE
    """Usage of the calls in the current attempt."""
    planned: PlannedTask | None = None
    """The task in the plan."""
    waits: Waits = field(default_factory=Waits)
    last: str = ""
    """What happened last, in words."""
    changed: int = 0
    """Sequence number of the task's latest event."""
    began: datetime | None = None
    """When a member was first assigned."""
    ended: datetime | None = None

    @property
    def tokens(self) -> int:
        """Tokens spent so far."""
        return self.booked.tokens + self.flying.tokens

    def seconds(self, now: datetime) -> float | None:
        """Return the seconds since a member was assigned, until the task's end; None before that."""
        return None if self.began is None else max(((self.ended or now) - self.began).total_seconds(), 0.0)


class Pace:
    """How fast tasks end, and how long the rest may take at that pace; it takes the time of each end."""

    def __init__(self) -> None:
        self._ends: deque[datetime] = deque(maxlen=_LATEST)
        self._began: datetime | None = None

    def begin(self, at: datetime) -> None:
        """Take the time at which a task began to be worked on."""
        self._began = self._began or at

    def end(self, at: datetime) -> None:
        """Take the time at which a task that was worked on ended."""
        self._ends.append(at)

    def per_second(self, now: datetime) -> float | None:
        """Return how many tasks end in a second; None while that is not known."""
        if len(self._ends) < _FEWEST or self._began is None:
            return None
        full = len(self._ends) == _LATEST
        passed = (now - (self._ends[0] if full else self._began)).total_seconds()
        return (len(self._ends) - full) / passed if passed > 0 else None

    def describe(self, left: int, now: datetime) -> str:
        """Return the pace, and how long so many tasks may take: `12 a minute, about 2:05 left`; "" if it is unknown."""
        rate = self.per_second(now)
        if rate is None:
            return ""
        size, unit = next((one for one in (_SECOND, _MINUTE) if rate * one[0] >= 1), _HOUR)
        pace = f"{rate * size:,.3g} {unit}" if rate * size < _MANY else f"{rate * size:,.0f} {unit}"
        return f"{pace}, about {clock(left / rate)} left" if left else pace


class RunProgress:
    """Sums up the events of one run, in order; the first event decides which run.

    Of runs inside its tasks only questions to people count.
    """

    def __init__(self) -> None:
        self.run_id = ""
        self.around: dict[str, str] = {}
        """Tasks of this run, by the ids of the runs inside them."""
        self.team = ""
        self.dollars = _NOTHING
        """US dollars spent by the whole team so far."""
        self.more_tokens = 0
        """Tokens that the run got beyond its first budget."""
        self.more_dollars = _NOTHING
        self.set_aside = SetAside()
        """The amounts that are set aside and not spent, and those held for calls in flight."""
        self.rows: dict[str, TaskRow] = {}
        """In plan order."""
        self.ended: events.TeamEnded | None = None
        self.latest: datetime | None = None
        """The time of the run's latest event."""
        self.pace = Pace()
        self.failures: dict[str, list[str]] = {}
        """Ids of failed tasks by their cause, the first cause first."""
        self._tokens = 0
        self._by_state: dict[RowState, dict[str, TaskRow]] = {state: {} for state in RowState}
        self._ended_before: dict[str, str] = {}
        """How tasks ended in earlier sessions, by id."""
        self._graph: list[PlannedTask] = []
        self._chains: Chains | None = None
        """The chains of the plan; None until they are needed, because a plan may grow often."""
        self._chain_left: int | None = None
        """Tasks on the longest open chain; None until they are needed."""

    @property
    def tokens(self) -> int:
        """Tokens spent by the whole team so far."""
        return self._tokens

    def take(self, event: Event) -> None:
        """Take in the next event."""
        self.run_id = self.run_id or event.run_id
        if event.run_id != self.run_id:
            self._take_inside(event)
            return
        self.latest = event.at
        self.set_aside.take(event)
        match event:
            case events.TeamStarted() | events.TeamResumed():
                self.team, self.ended = event.team, None
                if isinstance(event, events.TeamResumed):
                    self._ended_before = dict(event.ended)
            case events.PlanReady():
                for task_id in event.tasks:
                    self._row(task_id)
                self._graph = []
                self._take_planned(event.graph)
            case events.PlanGrew():
                self._take_planned(event.added)
            case events.TeamEnded():
                self.ended = event
                self._tokens, self.dollars = event.usage.tokens, event.usage.dollars
            case events.WorkEvent():
                self._take_task_event(event)
            case _:
                pass

    def _take_inside(self, event: Event) -> None:
        """Take in an event of a run inside a task."""
        if isinstance(event, events.TeamStarted | events.TeamResumed) and event.within and event.within_task:
            self.around[event.run_id] = self.around.get(event.within, event.within_task)
        elif isinstance(event, events.HumanRequested | events.HumanDecided) and event.run_id in self.around:
            # The task around waits while a person has an open question of the run inside.
            self._row(self.around[event.run_id]).waits.take(event)

    def _take_task_event(self, event: events.WorkEvent) -> None:
        if event.task_id:  # a member's budget and a planner's call belong to no task
            row = self._row(event.task_id)
            row.changed = event.seq
            row.member = event.member or row.member
            row.waits.take(event)
            self._take_task(row, event)
        elif isinstance(event, events.ModelCalled):
            self._tokens += event.usage.tokens
            self.dollars += event.usage.dollars
        elif isinstance(event, events.BudgetToppedUp):
            self.more_tokens += event.tokens or 0
            self.more_dollars += to_dollars(event.picodollars or 0)

    def _take_task(self, row: TaskRow, event: events.WorkEvent) -> None:
        match event:
            case events.TaskAssigned():
                row.began = row.began or event.at
                self.pace.begin(event.at)
                self._move(row, RowState.RUNNING, f"assigned to {event.member}")
            case events.BudgetCarved():
                row.guarantee = event.tokens
            case events.AttemptStarted():
                row.attempt, row.error = event.attempt, None
                findings = describe_findings(row.verdict) if row.verdict else ""  # what the member must fix
                self._move(row, RowState.RUNNING, findings or f"{event.member} at work")
            case events.AttemptProgress():
                row.last = event.text
            case events.EvaluationStarted():
                self._move(row, RowState.REVIEWING, "in review")
            case events.EvaluationResult():
                row.verdict = event.verdict
                passed = event.verdict.outcome is VerdictOutcome.PASS
                row.last = "passed" if passed else describe_findings(event.verdict)
            case events.TaskEnded():
                self._end(row, event)
            case _:
                row.last = _describe_event(event) or row.last
                self._take_money(row, event)

    def _take_money(self, row: TaskRow, event: events.WorkEvent) -> None:
        match event:
            case events.ModelCalled():
                self._spend(row, row.booked, row.flying + event.usage)
                row.last = f"{event.model}: {'answered' if event.outcome == 'ok' else event.outcome}"
            case events.AttemptFinished():
                self._spend(row, row.booked + event.usage, NO_USAGE)
                row.error = event.error
                failed = "put off" if event.status == "suspended" else "failed"
                row.last = row.last if event.error is None else f"attempt {failed}: {event.error}"
            case events.BudgetReturned():
                # The governor's own sum replaces the sum of the events.
                self._spend(row, event.usage, NO_USAGE)
            case _:
                pass

    def _take_planned(self, tasks: Iterable[PlannedTask]) -> None:
        for planned in tasks:
            row = self._row(planned.id)
            row.planned = planned
            self._graph.append(planned)
            before = STATES.get(self._ended_before.get(row.id, ""))
            if before is not None and row.state is RowState.PENDING:
                self._move(row, before, "in an earlier session")
        self._chains = self._chain_left = None

    def _row(self, task_id: str) -> TaskRow:
        row = self.rows.get(task_id)
        if row is None:
            row = self.rows[task_id] = self._by_state[RowState.PENDING][task_id] = TaskRow(task_id, len(self.rows))
        return row

    def _move(self, row: TaskRow, to: RowState, last: str) -> None:
        del self._by_state[row.state][row.id]
        row.state, row.last = to, last
        self._chain_left = None
        # Inserted again, so that a state's rows are in the order they entered it: `_last_ended` reads them backwards.
        self._by_state[to][row.id] = row

    def _end(self, row: TaskRow, event: events.TaskEnded) -> None:
        row.attempt = event.attempts
        row.ended = event.at
        if row.began is not None:
            self.pace.end(event.at)
        if isinstance(event, events.TaskFailed):
            self.failures.setdefault(event.reason or "failed", []).append(row.id)
        done = row.last if event.attempts <= 1 else f"after {count(event.attempts, 'attempt')}"
        self._move(row, END_STATES[type(event)], event.reason or done)

    def _spend(self, row: TaskRow, booked: Usage, flying: Usage) -> None:
        tokens, dollars = row.tokens, row.booked.dollars + row.flying.dollars
        row.booked, row.flying = booked, flying
        # Less than before, if the calls counted for more than their attempt reports.
        self._tokens += row.tokens - tokens
        self.dollars += booked.dollars + flying.dollars - dollars

    # ------------------------------------------------------------------ views

    def count(self, *states: RowState) -> int:
        """Return how many tasks are in one of these states."""
        return sum(len(self._by_state[state]) for state in states)

    def chain_left(self) -> int:
        """Return how many tasks are on the longest open chain; 0 in a plan without dependencies."""
        if self._chain_left is None:
            self._chains = self._chains or Chains(self._graph)
            self._chain_left = self._chains.longest(self._still_open())
        return self._chain_left

    def describe_last(self, row: TaskRow) -> str:
        """Describe in one line why a task waits, else its last event."""
        reason = self.describe_wait(row)
        if not reason and row.planned is not None and row.state is RowState.PENDING:
            reason = describe_dependencies(row.planned.depends_on, self._still_open())
        return one_line(f"waits for {reason}" if reason else row.last)

    def describe_wait(self, row: TaskRow) -> str:
        """Describe what a task waits for, apart from its dependencies; of budget also for whom it is set aside."""
        reason = row.waits.reason
        whose = self.set_aside.describe(row.id) if reason == BUDGET else ""
        return f"{reason}: {whose}" if whose else reason

    def _still_open(self) -> ChainMap[str, TaskRow]:
        return ChainMap(*(self._by_state[state] for state in _OPEN))

    def describe_counts(self, rows: Iterable[TaskRow] = ()) -> str:
        """Return how many tasks are in which state, without these rows: `12 done, 3 running`."""
        left = {state: len(found) for state, found in self._by_state.items()}
        for row in rows:
            left[row.state] -= 1
        order = [RowState.RUNNING, RowState.REVIEWING, RowState.DONE, RowState.FAILED]
        order += [state for state in RowState if state not in order and state is not RowState.PENDING]
        return ", ".join(f"{left[state]:,} {state}" for state in [*order, RowState.PENDING] if left[state])

    def visible(self, most: int) -> list[TaskRow]:
        """Pick rows, in plan order: all, or at most this many of the running, last ended and next tasks."""
        if len(self.rows) <= most:
            return list(self.rows.values())
        states = self._by_state
        busy = (RowState.RUNNING, RowState.REVIEWING, RowState.SUSPENDED)
        active = chain.from_iterable(states[state].values() for state in busy)
        picked = list(islice(active, most))
        picked += self._last_ended((most - len(picked) + 1) // 2)
        picked += islice(states[RowState.PENDING].values(), most - len(picked))
        return sorted(picked, key=lambda row: row.number)

    def _last_ended(self, most: int) -> list[TaskRow]:
        """Return the tasks that ended last."""
        ends = (self._by_state[state] for state in (RowState.DONE, RowState.FAILED, RowState.CANCELLED))
        latest = [row for found in ends for row in islice(reversed(found.values()), most)]
        return sorted(latest, key=lambda row: -row.changed)[:most]


def _describe_event(event: events.WorkEvent) -> str | None:
    """Describe an event of a task that has not ended."""
    match event:
        case events.HumanRequested():
            return "waits for a person"
        case events.HumanDecided():
            return describe_decision(event)
        case events.TaskEscalated():
            return f"escalated: {event.cause.value.replace('_', ' ')}"
        case events.BudgetHalted():
            return f"{event.reason.replace('_', ' ')} of {event.origin!r}"
        case _:
            return None


def describe_decision(event: events.HumanDecided) -> str:
    """Describe in one line what a person decided."""
    if event.action == "silent":
        return "nobody answered"
    if event.action == "withdrawn":
        return f"the question was withdrawn: {one_line(event.feedback)}"
    feedback = f": {one_line(event.feedback)}" if event.feedback else ""
    return "put off" if event.action == "defer" else f"a person decided: {event.action}{feedback}"
