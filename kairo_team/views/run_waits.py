"""The waits of a run's tasks, from its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kairo_team.views.run_story import CallStory, TaskStory, Wait

_LEAST: Final = 0.002
"""Seconds below which a pause is the engine's own work."""


def waits(task: TaskStory, tasks: Mapping[str, TaskStory], now: float) -> tuple[Wait, ...]:
    """Return the waits of a task, in order, as far as its events show them; open waits end at `now`."""
    until = now if task.end is None else task.end
    told = [*task.told_waits, *(replace(one, end=until) for one in task.open_waits.values())]
    found = [
        *told,
        *_waits_before_first(task, tasks, now, told),
        *_waits_between_attempts(task, told),
        *_waits_between_tries(task, told),
    ]
    found += [
        Wait("person", asked.question.text, asked.start, now if asked.end is None else asked.end)
        for asked in task.questions
    ]
    return tuple(sorted((one for one in found if one.end - one.start >= _LEAST), key=lambda one: one.start))


def _waits_before_first(
    task: TaskStory, tasks: Mapping[str, TaskStory], now: float, told: Sequence[Wait]
) -> Iterator[Wait]:
    """Yield the waits before the first attempt."""
    begun = task.assigned[0] if task.assigned else now if task.end is None else task.end
    ends = [(tasks[one].end, one) for one in task.planned.depends_on if one in tasks]
    met = [(end, one) for end, one in ends if end is not None and end <= begun]
    ready, last = max(met, default=(task.planned_at, ""))
    ready = max(ready, task.planned_at)
    blocked = not task.assigned and len(met) < len(ends)
    if blocked:
        missing = next(one for end, one in ends if end is None or end > begun)
        yield Wait("dependency", missing, task.planned_at, begun)
        return
    if last:
        yield Wait("dependency", last, task.planned_at, ready)
    if told:  # the events themselves report waits for a slot or member
        return
    if task.assigned or task.end is None:
        yield Wait("slot", "", ready, begun)
    if task.assigned and task.attempts:
        yield Wait("member", task.member or "", begun, task.attempts[0].start)


def _waits_between_attempts(task: TaskStory, told: Sequence[Wait]) -> Iterator[Wait]:
    """Yield the waits between two attempts."""
    for before, after in zip(task.attempts, task.attempts[1:], strict=False):
        start = before.end if before.review_end is None else before.review_end
        if start is None:
            continue
        asked = [one.end for one in task.questions if one.end is not None and start <= one.end <= after.start]
        start = max([start, *asked, *(one.end for one in told if start <= one.end <= after.start)])
        topped = any(start <= at <= after.start for at in task.top_ups)
        yield Wait("budget" if topped else "retry", "", start, after.start)


def _waits_between_tries(task: TaskStory, told: Sequence[Wait]) -> Iterator[Wait]:
    """Yield the waits between two tries of a model call that no event reports, as in files of older versions."""
    for attempt in task.attempts:
        last: dict[str, CallStory] = {}
        for call in attempt.calls:
            before = last.get(call.call_id)
            if before is not None and before.end is not None and call.number > before.number:
                ends = (one.end for one in told if before.end <= one.start <= call.start)
                yield Wait("retry", call.name, max([before.end, *ends]), call.start)
            last[call.call_id] = call
