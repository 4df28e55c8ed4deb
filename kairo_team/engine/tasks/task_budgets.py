"""What a task's share of a budget is: by its weight, and at least what it is expected to need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kairo_team.budget import Budget, BudgetPolicy
from kairo_team.engine.tasks.member_budgets import Needs
from kairo_team.engine.tasks.ready_tasks import Entry, group_of, part_of_shared
from kairo_team.engine.tasks.task_run import PENDING, TaskRun
from kairo_team.errors import InsufficientBudget
from kairo_team.governance.ledger import NOTHING, Units, larger, units_of
from kairo_team.tasks import exact_weight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kairo_team.engine.records.suspension import EarlierSessions
    from kairo_team.governance.governor import Governor


class TaskBudgets:
    """Carves the budgets of a plan's tasks from the budgets of their members."""

    def __init__(
        self, governors: Mapping[str, Governor], policy: BudgetPolicy, earlier: EarlierSessions, weight: int
    ) -> None:
        """Take the members' governors by name, and the weight of all tasks."""
        self._governors = governors
        self._limited = {member for member, governor in governors.items() if governor.limited}
        self._policy = policy
        self._earlier = earlier
        self._needs = Needs(governors, policy)
        self._group_needs: dict[str, Needs] = {}
        """Expected needs of the tasks of a map or a loop with a budget, by its id."""
        self.weight_left = weight
        """The weight of the tasks that have not started and still may."""

    def carve(self, task_run: TaskRun, member: str, *, paid: bool, active: int) -> Units | InsufficientBudget:
        """Carve the task's budget; return its guarantee, or the error. A recorded amount is carved again.

        `paid`: nothing has to be set aside. `active` is the number of tasks dispatched and not ended.
        """
        records, task_id, number = task_run.records, task_run.task.id, task_run.carvings + 1
        recorded = None if records.is_new else records.carved(task_id, number, member)
        if recorded is not None:
            parent, ceiling = self._governors[member], task_run.ceiling_with(member)
            again = self._earlier.carve_again(parent, task_id, ceiling, recorded, task_run.entry.shared)
            if again is not None:
                task_run.governor, task_run.carvings = again, number
                return recorded
        got = self._carve_now(task_run, member, paid=paid, active=active)
        if not isinstance(got, InsufficientBudget):
            task_run.carvings = number
            if member in self._limited or task_run.entry.shared is not None:
                records.put_carved(task_id, number, member, got)
        return got

    def _carve_now(self, task_run: TaskRun, member: str, *, paid: bool, active: int) -> Units | InsufficientBudget:
        """Carve the task's budget from current money; return its guarantee, or the error.

        A starting task gets at least its expected need. It gets less only if nothing is in flight that could give
        budget back, or if a task is in flight and no need is known yet.
        """
        task = task_run.task
        starting = task_run.state is PENDING
        weight = exact_weight(task.weight)
        # A task that starts is still part of what is left; one in flight was subtracted at its start.
        part = weight / (self.weight_left if starting else self.weight_left + weight)
        group = group_of(task_run.entry)
        least = self._needs.of(member) if starting and not paid and member in self._limited else NOTHING
        if group is not None and starting and not paid:
            least = larger(least, self._group_needs[group.task.id].of(group.task.id))
        got = self._carve_part(task_run, member, part, least)
        if starting and isinstance(got, InsufficientBudget):
            expected = [(self._needs, member)]
            if group is not None:
                expected.append((self._group_needs[group.task.id], group.task.id))
            if any(needs.start_with_less(name, active) for needs, name in expected):
                got = self._carve_part(task_run, member, part, NOTHING)
        if paid and isinstance(got, InsufficientBudget):
            got = self._carve_part(task_run, member, 0.0, NOTHING)
        return got

    def _carve_part(self, task_run: TaskRun, member: str, part: float, least: Units) -> Units | InsufficientBudget:
        shared = task_run.entry.shared
        try:
            task_run.governor, guarantee = self._governors[member].carve_share(
                task_run.task.id,
                task_run.ceiling_with(member),
                part,
                self._policy.reserve,
                least,
                shared=shared,
                shared_part=1.0 if shared is None else part_of_shared(task_run.entry),
            )
        except InsufficientBudget as short:
            return short.with_traceback(None)  # the traceback would keep this frame alive
        return guarantee

    def share(self, task_run: TaskRun, root: Governor) -> None:
        """Let the tasks of a map or a loop share its budget, and the budget of what it is part of."""
        parts, outer = task_run.entry.parts, task_run.entry.shared
        assert parts is not None, "a map or a loop has parts"
        task_id, budget = task_run.task.id, task_run.task.budget
        if budget is None:
            parts.shared = outer
            return
        shared = root.beside(task_id, budget) if outer is None else outer.carve_share(task_id, budget, 0.0, 0.0)[0]
        parts.shared = shared
        self._earlier.share(task_id, shared, outer)
        self._group_needs[task_id] = Needs({task_id: shared}, replace(self._policy, reserve=0.0))

    def take_weight(self, entry: Entry, weight: int) -> None:
        """Subtract the weight of a task that has started, or never will, from what is left."""
        self.weight_left -= weight
        parent = entry.parent
        while parent is not None and parent.parts is not None:
            parent.parts.unstarted -= weight
            parent = parent.parent

    def set_more_aside(self, task_run: TaskRun, governor: Governor, dimension: str, asked: Any) -> Units:
        """Set more aside for a halted task: its share, or `asked` if that is more; return the amount."""
        weight = exact_weight(task_run.task.weight)
        # All other units of this budget are 0.
        needs = 0 if asked is None else sum(units_of(Budget(**{dimension: asked})))
        got = governor.top_up_share(dimension, weight / (self.weight_left + weight), needs)
        records, guarantee = task_run.records, units_of(governor.guarantee)
        records.put_carved(task_run.task.id, task_run.carvings, task_run.member or "", guarantee)
        return got

    def learn(self, task_run: TaskRun, *, ran_out: bool) -> None:
        """Update the expected needs from a task that has ended; `ran_out`: it failed because its budget ran out."""
        governor, member = task_run.governor, task_run.member
        group = group_of(task_run.entry)
        if governor is None or member is None or (member not in self._limited and group is None):
            return
        took = task_run.records.took(task_run.task.id, governor.took)
        self._needs.learn(member, took, ran_out=ran_out)
        if group is not None:
            self._group_needs[group.task.id].learn(group.task.id, took, ran_out=ran_out)
