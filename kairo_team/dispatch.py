"""Dispatch: a ready task gets a slot, a member's lease and a budget of its own, and gives them back at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import anyio

from kairo_team import events
from kairo_team.budget import HaltReason
from kairo_team.errors import ContractBreach, HaltError, InsufficientBudget
from kairo_team.governance.halts import REASONS
from kairo_team.governance.units import DIMENSIONS, NOTHING
from kairo_team.states import CANCELLED, COMPLETED, FAILED, IN_FLIGHT, PENDING, TaskState
from kairo_team.task_record import TaskRecord

if TYPE_CHECKING:
    from kairo_team.board import Entry, TaskBoard
    from kairo_team.governance.governor import Governor
    from kairo_team.governance.units import Units
    from kairo_team.recorded import TaskRecords
    from kairo_team.tasks import Task
    from kairo_team.team import TeamConfig

Emit = Callable[..., None]

_RETRY_SHORT: Final = 8
"""Tasks that waited for budget and are looked at again when some comes back."""

_DIMENSION: Final[Mapping[HaltReason, str]] = dict(zip(REASONS, DIMENSIONS, strict=True))
"""What ran out."""

_ENDED: Final[Mapping[TaskState, type[events.TaskEnded]]] = {
    TaskState.FAILED: events.TaskFailed,
    TaskState.SKIPPED: events.TaskSkipped,
    TaskState.CANCELLED: events.TaskCancelled,
}


class Dispatcher:
    """Hands out ready tasks and books their ends. It caps nothing but what the configuration caps."""

    def __init__(
        self,
        board: TaskBoard,
        governors: Mapping[str, Governor],
        config: TeamConfig,
        emit: Emit,
        recorded: TaskRecords,
    ) -> None:
        """Take the members' governors by name."""
        self.board = board
        self.records = {task_id: TaskRecord(entry) for task_id, entry in board.entries.items()}
        self.active = 0
        """Tasks dispatched and not ended."""
        self._governors = governors
        self._emit = emit
        self._recorded = recorded
        self._reserve = config.budget_policy.reserve
        self._weight_left = sum(record.task.weight for record in self.records.values())
        self._slots = config.max_parallel_tasks
        self._slots_taken = 0
        self._slot_waiters: deque[anyio.Event] = deque()
        self._short: deque[TaskRecord] = deque()
        """Ready tasks for which there was no budget."""
        self._sleeper: anyio.Event | None = None
        self._returns: list[anyio.Event] = []
        """One for each task in flight that waits for others to give budget back."""

    # ------------------------------------------------------------------ out

    def __aiter__(self) -> Dispatcher:
        return self

    async def __anext__(self) -> Task:
        """Return the next task that can start; the iteration is over when every task has ended."""
        while self.board.unended:
            record = self._next()
            if record is not None:
                return record.task
            if self.active:
                self._sleeper = anyio.Event()
                await self._sleeper.wait()
            elif self._short:
                self._requeue(len(self._short))
            elif self.board.unended:
                raise ContractBreach(f"no task is ready and none in flight: {self._histories()}")
        raise StopAsyncIteration

    def _next(self) -> TaskRecord | None:
        while self._slots is None or self._slots_taken < self._slots:
            taken = self.board.take()
            if taken is None:
                return None
            entry, member = taken
            record = self.records[entry.task.id]
            if self._start(record, member):
                return record
        return None

    def _start(self, record: TaskRecord, member: str) -> bool:
        """Give the task its budget and let it start; without budget it waits, or fails when none can come back."""
        unpaid = self._recorded.unpaid(record.task.id) if self._recorded.replaying else None
        if unpaid is not None:
            self.board.release(member)
            self._fail_unpaid(record, unpaid.error, halted=unpaid.halted)
            return False
        got = self._carve(record, member)
        for other in record.entry.candidates if isinstance(got, InsufficientBudget) else ():
            if other != member and self.board.try_lease(other):  # whoever is free and has budget may do it
                self.board.release(member)
                member, got = other, self._carve(record, other)
                if not isinstance(got, InsufficientBudget):
                    break
        if isinstance(got, InsufficientBudget):
            self.board.release(member)
            if self.active:
                self._short.append(record)
            else:
                halt = _find_halt(self._governors[member], got)
                self._recorded.put_unpaid(record.task.id, str(halt or got), halted=halt is not None)
                self._fail_unpaid(record, str(halt or got), halted=halt is not None)
            return False
        record.member = record.leased = member
        record.move(IN_FLIGHT)
        self._weight_left -= record.task.weight
        self.active += 1
        self._slots_taken += 1
        self._emit(events.TaskAssigned, record.task.id, member)
        self._emit(events.BudgetCarved, record.task.id, member, got[0] or None, got[1] or None)
        return True

    def _carve(self, record: TaskRecord, member: str) -> Units | InsufficientBudget:
        """Set the task's budget aside with a member: its guarantee, or what is lacking."""
        task = record.task
        part = task.weight / self._weight_left
        try:
            record.governor, guarantee = self._governors[member].carve_share(task.id, task.budget, part, self._reserve)
        except InsufficientBudget as short:
            if not self._recorded.was_tried(task.id):
                return short
            record.governor = self._governors[member].carve(task.id)
            return NOTHING
        return guarantee

    def _fail_unpaid(self, record: TaskRecord, error: str, *, halted: bool) -> None:
        record.for_halt = halted
        self.end(record, FAILED, error)

    def _requeue(self, count: int) -> None:
        for _ in range(count):
            self.board.make_ready(self._short.popleft().entry)

    # ------------------------------------------------------------------ back

    def end(self, record: TaskRecord, to: TaskState, reason: str | None = None, *, verdict: str | None = None) -> None:
        """Book a task's end: give everything back, tell, skip what can no longer start, and wake the ready loop."""
        dispatched = record.state is not PENDING
        record.move(to)
        record.error = reason
        if dispatched:
            self._give_back(record, to)
        else:
            self._weight_left -= record.task.weight
        self._tell_end(record, to, reason, verdict)
        for entry, cause in self.board.end(record.entry, accepted=to is COMPLETED):
            self._skip(entry, f"it needs {cause.task.id!r}, which was not accepted")
        self.wake()

    def _tell_end(self, record: TaskRecord, to: TaskState, reason: str | None, verdict: str | None) -> None:
        task_id, member, attempts = record.task.id, record.member, record.attempts
        if to is COMPLETED:
            self._emit(events.TaskCompleted, task_id, member, attempts, reason, verdict)
        else:
            self._emit(_ENDED[to], task_id, member, attempts, reason)

    def _skip(self, entry: Entry, reason: str) -> None:
        record = self.records[entry.task.id]
        record.move(TaskState.SKIPPED)
        record.error = reason
        self._weight_left -= record.task.weight
        self._emit(events.TaskSkipped, entry.task.id, None, 0, reason)

    def _give_back(self, record: TaskRecord, to: TaskState) -> None:
        if record.leased is not None:
            self.release_lease(record)
        if record.governor is not None:
            record.governor.close()
            if to is CANCELLED:  # an attempt was cut short and has not reported
                record.usage = record.governor.usage
            self._emit(events.BudgetReturned, record.task.id, record.member, record.usage)
            for returned in self._returns:
                returned.set()
            if self._short:
                self._requeue(min(len(self._short), _RETRY_SHORT))
        self.active -= 1
        self._release_slot()

    def wake(self) -> None:
        """Let the ready loop look again."""
        if self._sleeper is not None:
            self._sleeper.set()
            self._sleeper = None

    # ------------------------------------------------------------------ leases and slots

    async def lease(self, record: TaskRecord, member: str) -> None:
        """Take a lease of the member for an attempt; waits while all are taken."""
        if record.leased == member:
            return
        self.release_lease(record)
        if not self.board.try_lease(member):
            granted = anyio.Event()
            give_up = self.board.wait_for_lease(member, granted.set)
            try:
                await granted.wait()
            except BaseException:
                give_up()
                raise
        record.leased = member

    def release_lease(self, record: TaskRecord) -> None:
        """Give the task's lease back, if it has one."""
        if record.leased is not None:
            self.board.release(record.leased)
            record.leased = None
            self.wake()

    async def top_up(self, record: TaskRecord, halt: HaltReason, origin: str | None) -> bool:
        """Set more aside for a task that `origin` left short of something, once some of it has come back.

        Waits, without a slot, as long as others in flight may give back; False when nothing more will come.
        """
        governor, dimension = record.governor, _DIMENSION.get(halt)
        if governor is None or dimension is None or origin == governor.name:  # its own ceiling stays
            return False
        had = getattr(governor.remaining, dimension)
        while governor.halted is None:
            if getattr(governor.remaining, dimension) > had:
                part = record.task.weight / (self._weight_left + record.task.weight)
                got = governor.top_up_share(dimension, part)
                self._emit(events.BudgetToppedUp, record.task.id, record.member, got[0] or None, got[1] or None)
                return True
            if self.active <= len(self._returns) + 1:  # all the others wait like this one
                return False
            await self._without_slot(self._wait_for_return)
        return False

    async def _wait_for_return(self) -> None:
        returned = anyio.Event()
        self._returns.append(returned)
        try:
            await returned.wait()
        finally:
            self._returns.remove(returned)

    async def pause(self, seconds: float) -> None:
        """Sleep without a slot: what is ready may use it meanwhile."""
        await self._without_slot(anyio.sleep, seconds)

    async def _without_slot(self, wait: Callable[..., Awaitable[None]], *args: float) -> None:
        self._release_slot()
        self.wake()
        await wait(*args)
        if self._slots is not None and self._slots_taken >= self._slots:
            turn = anyio.Event()
            self._slot_waiters.append(turn)
            await turn.wait()
        else:
            self._slots_taken += 1

    def _release_slot(self) -> None:
        if self._slot_waiters:
            self._slot_waiters.popleft().set()
        else:
            self._slots_taken -= 1

    def _histories(self) -> str:
        return "; ".join(f"{r.task.id}: {' -> '.join(r.history)}" for r in self.records.values() if not r.ended)


def _find_halt(governor: Governor, short: InsufficientBudget) -> HaltError | None:
    """Halt the governor that ran out, if one did; None where it is there, but set aside for others."""
    try:
        governor.can_proceed()
        if short.dimension == "loops":
            governor.pre_step()
    except InsufficientBudget:
        return None
    except HaltError as halt:
        return halt
    return None
