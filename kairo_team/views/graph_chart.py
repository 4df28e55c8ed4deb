"""The content of a chart of a plan: each task, the members that can do it, and its other requirements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kairo_team._util.counts import count
from kairo_team.engine.plan.preflight import bind
from kairo_team.tasks import Loop, Task, TaskGraph, edges_of
from kairo_team.views.text import one_line, some_of

if TYPE_CHECKING:
    from kairo_team.team import Team

_MOST_NAMES: Final = 6
"""Names in a row after which the rest is counted."""


@dataclass(frozen=True, slots=True)
class Node:
    """One task in words: plain text, in one line each, not yet escaped for any format."""

    id: str
    who: str
    """The member, else the role, else the capabilities it needs; then the able members when their names add
    something."""
    remark: str
    """Condition, items, loop, `needs`, evaluator and output type, as far as the task has them; else empty."""
    description: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A plan in words."""

    title: str
    """The team's name."""
    nodes: tuple[Node, ...]
    """In plan order."""
    edges: tuple[tuple[str, str], ...]
    """Ids of a task and of one that depends on it, in the order of the dependents."""
    plan: TaskGraph
    """The plan to draw, with the bodies of loops that have not begun."""

    @property
    def size(self) -> str:
        """The numbers of tasks and dependencies: `3 tasks, 2 dependencies`."""
        dependencies = "1 dependency" if len(self.edges) == 1 else f"{len(self.edges):,} dependencies"
        return f"{count(len(self.nodes), 'task')}, {dependencies}"


def make_chart(plan: TaskGraph, team: Team | None = None) -> Chart:
    """Describe a plan and the members that may do each task; without a team, only the tasks' own requirements."""
    plan = _with_bodies(plan)
    bound = {} if team is None else bind(plan.tasks, team)
    nodes = [
        Node(
            task.id,
            one_line(_worker_of(task, bound.get(task.id, ()))),
            one_line(_remark(task)),
            one_line(task.description),
        )
        for task in plan.tasks
    ]
    return Chart("Plan" if team is None else one_line(team.name), tuple(nodes), tuple(edges_of(plan.tasks)), plan)


def _with_bodies(plan: TaskGraph) -> TaskGraph:
    """Return the plan with the tasks of each loop's body, under its id, where the loop has not begun."""
    begun = {task.part_of for task in plan.tasks}
    tasks: list[Task] = []
    for task in plan.tasks:
        tasks.append(task)
        if task.loop is not None and task.id not in begun:
            tasks += _bodies(task, task.loop)
    return plan if len(tasks) == len(plan) else TaskGraph(tasks)


def _bodies(task: Task, loop: Loop) -> Iterator[Task]:
    for one in loop.body:
        inside = replace(
            one,
            id=f"{task.id}.{one.id}",
            depends_on=[f"{task.id}.{name}" for name in one.depends_on],
            over=None if one.over is None else f"{task.id}.{one.over}",
            when=None if one.condition is None else replace(one.condition, source=f"{task.id}.{one.condition.source}"),
            part_of=task.id,
        )
        yield inside
        if inside.loop is not None:
            yield from _bodies(inside, inside.loop)


def _worker_of(task: Task, able: Sequence[str]) -> str:
    if task.member is not None:
        return task.member
    asked = task.role or some_of(sorted(task.requires), _MOST_NAMES, " + ")
    members = some_of(able, _MOST_NAMES, " or ")
    if not asked:
        return members
    return asked if not able or list(able) == [asked] else f"{asked}: {members}"


def _remark(task: Task) -> str:
    remarks: list[str] = []
    if task.condition is not None:
        remarks.append(f"when {task.condition}")
    if task.over is not None:
        remarks.append(f"for each of {task.over}, at most {task.max_items:,}")
    if task.loop is not None:
        until = "" if task.loop.end is None else f"until {task.loop.end}, "
        remarks.append(f"loop: {until}at most {count(task.loop.max_rounds, 'round')}")
    if task.needs != "all":
        of = "all items" if isinstance(task.needs, float) else len(task.depends_on)
        remarks.append(f"needs={task.needs} of {of}")
    if task.evaluator is not None:
        remarks.append(f"review: {task.evaluator}")
    if task.output_type is not None:
        remarks.append(f"gives: {task.output_type}")
    return ", ".join(remarks)
