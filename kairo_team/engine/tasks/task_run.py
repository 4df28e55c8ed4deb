"""One task in a run: its states, and what the run remembers of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from kairo_team._util.frozen import maker
from kairo_team.budget import NO_USAGE, HaltReason, Usage, left_of
from kairo_team.engine.records.replay import CutShort
from kairo_team.errors import IllegalMove
from kairo_team.results import Artifact, TaskOutcome
from kairo_team.tasks import TaskStatus

if TYPE_CHECKING:
    import anyio

    from kairo_team.budget import Budget
    from kairo_team.engine.live.enforced_end import ScopeStopper
    from kairo_team.engine.records.replay import PlanRecords
    from kairo_team.engine.tasks.ready_tasks import Entry
    from kairo_team.governance.governor import Governor
    from kairo_team.human import HumanRequest
    from kairo_team.results import DoneCall
    from kairo_team.tasks import Task
    from kairo_team.verdicts import EvaluationVerdict

WaitsFor = Literal["slot", "member", "budget", "retry"]
"""What a task that has all it depends on may wait for."""


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
"""The states every task has: reading a member of an enum costs ten times as much as a global does."""

_R, _T = RunState, TaskState
_EARLY_ENDS = frozenset({_R.FAILED, _R.TIMEOUT, _R.CANCELLED, _R.SUSPENDED})

RUN_MOVES: Final[Mapping[str, frozenset[RunState]]] = {
    _R.IDLE: frozenset({_R.PLANNING}),
    _R.PLANNING: frozenset({_R.PLAN_READY, _R.RUNNING}) | _EARLY_ENDS,
    _R.PLAN_READY: frozenset({_R.PLANNING, _R.RUNNING}) | _EARLY_ENDS,
    _R.RUNNING: frozenset({_R.COMPLETED, _R.DEGRADED}) | _EARLY_ENDS,
    _R.SUSPENDED: frozenset({_R.PLANNING, _R.RUNNING}),
}
"""From a run state to the states that may follow; what is not listed is final."""


def check_move(run_id: str, history: list[str], to: RunState) -> None:
    """Append `to` to a run's history when the table has that move, else raise `IllegalMove`."""
    if to not in RUN_MOVES.get(history[-1], ()):
        raise IllegalMove(run_id, history, to)
    history.append(to)


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


class Path:
    """The states a task went through. Tasks with the same states share it: there are few such paths, and many tasks."""

    __slots__ = ("after", "before", "state")

    def __init__(self, state: TaskState, before: Path | None = None) -> None:
        self.state = state
        self.before = before
        self.after: dict[str, Path] = {}
        """The paths that go on from here, by the next state."""

    def extend(self, name: str, to: TaskState) -> Path:
        """Return the path with one more state; `IllegalMove` when the table does not have that move."""
        if to not in TASK_MOVES.get(self.state, ()):
            raise IllegalMove(name, self.states(), to)
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

_IN_FLIGHT = frozenset({TaskState.IN_FLIGHT, TaskState.GENERATING, TaskState.EVALUATING})
_CUT_SHORT = frozenset({HaltReason.CANCELLED, HaltReason.TIME_BUDGET_EXCEEDED})
"""Halts of the team that end a task in flight CANCELLED, not FAILED."""
_LOST = frozenset({TaskStatus.FAILED, TaskStatus.SKIPPED, TaskStatus.CANCELLED})
_make_outcome = maker(TaskOutcome)
_STATUS = {status.value: status for status in TaskStatus}


class AttemptInFlight(Protocol):
    """The attempt that works on a task."""

    kept: str
    raised: Exception | None

    def interrupt(self, by: str | HumanRequest) -> None:
        """End it from outside."""
        ...


@dataclass(slots=True, eq=False)
class TaskRun:
    """One task in a run: its state, attempts and outcome."""

    entry: Entry
    records: PlanRecords
    """The recorded steps of the plan it is part of."""
    task: Task = field(init=False)
    state: str = PENDING
    """Where it stands."""
    path: Path = NOT_STARTED
    member: str | None = None
    leased: str | None = None
    """The member whose lease the task holds now."""
    governor: Governor | None = None
    """Shared by all attempts with one member."""
    context: AttemptInFlight | None = None
    """Of the attempt in flight."""
    attempts: int = 0
    open_attempt: tuple[int, float | None] | None = None
    """The number of the attempt that has begun and not ended, and the time when it began, None for the task's first."""
    usage: Usage = NO_USAGE
    artifact: Artifact | None = None
    verdict: EvaluationVerdict | None = None
    criteria: str | None = None
    """Digest of what its first review judged by."""
    warnings: tuple[str, ...] = ()
    done: tuple[DoneCall, ...] = ()
    """What attempts at the artifact that it works on did with tools."""
    done_for: int = 1
    """The number of that artifact."""
    error: str | None = None
    exception: BaseException | None = None
    """What its last attempt, its last review or its body raised."""
    top_ups: int = 0
    carvings: int = 0
    """How often it got a budget: at its start, and with each member it was handed to."""
    before: Usage | None = None
    """What was spent with members that handed it over."""
    spent_by: dict[str, Usage] | None = None
    """The same, by member."""
    has_slot: bool = False
    wait: anyio.CancelScope | ScopeStopper | None = None
    """Around what the task waits for between its attempts, such as a review."""
    interrupted: str | HumanRequest | None = None
    """Why it was cancelled, or the question whose answer it waits for."""
    waits_for: WaitsFor | None = None
    """What it was last said to wait for; None: nothing."""
    superseded: bool = False
    """A later plan does without it."""
    for_halt: bool = False
    """It ended because a budget was exhausted."""
    not_taken: bool = False
    """Its condition did not hold, or that of a task it needs: the run is complete without it."""

    def __post_init__(self) -> None:
        self.task = self.entry.task

    @property
    def history(self) -> list[str]:
        """Every state it was in."""
        return self.path.states()

    @property
    def in_flight(self) -> bool:
        """Dispatched, and neither ended nor suspended: it holds a slot and a budget."""
        return self.state in _IN_FLIGHT

    @property
    def ended(self) -> bool:
        """No move is left."""
        return self.state not in TASK_MOVES

    @property
    def place(self) -> str:
        """Where its body works, for what the body records."""
        return self.records.key("body", self.task.id, 1)

    def move(self, to: TaskState) -> None:
        """Go to another state; `IllegalMove` when the table does not have that move."""
        path = self.path.after.get(to)
        self.path = self.path.extend(self.task.id, to) if path is None else path
        self.state = to

    def ask_for(self, artifact_number: int) -> None:
        """Begin an attempt at an artifact; what was done with tools for a whole one before it is not its beginning."""
        cut = self.artifact is not None and self.artifact.partial
        if artifact_number != self.done_for and not cut:
            self.done = ()
        self.done_for = artifact_number

    def book_before_hand_over(self, spent: Usage) -> None:
        """Book what its member spent on it, before another one gets it."""
        member = self.member or ""
        self.before = self.usage = (self.before or NO_USAGE) + spent
        self.spent_by = self.spent_by or {}
        self.spent_by[member] = self.spent_by.get(member, NO_USAGE) + spent

    def ceiling_with(self, member: str) -> Budget | None:
        """Return what is left to a member of the task's own budget, which bounds all its attempts."""
        ceiling, spent = self.task.budget, (self.spent_by or {}).get(member)
        return ceiling if ceiling is None or spent is None else left_of(ceiling, spent)

    def recall_cancel(self, key: str | None = None) -> None:
        """Take over from the records that the task was cancelled in flight, if it was, and before the step `key`."""
        if not isinstance(self.interrupted, str):  # what waited was cancelled in a later session
            self.interrupted = self.records.cancelled_in_flight(self.task.id, key) or self.interrupted

    @property
    def begun(self) -> bool:
        """Started or ended, in this session or in an earlier one."""
        if self.state is not PENDING or self.records.was_attempted(self.task.id):
            return True
        return self._earlier_status not in (None, TaskStatus.PENDING)

    @property
    def lost(self) -> bool:
        """Ended without being accepted, in this session or in an earlier one."""
        return (self.ended and not self.entry.accepted) or self._earlier_status in _LOST

    @property
    def _earlier_status(self) -> TaskStatus | None:
        """How it was at the end of the session before; None if there was none."""
        found = self.records.earlier.get(self.task.id)
        return None if found is None else found.status

    def skip_reason(self, reason: str) -> str:
        """Return why it is skipped: as in the earlier session, where another need may have been lost first."""
        found = self.records.earlier.get(self.task.id)
        return found.error or reason if found is not None and found.status is TaskStatus.SKIPPED else reason

    @property
    def earlier(self) -> TaskOutcome | None:
        """How it was at the end of the session before; None if it was never tried there."""
        found = self.records.earlier.get(self.task.id)
        return found if found is not None and found.attempts else None

    def remember(self, earlier: TaskOutcome) -> None:
        """Stand as at the end of the session before: this one ends before it came to the task again."""
        self._stand_as(earlier)
        self.governor = None
        if self.state is PENDING:
            self.move(IN_FLIGHT)

    def _stand_as(self, earlier: TaskOutcome) -> None:
        self.artifact, self.verdict, self.attempts = earlier.artifact, earlier.verdict, earlier.attempts
        self.member, self.usage, self.warnings = earlier.member, earlier.usage, earlier.warnings

    def cut_short(self) -> CutShort:
        """Return what there is of the task when the end of the run interrupts it."""
        spent = NO_USAGE if self.governor is None else self.governor.usage
        return CutShort(self.member or "", spent if self.before is None else self.before + spent, self._kept())

    def _kept(self) -> Artifact | None:
        kept = "" if self.context is None else self.context.kept
        return Artifact(kept, partial=True) if kept else None

    def real_end(self, to: TaskState, reason: str | None, halt: HaltReason | None) -> tuple[TaskState, str | None]:
        """Return how the task really ends that is to end like this: it, or the run (by `halt`), may be cancelled."""
        if isinstance(self.interrupted, str):
            self.records.put_cancelled(self.task.id, self.interrupted, started=True)
            return CANCELLED, self.interrupted
        cut = halt in _CUT_SHORT or self.records.was_cut(self.task.id)
        if not cut or to is not FAILED:
            return to, reason
        earlier = self.records.earlier.get(self.task.id)
        if earlier is not None and earlier.status is TaskStatus.FAILED:  # the run was cut short on its way there again
            self._stand_as(earlier)
            self.exception = None
            return FAILED, earlier.error
        self.records.put_cut(self.task.id)
        return CANCELLED, reason

    def outcome(self) -> TaskOutcome:
        """Return how it ended."""
        status = _STATUS[self.state]
        artifact = self.artifact or self._kept()
        return _make_outcome(
            self.entry.task.id, status, artifact, self.verdict, self.attempts, self.member, self.usage, self.warnings,
            self.error, None if status is TaskStatus.COMPLETED else self.exception,
        )  # fmt: skip
