"""The moves a run and a task can make, as tables; anything else raises `IllegalMove` with the history."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kairo_team.errors import IllegalMove


class RunState(StrEnum):
    """Where a run stands."""

    IDLE = "idle"
    PLANNING = "planning"
    PLAN_READY = "plan_ready"
    RUNNING = "running"
    COMPLETED = "completed"
    DEGRADED = "degraded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"


class TaskState(StrEnum):
    """Where a task stands; GENERATING and EVALUATING are the two phases of IN_FLIGHT."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    GENERATING = "generating"
    EVALUATING = "evaluating"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"


PENDING: Final = TaskState.PENDING
IN_FLIGHT: Final = TaskState.IN_FLIGHT
GENERATING: Final = TaskState.GENERATING
COMPLETED: Final = TaskState.COMPLETED
FAILED: Final = TaskState.FAILED
CANCELLED: Final = TaskState.CANCELLED
SUSPENDED: Final = TaskState.SUSPENDED
"""The states every task meets: reading a member of an enum costs ten times a global, and a task does it often."""

_R, _T = RunState, TaskState
_CUT_SHORT = frozenset({_R.FAILED, _R.TIMEOUT, _R.CANCELLED, _R.SUSPENDED})

RUN_MOVES: Final[Mapping[str, frozenset[RunState]]] = {
    _R.IDLE: frozenset({_R.PLANNING}),
    _R.PLANNING: frozenset({_R.PLAN_READY, _R.RUNNING}) | _CUT_SHORT,
    _R.PLAN_READY: frozenset({_R.PLANNING, _R.RUNNING}) | _CUT_SHORT,
    _R.RUNNING: frozenset({_R.COMPLETED, _R.DEGRADED}) | _CUT_SHORT,
    _R.SUSPENDED: frozenset({_R.PLANNING, _R.RUNNING}),
}
"""From a run state to the states that may follow; what is not listed is final."""

_TASK_ENDS = frozenset({_T.COMPLETED, _T.FAILED, _T.CANCELLED, _T.SUSPENDED})

TASK_MOVES: Final[Mapping[str, frozenset[TaskState]]] = {
    _T.PENDING: frozenset({_T.IN_FLIGHT, _T.SKIPPED, _T.FAILED}),
    _T.IN_FLIGHT: frozenset({_T.GENERATING, _T.SKIPPED}) | _TASK_ENDS,
    _T.GENERATING: frozenset({_T.GENERATING, _T.EVALUATING}) | _TASK_ENDS,
    _T.EVALUATING: frozenset({_T.GENERATING, _T.EVALUATING}) | _TASK_ENDS,
    _T.SUSPENDED: frozenset({_T.CANCELLED, _T.FAILED}),
}
"""From a task state to the states that may follow; what is not listed is final. A task that waits for a person is over
for this session: it ends otherwise only when the whole run does, and a resumed run begins it anew."""


def check_move(name: str, history: list[str], to: str, moves: Mapping[str, frozenset[RunState | TaskState]]) -> None:
    """Append `to` to the history when the table has that move, else raise `IllegalMove`."""
    now = history[-1]
    if now not in moves or to not in moves[now]:
        raise IllegalMove(name, history, to)
    history.append(to)


class Path:
    """The states a task went through. Tasks that went the same way share it: few ways are gone, and by many tasks."""

    __slots__ = ("after", "before", "state")

    def __init__(self, state: TaskState, before: Path | None = None) -> None:
        self.state = state
        self.before = before
        self.after: dict[str, Path] = {}
        """The ways that some task went on from here."""

    def extend(self, name: str, to: TaskState) -> Path:
        """Return the way on to another state; `IllegalMove` when the table does not have that move."""
        check_move(name, self.states(), to, TASK_MOVES)
        return self.after.setdefault(to, Path(to, self))

    def states(self) -> list[str]:
        """Return the states, oldest first."""
        states: list[str] = []
        path: Path | None = self
        while path is not None:
            states.append(path.state)
            path = path.before
        return states[::-1]


NOT_STARTED: Final = Path(PENDING)
