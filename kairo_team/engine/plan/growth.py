"""Maps, branches and loops: what a task grows into once all its dependencies have ended, and how that ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kairo_team._util.counts import count
from kairo_team._util.frozen import EMPTY, FrozenDict
from kairo_team.artifacts import Artifact
from kairo_team.conditions import Condition, Unreadable, items_of
from kairo_team.engine.plan.grown_tasks import round_id, tasks_of_items, tasks_of_round
from kairo_team.engine.records.plan_records import MISSING
from kairo_team.engine.tasks.task_run import COMPLETED, FAILED, IN_FLIGHT, PENDING, TaskRun, TaskState
from kairo_team.files import unique
from kairo_team.plugin_calls import PLAIN_CALL, failure_of, problem_of, shown

if TYPE_CHECKING:
    from kairo_team.engine.plan.planning import RunPlan
    from kairo_team.engine.tasks.dispatcher import Dispatcher
    from kairo_team.engine.tasks.ready_tasks import Entry, Parts
    from kairo_team.governance.governor import Governor
    from kairo_team.tasks import Loop
    from kairo_team.team import Team

Made = tuple[tuple[str, str | None], ...]
"""What a round made: the name of each task, and the digest of its artifact."""


class Growth:
    """Decides on the tasks of one run that have a condition, and grows its maps and loops.

    All decisions are derived from accepted artifacts, which are recorded. Only the decisions of the team's functions
    are recorded separately. Nothing here waits.
    """

    def __init__(self, team: Team, root: Governor, plan: RunPlan, dispatcher: Dispatcher) -> None:
        self._team = team
        self._root = root
        self._plan = plan
        self._dispatcher = dispatcher
        self._made: dict[str, dict[Made, int]] = {}
        """What the rounds of each loop made, by its id, with the first round that made it."""
        dispatcher.on_due = self.settle

    def settle(self, entry: Entry) -> None:
        """Continue a task whose dependencies, or whose parts, have all ended."""
        task_run = self._dispatcher.tasks[entry.task.id]
        try:
            if task_run.ended:
                return
            task_run.recall_cancel()
            if task_run.state is PENDING:
                self._begin(task_run)
            elif entry.task.over is not None:
                self._end_map(task_run)
            else:
                self._end_round(task_run, entry.task.loop)
        except Unreadable as problem:
            self._end(task_run, FAILED, str(problem))

    def _begin(self, task_run: TaskRun) -> None:
        """Take the task if its condition holds: queue it, or let it grow."""
        task = task_run.task
        if task.condition is not None and not self._is_met(task.condition, task_run, "when", task.condition.source):
            task_run.not_taken = True
            self._dispatcher.end(task_run, TaskState.SKIPPED, f"not taken: {task.condition} does not hold")
        elif not task.grows:
            self._dispatcher.board.make_ready(task_run.entry)
        else:
            task_run.move(IN_FLIGHT)
            self._dispatcher.budgets.share(task_run, self._root)
            if task.over is None:
                self._begin_round(task_run)
                return
            items = items_of(self._artifact(task.over), task.max_items or 0, task.id)
            self._plan.grow(task_run, 1, self._dispatcher, tasks_of_items(task, items))
            if not items:
                self._end_map(task_run)

    def _end(self, task_run: TaskRun, to: TaskState, reason: str | None = None) -> None:
        """End a map or a loop as `to`, or as CANCELLED if a person cancelled it."""
        if task_run.in_flight and task_run.records.had_open(task_run.task.id):
            self._dispatcher.hold_back()
            return
        parts = _parts(task_run.entry).entries if task_run.task.grows else ()
        if to is FAILED and any(self._dispatcher.tasks[part.task.id].superseded for part in parts):
            task_run.superseded = True  # another plan replaced what it needed
        if task_run.task.loop is not None:
            task_run.artifact = made_by_loop(task_run.entry, self._dispatcher.tasks, accepted=to is COMPLETED)
        if to is not COMPLETED or task_run.interrupted is not None:
            to, reason = task_run.real_end(to, reason, None)
        self._dispatcher.end(task_run, to, reason)

    def _end_for(self, task_run: TaskRun, lost: Entry, why: str) -> None:
        """End a map or a loop as FAILED because a part, or a task that the part needed, was not accepted."""
        board, tasks = self._dispatcher.board, self._dispatcher.tasks
        while (need := board.lost_need(lost)) is not None:
            lost = need
        cause = tasks[lost.task.id]
        task_run.exception = cause.exception
        self._end(task_run, FAILED, f"{why}: {cause.task.id!r} {cause.state}: {cause.error}")

    # ------------------------------------------------------------------ maps

    def _end_map(self, task_run: TaskRun) -> None:
        parts = _parts(task_run.entry).entries
        if parts and not any(part.accepted for part in parts):
            self._end_for(task_run, parts[0], f"none of its {count(len(parts), 'item')} was accepted")
        else:
            self._end(task_run, COMPLETED)

    # ------------------------------------------------------------------ loops

    def _begin_round(self, task_run: TaskRun) -> None:
        task, parts, loop = task_run.task, _parts(task_run.entry), task_run.task.loop
        assert loop is not None, "what grows is a map or a loop"
        parts.rounds.append(len(parts.entries))
        number = len(parts.rounds)
        self._plan.grow(task_run, number, self._dispatcher, tasks_of_round(task, loop, number))
        until = loop.end
        if until is not None:
            source = self._dispatcher.board.entries[round_id(task.id, loop, number, until.source)]
            source.readers += (until.read,)

    def _end_round(self, task_run: TaskRun, loop: Loop | None) -> None:
        """End the loop, or begin its next round."""
        assert loop is not None, "what grows is a map or a loop"
        number, task_id, until = len(_parts(task_run.entry).rounds), task_run.task.id, loop.end
        if task_run.interrupted is not None:
            self._end(task_run, FAILED, None)
            return
        lost = _lost(task_run.entry, self._dispatcher.tasks, loop)
        if lost is not None:
            self._end_for(task_run, lost, f"round {number}")
        elif until is None:
            self._begin_round(task_run) if number < loop.max_rounds else self._end(task_run, COMPLETED)
        elif self._is_met(until, task_run, "until", round_id(task_id, loop, number, until.source)):
            self._end(task_run, COMPLETED)
        elif number == loop.max_rounds:
            self._end(task_run, FAILED, f"{until} did not hold after {count(number, 'round')}")
        else:
            made = tuple(_digests(task_run.entry, self._dispatcher.tasks))
            first = self._made.setdefault(task_id, {}).setdefault(made, number)
            if first < number:
                self._end(task_run, FAILED, f"no progress: round {number} made the same as round {first}")
            else:
                self._begin_round(task_run)

    # ------------------------------------------------------------------ conditions

    def _is_met(self, condition: Condition, task_run: TaskRun, kind: str, source: str) -> bool:
        """Return whether a condition holds for the artifact of `source`; `Unreadable` if it cannot be tested."""
        value = condition.read(self._artifact(source))
        if condition.test != "holds":
            return condition.met_by(value)
        parts = task_run.entry.parts
        # A loop decides once for each round.
        key = task_run.records.key(kind, task_run.task.id, 0 if parts is None else len(parts.rounds))
        recorded = task_run.records.recall(key)
        if recorded is MISSING:
            recorded = self._ask(condition, value)
            task_run.records.put(key, recorded)
        return bool(recorded)

    def _ask(self, condition: Condition, value: Any) -> bool:
        """Call a condition function of the team."""
        name = f"the team's condition {condition.value!r}"
        try:
            with PLAIN_CALL:
                found: Any = self._team.conditions[condition.value](value)
        except BaseException as raised:
            error = failure_of(raised)
            if error is None:
                raise
            raise Unreadable(f"{name} raised {problem_of(error, None)}") from error
        if not isinstance(found, bool):
            raise Unreadable(f"{name} returned {shown(found, 80)}; it has to return True or False")
        return found

    def _artifact(self, task_id: str) -> Artifact:
        task_run = self._dispatcher.tasks[task_id]
        if not task_run.entry.accepted or task_run.artifact is None:
            raise Unreadable(f"it looks at {task_id!r}, which was not accepted")
        return task_run.artifact


def _lost(entry: Entry, tasks: Mapping[str, TaskRun], loop: Loop) -> Entry | None:
    """Return a task of the last round that was not accepted and without which the loop cannot continue."""
    for part in _last_round(entry):
        decides = loop.end is None or _in_body(part) == loop.end.source
        if decides and not part.accepted and not (loop.end is None and tasks[part.task.id].not_taken):
            return part
    return None


def _parts(entry: Entry) -> Parts:
    assert entry.parts is not None, "a map or a loop has parts"
    return entry.parts


def _last_round(entry: Entry) -> Sequence[Entry]:
    """Return the tasks of a loop's last round."""
    parts = _parts(entry)
    return parts.entries[parts.rounds[-1] if parts.rounds else 0 :]


def _in_body(part: Entry) -> str:
    """Return the name that a task of a round has in the loop's body."""
    inside = part.task.id[len(part.task.part_of or "") + 1 :]
    return inside.partition(".")[2]


def _digests(entry: Entry, tasks: Mapping[str, TaskRun]) -> Iterator[tuple[str, str | None]]:
    """Yield what the last round of a loop made: names of tasks, and digests of their artifacts."""
    for part in _last_round(entry):
        if part.parts is None:
            artifact = tasks[part.task.id].artifact
            yield _in_body(part), None if artifact is None else artifact.digest
        else:
            yield from ((name, artifact.digest) for name, artifact in _made_by(part, _in_body(part), tasks))


# ---------------------------------------------------------------------- what a plan, or a round of a loop, made


def ends_of(
    entries: Iterable[Entry], tasks: Mapping[str, TaskRun], called_off: Collection[str] = ()
) -> Iterator[TaskRun]:
    """Yield the last tasks: their dependents, if any, were called off or not taken. A map's items replace the map."""
    for entry in entries:
        behind = [one.task.id for one in entry.dependents]
        if not all(name in called_off or tasks[name].not_taken for name in behind):
            continue
        if entry.task.over is None:
            yield tasks[entry.task.id]
        else:
            yield from ends_of(_parts(entry).entries, tasks, called_off)


def join(made: Iterable[tuple[str, Artifact | None]]) -> Artifact | None:
    """Return the existing artifacts as one, each under its task's id if there are several; None without any."""
    artifacts = [(task_id, artifact) for task_id, artifact in made if artifact is not None]
    if len(artifacts) <= 1:
        return artifacts[0][1] if artifacts else None
    text = "\n\n".join(f"{task_id}:\n{artifact.text}" for task_id, artifact in artifacts)
    files = unique(file for _, artifact in artifacts for file in artifact.files)
    return Artifact(text, partial=any(artifact.partial for _, artifact in artifacts), files=files)


def made_by_loop(entry: Entry, tasks: Mapping[str, TaskRun], *, accepted: bool) -> Artifact | None:
    """Return what the last tasks of a loop's body made.

    Of an `accepted` loop, that is what was accepted in the last round. Of any other, it is whatever was made in the
    last round that made something.
    """
    entries, begins = _parts(entry).entries, _parts(entry).rounds
    rounds = [entries[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=False)]
    for parts in reversed(rounds[-1:] if accepted else rounds):
        last = ends_of(parts, tasks)
        made = join((one.task.id, one.artifact) for one in last if one.entry.accepted or not accepted)
        if made is not None:
            return made
    return None


# ---------------------------------------------------------------------- what a task works on


def upstream_of(task_run: TaskRun, tasks: Mapping[str, TaskRun]) -> Mapping[str, Artifact]:
    """Return the accepted artifacts a task works on, in the order of `depends_on`, by the names its author knows.

    The names are ids of tasks: of a map's items in place of the map, and such as `polish.write` for a loop. A task of a
    loop's body knows its siblings by their names in the body, and the tasks of the last round as `last.write`. It also
    gets what its loop depends on. An item gets what its map depends on, except the list.
    """
    entry = task_run.entry
    if entry.parent is not None or entry.counts is not None:
        return FrozenDict(_upstream(entry, tasks))
    if not entry.task.depends_on:
        return EMPTY
    return FrozenDict(
        {
            name: one.artifact
            for name in entry.task.depends_on
            if (one := tasks[name]).artifact is not None and one.entry.accepted
        }
    )


def _upstream(entry: Entry, tasks: Mapping[str, TaskRun]) -> Iterator[tuple[str, Artifact]]:
    task, parent = entry.task, entry.parent
    prefix = ""
    if parent is not None:
        yield from _upstream(parent, tasks)
        if parent.task.over is None:
            prefix = task.id.removesuffix(_in_body(entry))
            yield from _last_made(entry, parent, tasks)
    for name in task.depends_on:
        if name != task.over:
            yield from _made_by(tasks[name].entry, name.removeprefix(prefix), tasks)


def _last_made(entry: Entry, loop: Entry, tasks: Mapping[str, TaskRun]) -> Iterator[tuple[str, Artifact]]:
    """Yield what the previous round made."""
    parts, number = _parts(loop), entry.round
    for part in parts.entries[parts.rounds[number - 2] : parts.rounds[number - 1]] if number > 1 else ():
        yield from _made_by(part, f"last.{_in_body(part)}", tasks)


def _made_by(entry: Entry, name: str, tasks: Mapping[str, TaskRun]) -> Iterator[tuple[str, Artifact]]:
    """Yield what a task made, under a name; for a map or loop what its tasks made, under names with that prefix."""
    if not entry.accepted:
        return
    if entry.parts is None:
        artifact = tasks[entry.task.id].artifact
        if artifact is not None:
            yield name, artifact
    elif entry.task.over is not None:
        for part in entry.parts.entries:
            yield from _made_by(part, f"{name}.{part.task.id[len(entry.task.id) + 1 :]}", tasks)
    else:
        for part in _last_round(entry):
            yield from _made_by(part, f"{name}.{_in_body(part)}", tasks)
