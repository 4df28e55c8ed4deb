"""Dispatch: a ready task gets a slot, a member's lease and its own budget, and gives them back at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from kairo_team import events
from kairo_team.budget import Budget, HaltReason
from kairo_team.engine.records.plan_records import MISSING, PlanRecords, RecordedStart, Unpaid
from kairo_team.engine.tasks.member_budgets import lacks
from kairo_team.engine.tasks.ready_tasks import nothing
from kairo_team.engine.tasks.task_budgets import TaskBudgets
from kairo_team.engine.tasks.task_run import (
    CANCELLED,
    COMPLETED,
    FAILED,
    IN_FLIGHT,
    PENDING,
    SUSPENDED,
    TaskRun,
    TaskState,
    WaitsFor,
)
from kairo_team.errors import ContractBreach, HaltError, InsufficientBudget
from kairo_team.governance.halts import DIMENSION_OF
from kairo_team.tasks import Task, exact_weight

if TYPE_CHECKING:
    from kairo_team.engine.records.suspension import EarlierSessions
    from kairo_team.engine.tasks.ready_tasks import Entry, ReadyTasks
    from kairo_team.governance.governor import Governor
    from kairo_team.governance.ledger import Units
    from kairo_team.team import TeamConfig

Bound = Mapping[str, tuple[str, ...]]
"""The able members of each task, by task id."""
T = TypeVar("T")

Payers = tuple[tuple[str, ...], "Governor | None", "Budget | None"]
"""The accounts that may pay for a task: its candidates, the governor it shares, and its own budget. Tasks with equal
payers get budget, or do not, at the same moments."""

_LOOK_AGAIN_AT: Final = 8
"""The most tasks of one queue that are tried again when budget comes back."""
_LOOKS: Final = 64
"""The most tasks of all queues that are tried again at once; the others are tried the next time."""

_MOST_NAMED: Final = 3
"""How many tasks the reason of a skipped one names."""

_ENDED: Final[Mapping[TaskState, type[events.TaskEnded]]] = {
    TaskState.FAILED: events.TaskFailed,
    TaskState.SKIPPED: events.TaskSkipped,
    TaskState.CANCELLED: events.TaskCancelled,
    TaskState.SUSPENDED: events.TaskSuspended,
}


class Dispatcher:
    """Hands out ready tasks and books their ends. The only limits are the configuration's."""

    def __init__(
        self,
        board: ReadyTasks,
        governors: Mapping[str, Governor],
        config: TeamConfig,
        emit: Callable[..., object],
        recorded: PlanRecords,
        earlier: EarlierSessions,
    ) -> None:
        """Take the members' governors by name."""
        self.board = board
        board.on_member_wait = self._wait_for_member
        self.tasks = {task_id: TaskRun(entry, recorded) for task_id, entry in board.entries.items()}
        self.active = 0
        """Tasks dispatched and not ended."""
        self._parked: set[str] = set()
        """Active tasks that stay as they are until the run ends."""
        self.on_end: Callable[[], None] = nothing
        """Called when no further task can start."""
        self.on_cut_attempt: Callable[[TaskRun, int, str | None], None] | None = None
        """Called for an attempt that is cut short, with its number and the reason."""
        self.on_ending: Callable[[str, str | None], object] = nothing
        """Called with a task's id and the reason of its end, before that end is emitted."""
        self.on_ended: Callable[[TaskRun], None] | None = None
        """Called for each task that has ended."""
        self.on_due: Callable[[Entry], None] = nothing
        """Called for a task that has a condition or grows, when it can proceed."""
        self._governors = governors
        self._emit = emit
        self._recorded = recorded
        self._has_concluded = False
        self._stopped = False
        weight = sum(exact_weight(task_run.task.weight) for task_run in self.tasks.values())
        self.budgets = TaskBudgets(governors, config.budget_policy, earlier, weight)
        """Carves the tasks' budgets."""
        self._slots = config.max_parallel_tasks
        self._slots_taken = 0
        self._slot_waiters: deque[anyio.Event] = deque()
        self._without_budget: dict[Payers, deque[TaskRun]] = {}
        """Ready tasks without budget, by payers; the queues tried last are at the end."""
        self._unasked: dict[str, set[Payers]] = {}
        """Queues of tasks that a member might have paid for, had a lease been free, by member."""
        self._has_returned = False
        """Whether budget came back since the ready loop last looked."""
        self._held_back = 0
        """Number of tasks that stay as they are until the run ends: ready, suspended, maps and loops."""
        self._sleeper: anyio.Event | None = None
        self._waiting_for_budget: dict[anyio.Event, Callable[[], bool]] = {}
        """Tasks in flight that wait for others to give budget back: the event that wakes one, and its `set_aside`."""

    # ------------------------------------------------------------------ starts

    def __aiter__(self) -> Dispatcher:
        return self

    async def __anext__(self) -> Task:
        """Return the next task that can start; the iteration ends when no further one can."""
        while self.board.unended:
            task_run = self._next_task()
            if task_run is not None:
                return task_run.task
            if self._stopped:
                # The end of the run interrupts this; the coordinator's code after its loop must not run before that.
                await anyio.sleep_forever()
            if self._slots is not None and self._slots_taken >= self._slots:
                for entry in self.board.untold():
                    self._wait(self.tasks[entry.task.id], "slot")
            if self.active > len(self._parked):
                self._sleeper = anyio.Event()
                await self._sleeper.wait()
            elif self._without_budget:
                # Nothing in flight can give budget back any more, so each waiting task starts now or fails.
                self._requeue_all()
            elif self._held_back or self._parked:
                # Everything left stays open until the run ends.
                break
            elif self.board.unended:
                open_tasks = (one for one in self.tasks.values() if not one.ended)
                histories = "; ".join(f"{one.task.id}: {' -> '.join(one.history)}" for one in open_tasks)
                raise ContractBreach(f"no task is ready and none in flight: {histories}")
        self.on_end()
        await checkpoint_if_cancelled()  # if that ended the run, the code after the loop must not run
        raise StopAsyncIteration

    def _next_task(self) -> TaskRun | None:
        if self._has_returned:
            self._has_returned = False
            self._serve_waiting()  # before a task that has not begun takes it
            # The looks are shared out among the queues: none waits because another one is long.
            each = _LOOKS // (len(self._without_budget) or 1)
            for payers in list(islice(self._without_budget, _LOOKS)):
                self._requeue(payers, min(max(each, 1), _LOOK_AGAIN_AT))
        while True:
            while self.board.due:
                self.on_due(self.board.due.popleft())
            free = not self._stopped and (self._slots is None or self._slots_taken < self._slots)
            taken = self.board.take() if free else None
            if taken is None:
                return None
            entry, member = taken
            task_run = self.tasks[entry.task.id]
            start = None if task_run.records.is_new else task_run.records.start_of(entry.task.id)
            if start is RecordedStart.NEVER:
                # The recorded run ended before this start, so here the task waits for that end.
                self.board.release(member)
                self._held_back += 1
            elif isinstance(start, Unpaid):
                self.board.release(member)
                self._fail_unpaid(task_run, start)
            elif self._start(task_run, member, paid=start is RecordedStart.PAID):
                return task_run

    def _start(self, task_run: TaskRun, member: str, *, paid: bool) -> bool:
        """Give the task its budget and start it; without budget it waits, or fails if none can come back."""
        first, got = member, self.budgets.carve(task_run, member, paid=paid, active=self.active)
        for other in task_run.entry.candidates if isinstance(got, InsufficientBudget) else ():
            if other == first:
                continue
            if not self.board.try_lease(other):
                self._unasked.setdefault(other, set()).add(_payers_of(task_run))
                continue
            self.board.release(member)  # any other free member with budget may do the task
            member, got = other, self.budgets.carve(task_run, other, paid=paid, active=self.active)
            if not isinstance(got, InsufficientBudget):
                break
        if isinstance(got, InsufficientBudget):
            self.board.release(member)
            # Only tasks in flight can give budget back: without them, waiting would never end.
            if self.active:
                self._without_budget.setdefault(_payers_of(task_run), deque()).append(task_run)
                self._wait(task_run, "budget")
            else:
                shared = task_run.entry.shared
                short_of = shared if shared is not None and shared.path == got.path else self._governors[member]
                halt = _find_halt(short_of, got)
                unpaid = Unpaid(str(halt or got), halt is not None)
                task_run.records.put_unpaid(task_run.task.id, unpaid)
                self._fail_unpaid(task_run, unpaid)
            return False
        task_run.member = task_run.leased = member
        task_run.entry.started = True
        task_run.move(IN_FLIGHT)
        self.budgets.take_weight(task_run.entry, exact_weight(task_run.task.weight))
        self.active += 1
        self._slots_taken += 1
        task_run.has_slot = True
        task_run.waits_for = None
        self._emit(events.TaskAssigned, task_run.task.id, member)
        self._emit(events.BudgetCarved, task_run.task.id, member, got[0] or None, got[1] or None)
        if self._without_budget and (payers := _payers_of(task_run)) in self._without_budget:
            self._requeue(payers, 1)  # other tasks with the same payers may fit now too
        return True

    def _fail_unpaid(self, task_run: TaskRun, unpaid: Unpaid) -> None:
        task_run.for_halt = unpaid.halted
        self.end(task_run, FAILED, unpaid.error)

    def _requeue(self, payers: Payers, count: int) -> None:
        """Queue `count` more of the tasks that wait for budget from the same payers."""
        waiting = self._without_budget.pop(payers)
        while waiting and count:
            task_run = waiting.popleft()
            if not task_run.ended:
                self.board.make_ready(task_run.entry)
                count -= 1
        if waiting:
            self._without_budget[payers] = waiting

    def _requeue_all(self) -> None:
        for payers, waiting in list(self._without_budget.items()):
            self._requeue(payers, len(waiting))

    def _wait(self, task_run: TaskRun, waits_for: WaitsFor | None, seconds: float | None = None) -> None:
        """Emit what a task waits for now, or that it no longer waits, if that has changed."""
        if task_run.waits_for != waits_for:
            task_run.waits_for = waits_for
            self._emit(events.TaskWaiting, task_run.task.id, task_run.member, waits_for, seconds)

    def _wait_for_member(self, entry: Entry) -> None:
        self._wait(self.tasks[entry.task.id], "member")

    # ------------------------------------------------------------------ changes of the plan

    def hand_over(self, task_run: TaskRun, member: str) -> bool:
        """Give a task in flight to another member; False if its budget does not cover the task. Recorded."""
        key = task_run.records.key("hand_over", task_run.task.id, task_run.attempts + 1) + f":{member}"
        recorded = task_run.records.recall(key)
        if recorded is MISSING:
            recorded = task_run.interrupted is None and self._hand_over(task_run, member, paid=False)
            task_run.records.put(key, recorded)
        elif recorded:
            self._hand_over(task_run, member, paid=True)
        return bool(recorded)

    def _hand_over(self, task_run: TaskRun, member: str, *, paid: bool) -> bool:
        """Carve a budget for a task in flight with another member; False if there is not enough.

        A task that cannot be handed over stays with its member, with a new budget. `paid`: nothing has to be set aside.
        """
        if task_run.member == member:
            return True
        self.release_lease(task_run)
        old = task_run.governor
        if old is not None:  # the unused part goes back first: the next carve may need it
            task_run.book_before_hand_over(old.usage)
            old.close()
            self._emit_return(task_run)
        got = self.budgets.carve(task_run, member, paid=paid, active=self.active)
        given = not isinstance(got, InsufficientBudget)
        if given:
            task_run.member = member
        elif task_run.member is not None:
            # A task that stays with its member has begun already, so nothing is checked for room.
            got = self.budgets.carve(task_run, task_run.member, paid=True, active=self.active)
        if not isinstance(got, InsufficientBudget):
            self._emit(events.BudgetCarved, task_run.task.id, task_run.member, got[0] or None, got[1] or None)
        return given

    def skip_cancelled(self, recorded: PlanRecords) -> None:
        """Skip tasks that the recorded run cancelled before they started."""
        for task_run in () if recorded.is_new else list(self.tasks.values()):
            self._skip_if_cancelled(task_run)

    def _skip_if_cancelled(self, task_run: TaskRun) -> None:
        cancelled = task_run.records.cancelled(task_run.task.id) if task_run.state is PENDING else None
        if cancelled is not None and not cancelled.started:
            self.end(task_run, TaskState.SKIPPED, cancelled.reason)

    def supersede(self, replaced: Collection[str]) -> None:
        """Skip tasks that have not started, because other tasks replace them."""
        for task_id in replaced:
            task_run = self.tasks[task_id]
            task_run.superseded = True
            if not task_run.ended:  # a task that it needs may have failed by now
                self.board.retire(task_run.entry)
                self._skip(task_run.entry, "another plan took its place")

    def extend(self, tasks: Sequence[Task], bound: Bound, recorded: PlanRecords) -> list[Entry]:
        """Put more tasks on the board; call `settle` next."""
        added = self.board.extend(tasks, bound if recorded.is_new else recorded.bound(bound))
        for entry in added:
            self.tasks[entry.task.id] = TaskRun(entry, recorded)
            self.budgets.weight_left += exact_weight(entry.task.weight)
        return added

    def grow(self, by: TaskRun, tasks: Sequence[Task], bound: Bound) -> list[Entry]:
        """Put the tasks of a map or a loop on the board, out of its weight; call `settle` next."""
        parts, weight = by.entry.parts, sum(exact_weight(task.weight) for task in tasks)
        assert parts is not None, "a map or a loop has parts"
        taken = min(weight, parts.weight)  # the parts of the weight may be rounded up
        parts.weight -= taken
        parts.unstarted += weight
        self.budgets.weight_left -= taken
        return self.extend(tasks, bound, by.records)

    def settle(self, added: Sequence[Entry]) -> None:
        """Skip tasks that can never start or that the recorded run cancelled; let the others start."""
        can_start = self._has_concluded
        for entry in added:
            lost = None if entry.ended else self.board.lost_need(entry)
            if lost is not None:  # a task that it needs may have failed by now
                task_run = self.tasks[entry.task.id]
                self.end(task_run, TaskState.SKIPPED, task_run.skip_reason(self._explain_skip(entry, lost)))
            can_start = can_start or not entry.open_needs
        if added and not self.tasks[added[0].task.id].records.is_new:
            for entry in added:
                self._skip_if_cancelled(self.tasks[entry.task.id])
        if can_start:
            self.changed()

    def call_off(self, reason: str) -> list[str]:
        """Skip the tasks that have not started because they are no longer needed; return their ids."""
        waiting = (
            task_run for task_run in self.tasks.values() if task_run.state is PENDING and task_run.earlier is None
        )
        found = [task_run for task_run in waiting if task_run.records.had_in_flight(task_run.task.id) is None]
        for task_run in found:
            if not task_run.ended:  # a subscriber that hears of one may cancel another
                self.board.retire(task_run.entry)
                self._skip(task_run.entry, reason)
        return [task_run.task.id for task_run in found]

    def stop(self) -> None:
        """Hand out no further task: the run is about to end."""
        self._stopped = True

    def conclude(self) -> None:
        """End the run once all tasks are as they were when the recorded run was concluded."""
        # The concluding task may hold a slot that others had in the recorded run: from now on no slot is needed.
        self._has_concluded = True
        self._slots = None
        while self._slot_waiters:
            self._slots_taken += 1
            self._slot_waiters.popleft().set()
        self.changed()

    def _stands_as_recorded(self, task_id: str) -> bool:
        """Return whether a task that was open when the recorded run ended is in the same state now."""
        task_run = self.tasks.get(task_id)
        if task_run is None:
            return False
        return task_run.state is SUSPENDED or task_id in self._parked or not task_run.records.was_attempted(task_id)

    # ------------------------------------------------------------------ ends

    def end(self, task_run: TaskRun, to: TaskState, reason: str | None = None, *, verdict: str | None = None) -> None:
        """Book a task's end: give everything back, emit it, skip what can no longer start, wake the ready loop."""
        self.on_ending(task_run.task.id, reason)
        # Both are read now, because `move` changes them.
        in_flight, pending = task_run.in_flight, task_run.state is PENDING
        if task_run.open_attempt is not None:
            self.cut(task_run, reason)
        self._held_back -= task_run.state is SUSPENDED
        task_run.move(to)
        task_run.error = reason
        if task_run.entry.parts is not None:
            self.budgets.take_weight(task_run.entry, task_run.entry.parts.weight)
        elif in_flight:
            # The usage of a cancelled task does not show how much such a task needs.
            if to is not CANCELLED:
                self.budgets.learn(task_run, ran_out=task_run.for_halt and to is FAILED)
            self._release(task_run, to)
        elif pending:
            self.budgets.take_weight(task_run.entry, exact_weight(task_run.task.weight))
        self.emit_end(task_run, verdict)
        if self.on_ended is not None:
            self.on_ended(task_run)
        for entry, cause in self.board.end(task_run.entry, accepted=to is COMPLETED):
            self.tasks[entry.task.id].not_taken = self.tasks[cause.task.id].not_taken
            self._skip(entry, self._explain_skip(entry, cause))
        self.changed()

    def cut(self, task_run: TaskRun, reason: str | None) -> None:
        """Report the end of the open attempt, which is cut short, if there is one."""
        if task_run.open_attempt is not None and self.on_cut_attempt is not None:
            self.on_cut_attempt(task_run, task_run.open_attempt[0], reason)
        task_run.open_attempt = None

    def _explain_skip(self, entry: Entry, last: Entry) -> str:
        """Explain why a task can no longer start, or recall the recorded reason; `last` is what it lost last."""
        why, depends_on = f"it needs {last.task.id!r}, which was not accepted", entry.task.depends_on
        if len(depends_on) == 1:
            return why
        if entry.needed != len(depends_on):
            found = [self.board.entries[name] for name in depends_on]
            lost = [repr(one.task.id) for one in found if one.ended and not one.accepted]
            left = f"only {len(found) - len(lost):,}" if len(lost) < len(found) else "none"
            more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
            needs = f"it needs {entry.needed:,} of its {len(found):,} dependencies"
            why = f"{needs}, and {left} can be accepted: {', '.join(lost[:_MOST_NAMED])}{more} were not"
        # The reason names only those of several dependencies that had ended then.
        return self.tasks[entry.task.id].records.skip_reason(entry.task.id, why)

    def suspend(self, task_run: TaskRun, reason: str) -> None:
        """Suspend a task until a person decides: it gives everything back, and its dependents wait with it."""
        task_run.move(SUSPENDED)
        task_run.error = reason
        self._release(task_run, SUSPENDED)
        self._held_back += 1
        self.changed()

    def emit_end(self, task_run: TaskRun, verdict: str | None = None) -> None:
        """Emit a task's last event."""
        task_id, member, attempts = task_run.task.id, task_run.member, task_run.attempts
        if task_run.state is COMPLETED:
            self._emit(events.TaskCompleted, task_id, member, attempts, task_run.error, verdict)
        else:
            self._emit(_ENDED[TaskState(task_run.state)], task_id, member, attempts, task_run.error)

    def _skip(self, entry: Entry, reason: str) -> None:
        task_run = self.tasks[entry.task.id]
        task_run.move(TaskState.SKIPPED)
        task_run.error = reason = task_run.skip_reason(reason) if task_run.records.earlier else reason
        self.budgets.take_weight(task_run.entry, exact_weight(task_run.task.weight))
        self._emit(events.TaskSkipped, entry.task.id, None, 0, reason)
        if self.on_ended is not None:
            self.on_ended(task_run)

    def give_back(self, task_run: TaskRun) -> None:
        """Close the account of a task in flight that will not be attempted again, before it ends."""
        if task_run.governor is None or not task_run.in_flight:
            return
        self.budgets.learn(task_run, ran_out=task_run.for_halt)
        task_run.governor.close()
        task_run.governor = None
        self._emit_return(task_run)

    def _release(self, task_run: TaskRun, to: TaskState) -> None:
        if task_run.leased is not None:
            self.release_lease(task_run)
        if task_run.governor is not None:
            task_run.governor.close()
            if to is CANCELLED:  # an attempt was cut short and has not reported its usage
                spent = task_run.governor.usage
                task_run.usage = spent if task_run.before is None else task_run.before + spent
                task_run.catch_up()
            task_run.governor = None
            self._emit_return(task_run)
        self.active -= 1
        if task_run.has_slot:
            self._release_slot(task_run)

    def _emit_return(self, task_run: TaskRun) -> None:
        self._emit(events.BudgetReturned, task_run.task.id, task_run.member, task_run.usage)
        self.changed(budget=True)

    def changed(self, *, budget: bool = False) -> None:
        """Wake all waiters that may proceed now; end the run if that was all it waited for.

        Call this whenever a lease, a slot or budget (`budget`) comes back, and when tasks are added.
        """
        self._has_returned = self._has_returned or budget
        for woken in self._waiting_for_budget:
            woken.set()
        if self._has_concluded:
            ended = len(self.tasks) - self.board.unended
            if self._recorded.has_caught_up(self._stands_as_recorded, ended):
                self.on_end()
        if self._sleeper is not None:
            self._sleeper.set()
            self._sleeper = None

    # ------------------------------------------------------------------ leases and slots

    async def lease(self, task_run: TaskRun, member: str) -> None:
        """Take a lease of the member for an attempt; wait, without the slot, while all are taken."""
        if task_run.leased == member:
            return
        self.release_lease(task_run)
        if not self.board.try_lease(member):
            granted = anyio.Event()
            give_up = self.board.wait_for_lease(member, granted.set)
            self._wait(task_run, "member")
            came = False
            try:
                await self.without_slot(task_run, granted.wait)
                came = task_run.has_slot  # else it was cancelled while it waited
            finally:
                if not came:
                    give_up()
                    self._came_free(member)  # it may have been granted meanwhile
            self._wait(task_run, None)
            if not came:
                return
        task_run.leased = member

    def release_lease(self, task_run: TaskRun) -> None:
        """Give the task's lease back, if it has one."""
        if task_run.leased is not None:
            self.board.release(task_run.leased)
            member, task_run.leased = task_run.leased, None
            self._came_free(member)

    def _came_free(self, member: str) -> None:
        """Wake all waiters, and requeue the tasks without budget that could not try this member."""
        for payers in self._unasked.pop(member, ()):
            if payers in self._without_budget:
                self._requeue(payers, 1)
        self.changed()

    async def top_up(self, task_run: TaskRun, halt: HaltReason, path: str | None) -> bool:
        """Set more budget aside for a task that the governor at `path` halted, once some came back.

        Waits, without a slot, until there is enough, or no other task in flight may give back; False if nothing came.
        The missing amount is set aside at once: the next attempt may need it late, and other tasks begin meanwhile.
        """
        governor, dimension = task_run.governor, DIMENSION_OF.get(halt)
        if governor is None or dimension is None or path == governor.path:  # the task's own ceiling stays
            return False
        had, asked = lacks(governor, task_run.exception, dimension, path)
        if had is None:  # nothing is short here: a governor of the agent's own hit its limit
            return False
        got: Units | None = None

        def set_aside(*, any_amount: bool = False) -> bool:
            """Set more aside, once, if enough is there, or `any_amount` came back; return whether that was done."""
            nonlocal got
            left = getattr(governor.remaining, dimension)
            enough = left > had if asked is None or any_amount else left >= asked
            if got is None and governor.halted is None and enough:
                got = self.budgets.set_more_aside(task_run, governor, dimension, asked)
                self._emit(events.BudgetToppedUp, task_run.task.id, task_run.member, got[0] or None, got[1] or None)
            return got is not None

        def look() -> bool | None:
            """Return whether another try makes sense; None: others may still give back."""
            if task_run.interrupted is not None or set_aside():
                return True  # the next try of an interrupted task records that it was cancelled
            if governor.halted is not None:
                return False
            self._serve_waiting()  # a waiting task that continues may give back
            if self.active > len(self._waiting_for_budget) + 1:
                return None
            return set_aside(any_amount=True)  # all others wait like this one

        while (found := look()) is None:
            self._wait(task_run, "budget")
            await self.without_slot(task_run, self._wait_until, look, set_aside)
            self._wait(task_run, None)
        return found

    async def _wait_until(self, look: Callable[[], bool | None], set_aside: Callable[[], bool]) -> None:
        """Look again whenever something has changed, until there is an answer."""
        while look() is None:
            woken = anyio.Event()
            self._waiting_for_budget[woken] = set_aside
            try:
                await woken.wait()
            finally:
                self._waiting_for_budget.pop(woken, None)

    def _serve_waiting(self) -> None:
        """Set more aside for the waiting tasks, in the order in which they came, and wake them."""
        for woken, set_aside in list(self._waiting_for_budget.items()):
            if set_aside():
                del self._waiting_for_budget[woken]
                woken.set()

    async def without_slot(self, task_run: TaskRun, wait: Callable[..., Awaitable[T]], *args: Any) -> T | None:
        """Await something for a task without its slot, which ready tasks may use meanwhile.

        Returns None if the task was cancelled while it waited.
        """
        self._release_slot(task_run)
        waited: T | None = None
        # The scope is the task's, so that `Steering` can end the wait.
        with anyio.CancelScope() as task_run.wait:
            waited = await wait(*args)
            await self._take_slot(task_run)
        task_run.wait = None
        return waited

    async def pause(self, task_run: TaskRun, seconds: float) -> None:
        """Pause a task for `seconds` before its next attempt, without its slot."""
        if seconds > 0:
            self._wait(task_run, "retry", seconds)
        await self.without_slot(task_run, anyio.sleep, seconds)
        self._wait(task_run, None)

    async def wait_for(self, task_run: TaskRun, key: str, wait: Callable[..., Awaitable[T]], *args: Any) -> T | None:
        """Await the recorded step `key` of a task without its slot, or the run's end where the recorded run ended."""
        no_slot = f"{key}:cut"
        if task_run.records.ended_before(key) or task_run.records.ended_in(no_slot):
            await self.wait_for_end(task_run)
        try:
            return await self.without_slot(task_run, wait, *args)
        except Exception:
            raise
        except BaseException:
            # The run was cancelled while the task waited; a resumed run must stop at the same place.
            task_run.records.put(no_slot, True)
            raise

    async def _take_slot(self, task_run: TaskRun) -> None:
        if self._slots is not None and self._slots_taken >= self._slots:
            turn = anyio.Event()
            self._slot_waiters.append(turn)
            self._wait(task_run, "slot")
            try:
                await turn.wait()
            except BaseException:
                # The slot may have been passed on to this task in the moment of its cancellation.
                if turn.is_set():
                    self._pass_slot_on()
                else:
                    self._slot_waiters.remove(turn)
                raise
            self._wait(task_run, None)
        else:
            self._slots_taken += 1
        task_run.has_slot = True

    def _release_slot(self, task_run: TaskRun) -> None:
        task_run.has_slot = False
        self._pass_slot_on()

    def _pass_slot_on(self) -> None:
        if self._slot_waiters:
            # The number of taken slots stays the same: the slot changes hands.
            self._slot_waiters.popleft().set()
        else:
            self._slots_taken -= 1
            self.changed()

    def hold_back(self) -> None:
        """Leave a map or a loop as it is until the run ends: the recorded run ended before its end."""
        self._held_back += 1

    async def wait_for_end(self, task_run: TaskRun) -> NoReturn:
        """Stop a task in flight here, where the recorded run ended, until this run ends too."""
        self.park(task_run)
        await anyio.sleep_forever()
        raise AssertionError("the end interrupts it")

    def park(self, task_run: TaskRun) -> None:
        """Leave a task in flight as it is until the run ends: give back its lease and its slot."""
        if task_run.task.id in self._parked:
            return
        self._parked.add(task_run.task.id)
        self.release_lease(task_run)
        if task_run.has_slot:
            self._release_slot(task_run)
        self.changed()


def _payers_of(task_run: TaskRun) -> Payers:
    return task_run.entry.candidates, task_run.entry.shared, task_run.task.budget


def _find_halt(governor: Governor, short: InsufficientBudget) -> HaltError | None:
    """Halt the governor that ran out; None if budget is left, but set aside for others."""
    try:
        governor.can_proceed()
        if short.dimension == "loops":
            governor.pre_step()
    except InsufficientBudget:
        return None
    except HaltError as halt:
        return halt
    return None
