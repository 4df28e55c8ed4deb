"""Requests to a run from outside while it works: directives, cancelled tasks, more budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final, cast

from kairo_team import events
from kairo_team.budget import Budget, to_dollars, to_picodollars
from kairo_team.engine.records.plan_records import RAISED_BUDGET
from kairo_team.engine.tasks.task_run import PENDING, TaskRun, TaskState
from kairo_team.errors import Misuse, RunFinished, known
from kairo_team.governance.ledger import DIMENSIONS, units_of
from kairo_team.tasks import TaskStatus

if TYPE_CHECKING:
    from kairo_team.engine.records.run_scope import RunScope
    from kairo_team.engine.tasks.dispatcher import Dispatcher
    from kairo_team.errors import PlanRefused

_WARN_AT: Final = 0.8
"""The share of a limit at which a warning is emitted."""


class Steering:
    """Carries out the requests of a run's watchers: directives, cancellations, higher limits."""

    def __init__(self, scope: RunScope, refused: PlanRefused | None = None) -> None:
        """`refused` says why the run has no budget, if so: it ends at once, and is not topped up."""
        self._refused = refused
        self.directives: list[tuple[str | None, str]] = []
        """Task id, or None for all tasks, and the directive; oldest first."""
        self._run_id = scope.request.run_id
        self._governor = scope.governor
        self._journal = scope.journal
        self._kept = scope.kept
        self._emit = scope.emit
        self.on_directive: list[Callable[[str | None, str], object]] = []
        """Called with each directive: the task id, or None for all tasks, and the text."""
        self.dispatcher: Dispatcher | None = None
        """Has the tasks of the current plan."""
        # Without a limit it is 0 units, and `inf` is never reached.
        self._marks: list[float] = [limit * _WARN_AT or inf for limit in units_of(scope.governor.budget)]
        """Usage at which a warning is emitted, in ledger units, by dimension."""
        self.watches = min(self._marks) < inf
        """Whether any limit is left to warn of."""
        while (told := scope.journal.get(f"steer:{len(self.directives) + 1}", None)) is not None:
            task_id, text = cast("tuple[str | None, str]", told)
            self.directives.append((task_id, text))

    def directives_for(self, task_id: str | None, after: int = 0, until: int | None = None) -> tuple[str, ...]:
        """Return the texts of the directives for a task, oldest first, among the run's from `after` to `until`."""
        return tuple(text for whose, text in self.directives[after:until] if whose is None or whose == task_id)

    def steer(self, directive: str, task_id: str | None = None, by: str = "") -> None:
        """Give a directive to running members at their next turn, and put it into every later prompt."""
        self._check_running()
        if not isinstance(directive, str) or not directive.strip():
            raise ValueError(f"a directive is a text that is not blank, not {directive!r}")
        if task_id is not None:
            self._open_task(task_id)
        self.directives.append((task_id, directive))
        self._journal.put(f"steer:{len(self.directives)}", (task_id, directive))
        for tell in tuple(self.on_directive):
            tell(task_id, directive)
        self._emit(events.TaskSteered, task_id, None, directive, by)

    def cancel_task(self, task_id: str, reason: str) -> None:
        """End one task: SKIPPED if it never started; if it is in flight, interrupted and CANCELLED.

        A map or a loop ends with the tasks that it grew into, including those that wait for a person. Open questions of
        these tasks are withdrawn.
        """
        self._check_running()
        task_run = self._open_task(task_id)
        assert self.dispatcher is not None
        self._cancel(task_run, reason, self.dispatcher)

    def _cancel(self, task_run: TaskRun, reason: str, dispatcher: Dispatcher) -> None:
        """End an open task with all it grew into; never raises, so that no part of it is left."""
        task_id, waits = task_run.task.id, task_run.state is TaskState.SUSPENDED
        if task_run.state is PENDING and task_run.earlier is None:
            task_run.records.put_cancelled(task_id, reason, started=False)
            dispatcher.end(task_run, TaskState.SKIPPED, reason)
            return
        # `interrupted` of a waiting task is its question, which the reason replaces.
        task_run.interrupted = reason if waits else task_run.interrupted or reason
        if waits:
            dispatcher.end(task_run, *task_run.real_end(TaskState.CANCELLED, reason, None))
            return
        parts = task_run.entry.parts
        for part in () if parts is None else parts.entries:
            part_run = dispatcher.tasks[part.task.id]
            if not part.ended and not _had_ended(part_run):
                self._cancel(part_run, reason, dispatcher)
        if task_run.context is not None:
            task_run.context.interrupt(reason)
        elif task_run.wait is not None:
            task_run.wait.cancel()

    def top_up(self, budget: Budget, by: str = "") -> None:
        """Raise the run's limit; tasks that wait for budget are tried again."""
        self._check_running()
        if not isinstance(budget, Budget):
            raise ValueError(f"top_up takes a Budget, such as kt.Budget(tokens=500), not {budget!r}")
        if self._refused is not None:
            raise Misuse(f"run {self._run_id!r} cannot be topped up: {self._refused}")
        # First: if the account has less left, it raises, and nothing has changed yet.
        self._set_aside(budget)
        self._governor.top_up(budget)
        self._journal.put(RAISED_BUDGET, self._governor.budget)
        picodollars = None if budget.dollars is None else to_picodollars(budget.dollars)
        self._emit(events.BudgetToppedUp, None, None, budget.tokens, picodollars, by)
        self._watch(budget)
        if self.dispatcher is not None:
            self.dispatcher.changed(budget=True)

    def _set_aside(self, more: Budget) -> None:
        """Set the raised limit aside in the run's account, if the journal has accounts, before anything is spent."""
        set_aside = getattr(self._kept, "set_aside", None)
        if set_aside is None:
            return
        whole = self._governor.budget
        tokens, dollars = whole.tokens, whole.dollars
        if tokens is not None:
            tokens += more.tokens or 0
        if dollars is not None:
            dollars = to_dollars(to_picodollars(dollars) + to_picodollars(more.dollars or 0))
        set_aside(Budget(tokens, dollars))

    def warn_of_budget(self) -> None:
        """Warn once for each limit that is nearly spent, and again after the limit was raised."""
        marks = self._marks
        tokens, picodollars, loops, tool_calls = self._governor.spent
        if tokens >= marks[0] or picodollars >= marks[1] or loops >= marks[2] or tool_calls >= marks[3]:
            self._warn()

    def _warn(self) -> None:
        limits = units_of(self._governor.budget)
        for place, spent in enumerate(self._governor.spent):
            if spent >= self._marks[place]:
                self._marks[place] = inf
                self._emit(events.BudgetWarned, None, None, DIMENSIONS[place], spent / limits[place])
        self.watches = min(self._marks) < inf

    def _watch(self, raised: Budget) -> None:
        """Set the usage at which a warning is emitted, for the limits that were given or raised."""
        limits = units_of(self._governor.budget)
        for place, more in enumerate(units_of(raised)):
            if more and limits[place]:
                self._marks[place] = limits[place] * _WARN_AT
                self.watches = True

    def _check_running(self) -> None:
        """Raise `RunFinished` once the run has its result: a request from another thread may come late."""
        if self._governor.closed:
            raise RunFinished(self._run_id)

    def _open_task(self, task_id: str) -> TaskRun:
        """Return a task that has not ended; `Misuse` for any other."""
        tasks: Mapping[str, TaskRun] = self.dispatcher.tasks if self.dispatcher is not None else {}
        if task_id not in tasks:
            raise Misuse(f"no task {task_id!r} in this run's plan; it has {known(tasks)}")
        task_run = tasks[task_id]
        if task_run.ended or task_run.state is TaskState.SUSPENDED or _had_ended(task_run):
            raise Misuse(f"task {task_id!r} is {task_run.state}: it can no longer be steered or cancelled")
        return task_run


def _had_ended(task_run: TaskRun) -> bool:
    """Return whether a task ended in an earlier session, so that it ends in this one as it did there."""
    return task_run.earlier is not None and task_run.earlier.status is not TaskStatus.SUSPENDED
