"""What a run's journal says of its tasks: keys, who tried what, and which task could not be paid for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kairo_team.attempts import Attempt

if TYPE_CHECKING:
    from kairo_team.contracts import Journal


class Unpaid(NamedTuple):
    """Why a task never got its budget; a recorded step."""

    error: str
    halted: bool
    """A budget was used up; otherwise it was there, but set aside for others."""


class TaskRecords:
    """The recorded steps of one plan's tasks. Without `replaying` there are none yet, and none is looked for."""

    __slots__ = ("_journal", "_plan", "replaying")

    def __init__(self, journal: Journal, plan: int, *, replaying: bool) -> None:
        self._journal = journal
        self._plan = plan
        self.replaying = replaying
        """Some steps may be recorded already."""

    def attempt_key(self, task_id: str, number: int) -> str:
        """Name a try; `number` counts every try of the task and never restarts."""
        return f"attempt:{self._plan}:{task_id}:{number}"

    def bound(self, bound: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        """Leave each task that was tried before to the member that tried it: others might be free in a replay."""
        if not self.replaying:
            return bound
        first = {task_id: self._first_member(task_id) for task_id in bound}
        return {task_id: (member,) if (member := first[task_id]) in able else able for task_id, able in bound.items()}

    def was_tried(self, task_id: str) -> bool:
        """Say whether a try of the task is recorded."""
        return self.replaying and self._first_member(task_id) is not None

    def unpaid(self, task_id: str) -> Unpaid | None:
        """Return why the task could not be paid for, if that is recorded."""
        found = self._journal.get(self._unpaid_key(task_id), None) if self.replaying else None
        return found if isinstance(found, Unpaid) else None

    def put_unpaid(self, task_id: str, error: str, *, halted: bool) -> None:
        """Record that the task could not be paid for."""
        self._journal.put(self._unpaid_key(task_id), Unpaid(error, halted))

    def _unpaid_key(self, task_id: str) -> str:
        return f"unpaid:{self._plan}:{task_id}"

    def _first_member(self, task_id: str) -> str | None:
        first = self._journal.get(self.attempt_key(task_id, 1), None)
        return first.member if isinstance(first, Attempt) else None
