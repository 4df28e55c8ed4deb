"""Fork a recorded run: copy it up to an earlier point, so that the copied part is not paid again."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kairo_team.durable.connection import Connection, execute, insert, key_of
from kairo_team.durable.kept_files import copy_files, encode_for
from kairo_team.durable.recovery import steps_of
from kairo_team.engine.records.plan_records import RAISED_BUDGET, Added, CutShort, Replan
from kairo_team.engine.records.recovery import place_of
from kairo_team.errors import Misuse, RunExists, known
from kairo_team.human import HumanRequest
from kairo_team.results import Attempt
from kairo_team.tasks import Task, TaskGraph

if TYPE_CHECKING:
    from kairo_team.team import TeamConfig, TeamExecutionRequest

AFTER_THEIR_EVENT: Final = ("call:", "said:")
"""Key prefixes of steps that are recorded after their event; all other steps are recorded before their event."""
_OF_A_TASK: Final = re.compile(
    r"(?:^|:)(?:add|human:\d+(?!:plan$)|(?:attempt|review|top_up|over|hand_over|body|carved|took|skipped|cancelled"
    r"|when|until|grown):\d+):([^:]*)"
)
"""Finds the task's id in a step's key; ids contain no colons."""
_OF_THE_END: Final = re.compile(r"(end|halt|(outcome|unpaid|cut):.*)", re.DOTALL)
"""Keys of steps that record the end of a run and of its tasks."""
_OF_THE_PLAN: Final = re.compile(r"plan:\d+(:for)?|add:[^:]*:\d+|grown:\d+:[^:]*:\d+")
"""Keys of plans and of their changes."""


def check(connection: Connection, row: Any, state: str, new_id: str) -> None:
    """Raise `Misuse` unless a run, given by its row and state, can be forked; `RunExists` if `new_id` is recorded."""
    if row["parent"] is not None:
        raise Misuse(f"run {row['run_id']!r} is part of run {row['parent']!r}: fork that one")
    if state == "running":
        raise Misuse(f"run {row['run_id']!r} is running: it can be forked once it has ended or was interrupted")
    if connection.execute("SELECT 1 FROM run WHERE run_id = ?", (new_id,)).fetchone():
        raise RunExists(new_id, recorded=True)


def fork(
    connection: Connection,
    row: Any,
    before: str | int,
    new_id: str,
    plan: TaskGraph | None,
    config: TeamConfig | None,
    read: Callable[[str], object],
) -> None:
    """Copy a run, given by its row, up to a point: before a task (its id), or after an event (its number).

    `plan` and `config`, if given, replace the run's. `read` decodes recorded values. Raises `ValueError` if the run
    does not have such a point, and for a plan that does not contain the tasks that stay.
    """
    run_id = row["run_id"]
    request = cast("TeamExecutionRequest", read(row["request"]))
    recorded = _PlanAsRecorded(request.plan, steps_of(connection, run_id, read))
    point = recorded.before(run_id, before) if isinstance(before, str) else _Point(seq=_checked(row, before))
    new = replace(request, run_id=new_id, plan=plan or request.plan, config=config or request.config)
    begun = {
        "state": "running",
        "active": 0.0,
        "seq": 0,
        "started_at": time.time(),
        "request": _written(connection, new_id, new),
    }
    _copy_run(connection, row, new_id, point, {**begun, "forked_from": run_id, "result": None}, read)
    # A budget that was raised would count before the one of the new configuration.
    if config is not None:
        connection.execute("DELETE FROM step WHERE run_id = ? AND key = ?", (new_id, RAISED_BUDGET))
    if plan is not None:
        _replace_plan(connection, new_id, recorded.tasks, plan)


def _replace_plan(connection: Connection, new_id: str, tasks: Mapping[str, Task], plan: TaskGraph) -> None:
    """Replace the plan of a fork; raise `ValueError` unless the new plan contains every begun task unchanged."""
    keys = [row["key"] for row in connection.execute("SELECT key FROM step WHERE run_id = ?", (new_id,))]
    begun = [place_of(key) for key in keys if key.startswith("attempt:")]
    now = {task.id: task for task in plan.tasks}
    planned = {one.task_id: _planned(tasks[one.task_id], tasks) for one in begun}
    lost = {one.task_id for one in begun if one.plan != "1" or now.get(planned[one.task_id].id) != planned[one.task_id]}
    if lost:
        raise ValueError(
            f"fork(plan=) must contain the tasks that stay, unchanged; it changes or omits {known(lost)}; a task of a "
            "second plan cannot stay: fork before it"
        )
    gone = [(new_id, key) for key in keys if _OF_THE_PLAN.fullmatch(key)]
    connection.executemany("DELETE FROM step WHERE run_id = ? AND key = ?", gone)
    sql = "INSERT INTO step (run_id, key, value, epoch, seq) VALUES (?, 'plan:1', ?, 0, 0)"
    connection.execute(sql, (new_id, _written(connection, new_id, plan)))


def _written(connection: Connection, run_id: str, value: object) -> str:
    """Return a value of a run as JSON, and keep its files for the run."""
    written, kept = encode_for(run_id, value)
    for statement in kept:
        execute(connection, statement)
    return written


def _planned(task: Task, tasks: Mapping[str, Task]) -> Task:
    """Return the task of the plan that a task grew from; the task itself if it did not grow from one."""
    while task.part_of is not None:
        task = tasks[task.part_of]
    return task


def _checked(row: Any, seq: Any) -> int:
    if isinstance(seq, int) and not isinstance(seq, bool) and 0 <= seq <= row["seq"]:
        return seq
    raise ValueError(
        f"fork(before=) is a task's id, or the number of an event from 0 to {row['seq']} of run {row['run_id']!r}, "
        f"not {seq!r}"
    )


@dataclass(frozen=True, slots=True)
class _Point:
    """The point at which a fork begins."""

    left_out: Collection[str] = ()
    """The ids of tasks that are left out."""
    changes: Collection[str] = ()
    """The keys of plan changes that are left out because their cause is left out."""
    seq: float = math.inf
    """The number of the last event that stays."""

    def keeps(self, key: str, seq: int = 0, body: str | None = None) -> bool:
        """Return whether a step stays, recorded after event `seq`; `body` is the place of the task body that did it."""
        if seq > self.seq or _OF_THE_END.fullmatch(key):
            return False
        if any(re.search(rf"(?:^|:){one}(?::|$)", key) for one in self.changes):
            return False
        found = _OF_A_TASK.search(key) or _OF_A_TASK.search(body or "")
        return found is None or found[1] not in self.left_out


class _Change(NamedTuple):
    """A change of the plan."""

    by: str
    """The id of the task that made it, or ""."""
    key: str
    """The key of its step."""
    tasks: Collection[str]
    """The ids of the tasks that it added or replaced."""


class _PlanAsRecorded:
    """All tasks of a run, and the plan changes that added them."""

    def __init__(self, given: TaskGraph | None, steps: Mapping[str, object]) -> None:
        self._steps = steps
        self.tasks: dict[str, Task] = {}
        self._grown: list[_Change] = []
        self._take(() if given is None else given.tasks)
        for key, made in steps.items():
            if isinstance(made, TaskGraph) and key.startswith("plan:"):
                self._take(made.tasks)
        for key, made in steps.items():
            if isinstance(made, Added):
                self._grown.append(_Change(made.by or "", key, self._take(made.tasks)))
        for key, made in steps.items():
            # The last: its graph repeats the tasks that were added, which are new only in `Added`.
            if isinstance(made, Replan) and made.graph is not None:
                new = self._take(made.graph.tasks)
                self._grown.append(_Change(made.failing, key, {*new, *made.replaced}))

    def _take(self, tasks: Iterable[Task]) -> Collection[str]:
        """Add tasks; return the ids of the new ones."""
        new = {task.id: task for task in tasks if task.id not in self.tasks}
        self.tasks |= new
        return set(new)

    def before(self, run_id: str, task_id: str) -> _Point:
        """Return the point before a task; it leaves out the task and everything that resulted from it."""
        if task_id not in self.tasks:
            raise ValueError(f"no task {task_id!r} in the plan of run {run_id!r}; it has {known(self.tasks)}")
        left_out, size = {task_id}, 0
        decided: Sequence[_Change] = ()
        while size != len(left_out):
            size = len(left_out)
            reached = left_out | self._holders(left_out)
            left_out |= {one.id for one in self.tasks.values() if not reached.isdisjoint(one.depends_on)}
            left_out |= self._later_rounds(reached)
            decided = self._decided_again(task_id, left_out)
            left_out.update(*(one.tasks for one in self._grown if one.by in left_out), *(one.tasks for one in decided))
        gone = [one.key for one in decided]
        for by, key, tasks in self._grown:
            # A map or loop that stays must grow again if all tasks that it added are left out.
            is_emptied = by in self.tasks and self.tasks[by].grows and tasks and left_out.issuperset(tasks)
            if by in left_out or is_emptied:
                gone.append(key)
        changes = [*map(re.escape, gone)]
        changes += [rf"until:\d+:{re.escape(name)}" for name in self._holders(left_out)]
        return _Point(left_out, changes)

    def _decided_again(self, task_id: str, left_out: Collection[str]) -> Sequence[_Change]:
        """Return a coordinator's own additions to the plan, from the first one that depends on what is left out."""
        # An addition depends on what is left out if all its tasks are left out. One that contains the task itself was
        # decided before the fork's point.
        between = [one for one in self._grown if not one.by]
        for place, (_, _, tasks) in enumerate(between):
            if tasks and task_id not in tasks and all(one in left_out for one in tasks):
                return between[place:]
        return ()

    def _holders(self, ids: Iterable[str]) -> set[str]:
        """Return the maps and loops that contain these tasks, at any depth."""
        holders: set[str] = set()
        for task_id in ids:
            holder = self.tasks[task_id].part_of
            while holder is not None and holder not in holders:
                holders.add(holder)
                holder = self.tasks[holder].part_of
        return holders

    def _later_rounds(self, ids: Iterable[str]) -> set[str]:
        """Return the tasks of all rounds of a loop after the first round that contains one of these tasks."""
        # A round sees the result of the round before it.
        first: dict[str, int] = {}
        for task_id in ids:
            if (place := self._round(self.tasks[task_id])) is not None:
                first[place[0]] = min(place[1], first.get(*place))
        places = {one.id: self._round(one) for one in self.tasks.values()}
        return {one for one, place in places.items() if place is not None and place[1] > first.get(place[0], place[1])}

    def _round(self, task: Task) -> tuple[str, int] | None:
        """Return the loop that contains a task, and the number of its round; None outside of loops."""
        if task.part_of is None or self.tasks[task.part_of].loop is None:
            return None
        return task.part_of, task.inputs["round"]


def _copy_run(
    connection: Connection,
    row: Any,
    new_id: str,
    point: _Point,
    values: Mapping[str, object],
    read: Callable[[str], object],
) -> None:
    """Copy a run up to a point, with the runs inside it; `values` replace columns of its row."""
    run_id = row["run_id"]
    request = replace(cast("TeamExecutionRequest", read(row["request"])), run_id=new_id)
    new = {
        "run_id": new_id,
        "request": _written(connection, new_id, request),
        "owner": "",
        "cancelled": None,
        "usage": None,
    }
    _copy(connection, "run", row, {**new, "updated_at": time.time(), **values})
    _copy_steps(connection, run_id, new_id, point, read)
    copy_files(connection, run_id, new_id)
    for one in connection.execute("SELECT * FROM call WHERE run_id = ? ORDER BY id", (run_id,)).fetchall():
        if one["seq"] > point.seq or not point.keeps(one["step"]):
            continue
        made: dict[str, object] = {"run_id": new_id, "copied": 1}
        if one["state"] != "sent" and one["ended_seq"] > point.seq:  # it was under way at the point
            if one["what"] == "model":  # the fork calls the model again
                continue
            # A tool call becomes a call in doubt.
            made |= {"state": "sent", "prompt": 0, "completion": 0, "picos": 0, "ended_at": None, "ended_seq": None}
        _copy(connection, "call", one, made)
    for inner in connection.execute("SELECT * FROM run WHERE parent = ?", (run_id,)).fetchall():
        begun = connection.execute("SELECT min(seq) FROM step WHERE run_id = ?", (inner["run_id"],)).fetchone()[0]
        if begun is not None and begun <= point.seq and point.keeps(inner["parent_step"]):
            name = inner["run_id"].removeprefix(run_id)
            inner_id = f"{new_id}{name}" if name != inner["run_id"] else f"{new_id}.{name}"
            # The task of this run stays, so only later events are left out.
            _copy_run(connection, inner, inner_id, _Point(seq=point.seq), {"parent": new_id}, read)


def _copy_steps(connection: Connection, run_id: str, new_id: str, point: _Point, read: Callable[[str], object]) -> None:
    """Copy the steps that stay; reopen attempts that were cut short by the end of the run or by a question."""
    steps = steps_of(connection, run_id, read)
    cut = _cut_by_the_end(steps)
    for row in connection.execute("SELECT * FROM step WHERE run_id = ? ORDER BY id", (run_id,)).fetchall():
        key, value, values = row["key"], steps[key_of(row["key"])], {"run_id": new_id}
        if not point.keeps(key, row["seq"], row["body"]) or (key in cut and key.startswith("review:")):
            continue
        if isinstance(value, Attempt) and (isinstance(value.interrupted, HumanRequest) or (key in cut and value.halt)):
            cut_short = CutShort(value.member, value.usage, value.artifact)
            values["value"] = _written(connection, new_id, cut_short)
        _copy(connection, "step", row, values)


def _cut_by_the_end(steps: Mapping[str, object]) -> Collection[str]:
    """Return the keys of the last attempt and review of each task that failed because the run ended."""
    cut: dict[tuple[str, str], int] = {}
    for key in steps:
        if key.startswith("attempt:"):
            plan, task_id, number = place_of(key)
            if f"cut:{plan}:{task_id}" in steps:
                cut[plan, task_id] = max(number, cut.get((plan, task_id), 0))
    return {f"{kind}:{plan}:{name}:{last}" for (plan, name), last in cut.items() for kind in ("attempt", "review")}


def _copy(connection: Connection, table: str, row: Any, values: Mapping[str, object]) -> None:
    """Insert a copy of a row, with other values in some columns."""
    new = {**dict(row), **values}
    new.pop("id", None)
    insert(connection, table, new)
