"""What a run remembers of one task while it works on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kairo_team.budget import Usage
from kairo_team.errors import IllegalMove
from kairo_team.frozen import maker
from kairo_team.results import Artifact, TaskOutcome
from kairo_team.states import PENDING, TASK_MOVES, TaskState
from kairo_team.tasks import TaskStatus

if TYPE_CHECKING:
    import anyio

    from kairo_team.board import Entry
    from kairo_team.governance.governor import Governor
    from kairo_team.human import HumanRequest
    from kairo_team.recorded import TaskRecords
    from kairo_team.tasks import Task
    from kairo_team.verdicts import EvaluationVerdict
    from kairo_team.work_context import WorkContext

_NOTHING = Usage()
_IN_FLIGHT = frozenset({TaskState.IN_FLIGHT, TaskState.GENERATING, TaskState.EVALUATING})
_make_outcome = maker(TaskOutcome)
_STATUS = {status.value: status for status in TaskStatus}


@dataclass(slots=True, eq=False)
class TaskRecord:
    """One task's state, tries and outcome."""

    entry: Entry
    steps: TaskRecords
    """The recorded steps of the plan it is part of."""
    task: Task = field(init=False)
    state: str = PENDING
    """Where it stands."""
    history: list[str] = field(init=False)
    member: str | None = None
    leased: str | None = None
    """The member whose lease the task holds now."""
    governor: Governor | None = None
    """Shared by all tries with one member."""
    context: WorkContext | None = None
    """Of the attempt in flight."""
    attempts: int = 0
    usage: Usage = _NOTHING
    artifact: Artifact | None = None
    verdict: EvaluationVerdict | None = None
    warnings: tuple[str, ...] = ()
    error: str | None = None
    top_ups: int = 0
    before: Usage | None = None
    """What was spent with members that handed it over."""
    has_slot: bool = False
    wait: anyio.CancelScope | None = None
    """Around what the task waits for between its attempts, such as a review."""
    interrupted: str | HumanRequest | None = None
    """Why it was cancelled, or the question whose answer it waits for."""
    superseded: bool = False
    """A later plan does without it."""
    for_halt: bool = False
    """It ended because a budget was exhausted."""

    def __post_init__(self) -> None:
        self.task = self.entry.task
        self.history = [PENDING]

    @property
    def in_flight(self) -> bool:
        """Dispatched, and neither ended nor suspended: it holds a slot and a budget."""
        return self.state in _IN_FLIGHT

    @property
    def ended(self) -> bool:
        """No move is left."""
        return self.state not in TASK_MOVES

    def move(self, to: TaskState) -> None:
        """Go to another state; `IllegalMove` when the table does not have that move."""
        if to not in TASK_MOVES.get(self.state, ()):
            raise IllegalMove(self.task.id, self.history, to)
        self.history.append(to)
        self.state = to

    def outcome(self) -> TaskOutcome:
        """Return how it ended."""
        status = _STATUS[self.state]
        artifact = self.artifact
        if artifact is None and self.context is not None and self.context.kept:
            artifact = Artifact(self.context.kept, partial=True)
        return _make_outcome(
            self.entry.task.id, status, artifact, self.verdict, self.attempts, self.member, self.usage, self.warnings,
            self.error,
        )  # fmt: skip


def upstream_of(task: Task, records: Mapping[str, TaskRecord]) -> dict[str, Artifact]:
    """Return the accepted artifacts of a task's dependencies, by task id, in the order of `depends_on`."""
    return {
        dependency: record.artifact
        for dependency in task.depends_on
        if (record := records[dependency]).artifact is not None and record.entry.accepted
    }
