"""The part of a report about one run: timeline, budget and tasks; each run inside has its own part."""

from __future__ import annotations

import base64
import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from markupsafe import Markup

from kairo_team._util.counts import count
from kairo_team.budget import NO_USAGE, Budget, Usage
from kairo_team.views.report_calls import Calls
from kairo_team.views.report_page import overview, state_of, verdict_of
from kairo_team.views.report_tasks import WAITS, Link, Row, make_rows
from kairo_team.views.report_text import cut, dollars, macro, seconds
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from kairo_team.views.run_story import CallStory, MemberStory, RunStory, TaskStory

_MOST_INSIDE: Final = 20
"""Runs inside tasks that get a part."""
_INLINE: Final = 200
"""Tasks that the page shows at once; of more it shows the first `_FIRST`, the others on demand."""
_FIRST: Final = 100
_PLAIN: Final = 20
"""Rows of the timeline that the page itself contains, for a browser without a script; the others are packed."""
_NO_TIMELINE: Final = "The result of a run has no times: a report of its events, or of its journal, has them."
_MOST_TASKS: Final = 40
"""Tasks with a row of their own."""
_PACKED: Final = json.JSONEncoder(separators=(",", ":"))


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
    aside: int | None = None
    """Tokens set aside and not used; None: all that is given and not used, until it has gone back."""


def budget_rows(story: RunStory, limits: Budget | None) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of the budget's tree, and a sentence on the tasks without a row."""
    calls = [call for call in story.calls if call.what == "model"]
    closed = story.ended is not None
    run = _sums(limits or story, story.usage, calls, closed=closed)
    rows = [_row("the run", run._replace(aside=story.set_aside.tokens))]
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
    if isinstance(given, Budget):
        tokens, paid = given.tokens, None if given.dollars is None else Decimal(given.dollars)
    else:
        tokens, paid = (None, None) if given is None else (given.tokens_given, given.dollars_given)
    doubtful = [call for call in calls if call.in_doubt or call.dollars_in_doubt]
    return _Sums(
        tokens,
        paid,
        usage,
        sum(call.in_doubt for call in doubtful),
        sum((call.dollars_in_doubt for call in doubtful), Decimal(0)),
        closed,
    )


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


def _meter(sums: _Sums, lent: int, lent_dollars: Decimal) -> tuple[str, str, str, str] | None:
    """Return percentages: used of the budget given, used beyond it, where what is set aside begins, and that part.

    They are in dollars if no tokens are given.
    """
    if sums.tokens is not None:
        used, whole, over = Decimal(sums.usage.tokens), Decimal(sums.tokens), Decimal(lent)
    elif sums.dollars is not None:
        used, whole, over = sums.usage.dollars, sums.dollars, lent_dollars
    else:
        return None
    most = max(used, whole) or 1
    left = Decimal(0) if sums.closed else max(whole - used, Decimal(0))
    aside = left if sums.aside is None else min(Decimal(sums.aside), left)
    start, *parts = (f"{part / most * 100:.1f}" for part in (used, used - over, over, aside))
    return parts[0], parts[1], start, parts[2]


class Packed:
    """Rows for the script, as deflated JSON by the name of their list: each is packed when it is made, and let go."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj()
        self._packed = [self._packer.compress(b"{")]
        self._between = ""

    def add(self, name: str, rows: Iterable[Sequence[object]]) -> None:
        """Pack the rows of a list: HTML, state, words, tokens, dollars, seconds."""
        self._write(f"{self._between}{json.dumps(name)}:[")
        self._between = ""
        for row in rows:
            self._write(self._between + _PACKED.encode(row))
            self._between = ","
        self._write("]")
        self._between = ","

    def _write(self, text: str) -> None:
        self._packed.append(self._packer.compress(text.encode()))

    def text(self) -> Markup:
        """Return everything in base64, which cannot close an HTML element."""
        self._packed += [self._packer.compress(b"}"), self._packer.flush()]
        return Markup(base64.b64encode(b"".join(self._packed)).decode())  # noqa: S704 - base64 has no `<`


def make_parts(
    story: RunStory, limits: Budget | None, inside: Sequence[RunStory], packed: Packed
) -> list[dict[str, Any]]:
    """Return the values of a run and of the first runs inside it; each of these links to the task around it."""
    stories = [story, *inside[:_MOST_INSIDE]]
    firsts: dict[str, int] = {}
    next_one = 1
    for one in stories:
        firsts[one.run_id] = next_one
        next_one += len(one.tasks)
    links: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for number, one in enumerate(inside, 2):
        if one.within is not None:
            words = f"run inside, of team {one_line(cut(one.team, 100)[0])}: {state_of(one)}"
            links[one.within].append((f"#run-{number}" if one.run_id in firsts else "", words))
    parts: list[dict[str, Any]] = []
    for number, one in enumerate(stories, 1):
        runs = {task_id: found for (run_id, task_id), found in links.items() if run_id == one.run_id}
        key = "" if number == 1 else f"-{number}"
        parts.append(_make_part(one, key, firsts[one.run_id], runs, limits if number == 1 else None, packed))
        if number > 1:
            parts[-1].update(_heading(one, number, stories, firsts))
    return parts


def left_out(inside: Sequence[RunStory], parts: Sequence[object]) -> str:
    """Say how many runs inside have no part, or return ""."""
    more = len(inside) - len(parts)
    return f"{count(more, 'more run')} inside: a report of its own shows each." if more else ""


def _make_part(
    story: RunStory, key: str, first: int, runs: dict[str, list[Link]], limits: Budget | None, packed: Packed
) -> dict[str, Any]:
    calls, number = Calls(story), len(story.tasks)
    few, timed = number <= _INLINE, story.started_at is not None
    seen = _Seen(number if few else _FIRST, number if timed and number > _PLAIN else _PLAIN * timed)
    packed.add(f"tasks{key}", seen.taken(make_rows(story, calls, first, runs)))
    if timed and number > _PLAIN:
        packed.add(f"timeline{key}", seen.bars)
    outside = [call for call in story.calls if call.task_id is None]
    if outside:
        packed.add(f"planning{key}", [(macro("outside")({"calls": calls.shown(outside)}), "", "", 0, 0, 0)])
    budget, no_budget = budget_rows(story, limits)
    return {
        "key": key,
        "first": first,
        "of": f" of {story.run_id}" if key else "",
        "timeline": [bar for bar, *_ in seen.bars[:_PLAIN]],
        "tasks": seen.plain,
        "more_bars": f"And {count(number - _PLAIN, 'more task')}." if number > _PLAIN else "",
        "more": "" if few else f"And {count(number - _FIRST, 'more task')}.",
        "tools": not key or number > _PLAIN,
        "no_texts": calls.sentence,
        "planning": count(len(outside), "call") if outside else "",
        "overview": overview(story),
        "no_timeline": "No task has begun." if timed else _NO_TIMELINE,
        "legend": list(_legend(seen.styles)),
        "length": seconds(story.last),
        "budget": budget,
        "budget_left_out": no_budget,
        "states": sorted({task.state.value for task in story.tasks.values()}),
    }


class _Seen:
    """What a part keeps of its rows while they are packed one by one."""

    def __init__(self, most_plain: int, most_bars: int) -> None:
        self.plain: list[Markup] = []
        self.bars: list[tuple[object, ...]] = []
        self.styles: set[str] = set()
        self._most_plain, self._most_bars = most_plain, most_bars

    def taken(self, rows: Iterable[Row]) -> Iterator[tuple[object, ...]]:
        """Yield what is packed of each row."""
        for row in rows:
            if len(self.plain) < self._most_plain:
                self.plain.append(row.plain())
            if len(self.bars) < self._most_bars:
                self.bars.append((row.bar(), *row.facts))
                self.styles |= row.styles
            yield (row.details(), *row.facts)


def _heading(story: RunStory, number: int, stories: Sequence[RunStory], firsts: dict[str, int]) -> dict[str, Any]:
    """Return the heading of the part of a run inside."""
    run_id, task_id = story.within or ("", "")
    around = next((one for one in stories if one.run_id == run_id and task_id in one.tasks), None)
    return {
        "number": number,
        "task": 0 if around is None else firsts[run_id] + list(around.tasks).index(task_id),
        "task_id": task_id,
        "team": one_line(cut(story.team, 200)[0]),
        "run_id": story.run_id,
        "state": state_of(story),
        "verdict": verdict_of(state_of(story)),
        "words": f"{story.usage}, {seconds(story.ended.duration if story.ended else story.last)}.",
        "goal": cut(story.goal, 1_000)[0],
    }


def _legend(used: Collection[str]) -> Iterator[tuple[str, str]]:
    """Return the styles of the bars in use, with their meanings."""
    means = {
        "a-ok": "attempt",
        "a-back": "attempt that was sent back",
        "a-error": "attempt that failed",
        "a-open": "attempt without an end",
        "a-review": "review",
    }
    means |= {f"w-{why}": f"waits for {words}" for why, words in WAITS.items()}
    return ((style, words) for style, words in means.items() if style in used)
