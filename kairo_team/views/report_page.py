"""The summary of a run in a report: verdict, reasons, next step, facts, costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team._util.counts import count
from kairo_team.views.progress import RowState
from kairo_team.views.report_tasks import status_of
from kairo_team.views.report_text import cut, dollars, seconds
from kairo_team.views.run_costs import costs
from kairo_team.views.text import one_line

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.human import HumanRequest
    from kairo_team.views.run_story import RunStory, TaskStory

_MOST_REASONS: Final = 8
_MOST_NAMED: Final = 5
"""Tasks that are named with a cause."""
_STEPS: Final = 200
_MANY: Final = 40
"""Tasks from which the timeline has an overview above it."""
_VERDICTS: Final = {
    "completed": "The run completed.",
    "degraded": "The run ended with a part of its work.",
    "failed": "The run failed.",
    "timeout": "The run reached its deadline.",
    "cancelled": "The run was cancelled.",
    "suspended": "The run waits for a person.",
    "interrupted": "The run was interrupted: its process is gone.",
    "given_up": "Workers gave the run up: it ended one after another.",
    "running": "The run is under way.",
    "open": "The events have no end: the run is under way, or its process has died.",
}
_NEXT: Final = {
    "completed": "Nothing: the work is done.",
    "degraded": "Look at the tasks that were not accepted. A fork does them again and pays for nothing else.",
    "failed": "Look at the first task that failed. A fork does it again and pays for nothing that was accepted.",
    "timeout": "Give it more time, or fewer tasks. A fork keeps what was accepted.",
    "cancelled": "Nothing resumes by itself. A fork keeps what was accepted.",
    "suspended": "Answer the open questions, then resume it.",
    "interrupted": "Resume it: nothing that was finished is done again.",
    "given_up": "Look at the workers' logs, then send it to the workers again.",
    "running": "Wait for its end.",
    "open": "If its process is gone and it has a journal, resume it.",
}


class Known(NamedTuple):
    """Facts about a run that are not in its events."""

    state: str | None = None
    """The state in the journal; None: the events decide."""
    commands: tuple[str, ...] = ()
    """Commands that continue the run."""
    limits: Budget | None = None
    """Limits of the run."""
    output: str | None = None
    """The output, or else the partial output."""
    partial: bool = False
    """Whether `output` is the partial output."""
    error: str | None = None
    warnings: tuple[str, ...] = ()


def state_of(story: RunStory) -> str:
    """Return the state of a run according to its events."""
    return "open" if story.ended is None else story.ended.state


def verdict_of(state: str) -> str:
    """Return a sentence on the state of a run."""
    return _VERDICTS.get(state, f"The run: {state}.")


def describe(story: RunStory, known: Known, inside: Sequence[RunStory]) -> dict[str, Any]:
    """Return the page's values, except for its parts and the graph."""
    state = known.state or state_of(story)
    output, sentence = cut(known.output or "", 20_000)
    return {
        "team": one_line(cut(story.team, 200)[0]),
        "run_id": story.run_id,
        "state": state,
        "started": story.started_at.strftime("%Y-%m-%d %H:%M:%S UTC") if story.started_at else "",
        "verdict": verdict_of(state),
        "goal": " ".join(cut(story.goal, 2_000)).strip(),
        "line": " · ".join(line_of(story, known.limits)),
        "why": list(reasons(story, known)),
        "next": _NEXT.get(state, ""),
        "commands": known.commands,
        "facts": list(_facts(story, inside)),
        "output": output.rstrip(),
        "output_cut": sentence,
        "output_name": "The partial output" if known.partial else "The output",
        "costs": [
            {
                "member": row.member or "",
                "model": row.model or "not from a model call",
                "purpose": row.purpose,
                "calls": f"{row.calls:,}",
                "prompt": f"{row.usage.prompt_tokens:,}",
                "reply": f"{row.usage.completion_tokens:,}",
                "doubt": f"{row.in_doubt:,}" if row.in_doubt else "",
                "dollars": dollars(row.usage.dollars),
            }
            for row in costs(story, inside)
        ],
        "notes": [(seconds(at), cut(words, 1_000)[0]) for at, words in story.notes[:200]],
    }


# ---------------------------------------------------------------- verdict


def line_of(story: RunStory, limits: Budget | None = None) -> Iterator[str]:
    """Yield the facts of the first line: accepted tasks, revisions, cost and time."""
    tasks = story.tasks.values()
    states = Counter(task.state.value for task in tasks)
    if story.tasks:
        yield f"{states['done']:,} of {count(len(story.tasks), 'task')} accepted" + "".join(
            f", {number:,} {state}" for state, number in states.items() if state != "done"
        )
    yield from sent_back(tasks)
    usage, limit = story.usage, story.tokens_given if limits is None else limits.tokens
    yield f"{usage.tokens:,} of {limit:,} tokens" if limit is not None else count(usage.tokens, "token")
    if usage.dollars:
        yield dollars(usage.dollars)
    if story.started_at is not None or story.ended is not None:
        yield seconds(story.ended.duration if story.ended else story.last)


def sent_back(tasks: Iterable[TaskStory]) -> Iterator[str]:
    """Yield how many accepted tasks took revisions: `98 after one revision, 1 after more`."""
    back = [
        sum(status_of(one) == "sent_back" for one in task.attempts) for task in tasks if task.state is RowState.DONE
    ]
    once, often = sum(one == 1 for one in back), sum(one > 1 for one in back)
    words = [f"{once:,} after one revision"] * (once > 0) + [f"{often:,} after several revisions"] * (often > 0)
    if words:
        yield ", ".join(words)


def reasons(story: RunStory, known: Known, *, with_questions: bool = True) -> Iterator[str]:
    """Yield why the run did not complete, each cause once, and its warnings.

    Without `with_questions`, only the tasks that wait for a person are named: the page shows their questions.
    """
    error = known.error or (story.ended.error if story.ended else None)
    waiting = [asked.question for asked in story.questions if asked.is_open]
    if waiting and (known.state or state_of(story)) == "suspended":
        error = None  # it has the questions alone
    if error:
        yield cut(error, 1_000)[0]
    causes: dict[str, list[str]] = {}
    bad = [task for task in story.tasks.values() if task.state is RowState.FAILED]
    # With a single failed task the run's error already says why.
    for task in bad if len(bad) > 1 or not error else ():
        causes.setdefault(cut(task.reason or "failed", 300)[0], []).append(task.id)
    for cause, ids in list(causes.items())[:_MOST_REASONS]:
        yield f"{_named(ids)}: for the same reason" if error and cause in error else f"{_named(ids)}: {cause}"
    if len(causes) > _MOST_REASONS:
        yield f"{count(len(causes) - _MOST_REASONS, 'more cause')}"
    yield from _waiting(waiting, with_questions=with_questions)
    asleep = [task.reason for task in story.tasks.values() if task.state is RowState.SUSPENDED]
    caused = {f"task {task.id!r} failed: {task.reason}" for task in bad}
    told = [one for one in (error, *causes, *asleep, *(asked.text for asked in waiting)) if one]
    new = [one for one in known.warnings if one not in caused and not any(words in one for words in told)]
    for warning in new[:_MOST_REASONS]:
        yield f"warning: {cut(warning, 300)[0]}"


def _waiting(questions: Sequence[HumanRequest], *, with_questions: bool) -> Iterator[str]:
    about = list(dict.fromkeys(asked.task_id or "the plan" for asked in questions))
    if with_questions:
        for asked in questions[:_MOST_REASONS]:
            yield f"open question on {cut(asked.task_id or 'the plan', 100)[0]}: {cut(asked.text, 300)[0]}"
        if len(questions) > _MOST_REASONS:
            yield f"{count(len(questions) - _MOST_REASONS, 'more open question')}"
    elif about:
        yield f"{_named(about)} {'waits' if len(about) == 1 else 'wait'} for a person"


def _named(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _MOST_NAMED:,} more" if len(ids) > _MOST_NAMED else ""
    return ", ".join(cut(one, 100)[0] for one in ids[:_MOST_NAMED]) + more


def _facts(story: RunStory, inside: Sequence[RunStory]) -> Iterator[tuple[str, str]]:
    usage, calls = story.usage, [call for one in (story, *inside) for call in one.calls]
    yield "tokens", f"{usage.tokens:,}"
    yield "dollars", dollars(usage.dollars)
    yield "time", seconds(story.ended.duration if story.ended else story.last)
    yield "attempts", f"{sum(task.attempts[-1].number for task in story.tasks.values() if task.attempts):,}"
    yield "model calls", f"{sum(call.what == 'model' for call in calls):,}"
    yield "tool calls", f"{sum(call.what == 'tool' for call in calls):,}"
    if inside:
        yield "runs inside", f"{len(inside):,}"
    refused = sum(call.outcome == "refused" for call in calls)
    if refused:
        yield "refused", f"{refused:,}"


# ---------------------------------------------------------------- the sum above the timeline


def overview(story: RunStory) -> dict[str, Any] | None:
    """Return how many tasks were at work and in review at 200 moments, as polygons; None for a small run."""
    if len(story.tasks) < _MANY or not story.last:
        return None
    attempts = [one for task in story.tasks.values() for one in task.attempts]
    work = _levels([(one.start, story.last if one.end is None else one.end) for one in attempts], story.last)
    review = _levels(
        [
            (one.review_start, story.last if one.review_end is None else one.review_end)
            for one in attempts
            if one.review_start is not None
        ],
        story.last,
    )
    both = [one + other for one, other in zip(work, review, strict=True)]
    most = max(*both, 1)
    return {"work": _polygon(work, most), "review": _polygon(both, most), "most": f"{most:,}"}


def _levels(spans: Sequence[tuple[float, float]], last: float) -> list[int]:
    steps = [0] * (_STEPS + 1)
    for start, end in spans:
        # A short span fills at least one step, so that it is visible.
        first = min(int(start / last * _STEPS), _STEPS - 1)
        steps[first] += 1
        steps[min(max(int(end / last * _STEPS), first + 1), _STEPS)] -= 1
    level, levels = 0, list[int]()
    for step in steps[:_STEPS]:
        level += step
        levels.append(level)
    return levels


def _polygon(levels: Sequence[int], most: int) -> str:
    wide = 1000 / _STEPS
    points = [f"{at * wide:g},{100 - level / most * 96:.1f}" for at, level in enumerate(levels)]
    return " ".join(["0,100", *points, f"1000,{points[-1].partition(',')[2]}", "1000,100"])
