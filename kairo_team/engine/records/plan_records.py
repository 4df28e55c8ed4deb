"""What a run's journal says of its tasks: keys, who tried what, and how the run came to its end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team._util.frozen import EMPTY
from kairo_team.results import Attempt

if TYPE_CHECKING:
    from kairo_team.budget import HaltReason, Usage
    from kairo_team.contracts import Journal
    from kairo_team.results import Artifact, TaskOutcome
    from kairo_team.tasks import Task

MISSING: Final = object()
"""Nothing is recorded."""


class Unpaid(NamedTuple):
    """Why a task never got its budget; a recorded step."""

    error: str
    halted: bool
    """A budget was used up; otherwise it was there, but set aside for others."""


class CutShort(NamedTuple):
    """An attempt or a review that the end of the whole run interrupted; a recorded step."""

    member: str
    usage: Usage
    """All the task had spent by then."""
    artifact: Artifact | None
    """What the member had kept."""


class PlanFailed(NamedTuple):
    """Why no plan was made; a recorded step in the place of the plan."""

    error: str
    refused: bool


class Cancellation(NamedTuple):
    """A task was cancelled; a recorded step."""

    reason: str
    started: bool = True
    """False: it was still waiting to be started."""


class EarlyEnd(NamedTuple):
    """What ended a run before all its tasks had ended; a recorded step."""

    halt: HaltReason | None
    reason: str | None
    """Why it was killed, aborted or concluded, in words."""
    aborted: bool
    concluded: bool = False
    """Its coordinator needed nothing more."""
    unended: Mapping[str, str | None] = EMPTY
    """The tasks that had not ended by then, and who had them in flight."""
    ended: int = 0
    """How many tasks had ended by then."""
    output: Artifact | None = None
    """What its coordinator had set as the run's output by then."""


class Added(NamedTuple):
    """Tasks that were added to a plan while its run went on; a recorded step."""

    plan: int
    """The number of the plan they were added to."""
    tasks: tuple[Task, ...]


class PlanRecords:
    """The recorded steps of one plan's tasks. Without `replaying` there are none yet, and none is looked for."""

    __slots__ = ("_journal", "_plan", "earlier", "early_end", "replaced", "replaying")

    def __init__(
        self, journal: Journal, plan: int, *, replaying: bool, earlier: Mapping[str, TaskOutcome] = EMPTY
    ) -> None:
        self._journal = journal
        self._plan = plan
        self.earlier = earlier
        """How tasks stood when an earlier session of the run ended, by id."""
        self.replaying = replaying
        """Some steps may be recorded already."""
        self.early_end: Any = journal.get("end", None) if replaying else None
        """How the recorded run ended, if that was before its time."""
        self.replaced: Collection[str] = ()
        """Tasks that the recorded run never started: a later plan took their place."""

    def key(self, kind: str, task_id: str, number: int) -> str:
        """Name a step of a task; `number` counts every try of the task and never restarts."""
        return f"{kind}:{self._plan}:{task_id}:{number}"

    def was_made(self, kind: str, task_id: str, number: int) -> bool:
        """Say whether a step of a task is recorded."""
        return self.recall(self.key(kind, task_id, number)) is not MISSING

    def recall(self, key: str) -> Any:
        """Return what is recorded, or `MISSING`."""
        return self._journal.get(key, MISSING) if self.replaying else MISSING

    def put(self, key: str, made: object) -> None:
        """Record a step."""
        self._journal.put(key, made)

    def was_never(self, key: str) -> bool:
        """Say whether the recorded run ended before it came to a step."""
        return self.early_end is not None and self.recall(key) is MISSING

    def put_cut(self, task_id: str) -> None:
        """Record that a task that failed as the run ended was cut short."""
        self.put(self._task_key("cut", task_id), True)

    def was_cut(self, task_id: str) -> bool:
        """Say whether that is recorded."""
        return self.recall(self._task_key("cut", task_id)) is not MISSING

    def bound(self, bound: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        """Leave each task that was tried before to the member that tried it: others might be free in a replay."""
        if not self.replaying:
            return bound
        first = {task_id: self._first_member(task_id) for task_id in bound}
        return {task_id: (member,) if (member := first[task_id]) in able else able for task_id, able in bound.items()}

    def was_tried(self, task_id: str) -> bool:
        """Say whether a try of the task is recorded."""
        return self.replaying and self._first_member(task_id) is not None

    def holds_back(self, task_id: str) -> bool:
        """Say whether the recorded run ended, or was planned anew, without the task having been started."""
        if not self.replaying:
            return False
        if task_id in self.replaced:
            return True
        if self.concluded and not self.is_called_off(task_id):
            return False  # its coordinator ended it without a try
        return self.early_end is not None and self.unpaid(task_id) is None and not self.was_tried(task_id)

    @property
    def concluded(self) -> bool:
        """Whether the recorded run was ended by its coordinator, that needed nothing more."""
        return isinstance(self.early_end, EarlyEnd) and self.early_end.concluded

    def is_called_off(self, task_id: str) -> bool:
        """Say whether the recorded run was concluded without the task."""
        return self.concluded and task_id in self.early_end.unended

    def had_in_flight(self, task_id: str) -> str | None:
        """Return the member that had the task in flight when the recorded run came to an early end; None otherwise."""
        return None if self.early_end is None else self.early_end.unended.get(task_id)

    def unpaid(self, task_id: str) -> Unpaid | None:
        """Return why the task could not be paid for, if that is recorded."""
        found = self.recall(self._task_key("unpaid", task_id))
        return found if isinstance(found, Unpaid) else None

    def put_unpaid(self, task_id: str, error: str, *, halted: bool) -> None:
        """Record that the task could not be paid for."""
        self.put(self._task_key("unpaid", task_id), Unpaid(error, halted))

    def cancelled(self, task_id: str) -> Cancellation | None:
        """Return why the task was cancelled, if that is recorded."""
        found = self.recall(self._task_key("cancelled", task_id))
        return found if isinstance(found, Cancellation) else None

    def put_cancelled(self, task_id: str, reason: str, *, started: bool) -> None:
        """Record that the task was cancelled."""
        self.put(self._task_key("cancelled", task_id), Cancellation(reason, started))

    def _task_key(self, kind: str, task_id: str) -> str:
        return f"{kind}:{self._plan}:{task_id}"

    def _first_member(self, task_id: str) -> str | None:
        first = self.recall(self.key("attempt", task_id, 1))
        return first.member if isinstance(first, Attempt | CutShort) else None
