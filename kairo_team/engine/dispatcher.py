"""Dispatch: a ready task gets a slot, a member's lease and a budget of its own, and gives them back at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from kairo_team import events
from kairo_team.budget import HaltReason
from kairo_team.engine.budget_split import Needs
from kairo_team.engine.records.plan_records import RecordedStart, Unpaid
from kairo_team.engine.task_run import (
    CANCELLED,
    COMPLETED,
    FAILED,
    IN_FLIGHT,
    PENDING,
    SUSPENDED,
    TaskRun,
    TaskState,
)
from kairo_team.errors import ContractBreach, HaltError, InsufficientBudget
from kairo_team.governance.halts import REASONS
from kairo_team.governance.ledger import DIMENSIONS, NOTHING

if TYPE_CHECKING:
    from kairo_team.engine.board import Entry, TaskBoard
    from kairo_team.engine.records.plan_records import PlanRecords
    from kairo_team.governance.governor import Governor
    from kairo_team.governance.ledger import Units
    from kairo_team.tasks import Task
    from kairo_team.team import TeamConfig

Emit = Callable[..., None]
Bound = Mapping[str, tuple[str, ...]]
"""The members that may do each task, by task id."""
T = TypeVar("T")

_RETRY_SHORT: Final = 8
"""Tasks that waited for budget and are looked at again when some comes back."""

_NAMED: Final = 3
"""Tasks that the reason of a skipped one names."""

_DIMENSION: Final[Mapping[HaltReason, str]] = dict(zip(REASONS, DIMENSIONS, strict=True))
"""What ran out."""

_ENDED: Final[Mapping[TaskState, type[events.TaskEnded]]] = {
    TaskState.FAILED: events.TaskFailed,
    TaskState.SKIPPED: events.TaskSkipped,
    TaskState.CANCELLED: events.TaskCancelled,
    TaskState.SUSPENDED: events.TaskSuspended,
}


class Dispatcher:
    """Hands out ready tasks and books their ends. It caps nothing but what the configuration caps."""

    def __init__(
        self,
        board: TaskBoard,
        governors: Mapping[str, Governor],
        config: TeamConfig,
        emit: Emit,
        recorded: PlanRecords,
    ) -> None:
        """Take the members' governors by name."""
        self.board = board
        self.records = {task_id: TaskRun(entry, recorded) for task_id, entry in board.entries.items()}
        self.active = 0
        """Tasks dispatched and not ended."""
        self._parked: set[str] = set()
        """Of those, the ones that stay as they are until the run ends."""
        self.over: Callable[[], None] = _nothing
        """Called when no task can start any more."""
        self.on_cut: Callable[[TaskRun, int, str | None], None] | None = None
        """Called for an attempt that is cut short, with its number and the reason."""
        self._governors = governors
        self._emit = emit
        self._recorded = recorded
        self._has_concluded = False
        self._stopped = False
        self._reserve = config.budget_policy.reserve
        self._needs = Needs(governors, config.budget_policy)
        self._weight_left = sum(record.task.weight for record in self.records.values())
        self._slots = config.max_parallel_tasks
        self._slots_taken = 0
        self._slot_waiters: deque[anyio.Event] = deque()
        self._short: deque[TaskRun] = deque()
        """Ready tasks for which there was no budget."""
        self._held_back = 0
        """Tasks that are ready or suspended, and stay as they are until the run ends."""
        self._sleeper: anyio.Event | None = None
        self._returns: list[anyio.Event] = []
        """One for each task in flight that waits for others to give budget back."""

    # ------------------------------------------------------------------ out

    def __aiter__(self) -> Dispatcher:
        return self

    async def __anext__(self) -> Task:
        """Return the next task that can start; the iteration is over when none can start any more."""
        while self.board.unended:
            record = self._next()
            if record is not None:
                return record.task
            if self._stopped:
                await anyio.sleep_forever()
            if self.active > len(self._parked):
                self._sleeper = anyio.Event()
                await self._sleeper.wait()
            elif self._short:
                self._requeue(len(self._short))
            elif self._held_back or self._parked:
                break
            elif self.board.unended:
                raise ContractBreach(f"no task is ready and none in flight: {self._histories()}")
        self.over()
        await checkpoint_if_cancelled()  # where that was the end, nothing behind the loop is reached
        raise StopAsyncIteration

    def _next(self) -> TaskRun | None:
        while not self._stopped and (self._slots is None or self._slots_taken < self._slots):
            taken = self.board.take()
            if taken is None:
                return None
            entry, member = taken
            record = self.records[entry.task.id]
            start = record.steps.start_of(entry.task.id)
            if start is RecordedStart.NEVER:
                self.board.release(member)
                self._held_back += 1
            elif isinstance(start, Unpaid):
                self.board.release(member)
                self._fail_unpaid(record, start)
            elif self._start(record, member, paid=start is RecordedStart.PAID):
                return record
        return None

    def _start(self, record: TaskRun, member: str, *, paid: bool) -> bool:
        """Give the task its budget and let it start; without budget it waits, or fails when none can come back."""
        got = self._carve(record, member, paid=paid)
        for other in record.entry.candidates if isinstance(got, InsufficientBudget) else ():
            if other != member and self.board.try_lease(other):  # whoever is free and has budget may do it
                self.board.release(member)
                member, got = other, self._carve(record, other, paid=paid)
                if not isinstance(got, InsufficientBudget):
                    break
        if isinstance(got, InsufficientBudget):
            self.board.release(member)
            if self.active:
                self._short.append(record)
            else:
                halt = _find_halt(self._governors[member], got)
                unpaid = Unpaid(str(halt or got), halt is not None)
                record.steps.put_unpaid(record.task.id, unpaid)
                self._fail_unpaid(record, unpaid)
            return False
        record.member = record.leased = member
        record.move(IN_FLIGHT)
        self._weight_left -= record.task.weight
        self.active += 1
        self._slots_taken += 1
        record.has_slot = True
        self._emit(events.TaskAssigned, record.task.id, member)
        self._emit(events.BudgetCarved, record.task.id, member, got[0] or None, got[1] or None)
        if self._short:  # what was learned may let more than a few of them in
            self._requeue(1)
        return True

    def _carve(self, record: TaskRun, member: str, *, paid: bool) -> Units | InsufficientBudget:
        """Set the task's budget aside with a member: its guarantee, or what is lacking.

        One that has not started gets at least what it is expected to need. It gets less only when nothing is in flight
        that could give back, or when one is and nobody knows yet what one needs. `paid`: nothing has to be set aside.
        """
        task = record.task
        starting = record.state is PENDING
        weight_left = self._weight_left if starting else self._weight_left + task.weight
        part = task.weight / weight_left
        least = self._needs.of(member) if starting and not paid else NOTHING
        got = self._carve_part(record, member, part, least)
        if starting and isinstance(got, InsufficientBudget) and self._needs.start_with_less(member, self.active):
            got = self._carve_part(record, member, part, NOTHING)
        if paid and isinstance(got, InsufficientBudget):
            got = self._carve_part(record, member, 0.0, NOTHING)
        return got

    def _carve_part(self, record: TaskRun, member: str, part: float, least: Units) -> Units | InsufficientBudget:
        ceiling = record.task.budget if record.spent_by is None else record.ceiling_with(member)
        try:
            record.governor, guarantee = self._governors[member].carve_share(
                record.task.id, ceiling, part, self._reserve, least
            )
        except InsufficientBudget as short:
            return short.with_traceback(None)  # which holds this very frame
        return guarantee

    def _fail_unpaid(self, record: TaskRun, unpaid: Unpaid) -> None:
        record.for_halt = unpaid.halted
        self.end(record, FAILED, unpaid.error)

    def _requeue(self, count: int) -> None:
        for _ in range(count):
            self.board.make_ready(self._short.popleft().entry)

    # ------------------------------------------------------------------ over

    def hand_over(self, record: TaskRun, member: str, *, paid: bool) -> bool:
        """Give a task in flight to another member, with a budget from that one's; False when there is none.

        What the first did not use comes back before. A task that cannot be handed over stays with its member, with a
        new budget. `paid`: nothing has to be set aside.
        """
        if record.member == member:
            return True
        self.release_lease(record)
        old = record.governor
        if old is not None:
            record.leave(old.usage)
            old.close()
            self._tell_return(record)
        got = self._carve(record, member, paid=paid)
        given = not isinstance(got, InsufficientBudget)
        if given:
            record.member = member
        elif record.member is not None:
            got = self._carve(record, record.member, paid=True)
        if not isinstance(got, InsufficientBudget):
            self._emit(events.BudgetCarved, record.task.id, record.member, got[0] or None, got[1] or None)
        return given

    def skip_cancelled(self, recorded: PlanRecords) -> None:
        """Skip what was cancelled before it started, as soon as a plan that is recorded brings it back."""
        for record in () if recorded.is_new else list(self.records.values()):
            cancelled = record.steps.cancelled(record.task.id) if record.state is PENDING else None
            if cancelled is not None and not cancelled.started:
                self.end(record, TaskState.SKIPPED, cancelled.reason)

    def replace(self, replaced: Collection[str], tasks: Sequence[Task], bound: Bound, recorded: PlanRecords) -> None:
        """Put new tasks in the place of some that have not started."""
        for task_id in replaced:
            record = self.records[task_id]
            record.superseded = True
            if not record.ended:  # what it needs may have failed by now
                self.board.retire(record.entry)
                self._skip(record.entry, "another plan took its place")
        self._short = deque(record for record in self._short if not record.superseded)
        added = self.board.extend(tasks, recorded.bound(bound))
        for entry in added:
            self.records[entry.task.id] = TaskRun(entry, recorded)
            self._weight_left += entry.task.weight
        for entry in added:
            lost = None if entry.ended else self.board.lost_need(entry)
            if lost is not None:  # what it needs may have failed by now
                record = self.records[entry.task.id]
                self.end(record, TaskState.SKIPPED, record.reason_told(self._say_lack(entry, lost)))
        self.skip_cancelled(recorded)
        self.wake()

    def call_off(self, reason: str) -> list[str]:
        """Skip what has not started, because it is no longer needed; return which tasks that are."""
        waiting = (record for record in self.records.values() if record.state is PENDING and record.earlier is None)
        found = [record for record in waiting if record.steps.had_in_flight(record.task.id) is None]
        for record in found:
            self.board.retire(record.entry)
            self._skip(record.entry, reason)
        return [record.task.id for record in found]

    def stop(self) -> None:
        """Hand out no further task: the run is about to end."""
        self._stopped = True

    def conclude(self) -> None:
        """End the run once all tasks stand as they did when the recorded run was concluded.

        Whoever concludes may hold a slot that others had in the meantime: from now on nobody needs one.
        """
        self._has_concluded = True
        self._slots = None
        while self._slot_waiters:
            self._slots_taken += 1
            self._slot_waiters.popleft().set()
        self.wake()

    def _stands_as_recorded(self, task_id: str) -> bool:
        """Say whether a task that had not ended when the recorded run did stands as it did then."""
        record = self.records.get(task_id)
        if record is None:
            return False
        return record.state is SUSPENDED or task_id in self._parked or not record.steps.was_tried(task_id)

    # ------------------------------------------------------------------ back

    def end(self, record: TaskRun, to: TaskState, reason: str | None = None, *, verdict: str | None = None) -> None:
        """Book a task's end: give everything back, tell, skip what can no longer start, and wake the ready loop."""
        in_flight, pending = record.in_flight, record.state is PENDING
        if record.trying is not None:
            self.cut(record, reason)
        record.move(to)
        record.error = reason
        if in_flight:
            if record.governor is not None and record.member is not None and to is not CANCELLED:
                self._needs.learn(record.member, record.governor.took, ran_out=record.for_halt and to is FAILED)
            self._give_back(record, to)
        elif pending:
            self._weight_left -= record.task.weight
        self.tell_end(record, verdict)
        for entry, cause in self.board.end(record.entry, accepted=to is COMPLETED):
            self._skip(entry, self._say_lack(entry, cause))
        self.wake()

    def cut(self, record: TaskRun, reason: str | None) -> None:
        """Emit the end of the attempt that is cut short, if one was begun."""
        if record.trying is not None and self.on_cut is not None:
            self.on_cut(record, record.trying[0], reason)
        record.trying = None

    def _say_lack(self, entry: Entry, last: Entry) -> str:
        """Say why a task can no longer start: what it needs, and what was not accepted, `last` being the last of it."""
        depends_on = entry.task.depends_on
        if entry.needed == len(depends_on):
            return f"it needs {last.task.id!r}, which was not accepted"
        found = [self.board.entries[name] for name in depends_on]
        lost = [repr(one.task.id) for one in found if one.ended and not one.accepted]
        left = f"only {len(found) - len(lost)}" if len(lost) < len(found) else "none"
        more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
        needs = f"it needs {entry.needed} of its {len(found)} dependencies"
        return f"{needs}, and {left} can be accepted: {', '.join(lost[:_NAMED])}{more} were not"

    def suspend(self, record: TaskRun, reason: str) -> None:
        """Let a task wait for a person: it gives everything back, and its dependents wait with it."""
        record.move(SUSPENDED)
        record.error = reason
        self._give_back(record, SUSPENDED)
        self._held_back += 1
        self.wake()

    def tell_end(self, record: TaskRun, verdict: str | None = None) -> None:
        """Emit a task's last event."""
        task_id, member, attempts = record.task.id, record.member, record.attempts
        if record.state is COMPLETED:
            self._emit(events.TaskCompleted, task_id, member, attempts, record.error, verdict)
        else:
            self._emit(_ENDED[TaskState(record.state)], task_id, member, attempts, record.error)

    def _skip(self, entry: Entry, reason: str) -> None:
        record = self.records[entry.task.id]
        record.move(TaskState.SKIPPED)
        record.error = reason = record.reason_told(reason) if record.steps.earlier else reason
        self._weight_left -= record.task.weight
        self._emit(events.TaskSkipped, entry.task.id, None, 0, reason)

    def _give_back(self, record: TaskRun, to: TaskState) -> None:
        if record.leased is not None:
            self.release_lease(record)
        if record.governor is not None:
            record.governor.close()
            if to is CANCELLED:  # an attempt was cut short and has not reported
                spent = record.governor.usage
                record.usage = spent if record.before is None else record.before + spent
            record.governor = None
            self._tell_return(record)
        self.active -= 1
        if record.has_slot:
            self._release_slot(record)

    def _tell_return(self, record: TaskRun) -> None:
        """Tell that a task's budget came back, also to those that wait for some."""
        self._emit(events.BudgetReturned, record.task.id, record.member, record.usage)
        self.budget_came_back()

    def budget_came_back(self) -> None:
        """Let the tasks that wait for budget look again."""
        for returned in self._returns:
            returned.set()
        if self._short:
            self._requeue(min(len(self._short), _RETRY_SHORT))

    def wake(self) -> None:
        """Let the ready loop look again, and the run end where that was all it waited for."""
        if self._has_concluded:
            ended = len(self.records) - self.board.unended
            if self._recorded.has_caught_up(self._stands_as_recorded, ended):
                self.over()
        if self._sleeper is not None:
            self._sleeper.set()
            self._sleeper = None

    # ------------------------------------------------------------------ leases and slots

    async def lease(self, record: TaskRun, member: str) -> None:
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

    def release_lease(self, record: TaskRun) -> None:
        """Give the task's lease back, if it has one."""
        if record.leased is not None:
            self.board.release(record.leased)
            record.leased = None
            self.wake()

    async def top_up(self, record: TaskRun, halt: HaltReason, origin: str | None) -> bool:
        """Set more aside for a task that `origin` left short of something, once some of it has come back.

        Waits, without a slot, as long as others in flight may give back; False when nothing more will come.
        """
        governor, dimension = record.governor, _DIMENSION.get(halt)
        if governor is None or dimension is None or origin == governor.name:  # its own ceiling stays
            return False
        had = getattr(governor.remaining, dimension)
        if had is None:  # nothing is short here: it was the limit of a governor of the agent's own
            return False
        while governor.halted is None:
            if record.interrupted is not None:
                return True  # the next try records that it was cancelled
            if getattr(governor.remaining, dimension) > had:
                part = record.task.weight / (self._weight_left + record.task.weight)
                got = governor.top_up_share(dimension, part)
                self._emit(events.BudgetToppedUp, record.task.id, record.member, got[0] or None, got[1] or None)
                return True
            if self.active <= len(self._returns) + 1:  # all the others wait like this one
                return False
            await self.without_slot(record, self._wait_for_return)
        return False

    async def _wait_for_return(self) -> None:
        returned = anyio.Event()
        self._returns.append(returned)
        try:
            await returned.wait()
        finally:
            self._returns.remove(returned)

    async def without_slot(self, record: TaskRun, wait: Callable[..., Awaitable[T]], *args: Any) -> T | None:
        """Await something for a task without its slot: what is ready may use it meanwhile.

        None when the task was cancelled while it waited.
        """
        self._release_slot(record)
        self.wake()
        waited: T | None = None
        with anyio.CancelScope() as record.wait:
            waited = await wait(*args)
            await self._take_slot(record)
        record.wait = None
        return waited

    async def wait_for(self, record: TaskRun, key: str, wait: Callable[..., Awaitable[T]], *args: Any) -> T | None:
        """Await the recorded step `key` of a task without its slot, or the end where the recorded run came to one."""
        no_slot = f"{key}:cut"
        if record.steps.ended_before(key) or record.steps.ended_in(no_slot):
            await self.wait_for_end(record)
        try:
            return await self.without_slot(record, wait, *args)
        except Exception:
            raise
        except BaseException:
            record.steps.put(no_slot, True)
            raise

    async def _take_slot(self, record: TaskRun) -> None:
        if self._slots is not None and self._slots_taken >= self._slots:
            turn = anyio.Event()
            self._slot_waiters.append(turn)
            try:
                await turn.wait()
            except BaseException:
                if turn.is_set():
                    self._pass_slot_on()
                else:
                    self._slot_waiters.remove(turn)
                raise
        else:
            self._slots_taken += 1
        record.has_slot = True

    def _release_slot(self, record: TaskRun) -> None:
        record.has_slot = False
        self._pass_slot_on()

    def _pass_slot_on(self) -> None:
        if self._slot_waiters:
            self._slot_waiters.popleft().set()
        else:
            self._slots_taken -= 1

    async def wait_for_end(self, record: TaskRun) -> NoReturn:
        """Go no further with a task in flight: the recorded run ended here, and this one ends in its time."""
        self.park(record)
        await anyio.sleep_forever()
        raise AssertionError("the end interrupts it")

    def park(self, record: TaskRun) -> None:
        """Leave a task in flight as it is until the run ends: it gives its lease and its slot back."""
        if record.task.id in self._parked:
            return
        self._parked.add(record.task.id)
        self.release_lease(record)
        if record.has_slot:
            self._release_slot(record)
        self.wake()

    def _histories(self) -> str:
        return "; ".join(f"{r.task.id}: {' -> '.join(r.history)}" for r in self.records.values() if not r.ended)


def _nothing() -> None:
    """Do nothing."""


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
