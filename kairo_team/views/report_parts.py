"""The part of a report about one run: timeline, budget and tasks; each run inside has its own part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team.views.report_budget import budget_rows
from kairo_team.views.report_calls import Calls
from kairo_team.views.report_page import overview, state_of
from kairo_team.views.report_tasks import WAITS, Row, make_rows
from kairo_team.views.report_text import cut, macro, seconds
from kairo_team.views.text import count, one_line

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.views.report_tasks import Link
    from kairo_team.views.run_story import RunStory

_MOST_INSIDE: Final = 20
"""Runs inside tasks that get a part."""
_INLINE: Final = 200
"""Tasks that the page shows at once; of more it shows the first `_FIRST`, the others on demand."""
_FIRST: Final = 100
_PLAIN: Final = 20
"""Rows of the timeline that the page itself contains, for a browser without a script; the others are packed."""
_NO_TIMELINE: Final = "The result of a run has no times: a report of its events, or of its journal, has them."


class Part(NamedTuple):
    """The values of one run for the page."""

    values: dict[str, Any]
    packed: dict[str, list[tuple[object, ...]]]
    """Rows for the script, by the name of their list: HTML, state, words, tokens, dollars, seconds."""


def make_parts(story: RunStory, limits: Budget | None, inside: Sequence[RunStory]) -> list[Part]:
    """Return the parts of a run and of the first runs inside it; each of these links to the task around it."""
    stories = [story, *inside[:_MOST_INSIDE]]
    firsts: dict[str, int] = {}
    next_one = 1
    for one in stories:
        firsts[one.run_id] = next_one
        next_one += len(one.tasks)
    links: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for number, one in enumerate(inside, 2):
        if one.within is not None:
            words = f"run inside, of team {one_line(cut(one.team, 100)[0])}: {state_of(one)[0]}"
            links[one.within].append((number if one.run_id in firsts else 0, words))
    parts: list[Part] = []
    for number, one in enumerate(stories, 1):
        runs = {task_id: found for (run_id, task_id), found in links.items() if run_id == one.run_id}
        key = "" if number == 1 else f"-{number}"
        part = _make_part(one, key, firsts[one.run_id], runs, limits if number == 1 else None)
        if number > 1:
            part.values.update(_heading(one, number, stories, firsts))
        parts.append(part)
    return parts


def left_out(inside: Sequence[RunStory], parts: Sequence[Part]) -> str:
    """Say how many runs inside have no part, or return ""."""
    more = len(inside) - len(parts)
    return f"{count(more, 'more run')} inside: a report of its own shows each." if more else ""


def _make_part(story: RunStory, key: str, first: int, runs: dict[str, list[Link]], limits: Budget | None) -> Part:
    calls = Calls(story)
    rows = make_rows(story, calls, first, runs)
    few, timed = len(rows) <= _INLINE, story.started_at is not None
    budget, no_budget = budget_rows(story, limits)
    outside = [call for call in story.calls if call.task_id is None]
    values = {
        "key": key,
        "first": first,
        "of": f" of {story.run_id}" if key else "",
        "timeline": [row.bar for row in rows[:_PLAIN]] if timed else [],
        "tasks": [row.plain for row in (rows if few else rows[:_FIRST])],
        "more_bars": f"And {count(len(rows) - _PLAIN, 'more task')}." if len(rows) > _PLAIN else "",
        "more": "" if few else f"And {count(len(rows) - _FIRST, 'more task')}.",
        "tools": not key or len(rows) > _PLAIN,
        "no_texts": calls.sentence,
        "planning": count(len(outside), "call") if outside else "",
        "overview": overview(story),
        "no_timeline": "No task has begun." if timed else _NO_TIMELINE,
        "legend": list(_legend(rows)),
        "length": seconds(story.last),
        "budget": budget,
        "budget_left_out": no_budget,
        "states": sorted({task.state.value for task in story.tasks.values()}),
    }
    packed: dict[str, list[tuple[object, ...]]] = {f"tasks{key}": [(row.details, *row.facts) for row in rows]}
    if timed and len(rows) > _PLAIN:
        packed[f"timeline{key}"] = [(row.bar, *row.facts) for row in rows]
    if outside:
        packed[f"planning{key}"] = [(macro("outside")({"calls": calls.shown(outside)}), "", "", 0, 0, 0)]
    return Part(values, packed)


def _heading(story: RunStory, number: int, stories: Sequence[RunStory], firsts: dict[str, int]) -> dict[str, Any]:
    """Return the heading of the part of a run inside."""
    run_id, task_id = story.within or ("", "")
    around = next((one for one in stories if one.run_id == run_id and task_id in one.tasks), None)
    state, verdict = state_of(story)
    return {
        "number": number,
        "task": 0 if around is None else firsts[run_id] + list(around.tasks).index(task_id),
        "task_id": task_id,
        "team": one_line(cut(story.team, 200)[0]),
        "run_id": story.run_id,
        "state": state,
        "verdict": verdict,
        "words": f"{story.usage}, {seconds(story.ended.duration if story.ended else story.last)}.",
        "goal": cut(story.goal, 1_000)[0],
    }


def _legend(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Return the styles of the bars in use, with their meanings."""
    means = {
        "a-ok": "attempt",
        "a-error": "attempt that failed",
        "a-open": "attempt without an end",
        "a-review": "review",
    }
    means |= {f"w-{why}": f"waits for {words}" for why, words in WAITS.items()}
    return ((style, words) for style, words in means.items() if any(f'"{style}"' in row.bar for row in rows))
