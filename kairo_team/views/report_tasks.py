"""The rows of a report: a line of the timeline and the details of each task."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team._util.counts import count
from kairo_team.files import MOST_SHOWN, File
from kairo_team.verdicts import VerdictOutcome
from kairo_team.views.progress import RowState
from kairo_team.views.report_calls import Calls, left_out
from kairo_team.views.report_text import changes, cut, dollars, fair_share, macro, seconds
from kairo_team.views.run_waits import waits

if TYPE_CHECKING:
    from markupsafe import Markup

    from kairo_team.artifacts import Finding
    from kairo_team.verdicts import CriterionResult
    from kairo_team.views.run_story import AttemptStory, QuestionStory, RunStory, TaskStory, Wait

WAITS: Final = {
    "dependency": "a dependency",
    "slot": "a slot",
    "member": "its member",
    "budget": "budget",
    "person": "a person",
    "rate": "a rate limit",
    "retry": "the next attempt or try of a call",
}
_WIDE: Final = 100.0
_ROOM: Final = 2.5
"""Least width, in percent, of a piece with a number."""
_STYLES: Final = {"open": "a-open", "completed": "a-ok", "suspended": "w-person", "sent_back": "a-back"}
"""Styles of attempts, by how they ended; of any other end "a-error"."""
_MOST_ATTEMPTS: Final = 20
_TEXT_OF_ALL: Final = 240_000
"""Characters of all artifacts of a report together; short ones are whole."""
_COMPARED_OF_ALL: Final = 100_000
"""Characters of all comparisons."""
_LEAST_TEXT, _MOST_TEXT = 300, 20_000
_FILES_OF_ALL: Final = 5_000_000
"""Bytes of all files of a report together; the others are only named."""
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Files that a page shows: no other kind is shown as itself, because a page or a script in it must not run."""


@dataclass(frozen=True, slots=True)
class Row:
    """A task as the page shows it; its parts are written when they are asked for."""

    line: dict[str, Any]
    """The values of the task's line of the timeline."""
    values: dict[str, Any]
    facts: tuple[str, str, int, float, float]
    """Keys to search and sort by: state, words, tokens, dollars, seconds."""

    @property
    def styles(self) -> set[str]:
        """The styles of the task's line of the timeline."""
        return {piece.style for piece in self.line["bars"]}

    def bar(self) -> Markup:
        """Write the task's line of the timeline."""
        return macro("bar")(self.line)

    def plain(self) -> Markup:
        """Write the line that replaces the details where no script runs."""
        return macro("plain")(self.values)

    def details(self) -> Markup:
        """Write all that the page has of the task."""
        return macro("task")(self.values)


class _Page(NamedTuple):
    """Values that all rows of a page share."""

    story: RunStory
    calls: Calls
    most: int
    """Most characters of an artifact."""
    most_compared: int
    """Most characters of a comparison of two artifacts."""
    runs: Mapping[str, Sequence[Link]]
    room: list[int]
    """Bytes left for files."""
    alone: bool = False
    """Whether the page is about one task."""


Link = tuple[str, str]
"""The address of a run inside a task ("" if the page has none), and its caption."""


def make_rows(story: RunStory, calls: Calls, first: int, runs: Mapping[str, Sequence[Link]]) -> Iterator[Row]:
    """Yield the rows of all tasks, in plan order and numbered from `first`; `runs` has the runs inside each task."""
    made = [[one.artifact for one in task.attempts if one.artifact] for task in story.tasks.values()]
    share = fair_share((len(texts[-1]) for texts in made if texts), _TEXT_OF_ALL)
    both = (len(one) + len(other) for texts in made for one, other in pairwise(texts))
    compared = fair_share(both, _COMPARED_OF_ALL)
    page = _Page(story, calls, _bounded(share), _bounded(compared), runs, [_FILES_OF_ALL])
    return (_row(number, task, page) for number, task in enumerate(story.tasks.values(), first))


def task_details(story: RunStory, task: TaskStory, runs: Sequence[Link] = ()) -> dict[str, Any]:
    """Return the values of a page about one task, with more of its texts than a report has room for."""
    page = _Page(story, Calls(story), _MOST_TEXT, _MOST_TEXT, {task.id: runs}, [0], alone=True)
    waits_of_it = waits(task, story.tasks, story.last)
    details = _details(0, task, page, _waited(task, waits_of_it, story.last))
    grown = _grown(task, story)
    if grown:
        parts = [one for one in grown if one.planned.part_of == task.id]
        done = sum(one.state is RowState.DONE for one in parts)
        paid = sum((one.usage + one.review_usage for one in grown), task.usage + task.review_usage)
        what = f"{done:,} of {count(len(parts), 'task')} inside it done"
        details["cost"] = f"{what} · {count(paid.tokens, 'token')} · {dollars(paid.dollars)}"
    return details | {"grown": len(grown)}


def _grown(task: TaskStory, story: RunStory) -> list[TaskStory]:
    """Return the tasks that grew from a map or a loop, at any depth."""
    around = {task.id}
    found: list[TaskStory] = []
    for one in story.tasks.values():  # a task is planned after the one that it grew from
        if one.planned.part_of in around:
            around.add(one.id)
            found.append(one)
    return found


def _bounded(share: int) -> int:
    return min(max(share, _LEAST_TEXT), _MOST_TEXT)


def _row(number: int, task: TaskStory, page: _Page) -> Row:
    story = page.story
    waits_of_it = waits(task, story.tasks, story.last)
    waited = in_short = _waited(task, waits_of_it, story.last)
    if any(one.why == "budget" for one in waits_of_it):
        in_short = _waited(task, waits_of_it, story.last, brief=True)
    usage = task.usage + task.review_usage
    worked = sum((one.end or story.last) - one.start for one in task.attempts)
    words = f"{cut(task.id, 200)[0]} {cut(task.member or '', 200)[0]}".lower()
    details = _details(number, task, page, waited)
    line = {"number": number, "id": task.id, "bars": list(bars(task, waits_of_it, story.last)), "waited": in_short}
    return Row(line, details, (task.state.value, words, usage.tokens, float(usage.dollars), round(worked, 3)))


# ---------------------------------------------------------------- the timeline


class Piece(NamedTuple):
    """A piece of a timeline, with its place and width in percent."""

    style: str
    x: float
    width: float
    words: str = ""
    number: str = ""
    """The number of an attempt, if the task has several and it has room."""


class Span(NamedTuple):
    """A piece of a timeline, with its times in seconds."""

    style: str
    start: float
    end: float | None
    """None: it goes on."""
    words: str = ""
    number: int = 0
    """The number of an attempt, if the task has several."""


def spans(task: TaskStory, waited: Sequence[Wait]) -> Iterator[Span]:
    """Yield the attempts, reviews and waits of a task."""
    for attempt in task.attempts:
        took = "" if attempt.end is None else f"{seconds(attempt.end - attempt.start)}, "
        words = f"attempt {attempt.number}: {took}{status_of(attempt).replace('_', ' ')}"
        number = attempt.number if len(task.attempts) > 1 else 0
        yield Span(style_of(attempt), attempt.start, attempt.end, words, number)
        if attempt.review_start is not None:
            took = "" if attempt.review_end is None else f"{seconds(attempt.review_end - attempt.review_start)}, "
            outcome = "open" if attempt.verdict is None else attempt.verdict.outcome.value
            words = f"review of attempt {attempt.number}: {took}{outcome}"
            yield Span("a-review", attempt.review_start, attempt.review_end, words)
    for one in waited:  # last, because the waits of calls are drawn on top of their attempt
        yield Span(f"w-{one.why}", one.start, one.end)


def bars(task: TaskStory, waited: Sequence[Wait], last: float) -> Iterator[Piece]:
    """Yield the same in percent of a timeline of `last` seconds."""
    scale = _WIDE / last if last else 0.0
    for style, start, end, words, number in spans(task, waited):
        wide = max(((last if end is None else end) - start) * scale, 0.2)  # enough to be seen
        x, width = round(max(min(start * scale, _WIDE - wide), 0.0), 1), round(wide, 1)
        yield Piece(style, x, width, words, str(number) if number and width >= _ROOM else "")


def status_of(attempt: AttemptStory) -> str:
    """Return how an attempt ended, in a word: "sent_back" if another version of what it made is wanted.

    An attempt that changed nothing is sent back without a review.
    """
    if attempt.end is None:
        return "open"
    if attempt.error or attempt.status != "completed":
        return attempt.status
    is_wanted = attempt.verdict is not None and attempt.verdict.outcome is VerdictOutcome.REVISE
    return "sent_back" if attempt.followed or is_wanted else attempt.status


def style_of(attempt: AttemptStory) -> str:
    """Return the style of an attempt in pictures."""
    return _STYLES.get(status_of(attempt), "a-error")


def _waited(task: TaskStory, waited: tuple[Wait, ...], last: float, *, brief: bool = False) -> str:
    """Return what the task waited for, and how long; leave out waits too short to be visible in the timeline.

    `brief` leaves out for whom the budget was set aside.
    """
    sums: dict[str, float] = {}
    for one in waited:
        words = WAITS["budget"] if brief and one.why == "budget" else _describe_wait(task, one)
        sums[words] = sums.get(words, 0.0) + one.end - one.start
    return ", ".join(f"{words} {seconds(amount)}" for words, amount in sums.items() if amount >= last / 500)


def _describe_wait(task: TaskStory, wait: Wait) -> str:
    what = cut(wait.what, 40)[0]
    match wait.why:
        case "dependency":
            return what
        case "member":
            return f"member {cut(task.member, 40)[0]}" if task.member else WAITS["member"]
        case "rate":
            return f"a rate limit of {what}"
        case "retry":
            error = f" ({wait.error.replace('_', ' ')})" if wait.error else ""
            return f"another try of {what}{error}" if what else "the next attempt"
        case "budget":
            return WAITS["budget"] + (f" ({cut(wait.what, 200)[0]})" if wait.what else "")
        case _:
            return WAITS[wait.why]


# ---------------------------------------------------------------- the details


def _details(number: int, task: TaskStory, page: _Page, waited: str) -> dict[str, Any]:
    reviewed = [one for one in task.attempts if one.verdict is not None]
    paid = task.usage + task.review_usage
    facts = [f"needs {', '.join(task.planned.depends_on[:20])}"] if task.planned.depends_on else []
    facts += [f"waited for {waited}"] if waited else []
    facts += [f"reviewed by {task.planned.evaluator}"] if task.planned.evaluator else []
    facts += [f"reviews: {task.review_usage}"] if task.review_usage.tokens else []
    tries = count(task.attempts[-1].number if task.attempts else 0, "attempt")
    earlier = len(task.attempts) - _MOST_ATTEMPTS
    facts += [f"{count(earlier, 'earlier attempt')} not shown"] if earlier > 0 else []
    return {
        "number": number,
        "id": task.id,
        "state": task.state.value,
        "member": task.member or "",
        "cost": f"{tries} · {count(paid.tokens, 'token')} · {dollars(paid.dollars)}",
        "reason": task.reason and cut(task.reason, 1_000)[0],
        "facts": "; ".join(facts),
        "description": cut(task.planned.description, 2_000)[0],
        "runs": page.runs.get(task.id, ()),
        "made": _last_artifact(task, page),
        "rounds": [one.number for one in reviewed],
        "criteria": _criteria(reviewed),
        "attempts": list(_attempts(task, page)),
        "questions": [_question(asked) for asked in task.questions],
    }


def _criteria(reviewed: list[AttemptStory]) -> list[tuple[str, list[dict[str, str]]]]:
    """Return a row for each criterion, with a cell for each round; a cell is empty if that round did not check it."""
    by_round = [{one.id: one for one in attempt.verdict.criteria} for attempt in reviewed if attempt.verdict]
    names = dict.fromkeys(name for found in by_round for name in found)
    return [(name, [_cell(found.get(name)) for found in by_round]) for name in names]


def _cell(result: CriterionResult | None) -> dict[str, str]:
    if result is None:
        return {"kind": "", "mark": "", "level": "", "reason": ""}
    kind, mark = {True: ("pass", "met"), False: ("failed", "not met"), None: ("unknown", "open")}[result.passed]
    level = "" if result.level in ("pass", "fail", mark) else result.level
    return {"kind": kind, "mark": mark, "level": level, "reason": cut(result.reason, 300)[0]}


def _attempts(task: TaskStory, page: _Page) -> Iterator[dict[str, Any]]:
    timed = page.story.started_at is not None
    before: str | None = None
    last = _last_made(task)
    for attempt in task.attempts[-_MOST_ATTEMPTS:]:
        # A report has room for the last artifacts alone, with what changed before.
        shown, sentence = cut(attempt.artifact or "", page.most) if page.alone and attempt is not last else ("", "")
        differs = before is not None and attempt.artifact is not None and before != attempt.artifact
        verdict = attempt.verdict
        repeats = verdict is not None and any(verdict.feedback == one.observed for one in verdict.findings)
        yield {
            "number": attempt.number,
            "status": status_of(attempt),
            "verdict": None if verdict is None else verdict.outcome.value,
            "facts": _attempt_facts(attempt, timed=timed),
            "error": attempt.error and cut(attempt.error, 1_000)[0],
            "feedback": "" if verdict is None or repeats else cut(verdict.feedback, 1_000)[0],
            "findings": [_finding(one) for one in verdict.findings] if verdict else [],
            "calls": page.calls.shown(attempt.calls),
            "calls_left_out": left_out(attempt),
            "text": shown,
            "cut": sentence,
            "diff": changes(before, attempt.artifact, page.most_compared)
            if differs and before and attempt.artifact
            else [],
        }
        # An attempt without an artifact does not interrupt the comparison.
        before = attempt.artifact or before


def _last_made(task: TaskStory) -> AttemptStory | None:
    return next((one for one in reversed(task.attempts) if one.artifact or one.files), None)


def _last_artifact(task: TaskStory, page: _Page) -> dict[str, Any] | None:
    """Return the artifact of the last attempt that made one."""
    last = _last_made(task)
    if last is None:
        return None
    text, sentence = cut(last.artifact or "", page.most)
    return {"number": last.number, "text": text, "cut": sentence, "files": [_file(one, page) for one in last.files]}


def _file(file: File, page: _Page) -> dict[str, str]:
    """Return a file for the page, as an image or a download, as long as the page has room."""
    size = file.size or 0
    data = file.data if 0 < size <= min(MOST_SHOWN, page.room[0]) else None
    if data is None:
        return {"words": str(file), "name": file.name, "image": "", "link": ""}
    page.room[0] -= size
    written = base64.b64encode(data).decode("ascii")
    image = f"data:{file.media_type};base64,{written}" if file.media_type in PICTURES else ""
    # Never as its own type: a page or a script in it must not run where it is opened.
    link = "" if image else f"data:application/octet-stream;base64,{written}"
    return {"words": str(file), "name": file.name, "image": image, "link": link}


def _attempt_facts(attempt: AttemptStory, *, timed: bool) -> str:
    facts = [attempt.member or ""]
    facts += [f"began at {seconds(attempt.start)}"] if timed else []
    facts += [] if attempt.end is None or not timed else [f"took {seconds(attempt.end - attempt.start)}"]
    facts += [str(attempt.usage)] if attempt.usage.tokens or attempt.usage.dollars else []
    facts += [attempt.halt] if attempt.halt else []
    if attempt.verdict is not None and attempt.verdict.score is not None:
        facts.append(f"score {attempt.verdict.score:.2g}")
    return " · ".join(one for one in facts if one)


def _finding(finding: Finding) -> str:
    is_told = not finding.expected or finding.expected in finding.observed
    expected = "" if is_told else f" Expected: {finding.expected}"
    place = f" at {finding.locus}" if finding.locus else ""
    status = "" if finding.status == "open" else f" ({finding.status})"
    return cut(f"{finding.criterion or finding.id}{place}{status}: {finding.observed}{expected}", 600)[0]


def _question(asked: QuestionStory) -> dict[str, str]:
    answer = "No answer yet." if asked.is_open else f"Answer: {asked.action}. {asked.feedback}"
    return {"text": cut(asked.question.text, 1_000)[0], "answer": cut(answer, 1_000)[0]}
