"""The budget's tree in a report, in tokens and in dollars: what each part got, used and gave back."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team.budget import NO_USAGE, Budget, Usage
from kairo_team.views.report_text import cut, dollars
from kairo_team.views.text import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kairo_team.views.run_story import CallStory, MemberStory, RunStory, TaskStory

_MOST_TASKS: Final = 40
"""Tasks with a row of their own."""


class _Sums(NamedTuple):
    """The budget of one part of the tree, and its use."""

    tokens: int | None
    """Tokens given; None without a guarantee or limit."""
    dollars: Decimal | None
    usage: Usage
    doubtful_tokens: int
    doubtful_dollars: Decimal
    closed: bool
    """Whether the unused budget has gone back."""


def budget_rows(story: RunStory, limits: Budget | None) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of the budget's tree, and a sentence on the tasks without a row."""
    calls = [call for call in story.calls if call.what == "model"]
    closed = story.ended is not None
    rows = [_row("the run", _sums(limits or story, story.usage, calls, closed=closed))]
    for purpose, name in (("plan", "planning"), ("evaluate", "reviews")):
        made = [call for call in calls if call.purpose == purpose]
        if made:
            usage = sum((one.usage for one in made), NO_USAGE)
            rows.append(_row(name, _sums(None, usage, made, closed=closed)))
    of_member: dict[str | None, list[TaskStory]] = {member: [] for member in story.members}
    used = {task.id: task.usage for task in story.tasks.values()}
    for task in story.tasks.values():
        of_member.setdefault(task.member, []).append(task)
    shown = set(sorted(used, key=lambda one: -used[one].tokens)[:_MOST_TASKS])
    for member, tasks in of_member.items():
        given = story.members.get(member) if member else None
        usage = sum((used[task.id] for task in tasks), NO_USAGE)
        own = [call for task in tasks for call in _own_calls(task)]
        rows.append(_row(member or "not assigned", _sums(given, usage, own, closed=closed)))
        for task in tasks:
            if task.id in shown:
                sums = _sums(task, used[task.id], _own_calls(task), closed=task.returned is not None)
                rows.append(_row(task.id, sums, depth=1))
    left_out = len(story.tasks) - len(shown)
    return rows, f"{count(left_out, 'task')} that used less have no row." if left_out else ""


def _own_calls(task: TaskStory) -> list[CallStory]:
    return [call for attempt in task.attempts for call in attempt.calls]


def _sums(
    given: Budget | RunStory | MemberStory | TaskStory | None, usage: Usage, calls: Iterable[CallStory], *, closed: bool
) -> _Sums:
    tokens, paid = _given(given)
    doubtful = [call for call in calls if call.in_doubt or call.dollars_in_doubt]
    return _Sums(
        tokens,
        paid,
        usage,
        sum(call.in_doubt for call in doubtful),
        sum((call.dollars_in_doubt for call in doubtful), Decimal(0)),
        closed,
    )


def _given(given: Budget | RunStory | MemberStory | TaskStory | None) -> tuple[int | None, Decimal | None]:
    if given is None:
        return None, None
    if isinstance(given, Budget):
        return given.tokens, None if given.dollars is None else Decimal(given.dollars)
    return given.tokens_given, given.dollars_given


def _row(name: str, sums: _Sums, depth: int = 0) -> dict[str, Any]:
    """Return the cells of a row: each has tokens and dollars, "" for an amount that does not apply."""
    used, paid = sums.usage.tokens, sums.usage.dollars
    lent = 0 if sums.tokens is None else max(used - sums.tokens, 0)
    lent_dollars = Decimal(0) if sums.dollars is None else max(paid - sums.dollars, Decimal(0))
    back = None if sums.tokens is None or not sums.closed else max(sums.tokens - used, 0)
    back_dollars = None if sums.dollars is None or not sums.closed else max(sums.dollars - paid, Decimal(0))
    return {
        "name": cut(name, 200)[0],
        "depth": depth,
        "cells": (
            _cell(sums.tokens, sums.dollars),
            _cell(lent or None, lent_dollars or None),
            _cell(used, paid or None),
            _cell(sums.doubtful_tokens or None, sums.doubtful_dollars or None),
            _cell(back, back_dollars),
        ),
        "meter": _meter(sums, lent, lent_dollars),
    }


def _cell(tokens: int | None, paid: Decimal | None) -> tuple[str, str]:
    return "" if tokens is None else f"{tokens:,}", "" if paid is None else dollars(paid)


def _meter(sums: _Sums, lent: int, lent_dollars: Decimal) -> tuple[str, str] | None:
    """Return two percentages: used of the budget given, and used beyond it; in dollars if no tokens are given."""
    if sums.tokens is not None:
        used, whole, over = Decimal(sums.usage.tokens), Decimal(sums.tokens), Decimal(lent)
    elif sums.dollars is not None:
        used, whole, over = sums.usage.dollars, sums.dollars, lent_dollars
    else:
        return None
    most = max(used, whole) or 1
    return f"{(used - over) / most * 100:.1f}", f"{over / most * 100:.1f}"
