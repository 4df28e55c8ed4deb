"""The recorded steps of a plan's tasks: their keys and values, and what a replay takes from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar, cast

from kairo_team._util.frozen import EMPTY
from kairo_team._util.masking import masked
from kairo_team.budget import NO_USAGE
from kairo_team.engine.records.journal import MemoryRecords
from kairo_team.results import Attempt, TaskOutcome
from kairo_team.tasks import TaskGraph
from kairo_team.verdicts import EvaluationVerdict

if TYPE_CHECKING:
    from kairo_team.budget import Budget, HaltReason, Usage
    from kairo_team.contracts import Records
    from kairo_team.governance.ledger import Units
    from kairo_team.results import Artifact
    from kairo_team.tasks import Task

T = TypeVar("T")

_PLAN: Final = re.compile(r"plan:(\d+)")
"""The key of a plan, or of what took the place of a part of one."""
MISSING: Final = object()
"""Nothing is recorded."""
RAISED_BUDGET: Final = "budget"
"""The key of a run's budget once it is not the one it began with."""

TRACE: Final = "trace"
"""The key of the W3C trace context of the run's first session that was traced."""


class Unpaid(NamedTuple):
    """Why a task never got its budget; a recorded step."""

    error: str
    halted: bool
    """A budget was used up; False: there was budget left, but set aside for others."""


class CutShort(NamedTuple):
    """An attempt or a review that has begun and not ended: the run's end, or a question, interrupted it; a step."""

    member: str
    usage: Usage
    """All the task had spent by then."""
    artifact: Artifact | None
    """What the member had kept."""
    beyond: Usage = NO_USAGE
    """What an attempt that waited for a person had spent, but for its calls and the runs inside it."""


class Carved(NamedTuple):
    """What was set aside for a task with a member; a recorded step."""

    member: str
    guarantee: Units


class PlanFailed(NamedTuple):
    """Why no plan was made; a recorded step in the place of the plan."""

    error: str
    refused: bool


class Cancellation(NamedTuple):
    """A task was cancelled; a recorded step."""

    reason: str
    started: bool = True
    """False: it had not been started."""


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
    by: str | None = None
    """The task in whose body, or by whose end, the plan grew; None: none."""
    number: int = 0
    """Its number among the changes of the plan; 0: it follows from others, a map or a loop grew."""


class Replan(NamedTuple):
    """A plan that took the place of what had not started; a recorded step."""

    failing: str
    """The task that was about to fail."""
    replaced: tuple[str, ...]
    graph: TaskGraph | None
    """What stayed, with the new tasks; None when no new plan was to be had."""
    problem: str = ""
    """Why there was none."""
    number: int = 0
    """Its number among the changes of the plan."""


class RecordedStart(Enum):
    """How a task started in the recorded run, where its budget could be paid."""

    NEVER = "never"
    """The run ended, or was planned anew, before."""
    PAID = "paid"
    """An attempt is recorded: its cost was paid then."""


def without_secrets(step: T) -> T:
    """Return a step with the secrets masked in what of it is only shown: errors, findings, reasons.

    What later work reads stays as it is, such as an attempt's output.
    """
    if isinstance(step, Attempt):
        shown = step._replace(output=None, ended_by=None)
        return cast("T", masked(shown)._replace(output=step.output, ended_by=step.ended_by))
    if isinstance(step, EarlyEnd):
        return cast("T", step._replace(reason=masked(step.reason)))
    if isinstance(step, Replan):
        return cast("T", step._replace(problem=masked(step.problem)))
    is_shown = isinstance(step, TaskOutcome | EvaluationVerdict | Unpaid | Cancellation | str)
    return masked(step) if is_shown else step


def recorded_budget(journal: Records, begun: Budget, earlier: Budget | None) -> Budget:
    """Return a run's budget: what it began with, or what it was raised to since, here or in `earlier` sessions."""
    budget = cast("Budget", journal.get(RAISED_BUDGET, begun)) if earlier is None else earlier
    if budget != begun:
        journal.put(RAISED_BUDGET, budget)
    return budget


def recorded_end(journal: Records) -> EarlyEnd | None:
    """Return what ended the recorded run before all its tasks had ended; None if nothing did."""
    found = journal.get("end", None)
    return found if isinstance(found, EarlyEnd) else None


def recorded_plan(steps: Mapping[str, object]) -> TaskGraph | None:
    """Return a run's plan as it stood last, by its recorded steps; None where none was made.

    It is the last whole plan, with what was added to it and what took the place of a part, in the order of changes.
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
    """The recorded steps of one plan's tasks, and what follows from them where the run is replayed."""

    __slots__ = ("_journal", "_plan", "earlier", "early_end", "replaced")
    is_new: ClassVar[bool] = False
    """Nothing is recorded yet."""

    def __init__(self, journal: Records, plan: int, earlier: Mapping[str, TaskOutcome] = EMPTY) -> None:
        self._journal = journal
        self._plan = plan
        self.earlier = earlier
        """How tasks stood when an earlier session of the run ended, by id."""
        self.early_end = None if self.is_new else recorded_end(journal)
        """What ended the recorded run before all its tasks had ended."""
        self.replaced: Collection[str] = ()
        """Tasks that the recorded run never started: a later plan took their place."""

    def put(self, key: str, step: T) -> T:
        """Record a step and return it as it is recorded: what follows from it must not differ in a replay."""
        recorded = without_secrets(step)
        self._journal.put(key, recorded)
        return recorded

    def key(self, kind: str, task_id: str, number: int) -> str:
        """Name a step of a task; `number` counts every attempt of the task and never restarts."""
        return f"{kind}:{self._plan}:{task_id}:{number}"

    def recall(self, key: str) -> Any:
        """Return what is recorded, or `MISSING`."""
        return self._journal.get(key, MISSING)

    def was_made(self, kind: str, task_id: str, number: int) -> bool:
        """Return whether a step of a task is recorded."""
        return self.recall(self.key(kind, task_id, number)) is not MISSING

    # ------------------------------------------------------------------ starts

    def start_of(self, task_id: str) -> RecordedStart | Unpaid | None:
        """Return how a task started in the recorded run, or why its budget could not be paid; None: it starts now."""
        unpaid, was_attempted = self._recall_of(Unpaid, "unpaid", task_id), self.was_attempted(task_id)
        had_begun = self.early_end is None or self.had_in_flight(task_id) is not None or self._ended_untried(task_id)
        if task_id in self.replaced or not (unpaid or was_attempted or had_begun):
            return RecordedStart.NEVER
        return unpaid or (RecordedStart.PAID if was_attempted else None)

    def put_unpaid(self, task_id: str, unpaid: Unpaid) -> None:
        """Record that a task's budget could not be paid."""
        self.put(self._task_key("unpaid", task_id), unpaid)

    def carved(self, task_id: str, number: int, member: str) -> Units | None:
        """Return what was set aside for a task with a member when it got a budget for the `number`th time."""
        found = self.recall(self.key("carved", task_id, number))
        return found.guarantee if isinstance(found, Carved) and found.member == member else None

    def put_carved(self, task_id: str, number: int, member: str, guarantee: Units) -> None:
        """Record what is set aside for a task with a member."""
        self.put(self.key("carved", task_id, number), Carved(member, guarantee))

    def took(self, task_id: str, took: Units) -> Units:
        """Return what a task took, as recorded: what it had held at once is not known of a replay; else record it."""
        key = self._task_key("took", task_id)
        recorded = self.recall(key)
        if recorded is MISSING:
            self.put(key, took)
        return took if recorded is MISSING else cast("Units", recorded)

    def was_attempted(self, task_id: str) -> bool:
        """Return whether an attempt at the task is recorded."""
        return self._first_member(task_id) is not None

    def bound(self, bound: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        """Give each task that was begun before to the member that had it: other members may be free now."""
        first = {task_id: self._first_member(task_id) or self.had_in_flight(task_id) for task_id in bound}
        return {task_id: (member,) if (member := first[task_id]) in able else able for task_id, able in bound.items()}

    def _first_member(self, task_id: str) -> str | None:
        first = self.recall(self.key("attempt", task_id, 1))
        return first.member if isinstance(first, Attempt | CutShort) else None

    # ------------------------------------------------------------------ ends

    def ended_before(self, key: str) -> bool:
        """Return whether the recorded run ended before it made a step: the caller then waits for that end."""
        return self.early_end is not None and self.recall(key) is MISSING

    def ended_in(self, key: str) -> bool:
        """Return whether the recorded run ended while it was in a step."""
        return self.early_end is not None and self.recall(key) is not MISSING

    def has_caught_up(self, stands_as_then: Callable[[str], bool], ended: int) -> bool:
        """Return whether as many tasks have ended as when the recorded run ended, and the others have the same state.

        `stands_as_then` returns the latter for a task, by its id.
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
        """Return why a task is skipped, as recorded: its dependencies may end in another order now; else record it."""
        key = self._task_key("skipped", task_id)
        recorded = self.recall(key)
        return self.put(key, reason) if recorded is MISSING else str(recorded)

    def put_untried(self, task_id: str) -> None:
        """Record that a task ended before it was tried: its body made no attempt."""
        self.put(self._task_key("untried", task_id), True)

    def _ended_untried(self, task_id: str) -> bool:
        return self.recall(self._task_key("untried", task_id)) is not MISSING

    def put_cut(self, task_id: str) -> None:
        """Record that a task that failed as the run ended was cut short."""
        self.put(self._task_key("cut", task_id), True)

    def was_cut(self, task_id: str) -> bool:
        """Return whether that is recorded: see `put_cut`."""
        return self.recall(self._task_key("cut", task_id)) is not MISSING

    # ------------------------------------------------------------------ cancellations

    def cancelled(self, task_id: str) -> Cancellation | None:
        """Return why the task was cancelled, if that is recorded."""
        return self._recall_of(Cancellation, "cancelled", task_id)

    def put_cancelled(self, task_id: str, reason: str, *, started: bool) -> None:
        """Record that the task was cancelled."""
        self.put(self._task_key("cancelled", task_id), Cancellation(reason, started))

    def put_cancelled_in(self, key: str, reason: str) -> None:
        """Record that a task was cancelled before it got what came of its step `key`, which may be recorded."""
        self.put(f"{key}:cancelled", Cancellation(reason))

    def cancelled_in_flight(self, task_id: str, key: str | None = None) -> str | None:
        """Return why the task was cancelled in flight, if it was, and before it got what came of the step `key`."""
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
    """The same for a plan that this session made: there is nothing to replay, so nothing is looked up."""

    __slots__ = ()
    is_new: ClassVar[bool] = True

    def recall(self, key: str) -> Any:
        """Return `MISSING`."""
        return MISSING


NO_STEPS: Final = NewPlanRecords(MemoryRecords(), 0)
"""Of tasks without a plan that was made."""
