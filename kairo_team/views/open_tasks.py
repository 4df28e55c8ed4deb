"""Why open tasks wait, and how long the longest chain of them is. This module uses no terminal."""

from __future__ import annotations

from graphlib import TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team._util.counts import count
from kairo_team.views.text import some_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kairo_team.events import PlannedTask

_NAMED: Final = 2
"""How many dependencies are named."""
BUDGET: Final = "budget"
"""The reason of a wait for budget."""
_REASONS: Final = MappingProxyType({"budget": BUDGET, "retry": "the next attempt"})
"""Words for reasons of a wait; any other reason is written `a slot` or `a member`."""
_TASK: Final = ""
"""The key of a wait of the task as a whole; other keys are the ids of calls and questions."""


class Waits:
    """The open waits of one task, apart from its dependencies."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[str, str] = {}

    @property
    def reason(self) -> str:
        """The wait that began last, such as "a slot"; empty if the task waits for nothing."""
        return next(reversed(self._open.values()), "")

    def take(self, event: events.WorkEvent) -> None:
        """Take in the next event of the task."""
        match event:
            case events.TaskWaiting(waits_for=str(reason)):
                self._open[_TASK] = _REASONS.get(reason, f"a {reason}") + _pause(event.seconds)
            case events.ModelWaiting():
                self._open[event.call_id] = _describe_call(event)
            case events.HumanRequested():
                self._open[event.question.id] = "a person"
            case events.TaskWaiting() | events.TaskAssigned():
                self._open.pop(_TASK, None)
            case events.ModelStarted():
                self._open.pop(event.call_id, None)
            case events.HumanDecided():
                self._open.pop(event.question_id, None)
            case events.AttemptFinished() | events.EvaluationResult() | events.TaskEnded():
                self._open.clear()  # a call that was cut short while it waited has no other end
            case _:
                pass


def _describe_call(event: events.ModelWaiting) -> str:
    """Describe what a call waits for."""
    if event.waits_for == "retry":
        return f"another try of {event.model}{_pause(event.seconds, event.error)}"
    return BUDGET if event.waits_for == "budget" else f"rate limit of {event.model}"


def _pause(seconds: float | None, error: str | None = None) -> str:
    """Describe the length of a wait, and its reason: ` (4.0s, rate limited)`; empty if the length is not known."""
    if seconds is None:
        return ""
    return f" ({seconds:.1f}s, {error.replace('_', ' ')})" if error else f" ({seconds:.1f}s)"


def describe_dependencies(depends_on: Sequence[str], still_open: Collection[str]) -> str:
    """Name the dependencies of a task that have not ended: `a, b and 3 more`; empty if all have."""
    return some_of([one for one in depends_on if one in still_open], _NAMED)


class Chains:
    """The chains of dependencies in a plan."""

    def __init__(self, plan: Sequence[PlannedTask]) -> None:
        self._weights = {task.id: task.weight for task in plan}
        self._dependencies = {task.id: task.depends_on for task in plan}
        self._order = tuple(TopologicalSorter(self._dependencies).static_order())

    def longest(self, still_open: Collection[str]) -> int:
        """Return how many tasks are on the heaviest chain of open tasks; 0 in a plan without dependencies."""
        if not any(self._dependencies.values()):
            return 0
        found: dict[str, tuple[float, int]] = {}
        for task_id in self._order:
            if task_id in still_open:
                before = [found[one] for one in self._dependencies.get(task_id, ()) if one in found]
                weight, tasks = max(before, default=(0.0, 0))
                found[task_id] = (weight + self._weights.get(task_id, 1.0), tasks + 1)
        return max(found.values(), default=(0.0, 0))[1]


def describe_chain(tasks: int) -> str:
    """Describe the longest chain that is left."""
    return f"longest chain left: {count(tasks, 'task')}" if tasks else ""
