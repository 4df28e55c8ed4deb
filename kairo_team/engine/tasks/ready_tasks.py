"""The task board: which task may start next, on which member, and what an end makes ready. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kairo_team.conditions import items_of
from kairo_team.tasks import Task, TaskGraph, exact_weight

if TYPE_CHECKING:
    from kairo_team.artifacts import Artifact
    from kairo_team.governance.governor import Governor

Queued = tuple[float, int, "Entry"]
"""A queue entry: heaps compare the first two fields, which no two tasks share."""


@dataclass(slots=True, eq=False)
class Parts:
    """What a map or a loop grew into."""

    entries: list[Entry] = field(default_factory=list["Entry"])
    """The tasks in the order of items, or of rounds."""
    open: int = 0
    """How many of the tasks have not ended."""
    weight: int = 0
    """Weight that is not yet given to the tasks, as `exact_weight` returns it."""
    unstarted: int = 0
    """Weight of the tasks that have not started."""
    shared: Governor | None = None
    """The governor that the tasks share; None: they only have their members'."""
    rounds: list[int] = field(default_factory=list[int])
    """Index of the first task of each round of a loop."""


@dataclass(slots=True, eq=False)
class MapCounts:
    """Counts the items of maps among the dependencies of a task."""

    dependencies: int
    """Number of dependencies, with each ended map counted as its items."""
    open_maps: int = 0
    """Maps that have not ended: their number of items is not known yet."""


@dataclass(slots=True, eq=False)
class Entry:
    """One task on the board."""

    task: Task
    index: int
    """Place in plan order."""
    candidates: tuple[str, ...]
    """Members that may do the task."""
    priority: float = 0.0
    """Weight of the heaviest path from the task to the end, the task included."""
    needed: int = 0
    """How many dependencies must be accepted."""
    open_needs: int = 0
    """How many dependencies have not ended."""
    accepted_needs: int = 0
    dependents: list[Entry] = field(default_factory=lambda: [])  # noqa: PIE807 - `list[...]` is slow to call
    queued: Queued | None = None
    """The current queue entry; None if not queued. Older entries are stale."""
    claim: str | None = None
    """The member whose free lease unparked the task; None if it is parked, or never was."""
    started: bool = False
    """Whether the task was dispatched with a budget."""
    ended: bool = False
    accepted: bool = False
    parent: Entry | None = None
    """The map or loop that the task grew from."""
    round: int = 0
    """The round of the loop that the task is part of, from 1."""
    parts: Parts | None = None
    """What the task grew into; None: it does not grow."""
    counts: MapCounts | None = None
    """How dependencies are counted if one of them is a map or a loop; None: each counts once."""
    readers: tuple[Callable[[Artifact], object], ...] = ()
    """What the plan reads from the task's artifact: they raise `Unreadable`."""

    @property
    def shared(self) -> Governor | None:
        """The governor shared by the tasks of the map or loop that this one grew from; None: not shared."""
        return None if self.parent is None or self.parent.parts is None else self.parent.parts.shared

    def queue(self) -> Queued:
        """Make a new queue entry: longest path first, then plan order."""
        self.queued = queued = (-self.priority, self.index, self)
        return queued

    @property
    def is_lost(self) -> bool:
        """Whether too few dependencies can still be accepted."""
        if self.accepted_needs + self.open_needs >= self.needed:
            return False
        return self.counts is None or not self.counts.open_maps

    @property
    def ready(self) -> bool:
        """Whether all dependencies have ended and enough of them were accepted."""
        return not self.open_needs and self.accepted_needs >= self.needed


@dataclass(slots=True)
class _Leases:
    """One member's capacity, and its waiters."""

    limit: int | None
    taken: int = 0
    waiting: deque[Callable[[], None]] = field(default_factory=deque[Callable[[], None]])
    """Attempts of tasks in flight; they have precedence over tasks that have not started."""
    parked: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """Keys of the queues of parked tasks that this member may do."""

    @property
    def free(self) -> bool:
        return self.limit is None or self.taken < self.limit


class ReadyTasks:
    """Readiness, order and leases of one plan. The cost per task is constant except for the heap's logarithm."""

    def __init__(
        self, graph: TaskGraph, candidates: Mapping[str, tuple[str, ...]], capacity: Mapping[str, int | None]
    ) -> None:
        self.entries: dict[str, Entry] = {}
        self.unended = 0
        self._leases = {name: _Leases(limit) for name, limit in capacity.items()}
        self._parked: dict[tuple[str, ...], list[Queued]] = {}
        self._ready: list[Queued] = []
        self.due: deque[Entry] = deque()
        """Tasks with a condition, maps and loops that can proceed: all they depend on, or grew into, has ended."""
        self._told: list[Queued] = []
        """Ready tasks whose wait for a slot was reported."""
        self.on_member_wait: Callable[[Entry], object] = nothing
        """Called for a ready task whose members are all taken."""
        self.extend(graph.tasks, candidates)

    # ------------------------------------------------------------ dispatch

    def take(self) -> tuple[Entry, str] | None:
        """Return the next task and its member, whose lease is taken; None if nothing can start now."""
        while self._ready or self._told:
            # The queue whose first task has precedence: at least one of the two is not empty.
            told_first = self._told and not (self._ready and self._ready[0] < self._told[0])
            queued = heappop(self._told if told_first else self._ready)
            entry = queued[2]
            # A heap removes nothing from its middle: a task that ended or was queued again leaves its old item behind.
            if entry.ended or entry.queued is not queued:
                continue
            claim, entry.claim = entry.claim, None
            member = self._lease_any(entry.candidates)
            # The lease that was kept for this task is free for another one now.
            if claim is not None and claim != member:
                self._offer(claim)
            if member is not None:
                entry.queued = None
                return entry, member
            if entry.candidates not in self._parked:
                self._parked[entry.candidates] = []
                for name in entry.candidates:
                    self._leases[name].parked.append(entry.candidates)
            heappush(self._parked[entry.candidates], queued)
            self.on_member_wait(entry)
        return None

    def untold(self) -> Iterator[Entry]:
        """Yield the ready tasks that wait for nothing but a slot, each once while it is queued."""
        while self._ready:
            queued = heappop(self._ready)
            entry = queued[2]
            if not entry.ended and entry.queued is queued:
                heappush(self._told, queued)
                yield entry

    def make_ready(self, entry: Entry) -> None:
        """Queue a task whose needs are met."""
        heappush(self._ready, entry.queue())

    def end(self, entry: Entry, *, accepted: bool) -> Iterator[tuple[Entry, Entry]]:
        """Book a task's end; yield each task that can no longer start, which ends here too, with the cause."""
        ended = [self._book_end(entry, accepted)]
        for cause in ended:  # the list grows meanwhile
            for dependent in cause.dependents:
                dependent.open_needs = still_open = dependent.open_needs - 1
                if dependent.counts is None:
                    dependent.accepted_needs += cause.accepted
                else:
                    _count(dependent, dependent.counts, cause)
                if dependent.ended:
                    continue
                # `is_lost` asks the same, but as a property it costs more, and this runs for each edge of the plan.
                short = dependent.accepted_needs + still_open < dependent.needed
                if short and dependent.is_lost:
                    ended.append(self._book_end(dependent, accepted=False))
                    yield dependent, cause
                elif not still_open:
                    self._start(dependent)

    def retire(self, entry: Entry) -> None:
        """End a task that has not started; the caller retires its dependents too."""
        self._book_end(entry, accepted=False)

    def extend(self, tasks: Sequence[Task], candidates: Mapping[str, tuple[str, ...]]) -> list[Entry]:
        """Put tasks on the board; they may depend on existing tasks, and must be able to start."""
        added: list[Entry] = []
        for index, task in enumerate(tasks, len(self.entries)):
            self.entries[task.id] = entry = Entry(task, index, candidates[task.id])
            added.append(entry)
        # All are on the board before any is connected: they may depend on each other.
        self.unended += len(added)
        for entry in added:
            _connect(entry, self.entries)
        self._raise_priorities(_set_priorities({entry.task.id: entry for entry in added}))
        for entry in added:
            if entry.ready:
                self._start(entry)
        return added

    def _start(self, entry: Entry) -> None:
        """Queue a task whose needs are met; a map, a loop or a task with a condition becomes due first."""
        if entry.parts is None and entry.task.when is None:
            heappush(self._ready, entry.queue())
        else:
            self.due.append(entry)

    def _raise_priorities(self, below: list[Entry]) -> None:
        """Raise the priorities of all tasks that these depend on, directly or not, as far as they change.

        Tasks that have started or ended keep theirs.
        """
        # A path from a task is longer than those from its dependents. So each task is visited after them, and once.
        paths: dict[str, float] = {}
        """The heaviest path that was found behind a task, by its id."""
        above: list[Queued] = []
        while below:
            for entry in below:
                for name in entry.task.depends_on:
                    other, path = self.entries[name], entry.priority
                    if other.started or other.ended or other.priority >= path + other.task.weight:
                        continue
                    if name not in paths:
                        heappush(above, (other.priority, other.index, other))
                    paths[name] = max(path, paths.get(name, path))
            if not above:
                return
            entry = heappop(above)[2]
            entry.priority = paths.pop(entry.task.id) + entry.task.weight
            if entry.queued is not None:
                heappush(self._ready, entry.queue())
            below = [entry]

    def lost_need(self, entry: Entry) -> Entry | None:
        """Return a dependency that was not accepted, if it keeps the task from ever being ready."""
        if not entry.is_lost:
            return None
        needs = (self.entries[name] for name in entry.task.depends_on)
        return next(need for need in needs if need.ended and not need.accepted)

    def _book_end(self, entry: Entry, accepted: bool) -> Entry:
        entry.ended, entry.accepted = True, accepted
        self.unended -= 1
        if entry.claim is not None:
            claim, entry.claim = entry.claim, None
            self._offer(claim)
        if entry.parent is not None and (parts := entry.parent.parts) is not None:
            parts.open -= 1
            if not parts.open:
                self.due.append(entry.parent)
        return entry

    # ------------------------------------------------------------ leases

    def try_lease(self, member: str) -> bool:
        """Take a lease of the member if one is free."""
        leases = self._leases[member]
        if not leases.free:
            return False
        leases.taken += 1
        return True

    def wait_for_lease(self, member: str, granted: Callable[[], None]) -> Callable[[], None]:
        """Call `granted` once a lease is free and taken for the caller; return a function that stops waiting."""
        waiting = self._leases[member].waiting
        waiting.append(granted)
        # Whoever stops waiting just after the lease was granted has to give the lease back.
        return lambda: waiting.remove(granted) if granted in waiting else self.release(member)

    def release(self, member: str) -> None:
        """Give a lease back: to a waiting attempt, else offer it to the best task parked for this member."""
        leases = self._leases[member]
        if leases.waiting:
            # `taken` stays the same: the lease changes hands.
            leases.waiting.popleft()()
            return
        leases.taken -= 1
        self._offer(member)

    def _offer(self, member: str) -> None:
        """Queue the best task parked for a member that has a free lease, with a claim on that lease.

        Call this wherever a lease comes back, or a task with a claim on one ends or takes another. Then no parked task
        has a free candidate, unless as many queued tasks have claims on that member as it has free leases.
        """
        leases = self._leases[member]
        if not leases.parked or not leases.free:
            return
        keys = (key for key in leases.parked if self._any_parked(key))
        best = min(keys, key=lambda key: self._parked[key][0], default=None)
        if best is not None:
            queued = heappop(self._parked[best])
            queued[2].claim = member
            heappush(self._ready, queued)

    def _any_parked(self, key: tuple[str, ...]) -> bool:
        """Return whether a task is parked under the key; drop entries of tasks that have ended or moved."""
        queue = self._parked[key]
        while queue and (queue[0][2].ended or queue[0][2].queued is not queue[0]):
            heappop(queue)
        return bool(queue)

    def _lease_any(self, candidates: tuple[str, ...]) -> str | None:
        if len(candidates) == 1:
            return candidates[0] if self.try_lease(candidates[0]) else None
        free = [name for name in candidates if self._leases[name].free]
        if not free:
            return None
        member = min(free, key=lambda name: self._leases[name].taken)
        self._leases[member].taken += 1
        return member


def nothing(*_of: object) -> None:
    """Do nothing."""


def _connect(entry: Entry, entries: Mapping[str, Entry]) -> None:
    """Connect a task to its dependencies, some of which may have ended, and to the map or loop it grew from."""
    task = entry.task
    if task.over is not None or task.loop is not None:
        entry.parts = Parts(weight=exact_weight(task.weight))
    if task.part_of is not None:
        entry.parent = parent = entries[task.part_of]
        entry.priority = max(0.0, parent.priority - parent.task.weight)  # what follows the parent follows the part too
        if parent.parts is not None:
            entry.round = len(parent.parts.rounds)
            parent.parts.entries.append(entry)
            parent.parts.open += 1
    if not task.depends_on:
        return
    entry.needed = task.needed
    entry.open_needs = len(task.depends_on)
    needs = [entries[name] for name in task.depends_on]
    entry.counts = _counts_of(needs)
    for dependency in needs:
        dependency.dependents.append(entry)
        if dependency.ended:
            entry.open_needs -= 1
            if entry.counts is None:
                entry.accepted_needs += dependency.accepted
            else:
                _count(entry, entry.counts, dependency)
    # A map's list, and what a condition looks at, are read as soon as they are made.
    if task.over is not None:
        entries[task.over].readers += (partial(items_of, most=task.max_items or 0, task_id=task.id),)
    if task.when is not None and task.condition is not None:
        entries[task.condition.source].readers += (task.condition.read,)


def _counts_of(needs: Sequence[Entry]) -> MapCounts | None:
    """Return how these dependencies are counted; None: each counts once."""
    counts: MapCounts | None = None
    for one in needs:
        if one.task.over is not None or one.task.loop is not None:
            counts = counts or MapCounts(len(needs))
            counts.open_maps += one.task.over is not None
    return counts


def _count(entry: Entry, counts: MapCounts, dependency: Entry) -> None:
    """Count a dependency that has ended; for a map, count its items instead."""
    items = () if dependency.parts is None or dependency.task.over is None else dependency.parts.entries
    if dependency.task.over is not None:
        counts.open_maps -= 1
    if items or (dependency.task.over is not None and dependency.accepted):
        counts.dependencies += len(items) - 1
        entry.accepted_needs += sum(item.accepted for item in items)
        entry.needed = entry.task.needed_of(counts.dependencies)
    else:
        entry.accepted_needs += dependency.accepted


def _set_priorities(entries: Mapping[str, Entry]) -> list[Entry]:
    """Walk from the ends to the starts (Kahn's order, reversed), adding up the heaviest path.

    Return the tasks that also depend on tasks outside `entries`.
    """
    left: dict[str, int] = {}
    ends: list[Entry] = []
    outside: list[Entry] = []
    for name, entry in entries.items():
        left[name] = len(entry.dependents)
        if not entry.dependents:
            ends.append(entry)
    while ends:
        entry = ends.pop()
        entry.priority = priority = entry.priority + entry.task.weight
        for name in entry.task.depends_on:
            dependency = entries.get(name)
            if dependency is None:
                outside.append(entry)
                continue
            if dependency.priority < priority:  # noqa: PLR1730 - `max` is slow
                dependency.priority = priority
            left[name] -= 1
            if not left[name]:
                ends.append(dependency)
    return outside


def group_of(entry: Entry) -> Entry | None:
    """Return the map or loop whose budget the task shares; None if it shares none."""
    parent = entry.parent
    while parent is not None and parent.task.budget is None:
        parent = parent.parent
    return parent


def part_of_shared(entry: Entry) -> float:
    """Return the task's part of what is left of the shared budget: by weight, among the tasks that have not started."""
    group = group_of(entry)
    if group is None or group.parts is None:
        return 1.0
    weight, left = exact_weight(entry.task.weight), group.parts.unstarted
    return weight / left if left > weight else 1.0
