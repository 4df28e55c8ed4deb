"""What a suspended run resumes from, and what its earlier sessions have spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team._util.frozen import EMPTY
from kairo_team.budget import NO_USAGE, Budget, Usage, difference, least_of
from kairo_team.errors import InsufficientBudget
from kairo_team.tasks import TaskGraph, TaskStatus

if TYPE_CHECKING:
    from kairo_team.contracts import Records
    from kairo_team.engine.records.earlier_calls import EarlierCalls
    from kairo_team.engine.records.questions import Inbox
    from kairo_team.governance.governor import Governor
    from kairo_team.governance.ledger import Units
    from kairo_team.results import ModelUsage, TaskOutcome
    from kairo_team.team import TeamExecutionRequest


WAITING: Final = (TaskStatus.PENDING, TaskStatus.IN_FLIGHT, TaskStatus.SUSPENDED)
"""Statuses of a task that has not ended when its run is suspended; in flight are maps and loops, whose parts wait."""


class Suspension(NamedTuple):
    """Everything that a suspended run resumes from."""

    request: TeamExecutionRequest
    digests: Mapping[str, str]
    """Digests that must be unchanged on resume, by name; empty if they were compared already."""
    journal: Records
    usage: Usage
    budget: Budget
    """The run's budget, including top-ups."""
    seq: int
    inbox: Inbox
    outcomes: Mapping[str, TaskOutcome]
    """Task outcomes so far, by task id."""
    plan: TaskGraph | None
    """The latest plan."""
    spent_by: Mapping[str, Usage]
    """Usage by member name."""
    spent_on: Mapping[str, Usage]
    """Usage by task id."""
    by_model: Mapping[str, ModelUsage]
    calls: EarlierCalls
    """The calls that earlier sessions made."""


class EarlierSessions:
    """What earlier sessions of a run reached and spent.

    That usage is booked on the run, or on a member with its own budget, until its task is known; and on the budget of
    the map or the loop that the task grew from.
    """

    def __init__(self, governor: Governor, earlier: Suspension | None) -> None:
        self.outcomes: Mapping[str, TaskOutcome] = earlier.outcomes if earlier else EMPTY
        """Task outcomes at the end of the last session, by task id."""
        self.plan = earlier.plan if earlier else None
        """The plan at the end of the last session."""
        self._spent_by: Mapping[str, Usage] = earlier.spent_by if earlier else EMPTY
        self._spent_in = _by_group(earlier.spent_on) if earlier else {}
        self._run = _Account(governor, earlier.usage if earlier else NO_USAGE)
        self._accounts: dict[str, _Account] = {}
        self._shared: dict[Governor, _Account] = {}
        """Accounts by the shared governor of a map or a loop."""

    @property
    def ended(self) -> tuple[tuple[str, str], ...]:
        """The tasks that have ended, each with its status."""
        return tuple((name, one.status.value) for name, one in self.outcomes.items() if one.status not in WAITING)

    def carve_again(
        self, parent: Governor, name: str, ceiling: Budget | None, guarantee: Units, shared: Governor | None
    ) -> Governor | None:
        """Carve a governor with the guarantee of the recorded run; None if that does not fit."""
        every = (self._run, *self._accounts.values(), *self._shared.values())
        accounts = [one for one in every if one.left != NO_USAGE]
        # Released meanwhile, because usage whose task is not known yet is also part of what was guaranteed then.
        for account in accounts:
            account.governor.restore(account.left, -1)
        try:
            return parent.carve_with(name, ceiling, guarantee, shared=shared)
        except InsufficientBudget:
            return None
        finally:
            for account in accounts:
                account.governor.restore(account.left)

    def carve(self, member: str, budget: Budget) -> Governor:
        """Carve the governor of a member with its own budget; earlier spending counts against that budget."""
        spent = replace(self._spent_by.get(member, NO_USAGE), seconds=0.0)
        governor = self._run.governor.carve_again(member, budget, spent)
        self._run.left = difference(self._run.left, spent, 0.0)
        self._accounts[member] = _Account(governor, spent)
        return governor

    def share(self, task_id: str, shared: Governor, outer: Governor | None) -> None:
        """Book what tasks of a map or loop have spent on its budget; `outer`, the budget around it, gives that back."""
        spent = self._spent_in.get(task_id)
        if spent is not None:
            self._give_back_shared(spent, outer)
            shared.restore(spent)
            self._shared[shared] = _Account(shared, spent)

    def book(self, governor: Governor, spent: Usage, member: str | None = None, shared: Governor | None = None) -> None:
        """Book what a recorded step spent; release it from what holds it: run or member, and map or loop."""
        governor.restore(spent)
        self._give_back(spent, member, shared)

    def book_again(self, governor: Governor, spent: Usage, member: str | None, shared: Governor | None) -> None:
        """Book what a repeated step spent before: its recorded calls cost nothing, and its loops are counted again."""
        governor.restore(replace(spent, loops=0))
        governor.repeat_steps(spent.loops)
        self._give_back(spent, member, shared)

    def _give_back(self, spent: Usage, member: str | None, shared: Governor | None) -> None:
        self._accounts.get(member or "", self._run).give_back(spent)
        self._give_back_shared(spent, shared)

    def _give_back_shared(self, spent: Usage, shared: Governor | None) -> None:
        account = None if shared is None else self._shared.get(shared)
        if account is not None:
            account.give_back(spent)
            if account.left == NO_USAGE:
                del self._shared[account.governor]


@dataclass(slots=True)
class _Account:
    """Usage of earlier sessions that is not yet attributed to a task."""

    governor: Governor
    left: Usage

    def give_back(self, spent: Usage) -> None:
        moved = least_of(spent, self.left)
        if moved != NO_USAGE:
            self.left = difference(self.left, moved, 0.0)
            self.governor.restore(moved, -1)


def _by_group(spent_on: Mapping[str, Usage]) -> dict[str, Usage]:
    """Return what was spent on all tasks that grew from each map and loop, by its id: `read` for `read.0001`."""
    found: dict[str, Usage] = {}
    for task_id, spent in spent_on.items():
        group = task_id.rpartition(".")[0]
        while group:
            found[group] = found.get(group, NO_USAGE) + replace(spent, seconds=0.0)
            group = group.rpartition(".")[0]
    return found
