"""Two recorded runs side by side: the output of `kairo compare`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from kairo_team._util.counts import count
from kairo_team.cli.run_table import age, run_document
from kairo_team.views.text import duration, one_line

if TYPE_CHECKING:
    from kairo_team.cli.streams import Screen
    from kairo_team.views.run_record import RunRecord, TaskStanding

_MOST_LISTED: Final = 60
"""Tasks that are shown."""
_ABSENT: Final = "not in this run"


def show_both(records: Sequence[RunRecord], screen: Screen) -> None:
    """Print two runs in two columns, as a whole and task by task; tasks that ended differently come first."""
    now = time.time()
    rows = [("", *(one_line(one.run.run_id) for one in records))]
    rows += [("state", *(one.run.state for one in records))]
    rows += [("begun", *(f"{age(now - one.run.started_at)} ago" for one in records))]
    rows += [("worked", *(duration(one.run.seconds) for one in records))]
    rows += [("tokens", *(f"{one.run.usage.tokens:,}" for one in records))]
    rows += [("dollars", *(f"${one.run.usage.dollars}" for one in records))]
    rows += [("calls", *(f"{sum(call.calls for call in one.calls):,}" for one in records))]
    _show_table(rows, screen)
    for record in records:
        if record.error:
            screen.print_indented(f"{record.run.run_id}: {record.error}")
    both = _side_by_side(records)
    differing = [one for one, (first, second) in both.items() if _state(first) != _state(second)]
    screen.print_head(f"{len(differing):,} of {count(len(both), 'task')} ended differently")
    shown = [*dict.fromkeys([*differing, *both])][:_MOST_LISTED]
    _show_table([(one_line(one), *map(_words, both[one])) for one in shown], screen)
    screen.print_more(len(both) - len(shown), "task")


def both_document(records: Sequence[RunRecord]) -> dict[str, object]:
    """Return the document of `kairo compare`."""
    tasks = [
        {"task_id": one, "states": list(map(_state, pair)), "tokens": [_tokens(task) for task in pair]}
        for one, pair in _side_by_side(records).items()
    ]
    return {"runs": [run_document(one.run) for one in records], "tasks": tasks}


def _side_by_side(records: Sequence[RunRecord]) -> Mapping[str, Sequence[TaskStanding | None]]:
    found = [{task.task_id: task for task in one.tasks} for one in records]
    return {
        name: [tasks.get(name) for tasks in found] for name in dict.fromkeys(one for tasks in found for one in tasks)
    }


def _state(task: TaskStanding | None) -> str | None:
    return None if task is None else task.status


def _tokens(task: TaskStanding | None) -> int | None:
    return None if task is None or task.outcome is None else task.outcome.usage.tokens


def _words(task: TaskStanding | None) -> str:
    if task is None:
        return _ABSENT
    outcome = task.outcome
    if outcome is None or not outcome.attempts:
        return task.status
    return f"{task.status}, {count(outcome.attempts, 'attempt')}, {count(outcome.usage.tokens, 'token')}"


def _show_table(rows: Sequence[Sequence[str]], screen: Screen) -> None:
    columns = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if screen.watched and sum(columns) + 2 * len(columns) > screen.width:  # its last column would be cut off
        for name, *cells in rows:
            screen.print_indented(f"{name}: {' | '.join(cells)}" if name else " | ".join(cells))
        return
    for row in rows:
        line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, [*columns[:-1], 0], strict=True))
        screen.show(Text(f"  {line}".rstrip()), **screen.uncut)
