"""What comes into a run from outside while it works: directives, cancelled tasks, more budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kairo_team import events
from kairo_team.budget import Budget, to_picodollars
from kairo_team.errors import Misuse, known
from kairo_team.states import PENDING, TaskState

if TYPE_CHECKING:
    from kairo_team.contracts import Journal
    from kairo_team.dispatch import Dispatcher
    from kairo_team.governance.governor import Governor
    from kairo_team.task_record import TaskRecord

_WARN_AT: Final = 0.8
"""The share of a limit whose use is told."""


class Steering:
    """Acts on what whoever watches one run asks for. `governor` is the run's."""

    def __init__(self, governor: Governor, journal: Journal, emit: Callable[..., None]) -> None:
        self.directives: list[tuple[str | None, str]] = []
        """Task, or None for all of them, and what was asked for; oldest first."""
        self._governor = governor
        self._journal = journal
        self._emit = emit
        self._dispatcher: Dispatcher | None = None
        self._warned: set[str] = set()
        while (told := journal.get(f"steer:{len(self.directives) + 1}", None)) is not None:
            self.directives.append(_directive(told))

    def begin(self, dispatcher: Dispatcher) -> None:
        """Take the tasks of the plan that stands now."""
        self._dispatcher = dispatcher

    def directives_for(self, task_id: str | None, after: int = 0) -> tuple[str, ...]:
        """Return what was asked of a task, oldest first, without the first `after` of the run."""
        return tuple(text for whose, text in self.directives[after:] if whose is None or whose == task_id)

    def steer(self, directive: str, task_id: str | None = None) -> None:
        """Tell running members at their next turn, and put it into every later prompt."""
        if not isinstance(directive, str) or not directive.strip():
            raise ValueError(f"a directive is a text that is not blank, not {directive!r}")
        if task_id is not None:
            self._open_task(task_id)
        self.directives.append((task_id, directive))
        self._journal.put(f"steer:{len(self.directives)}", (task_id, directive))
        self._emit(events.TaskSteered, task_id, None, directive)

    def cancel_task(self, task_id: str, reason: str) -> None:
        """End one task: what never started is SKIPPED, what is in flight is interrupted and CANCELLED."""
        record = self._open_task(task_id)
        dispatcher = self._dispatcher
        assert dispatcher is not None
        if record.state is PENDING:
            record.steps.put_cancelled(task_id, reason)
            dispatcher.end(record, TaskState.SKIPPED, reason)
            return
        record.interrupted = record.interrupted or reason
        if record.context is not None:
            record.context.interrupt(reason)
        elif record.wait is not None:
            record.wait.cancel()

    def top_up(self, budget: Budget) -> None:
        """Raise the run's limit; whatever waits for budget looks again."""
        if not isinstance(budget, Budget):
            raise ValueError(f"top_up takes a Budget, such as kt.Budget(tokens=500), not {budget!r}")
        self._governor.top_up(budget)
        picodollars = None if budget.dollars is None else to_picodollars(budget.dollars)
        self._emit(events.BudgetToppedUp, None, None, budget.tokens, picodollars)
        self._warned.clear()
        if self._dispatcher is not None:
            self._dispatcher.budget_came_back()
            self._dispatcher.wake()

    def warn_of_budget(self) -> None:
        """Tell, once for each limit, that most of it is spent."""
        limits, usage = self._governor.budget, self._governor.usage
        for dimension in ("tokens", "dollars", "loops", "tool_calls"):
            limit = getattr(limits, dimension)
            if not limit or dimension in self._warned:
                continue
            share = float(getattr(usage, dimension) / limit)
            if share >= _WARN_AT:
                self._warned.add(dimension)
                self._emit(events.BudgetWarned, None, None, dimension, share)

    def _open_task(self, task_id: str) -> TaskRecord:
        """Return a task that has not ended; `Misuse` for any other."""
        records: Mapping[str, TaskRecord] = self._dispatcher.records if self._dispatcher is not None else {}
        if task_id not in records:
            raise Misuse(f"no task {task_id!r} in this run's plan; it has {known(records)}")
        record = records[task_id]
        if record.ended or record.state is TaskState.SUSPENDED:
            raise Misuse(f"task {task_id!r} is {record.state}: it can no longer be steered or cancelled")
        return record


def _directive(told: Any) -> tuple[str | None, str]:
    task_id, text = told
    return task_id, text
