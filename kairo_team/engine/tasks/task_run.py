"""The state of one task in a run, and what the run remembers of the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Protocol

from kairo_team._util.frozen import maker
from kairo_team.artifacts import Artifact, DoneCall
from kairo_team.budget import NO_USAGE, Budget, HaltReason, Usage, left_of
from kairo_team.engine.records.journal import body_here
from kairo_team.engine.records.plan_records import CutShort, PlanRecords
from kairo_team.errors import IllegalMove, Misuse
from kairo_team.results import TaskOutcome
from kairo_team.tasks import Task, TaskStatus

if TYPE_CHECKING:
    import anyio

    from kairo_team.engine.live.enforced_end import ScopeStopper
    from kairo_team.engine.tasks.ready_tasks import Entry
    from kairo_team.governance.governor import Governor
    from kairo_team.human import HumanRequest
    from kairo_team.verdicts import EvaluationVerdict

WaitsFor = Literal["slot", "member", "budget", "retry"]
"""What a task may wait for once its dependencies have ended."""


class RunState(StrEnum):
    """The state of a run."""

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
    """The state of a task; GENERATING and EVALUATING are the two phases of IN_FLIGHT."""

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
"""The states every task has, as globals: reading a member of an enum costs ten times as much."""

_R, _T = RunState, TaskState
_EARLY_ENDS = frozenset({_R.FAILED, _R.TIMEOUT, _R.CANCELLED, _R.SUSPENDED})

RUN_MOVES: Final[Mapping[str, frozenset[RunState]]] = {
    _R.IDLE: frozenset({_R.PLANNING}),
    _R.PLANNING: frozenset({_R.PLAN_READY, _R.RUNNING}) | _EARLY_ENDS,
    _R.PLAN_READY: frozenset({_R.PLANNING, _R.RUNNING}) | _EARLY_ENDS,
    _R.RUNNING: frozenset({_R.COMPLETED, _R.DEGRADED}) | _EARLY_ENDS,
    _R.SUSPENDED: frozenset({_R.PLANNING, _R.RUNNING}),
}
"""From a run state to the states that may follow; states that are not listed are final."""


def check_move(run_id: str, history: list[str], to: RunState) -> None:
    """Append `to` to a run's history if the table has that move, else raise `IllegalMove`."""
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
"""From a task state to the states that may follow; states that are not listed are final. A suspended task is done for
this session: it ends only with the whole run, and a resumed run starts it again."""


class Path:
    """The states a task went through, shared by tasks with the same states: there are few paths, and many tasks."""

    __slots__ = ("after", "before", "state")

    def __init__(self, state: TaskState, before: Path | None = None) -> None:
        self.state = state
        self.before = before
        self.after: dict[str, Path] = {}
        """The paths that continue this one, by the next state."""

    def extend(self, name: str, to: TaskState) -> Path:
        """Return the path with one more state; `IllegalMove` if the table does not have that move."""
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


# One for the whole process: it grows only when a task takes an order of states that none took before.
NOT_STARTED: Final = Path(PENDING)

_IN_FLIGHT = frozenset({TaskState.IN_FLIGHT, TaskState.GENERATING, TaskState.EVALUATING})
_CUT_SHORT = frozenset({HaltReason.CANCELLED, HaltReason.TIME_BUDGET_EXCEEDED})
"""Halts of the team that end a task in flight as CANCELLED, not FAILED."""
_LOST = frozenset({TaskStatus.FAILED, TaskStatus.SKIPPED, TaskStatus.CANCELLED})
_make_outcome = maker(TaskOutcome)
_STATUS = {status.value: status for status in TaskStatus}


class AttemptInFlight(Protocol):
    """The attempt that works on a task."""

    kept: str
    raised: Exception | None

    def interrupt(self, by: str | HumanRequest) -> None:
        """End the attempt from outside."""
        ...


@dataclass(slots=True, eq=False)
class TaskRun:
    """One task in a run: its state, attempts and outcome."""

    entry: Entry
    records: PlanRecords
    """The recorded steps of the plan that the task is part of."""
    task: Task = field(init=False)
    state: str = PENDING
    """The current state."""
    path: Path = NOT_STARTED
    member: str | None = None
    leased: str | None = None
    """The member whose lease the task holds now."""
    governor: Governor | None = None
    """The budget of all attempts with one member."""
    context: AttemptInFlight | None = None
    """The attempt in flight."""
    attempts: int = 0
    open_attempt: tuple[int, float | None] | None = None
    """Number and start time of the attempt that has begun and not ended; the time is None for the task's first."""
    usage: Usage = NO_USAGE
    artifact: Artifact | None = None
    verdict: EvaluationVerdict | None = None
    criteria: str | None = None
    """Digest of the criteria of the first review."""
    warnings: tuple[str, ...] = ()
    done: tuple[DoneCall, ...] = ()
    """Tool calls of the attempts at the current artifact."""
    done_for: int = 1
    """The number of the current artifact."""
    error: str | None = None
    exception: BaseException | None = None
    """What the last attempt, the last review or the body raised."""
    top_ups: int = 0
    carvings: int = 0
    """How often the task got a budget: at its start, and with each member it was handed to."""
    before: Usage | None = None
    """Usage with earlier members, who handed the task over."""
    spent_by: dict[str, Usage] | None = None
    """Usage with earlier members, by member."""
    has_slot: bool = False
    wait: anyio.CancelScope | ScopeStopper | None = None
    """The scope around what the task waits for between its attempts, such as a review."""
    interrupted: str | HumanRequest | None = None
    """Why the task was cancelled, or the question that it waits for."""
    waits_for: WaitsFor | None = None
    """The last reported reason to wait; None: the task does not wait."""
    superseded: bool = False
    """Whether a later plan does without the task."""
    for_halt: bool = False
    """Whether the task ended because a budget was exhausted."""
    not_taken: bool = False
    """Whether the task's condition, or the condition of a task it needs, did not hold: the run is complete without it.
    """

    def __post_init__(self) -> None:
        self.task = self.entry.task

    @property
    def history(self) -> list[str]:
        """Every state so far, oldest first."""
        return self.path.states()

    @property
    def in_flight(self) -> bool:
        """Whether the task is dispatched, and neither ended nor suspended: it holds a slot and a budget."""
        return self.state in _IN_FLIGHT

    @property
    def ended(self) -> bool:
        """Whether no move is left."""
        return self.state not in TASK_MOVES

    @property
    def place(self) -> str:
        """The key of the task's body, for what the body records."""
        return self.records.key("body", self.task.id, 1)

    def move(self, to: TaskState) -> None:
        """Move to another state; `IllegalMove` if the table does not have that move."""
        path = self.path.after.get(to)
        self.path = self.path.extend(self.task.id, to) if path is None else path
        self.state = to

    def ask_for(self, artifact_number: int) -> None:
        """Begin an attempt at an artifact."""
        # Tool calls for an earlier, complete artifact do not belong to the new one.
        cut = self.artifact is not None and self.artifact.partial
        if artifact_number != self.done_for and not cut:
            self.done = ()
        self.done_for = artifact_number

    def book_before_hand_over(self, spent: Usage) -> None:
        """Book what the member spent on the task, before another member gets it."""
        member = self.member or ""
        self.before = self.usage = (self.before or NO_USAGE) + spent
        self.spent_by = self.spent_by or {}
        self.spent_by[member] = self.spent_by.get(member, NO_USAGE) + spent

    def ceiling_with(self, member: str) -> Budget | None:
        """Return what is left to a member of the task's own budget, which bounds all its attempts."""
        ceiling, spent = self.task.budget, (self.spent_by or {}).get(member)
        return ceiling if ceiling is None or spent is None else left_of(ceiling, spent)

    def recall_cancel(self, key: str | None = None) -> None:
        """Take over a recorded cancellation of the task in flight, if it came before the step `key`."""
        if not isinstance(self.interrupted, str):  # a waiting task was cancelled in a later session
            self.interrupted = self.records.cancelled_in_flight(self.task.id, key) or self.interrupted

    @property
    def begun(self) -> bool:
        """Whether the task has started or ended, in this session or in an earlier one."""
        if self.state is not PENDING or self.records.was_attempted(self.task.id):
            return True
        return self._earlier_status not in (None, TaskStatus.PENDING)

    @property
    def lost(self) -> bool:
        """Whether the task ended without being accepted, in this session or in an earlier one."""
        return (self.ended and not self.entry.accepted) or self._earlier_status in _LOST

    @property
    def last(self) -> TaskOutcome | None:
        """The task's outcome at the end of the last session; None if there was none."""
        return self.records.earlier.get(self.task.id)

    @property
    def _earlier_status(self) -> TaskStatus | None:
        return None if self.last is None else self.last.status

    def skip_reason(self, reason: str) -> str:
        """Return why the task is skipped: the earlier session's reason, if it has one."""
        # Another dependency may have been lost first in that session.
        found = self.last
        return found.error or reason if found is not None and found.status is TaskStatus.SKIPPED else reason

    @property
    def account(self) -> Governor:
        """The budget of the next attempt; raises `Misuse` once the task has given it back."""
        if self.governor is None:
            raise Misuse(
                f"task {self.task.id!r} gave its budget back: `TeamRun.give_back` comes after its last attempt"
            )
        return self.governor

    @property
    def earlier(self) -> TaskOutcome | None:
        """The outcome at the end of the last session; None if the task was never tried there."""
        found = self.last
        return found if found is not None and found.attempts else None

    def remember(self, earlier: TaskOutcome) -> None:
        """Restore the outcome of the last session: this one ends before it comes to the task again."""
        self._stand_as(earlier)
        self.governor = None
        if self.state is PENDING:
            self.move(IN_FLIGHT)

    def catch_up(self) -> None:
        """Restore the outcome of the last session, if the task ends before its attempts there were recalled."""
        if self.last is not None and self.attempts < self.last.attempts:
            self._stand_as(self.last)

    def _stand_as(self, earlier: TaskOutcome) -> None:
        self.artifact, self.verdict, self.attempts = earlier.artifact, earlier.verdict, earlier.attempts
        self.member, self.usage, self.warnings = earlier.member, earlier.usage, earlier.warnings

    def cut_short(self) -> CutShort:
        """Return the record of the task when the end of the run interrupts it."""
        spent = NO_USAGE if self.governor is None else self.governor.usage
        return CutShort(self.member or "", spent if self.before is None else self.before + spent, self._kept_text())

    def _kept_text(self) -> Artifact | None:
        kept = "" if self.context is None else self.context.kept
        return Artifact(kept, partial=True) if kept else None

    def real_end(self, to: TaskState, reason: str | None, halt: HaltReason | None) -> tuple[TaskState, str | None]:
        """Return the actual end of a task: CANCELLED if the task, or the run (by `halt`), was cancelled meanwhile."""
        if isinstance(self.interrupted, str):
            self.records.put_cancelled(self.task.id, self.interrupted, started=True)
            return CANCELLED, self.interrupted
        cut = halt in _CUT_SHORT or self.records.was_cut(self.task.id)
        if not cut or to is not FAILED:
            return to, reason
        earlier = self.last
        if earlier is not None and earlier.status is TaskStatus.FAILED:  # the run was cut short before it failed again
            self._stand_as(earlier)
            self.exception = None
            return FAILED, earlier.error
        self.records.put_cut(self.task.id)
        return CANCELLED, reason

    def outcome(self) -> TaskOutcome:
        """Return the task's outcome."""
        status = _STATUS[self.state]
        artifact = self.artifact or self._kept_text()
        return _make_outcome(
            self.entry.task.id, status, artifact, self.verdict, self.attempts, self.member, self.usage, self.warnings,
            self.error, None if status is TaskStatus.COMPLETED else self.exception,
        )  # fmt: skip


def task_run_here() -> TaskRun | None:
    """Return the task whose body runs here; None outside of any."""
    body = body_here()
    return body if isinstance(body, TaskRun) else None
