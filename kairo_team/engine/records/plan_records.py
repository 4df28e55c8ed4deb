"""The recorded steps of a plan's tasks: their keys and values, and what a replay takes from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar, cast

from kairo_team._util.frozen import EMPTY
from kairo_team._util.masking import is_any_secret, masked
from kairo_team.budget import NO_USAGE, Budget, HaltReason, Usage
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.results import Attempt, TaskOutcome
from kairo_team.tasks import Task, TaskGraph
from kairo_team.verdicts import EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.contracts import Records
    from kairo_team.governance.ledger import Units

T = TypeVar("T")

_PLAN: Final = re.compile(r"plan:(\d+)")
"""Matches the key of a plan, or of a replan."""
MISSING: Final = object()
"""Stands for a step that is not recorded."""
RAISED_BUDGET: Final = "budget"
"""The key of a run's budget once it differs from the initial one."""

TRACE: Final = "trace"
"""The key of the W3C trace context of the run's first session that was traced."""


class Unpaid(NamedTuple):
    """Why a task never got its budget; a recorded step."""

    error: str
    halted: bool
    """True: a budget was used up. False: budget was left, but set aside for others."""


class CutShort(NamedTuple):
    """A recorded step: an attempt or a review that the run's end, or a question, interrupted before its end."""

    member: str
    usage: Usage
    """Usage of the whole task at that time."""
    artifact: Artifact | None
    """The kept text of the member, as a partial artifact."""
    beyond: Usage = NO_USAGE
    """What an attempt that waits for a person had spent apart from its calls and the runs inside it."""


class Carved(NamedTuple):
    """A recorded step: the budget set aside for a task with a member."""

    member: str
    guarantee: Units


class PlanFailed(NamedTuple):
    """A recorded step in the place of a plan: why planning failed."""

    error: str
    refused: bool


class Cancellation(NamedTuple):
    """A recorded step: a task was cancelled."""

    reason: str
    started: bool = True
    """False: the task had not started."""


class EarlyEnd(NamedTuple):
    """A recorded step: the cause of a run's end before all its tasks had ended."""

    halt: HaltReason | None
    reason: str | None
    """Why the run was killed, aborted or concluded, in words."""
    aborted: bool
    concluded: bool = False
    """Whether the coordinator needed nothing more."""
    unended: Mapping[str, str | None] = EMPTY
    """The tasks that had not ended, each with the member that had it in flight; None: not in flight."""
    ended: int = 0
    """Number of tasks that had ended."""
    output: Artifact | None = None
    """The run's output as the coordinator had set it."""


class Added(NamedTuple):
    """A recorded step: tasks added to a plan during its run."""

    plan: int
    """Number of the plan that the tasks were added to."""
    tasks: tuple[Task, ...]
    by: str | None = None
    """The task in whose body, or by whose end, the plan grew; None without such a task."""
    number: int = 0
    """Number among the changes of the plan; 0 for the growth of a map or a loop, which follows from other steps."""


class Replan(NamedTuple):
    """A recorded step: a plan that replaced the tasks that had not started."""

    failing: str
    """The task that was about to fail."""
    replaced: tuple[str, ...]
    graph: TaskGraph | None
    """The remaining and the new tasks; None if no new plan was made."""
    problem: str = ""
    """Why no new plan was made."""
    number: int = 0
    """Number among the changes of the plan."""


class RecordedStart(Enum):
    """How a task started in the recorded run, if its budget could be paid."""

    NEVER = "never"
    """Not at all: the run ended, or was replanned, before."""
    PAID = "paid"
    """With an attempt that is recorded: its cost was paid then."""


def without_secrets(step: T) -> T:
    """Return a step with secrets masked where it is only displayed: errors, findings, reasons.

    What later work reads, such as an attempt's output, is unchanged; an artifact with secrets has a masked copy.
    """
    if not is_any_secret():
        return step
    if isinstance(step, Attempt):
        clean, made = masked(step._replace(output=None, ended_by=None)), masked(step.shown or step.artifact)
        shown = None if made == step.artifact else made
        return cast("T", clean._replace(output=step.output, ended_by=step.ended_by, shown=shown))
    if isinstance(step, EarlyEnd):
        return cast("T", step._replace(reason=masked(step.reason)))
    if isinstance(step, Replan):
        return cast("T", step._replace(problem=masked(step.problem)))
    is_shown = isinstance(step, TaskOutcome | EvaluationVerdict | Unpaid | Cancellation | str)
    return masked(step) if is_shown else step


def recorded_budget(journal: Records, begun: Budget, earlier: Budget | None) -> Budget:
    """Return a run's budget: the initial one, or the one it was raised to, here or in `earlier` sessions."""
    budget = cast("Budget", journal.get(RAISED_BUDGET, begun)) if earlier is None else earlier
    if budget != begun:
        journal.put(RAISED_BUDGET, budget)
    return budget


def recorded_end(journal: Records) -> EarlyEnd | None:
    """Return what ended the recorded run before all its tasks had ended; None if nothing did."""
    found = journal.get("end", None)
    return found if isinstance(found, EarlyEnd) else None


def recorded_plan(steps: Mapping[str, object]) -> TaskGraph | None:
    """Return a run's latest plan by its recorded steps; None if none was made.

    That is the last whole plan with the additions and replans since, in the order of changes.
    """
    plans = {int(found[1]): made for key, made in steps.items() if (found := _PLAN.fullmatch(key))}
    first = max((number for number, made in plans.items() if isinstance(made, TaskGraph)), default=0)
    plan = plans.get(first)
    if not isinstance(plan, TaskGraph):
        return None
    changes: dict[int, Sequence[Task]] = {}
    for number, made in plans.items():
        if number > first and isinstance(made, Replan) and made.graph is not None:
            changes[made.number] = made.graph.tasks
    grown: list[Sequence[Task]] = []
    for made in steps.values():
        if isinstance(made, Added) and made.plan >= first:
            if made.number:
                changes[made.number] = made.tasks
            else:
                grown.append(made.tasks)
    there = {task.id for task in plan.tasks}
    added = (*(tasks for _, tasks in sorted(changes.items())), *grown)
    new = {task.id: task for tasks in added for task in tasks if task.id not in there}
    return plan.grown(new.values())


class PlanRecords:
    """The recorded steps of one plan's tasks, and what a replay derives from them."""

    __slots__ = ("_journal", "_plan", "earlier", "early_end", "replaced")
    is_new: ClassVar[bool] = False
    """Whether nothing is recorded yet."""

    def __init__(self, journal: Records, plan: int, earlier: Mapping[str, TaskOutcome] = EMPTY) -> None:
        self._journal = journal
        self._plan = plan
        self.earlier = earlier
        """Task outcomes at the end of an earlier session of the run, by id."""
        self.early_end = None if self.is_new else recorded_end(journal)
        """The cause of the recorded run's end before all its tasks had ended; None if there was none."""
        self.replaced: Collection[str] = ()
        """Tasks that the recorded run never started, because a later plan replaced them."""

    def put(self, key: str, step: T) -> T:
        """Record a step and return it as recorded: whatever is derived from it must not differ in a replay."""
        recorded = without_secrets(step)
        self._journal.put(key, recorded)
        return recorded

    def key(self, kind: str, task_id: str, number: int) -> str:
        """Name a step of a task; `number` counts every attempt of the task and never restarts."""
        return f"{kind}:{self._plan}:{task_id}:{number}"

    def recall(self, key: str) -> Any:
        """Return the recorded step, or `MISSING`."""
        return self._journal.get(key, MISSING)

    # ------------------------------------------------------------------ starts

    def start_of(self, task_id: str) -> RecordedStart | Unpaid | None:
        """Return how a task started in the recorded run, or why its budget could not be paid; None: it starts now."""
        unpaid, was_attempted = self._recall_of(Unpaid, "unpaid", task_id), self.was_attempted(task_id)
        untried = self.recall(self._task_key("untried", task_id)) is not MISSING
        had_begun = untried or self.early_end is None or self.had_in_flight(task_id) is not None
        if task_id in self.replaced or not (unpaid or was_attempted or had_begun):
            return RecordedStart.NEVER
        return unpaid or (RecordedStart.PAID if was_attempted else None)

    def put_unpaid(self, task_id: str, unpaid: Unpaid) -> None:
        """Record that a task's budget could not be paid."""
        self.put(self._task_key("unpaid", task_id), unpaid)

    def carved(self, task_id: str, number: int, member: str) -> Units | None:
        """Return what was set aside for a task with a member for its `number`th budget; None if nothing."""
        found = self.recall(self.key("carved", task_id, number))
        return found.guarantee if isinstance(found, Carved) and found.member == member else None

    def put_carved(self, task_id: str, number: int, member: str, guarantee: Units) -> None:
        """Record what is set aside for a task with a member."""
        self.put(self.key("carved", task_id, number), Carved(member, guarantee))

    def took(self, task_id: str, took: Units) -> Units:
        """Return what a task took, as recorded; record it if it is not."""
        key = self._task_key("took", task_id)
        # A replay cannot recompute this: the most that was held at once is not recorded.
        recorded = self.recall(key)
        if recorded is MISSING:
            self.put(key, took)
        return took if recorded is MISSING else cast("Units", recorded)

    def was_attempted(self, task_id: str) -> bool:
        """Return whether an attempt at the task is recorded."""
        return self._first_member(task_id) is not None

    def bound(self, bound: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        """Bind each task that was begun before to the member that had it: other members may be free now."""
        first = {task_id: self._first_member(task_id) or self.had_in_flight(task_id) for task_id in bound}
        return {task_id: (member,) if (member := first[task_id]) in able else able for task_id, able in bound.items()}

    def _first_member(self, task_id: str) -> str | None:
        first = self.recall(self.key("attempt", task_id, 1))
        return first.member if isinstance(first, Attempt | CutShort) else None

    # ------------------------------------------------------------------ ends

    def ended_before(self, key: str) -> bool:
        """Return whether the recorded run ended before it made a step; the caller then waits for that end."""
        return self.early_end is not None and self.recall(key) is MISSING

    def ended_in(self, key: str) -> bool:
        """Return whether the recorded run ended during a step."""
        return self.early_end is not None and self.recall(key) is not MISSING

    def has_caught_up(self, stands_as_then: Callable[[str], bool], ended: int) -> bool:
        """Return whether as many tasks have ended as when the recorded run ended, and the others have the same state.

        `stands_as_then` returns whether the task of an id has the same state.
        """
        early = self.early_end
        return early is not None and ended >= early.ended and all(map(stands_as_then, early.unended))

    def is_called_off(self, task_id: str) -> bool:
        """Return whether the coordinator of the recorded run concluded it before the task ended."""
        early = self.early_end
        return early is not None and early.concluded and task_id in early.unended

    def had_open(self, task_id: str) -> bool:
        """Return whether the task had not ended when the recorded run came to an early end."""
        return self.early_end is not None and task_id in self.early_end.unended

    def had_in_flight(self, task_id: str) -> str | None:
        """Return the member that had the task in flight when the recorded run came to an early end; None otherwise."""
        return None if self.early_end is None else self.early_end.unended.get(task_id)

    def skip_reason(self, task_id: str, reason: str) -> str:
        """Return why a task is skipped, as recorded; record `reason` if nothing is."""
        key = self._task_key("skipped", task_id)
        # Dependencies may end in another order now, which would give another reason.
        recorded = self.recall(key)
        return self.put(key, reason) if recorded is MISSING else str(recorded)

    def put_untried(self, task_id: str) -> None:
        """Record that a task ended without an attempt."""
        self.put(self._task_key("untried", task_id), True)

    def put_cut(self, task_id: str) -> None:
        """Record that a task that failed as the run ended was cut short."""
        self.put(self._task_key("cut", task_id), True)

    def was_cut(self, task_id: str) -> bool:
        """Return whether `put_cut` was recorded for the task."""
        return self.recall(self._task_key("cut", task_id)) is not MISSING

    # ------------------------------------------------------------------ cancellations

    def cancelled(self, task_id: str) -> Cancellation | None:
        """Return why the task was cancelled, as recorded; None if it was not."""
        return self._recall_of(Cancellation, "cancelled", task_id)

    def put_cancelled(self, task_id: str, reason: str, *, started: bool) -> None:
        """Record that the task was cancelled."""
        self.put(self._task_key("cancelled", task_id), Cancellation(reason, started))

    def put_cancelled_in(self, key: str, reason: str) -> None:
        """Record that a task was cancelled before it received the result of its step `key`, which may be recorded."""
        self.put(f"{key}:cancelled", Cancellation(reason))

    def cancelled_in_flight(self, task_id: str, key: str | None = None) -> str | None:
        """Return why the task was cancelled in flight, before it had the result of step `key`; None if it was not."""
        found = MISSING if key is None else self.recall(f"{key}:cancelled")
        if found is MISSING and (key is None or self.recall(key) is MISSING):
            found = self.cancelled(task_id)
        return found.reason if isinstance(found, Cancellation) and found.started else None

    def _recall_of(self, kind: type[T], name: str, task_id: str) -> T | None:
        found = self.recall(self._task_key(name, task_id))
        return found if isinstance(found, kind) else None

    def _task_key(self, kind: str, task_id: str) -> str:
        return f"{kind}:{self._plan}:{task_id}"


class NewPlanRecords(PlanRecords):
    """The records of a plan that this session made: there is nothing to replay, so nothing is looked up."""

    __slots__ = ()
    is_new: ClassVar[bool] = True

    def recall(self, key: str) -> Any:
        """Return `MISSING`."""
        return MISSING


NO_STEPS: Final = NewPlanRecords(MemoryRecords(), 0)
"""Records for tasks without a plan."""
