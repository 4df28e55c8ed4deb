"""The list of a run's tasks as a tree: a map or a loop, and below it the tasks that grew from it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.views.progress import RowState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from kairo_team.views.run_story import TaskStory

MOST_TASKS: Final = 200
"""Rows that a list has at once."""
_FOLDED: Final = 8
"""Maps and loops of more tasks are folded at first."""
_FIRST: Final = ("running", "reviewing", "suspended", "failed", "cancelled", "pending")
"""States of the tasks that are shown first when there are many."""
_STRIP: Final = (RowState.DONE, RowState.RUNNING, RowState.REVIEWING, RowState.SUSPENDED, RowState.FAILED)
"""States with a piece of their own in a strip, in its order."""


class Strip(NamedTuple):
    """How far the tasks of a map or a loop are."""

    done: int
    total: int
    tokens: int
    """Usage of the tasks, and of those that grew from them."""
    pieces: Sequence[tuple[str, float, float]]
    """State, place and width, in percent."""

    @property
    def is_folded(self) -> bool:
        """Whether the tasks are folded at first."""
        return self.total > _FOLDED


class Branch(NamedTuple):
    """A row of the list."""

    task: TaskStory
    depth: int
    strip: Strip | None
    """None for a task from which nothing grew."""
    is_open: bool
    """Whether the tasks that grew from it are seen at first."""


class Window(NamedTuple):
    """The rows of a list that are shown."""

    rows: Sequence[Branch]
    start: int
    """How many rows are above them."""
    total: int
    """Rows in all; of many tasks, those that are folded have none."""
    is_whole: bool
    """Whether all tasks have rows here, which a page may fold and search by itself."""

    @property
    def below(self) -> int:
        """How many rows are below them."""
        return self.total - self.start - len(self.rows)


def tree(tasks: Mapping[str, TaskStory], words: str = "", start: int = 0, opened: Collection[str] = ()) -> Window:
    """Return `MOST_TASKS` rows from `start` on; a negative one counts from the end.

    Of more tasks than that, the urgent ones come first, and maps and loops are folded unless they are `opened`: of
    fewer, all have rows, which a page folds by itself. With `words`, the rows have only tasks whose id or member
    contains all words, and the maps and loops around them.
    """
    below: dict[str | None, list[TaskStory]] = {}
    wanted = _wanted_tasks(tasks, words.lower().split())
    many = len(wanted) > MOST_TASKS
    for task in tasks.values():
        of = task.planned.part_of
        if task.id in wanted:
            below.setdefault(of if of in tasks else None, []).append(task)
    if many:
        for found in below.values():
            found.sort(key=_sort_key)
    rows = [*_rows(below, None, 0, opened, folds=many and not words)]
    first = max(min(start if start >= 0 else start + len(rows), len(rows) - MOST_TASKS), 0)
    return Window(rows[first : first + MOST_TASKS], first, len(rows), is_whole=not many and not words)


def _sort_key(task: TaskStory) -> tuple[int, float]:
    """Return a key to sort by: ended tasks come last, the newest end first, so that few rows appear and disappear."""
    if task.state in _FIRST:
        return _FIRST.index(task.state), 0.0
    return len(_FIRST), -(task.end or 0.0)


def _wanted_tasks(tasks: Mapping[str, TaskStory], words: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for task in tasks.values():
        if all(word in f"{task.id} {task.member or ''}".lower() for word in words):
            holder: TaskStory | None = task
            while holder is not None and holder.id not in found:
                found.add(holder.id)
                holder = tasks.get(holder.planned.part_of or "")
    return found


def _rows(
    below: Mapping[str | None, Sequence[TaskStory]], of: str | None, depth: int, opened: Collection[str], *, folds: bool
) -> Iterator[Branch]:
    """Yield the rows of the tasks that grew from one; with `folds`, what is not open has no rows below it."""
    for task in below.get(of, ()):
        parts = below.get(task.id, ())
        strip = _strip(parts, _tokens(below, task.id)) if parts else None
        is_open = strip is None or not strip.is_folded or task.id in opened
        yield Branch(task, depth, strip, is_open)
        if is_open or not folds:
            yield from _rows(below, task.id, depth + 1, opened, folds=folds)


def _tokens(below: Mapping[str | None, Sequence[TaskStory]], of: str) -> int:
    return sum(one.usage.tokens + _tokens(below, one.id) for one in below.get(of, ()))


def _strip(parts: Sequence[TaskStory], tokens: int) -> Strip:
    states = Counter(one.state for one in parts)
    pieces: list[tuple[str, float, float]] = []
    x = 0.0
    for state in _STRIP:
        if states[state]:
            width = round(states[state] / len(parts) * 100, 1)
            pieces.append((state.value, round(x, 1), width))
            x += width
    return Strip(states[RowState.DONE], len(parts), tokens, pieces)
