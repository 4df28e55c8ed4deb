"""The tasks of maps and loops: their ids, inputs and weights, and how many there can be."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import FrozenDict, freeze_json, maker
from kairo_team.tasks import Loop, Task, exact_weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ITEM_DIGITS: Final = 4
_ROUND_DIGITS: Final = 2
"""The fewest digits of a number in an id."""

_FIELDS: Final = tuple(one.name for one in fields(Task))
_make_task: Final = maker(Task)
"""Makes a task from values that were checked before."""


def tasks_of_items(task: Task, items: Sequence[Any]) -> list[Task]:
    """Return the tasks of a map, one for each item of its list; they share its weight."""
    digits = max(_ITEM_DIGITS, len(str(task.max_items)))
    weight = _above_zero(task.weight / max(1, len(items)))
    alike = _copy(task, depends_on=(), needs="all", weight=weight, budget=None, when=None, over=None, max_items=None)
    return [
        _copy(
            alike,
            id=f"{task.id}.{number:0{digits}}",
            inputs=freeze_json({**task.inputs, "item": item, "number": number}),
            part_of=task.id,
        )
        for number, item in enumerate(items, 1)
    ]


def tasks_of_round(task: Task, loop: Loop, number: int) -> list[Task]:
    """Return the tasks of a round: rounds share the loop's weight, and the tasks of a round share the round's."""
    weights = _divided(task.weight / loop.max_rounds, loop.body)

    def named(name: str) -> str:
        return round_id(task.id, loop, number, name)

    return [
        _copy(
            one,
            id=named(one.id),
            depends_on=tuple(map(named, one.depends_on)),
            inputs=FrozenDict({**task.inputs, **one.inputs, "round": number}),
            weight=weights[one.id],
            when=None if one.condition is None else replace(one.condition, source=named(one.condition.source)),
            over=None if one.over is None else named(one.over),
            part_of=task.id,
        )
        for one in loop.body
    ]


def round_id(loop_id: str, loop: Loop, number: int, name: str) -> str:
    """Return the id of a body's task in a round."""
    digits = max(_ROUND_DIGITS, len(str(loop.max_rounds)))
    return f"{loop_id}.{number:0{digits}}.{name}"


def _copy(task: Task, **changed: Any) -> Task:
    return _make_task(*[changed[name] if name in changed else getattr(task, name) for name in _FIELDS])


def most_tasks(tasks: Iterable[Task]) -> int:
    """Return the most tasks that members may do: all items of each map, and all rounds of each loop."""
    return sum(_most_of_task(task) for task in tasks)


def _most_of_task(task: Task) -> int:
    inside = 1 if task.loop is None else task.loop.max_rounds * most_tasks(task.loop.body)
    return inside * (task.max_items or 1)


def templates(task: Task) -> list[Task]:
    """Return the tasks of a loop's body as templates for all rounds: under the loop's id, sharing its weight."""
    assert task.loop is not None, "it is a loop"
    weights = _divided(task.weight, task.loop.body)
    return [_copy(one, id=f"{task.id}.{one.id}", weight=weights[one.id]) for one in task.loop.body]


def _divided(weight: float, among: Sequence[Task]) -> dict[str, float]:
    """Divide a weight among tasks in proportion to their own; return the parts by name."""
    exact = {one.id: exact_weight(one.weight) for one in among}
    whole = sum(exact.values())
    return {name: _above_zero(weight * (own / whole)) for name, own in exact.items()}


def _above_zero(weight: float) -> float:
    """Return the weight, or the least weight there is if it was rounded to zero."""
    return weight or math.ulp(0.0)


def worst_case(tasks: Iterable[Task], owners: tuple[Task, ...] = ()) -> Iterator[tuple[Task, tuple[Task, ...]]]:
    """Yield the most tasks that members may do: a map's once for each item, a loop's once for each round.

    Each comes with the maps and loops around it that have a budget, outermost first.
    """
    for task in tasks:
        body = None if task.loop is None else templates(task)
        around = (*owners, task) if task.grows and task.budget is not None else owners
        for _ in range((task.max_items or 1) * (1 if task.loop is None else task.loop.max_rounds)):
            if body is None:
                yield task, around
            else:
                yield from worst_case(body, around)
