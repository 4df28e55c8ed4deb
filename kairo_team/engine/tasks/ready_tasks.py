"""The task board: which task may start next, on which member, and what an end sets free. No I/O, no clock."""

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
    from kairo_team.governance.governor import Governor
    from kairo_team.results import Artifact

Queued = tuple[float, int, "Entry"]
"""A task in a queue: heaps compare the first two, which no two tasks share."""


@dataclass(slots=True, eq=False)
class Parts:
    """What a map or a loop grew into."""

    entries: list[Entry] = field(default_factory=list["Entry"])
    """In the order of items, or of rounds."""
    open: int = 0
    """How many of these have not ended."""
    weight: int = 0
    """What of its weight is not given to them, as `exact_weight` returns it."""
    unstarted: int = 0
    """The weight of those that have not started."""
    shared: Governor | None = None
    """The budget that they share; None: they have none but their members'."""
    rounds: list[int] = field(default_factory=list[int])
    """Where among them each round of a loop begins."""


@dataclass(slots=True, eq=False)
class MapCounts:
    """Counts the items of maps among the dependencies of a task."""

    dependencies: int
    """Its dependencies, with the items of maps that have ended in the place of these."""
    open_maps: int = 0
    """Maps that have not ended: nobody knows yet how many items they have."""


@dataclass(slots=True, eq=False)
class Entry:
    """One task on the board."""

    task: Task
    index: int
    """Place in plan order."""
    candidates: tuple[str, ...]
    """Members that may do it."""
    priority: float = 0.0
    """Weight of the heaviest path from it to the end, itself included."""
    needed: int = 0
    """Dependencies that must be accepted."""
    open_needs: int = 0
    """Dependencies that have not ended."""
    accepted_needs: int = 0
    dependents: list[Entry] = field(default_factory=lambda: [])  # noqa: PIE807 - `list[...]` is slow to call
    queued: Queued | None = None
    """Its place in the queue it stands in, with its order of dispatch; None: in none. Any other place is left over."""
    claim: str | None = None
    """The member with a free lease for whose sake it was parked no longer; None: it was never parked, or is again."""
    started: bool = False
    """It was dispatched with a budget."""
    ended: bool = False
    accepted: bool = False
    parent: Entry | None = None
    """The map or loop that it grew from."""
    round: int = 0
    """The round of the loop that it is part of, from 1."""
    parts: Parts | None = None
    """What it grew into; None: it does not grow."""
    counts: MapCounts | None = None
    """How its needs are counted where it depends on a map or a loop; None: each dependency counts once."""
    readers: tuple[Callable[[Artifact], object], ...] = ()
    """What the plan reads from its artifact: they raise `Unreadable`."""

    @property
    def shared(self) -> Governor | None:
        """The budget that it shares with others of the map or the loop that it grew from."""
        return None if self.parent is None or self.parent.parts is None else self.parent.parts.shared

    def queue(self) -> Queued:
        """Return its place in a queue: longest path first, then plan order."""
        self.queued = queued = (-self.priority, self.index, self)
        return queued

    @property
    def is_lost(self) -> bool:
        """Too few of its dependencies can still be accepted."""
        if self.accepted_needs + self.open_needs >= self.needed:
            return False
        return self.counts is None or not self.counts.open_maps

    @property
    def ready(self) -> bool:
        """All dependencies have ended and enough of them were accepted."""
        return not self.open_needs and self.accepted_needs >= self.needed


@dataclass(slots=True)
class _Leases:
    """One member's capacity and who waits for it."""

    limit: int | None
    taken: int = 0
    waiting: deque[Callable[[], None]] = field(default_factory=deque[Callable[[], None]])
    """Attempts of tasks in flight; they go before tasks that have not started."""
    parked: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    """Keys of the queues of parked tasks this member may serve."""

    @property
    def free(self) -> bool:
        return self.limit is None or self.taken < self.limit


class ReadyTasks:
    """Readiness, order and leases of one plan. Cost per task is constant but for the heap's logarithm."""

    def __init__(
        self, graph: TaskGraph, candidates: Mapping[str, tuple[str, ...]], capacity: Mapping[str, int | None]
    ) -> None:
        self.entries = _make_entries(graph, candidates)
        self.unended = len(self.entries)
        self._leases = {name: _Leases(limit) for name, limit in capacity.items()}
        self._parked: dict[tuple[str, ...], list[Queued]] = {}
        self._ready: list[Queued] = []
        self.due: deque[Entry] = deque()
        """Tasks that have a condition or grow, and can go on: what they depend on, or grew into, has ended."""
        self._told: list[Queued] = []
        """Ready tasks of which it was told that they wait for a slot."""
        self.on_member_wait: Callable[[Entry], object] = _nothing
        """Called for a ready task whose members are all taken."""
        for entry in self.entries.values():
            if entry.ready:
                self._start(entry)

    # ------------------------------------------------------------ dispatch

    def take(self) -> tuple[Entry, str] | None:
        """Return the next task and its member, whose lease is taken; None when nothing can start now."""
        while self._ready or self._told:
            queued = heappop(self._first_queue())
            entry = queued[2]
            if entry.ended or entry.queued is not queued:
                continue
            claim, entry.claim = entry.claim, None
            member = self._lease_any(entry.candidates)
            if claim is not None and claim != member:
                self._offer(claim)
            if member is not None:
                entry.queued = None
                return entry, member
            self._park(queued)
            self.on_member_wait(entry)
        return None

    def _first_queue(self) -> list[Queued]:
        """Return the queue whose first task goes first; one of them has some."""
        if not self._told or (self._ready and self._ready[0] < self._told[0]):
            return self._ready
        return self._told

    def untold(self) -> Iterator[Entry]:
        """Go through the ready tasks that nothing keeps but the lack of a slot, each once while it is queued."""
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
        """Book a task's end; yield each task that can no longer start, ended here too, with the task it lacks."""
        ended = [self._book_end(entry, accepted)]
        for cause in ended:  # it grows meanwhile
            for dependent in cause.dependents:
                dependent.open_needs = still_open = dependent.open_needs - 1
                if dependent.counts is None:
                    dependent.accepted_needs += cause.accepted
                else:
                    _count(dependent, dependent.counts, cause)
                if dependent.ended:
                    continue
                short = dependent.accepted_needs + still_open < dependent.needed
                if short and dependent.is_lost:
                    ended.append(self._book_end(dependent, accepted=False))
                    yield dependent, cause
                elif not still_open:
                    self._start(dependent)

    def retire(self, entry: Entry) -> None:
        """End a task that has not started, with all its dependents: another plan takes their place."""
        self._book_end(entry, accepted=False)

    def extend(self, tasks: Sequence[Task], candidates: Mapping[str, tuple[str, ...]]) -> list[Entry]:
        """Put more tasks on the board; they may depend on what is there, and must be able to start one day."""
        added: list[Entry] = []
        for index, task in enumerate(tasks, len(self.entries)):
            self.entries[task.id] = entry = Entry(task, index, candidates[task.id])
            added.append(entry)
        self.unended += len(added)
        for entry in added:
            _connect(entry, self.entries)
        self._raise_priorities(_set_priorities({entry.task.id: entry for entry in added}))
        for entry in added:
            if entry.ready:
                self._start(entry)
        return added

    def _start(self, entry: Entry) -> None:
        """Queue a task whose needs are met, or let it grow or decide first."""
        if entry.parts is None and entry.task.when is None:
            heappush(self._ready, entry.queue())
        else:
            self.due.append(entry)

    def _raise_priorities(self, below: list[Entry]) -> None:
        """Raise the priorities of the tasks that these depend on, and so on, as far as they change.

        A path from a task is longer than those from its dependents: by that, each is looked at after them, and once.
        Tasks that have started or ended need none.
        """
        paths: dict[str, float] = {}
        """The heaviest path that was found behind a task."""
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
        """Return a dependency that was not accepted, if that keeps the task from ever being ready."""
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
        """Call `granted` once a lease is free and taken for the caller; returns a function that stops waiting."""
        waiting = self._leases[member].waiting
        waiting.append(granted)
        return lambda: waiting.remove(granted) if granted in waiting else self.release(member)

    def release(self, member: str) -> None:
        """Give a lease back: to a waiting attempt, else offer it to the best task parked for this member."""
        leases = self._leases[member]
        if leases.waiting:
            leases.waiting.popleft()()
            return
        leases.taken -= 1
        self._offer(member)

    def _offer(self, member: str) -> None:
        """Queue the best task parked for a member that has a free lease, with a claim on that lease.

        Called wherever a lease comes back, or a task with a claim on one ends or takes another. By that no parked task
        has a free candidate, unless as many queued tasks have claims on a member as it has free leases.
        """
        leases = self._leases[member]
        if not leases.parked or not leases.free:
            return
        best = min((key for key in leases.parked if self._any_parked(key)), key=self._first_parked, default=None)
        if best is not None:
            queued = heappop(self._parked[best])
            queued[2].claim = member
            heappush(self._ready, queued)

    def _any_parked(self, key: tuple[str, ...]) -> bool:
        """Return whether a task is parked there; places of tasks that have ended or moved meanwhile are removed."""
        queue = self._parked[key]
        while queue and (queue[0][2].ended or queue[0][2].queued is not queue[0]):
            heappop(queue)
        return bool(queue)

    def _first_parked(self, key: tuple[str, ...]) -> Queued:
        return self._parked[key][0]

    def _lease_any(self, candidates: tuple[str, ...]) -> str | None:
        if len(candidates) == 1:
            return candidates[0] if self.try_lease(candidates[0]) else None
        free = [name for name in candidates if self._leases[name].free]
        if not free:
            return None
        member = min(free, key=lambda name: self._leases[name].taken)
        self._leases[member].taken += 1
        return member

    def _park(self, queued: Queued) -> None:
        key = queued[2].candidates
        if key not in self._parked:
            self._parked[key] = []
            for member in key:
                self._leases[member].parked.append(key)
        heappush(self._parked[key], queued)


def _nothing(_entry: Entry) -> None:
    """Do nothing."""


def _make_entries(graph: TaskGraph, candidates: Mapping[str, tuple[str, ...]]) -> dict[str, Entry]:
    entries = {task.id: Entry(task, index, candidates[task.id]) for index, task in enumerate(graph.tasks)}
    for entry in entries.values():
        _connect(entry, entries)
    _set_priorities(entries)
    return entries


def _connect(entry: Entry, entries: Mapping[str, Entry]) -> None:
    """Make a task a dependent of those it needs, some of which may have ended, and a part of what it grew from."""
    task = entry.task
    if task.over is not None or task.loop is not None:
        entry.parts = Parts(weight=exact_weight(task.weight))
    if task.part_of is not None:
        _join(entry, entries[task.part_of])
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
    if task.over is not None or task.when is not None:
        _add_readers(task, entries)


def _counts_of(needs: Sequence[Entry]) -> MapCounts | None:
    """Return how needs are counted that depend on these; None: each counts once."""
    counts: MapCounts | None = None
    for one in needs:
        if one.task.over is not None or one.task.loop is not None:
            counts = counts or MapCounts(len(needs))
            counts.open_maps += one.task.over is not None
    return counts


def _add_readers(task: Task, entries: Mapping[str, Entry]) -> None:
    """Have a map's list, and what a condition looks at, read as soon as it is made."""
    if task.over is not None:
        _read(entries[task.over], partial(items_of, most=task.max_items or 0, task_id=task.id))
    if task.condition is not None:
        _read(entries[task.condition.source], task.condition.read)


def _read(source: Entry, reader: Callable[[Artifact], object]) -> None:
    source.readers = (*source.readers, reader)


def _join(entry: Entry, parent: Entry) -> None:
    """Make a task a part of the map or loop that it grew from."""
    entry.parent = parent
    entry.priority = max(0.0, parent.priority - parent.task.weight)  # what comes behind the parent comes behind it
    if parent.parts is not None:
        entry.round = len(parent.parts.rounds)
        parent.parts.entries.append(entry)
        parent.parts.open += 1


def _count(entry: Entry, counts: MapCounts, dependency: Entry) -> None:
    """Count a dependency that has ended, or in the place of a map its items."""
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

    Returns the tasks that depend on others than these.
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
    """Return the map or loop with whose tasks it shares a budget; None: it shares none."""
    parent = entry.parent
    while parent is not None and parent.task.budget is None:
        parent = parent.parent
    return parent


def part_of_shared(entry: Entry) -> float:
    """Return its part of what is left of that budget: by its weight, among those that have not started."""
    group = group_of(entry)
    weight, left = exact_weight(entry.task.weight), 0 if group is None or group.parts is None else group.parts.unstarted
    return weight / left if left > weight else 1.0
