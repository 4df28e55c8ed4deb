"""A subscriber that keeps events, and checks the rules for the events of every run."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import TypeVar

from kairo_team.events import (
    AttemptFinished,
    AttemptStarted,
    EvaluationResult,
    EvaluationStarted,
    Event,
    TaskAssigned,
    TaskEnded,
    TaskEvent,
    TaskWaiting,
    TeamEnded,
    TeamInterrupted,
    TeamResumed,
    TeamStarted,
    TeamSuspended,
)

E = TypeVar("E", bound=Event)

_FOLLOWERS: dict[type[Event], tuple[type[Event], ...]] = {
    TaskAssigned: (AttemptStarted, TaskEnded),
    AttemptStarted: (AttemptFinished,),
    AttemptFinished: (AttemptStarted, EvaluationStarted, TaskEnded),
    EvaluationStarted: (EvaluationResult, TaskEnded),
    EvaluationResult: (AttemptStarted, EvaluationStarted, TaskEnded),
    TaskEnded: (),
}
"""Events that may follow each event of one task; other events may come anywhere before the task's end."""


class EventRecorder:
    """A plain subscriber that keeps every event in order: `Runtime(subscribers=[recorder])`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Keep one event."""
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        """The events' types, in order."""
        return [event.type for event in self.events]

    def of(self, kind: type[E], task_id: str | None = None) -> list[E]:
        """Return the events of one class, in order; with `task_id`, only of that task."""
        found = [event for event in self.events if isinstance(event, kind)]
        return [event for event in found if task_id is None or getattr(event, "task_id", None) == task_id]

    def assert_lawful(self) -> None:
        """Raise `AssertionError` unless the events make up one or more whole runs.

        Each run begins with `team.started` and numbers its events from 1 without gaps. A later session begins with
        `team.resumed`, after `team.suspended` or `team.interrupted`. Each session ends with exactly one team event, and
        has one terminal event for every task, after which no event names that task. If the session was interrupted,
        only tasks that had ended have a terminal event.
        """
        by_run = sorted(self.events, key=lambda event: event.run_id)  # stable: order within a run is kept
        for run_id, of_run in groupby(by_run, key=lambda event: event.run_id):
            where, events = f"run {run_id!r}", list(of_run)
            assert [event.seq for event in events] == list(range(1, len(events) + 1)), f"{where}: numbers with gaps"
            starts = [place for place, event in enumerate(events) if isinstance(event, TeamStarted | TeamResumed)]
            assert starts[:1] == [0], f"{where}: began with {events[0]!r}"
            for number, (start, end) in enumerate(pairwise([*starts, len(events)]), 1):
                is_last = end == len(events)
                _check_session(f"{where}, session {number}", events[start:end], first=number == 1, last=is_last)

    def __repr__(self) -> str:
        return f"EventRecorder({len(self.events)} events)"


def _check_session(where: str, events: list[Event], *, first: bool, last: bool) -> None:
    assert isinstance(events[0], TeamStarted if first else TeamResumed), f"{where}: began with {events[0]!r}"
    ends = TeamEnded if last else (TeamSuspended, TeamInterrupted)
    assert isinstance(events[-1], ends), f"{where}: ended with {events[-1]!r}"
    ended = sum(isinstance(event, TeamEnded) for event in events)
    assert ended == 1, f"{where}: {ended} last events"
    of_tasks = [event for event in events if isinstance(event, TaskEvent)]
    for task_id in dict.fromkeys(event.task_id for event in of_tasks):
        if isinstance(events[-1], TeamInterrupted) and not any(
            isinstance(event, TaskEnded) and event.task_id == task_id for event in of_tasks
        ):
            continue
        _check_task(f"{where}, task {task_id!r}", [event for event in of_tasks if event.task_id == task_id])


def _check_task(where: str, events: list[TaskEvent]) -> None:
    ends = [event for event in events if isinstance(event, TaskEnded)]
    assert len(ends) == 1, f"{where}: {len(ends)} terminal events"
    assert events[-1] is ends[0], f"{where}: {events[-1].type} after its end"
    steps = [(event, kind) for event in events for kind in _FOLLOWERS if isinstance(event, kind)]
    begun = [event for event in events if not isinstance(event, TaskWaiting)]
    assert len(begun) == 1 or isinstance(begun[0], TaskAssigned), f"{where}: began with {begun[0].type}"
    for (_, kind), (following, _) in pairwise(steps):
        assert isinstance(following, _FOLLOWERS[kind]), f"{where}: {following.type} follows {kind.type or 'its end'}"
