"""The page of a run: its state and its events; each event is read once for all browsers."""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict, deque
from copy import copy
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from kairo_team import events
from kairo_team._util.counts import count
from kairo_team.budget import NO_USAGE, Budget
from kairo_team.recorded import ENDED
from kairo_team.team import RiskProfile
from kairo_team.views.progress import RowState
from kairo_team.views.recorded_report import add_attempts
from kairo_team.views.report_graph import draw_run
from kairo_team.views.report_html import add_outcomes, known_of_result
from kairo_team.views.report_page import Known, line_of, reasons
from kairo_team.views.report_tasks import WAITS, Piece, Span, spans, task_details
from kairo_team.views.report_text import cut, seconds
from kairo_team.views.run_notes import describe
from kairo_team.views.run_record import CallSum
from kairo_team.views.run_story import RunStory
from kairo_team.views.run_waits import waits
from kairo_team.views.set_aside import names_of
from kairo_team.views.text import some_of
from kairo_team.web_console.made_files import last_files
from kairo_team.web_console.open_questions import open_questions
from kairo_team.web_console.task_tree import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kairo_team.budget import Usage
    from kairo_team.events import Event
    from kairo_team.views.run_story import CallStory, TaskStory
    from kairo_team.web_console.sources import Source, Standing

TABS: Final = ("graph", "budget", "calls", "files", "notes")
"""Parts that a page shows one at a time."""
MOST_OUTPUT: Final = 20_000
"""Characters of an output that a page shows; all of it can be saved."""
MOST_TEXTS: Final = 20
"""Most replies that are shown while they are written; the calls that began last are kept."""
AT_ONCE: Final = 2_000
"""About how many events are read before a page is sent; the page gets the others right after."""
_MOST_PAGES: Final = 8
"""Runs whose events are kept; the run that was opened least recently is dropped, and read again when needed."""
_MOST_MADE: Final = 8
"""Most ways in which open pages show a run whose parts are kept."""
_SHOWN: Final = 100
"""The last calls and notes that are shown."""
_LONGEST_NOTE: Final = 1_000
"""Characters of a note that are shown: it may quote an error, or a question."""
_POINTS: Final = 400
"""Most points of a curve."""
_WIDTH: Final = 1_000
"""Width of a picture, in its own units."""
TAIL: Final = 4_000
"""How many of the last characters of an unfinished reply are shown."""
_STEP: Final = 1.25
"""The next span of a timeline is this multiple of the one before."""
_SECOND: Final = 0.001
_MILLION: Final = 1e6
_OVER: Final = (RowState.DONE, RowState.FAILED, RowState.SKIPPED, RowState.CANCELLED)
_AT_WORK: Final = (RowState.RUNNING, RowState.REVIEWING)
_NAMED: Final = 5
"""Tasks under way that are named."""
_NOT_ACCEPTED: Final = (RowState.FAILED, RowState.SKIPPED, RowState.CANCELLED)


@dataclass(slots=True, eq=False)
class Writing:
    """The reply that a model is writing, or wrote last."""

    call_id: str
    model: str
    member: str | None
    purpose: str
    text: str = ""
    """The end of the reply, at most `TAIL` characters."""
    ended: bool = False


class RunView:
    """Sums up the events of a run, in order."""

    def __init__(self) -> None:
        self.seq = 0
        """The number of the last event."""
        self.story = RunStory()
        self.notes: deque[tuple[datetime, str]] = deque(maxlen=_SHOWN)
        """People's actions and warnings: the time, and the sentence."""
        self.spent: list[tuple[float, int]] = []
        """Tokens so far, by seconds."""
        self.writings: dict[str | None, Writing] = {}
        """The last call of each task under way, and of work without a task, such as a plan."""
        self.has_texts = False
        """Whether the run's events contain the texts of its work."""
        self.now = 0.0
        """The end of the drawn time, in seconds since the first event."""
        self.whole = False
        """Whether all events of the last read have been taken."""
        self._sums: dict[tuple[str, str], CallSum] = {}

    def take_from(self, source: Source, run_id: str, most: int | None) -> None:
        """Take the new events, about `most` at once."""
        found = source.events_after(run_id, self.seq, maxsize if most is None else most)
        self.whole = most is None or len(found) < most
        self.take(found)

    def take(self, new: Iterable[Event]) -> None:
        """Take the next events."""
        for event in new:
            self.seq = event.seq
            if isinstance(event, events.Content):  # the story would keep every text in memory
                self.has_texts = True
                self._take_text(event)
                continue
            self.story.take(event)
            sentence = describe(event)
            if sentence:
                self.notes.append((event.at, cut(sentence, _LONGEST_NOTE)[0]))
            if isinstance(event, events.ModelStarted):
                self.writings[event.task_id] = Writing(event.call_id, event.model, event.member, event.purpose)
            elif isinstance(event, events.TaskEnded):
                self.writings.pop(event.task_id, None)
            elif isinstance(event, events.TeamEnded):
                self.writings.clear()
            elif isinstance(event, events.ModelCalled):
                so_far = self.spent[-1][1] if self.spent else 0
                self.spent.append((self.story.last, so_far + event.usage.tokens))
                self._count("model", event.model, event.usage)
            elif isinstance(event, events.ToolCalled) and event.outcome != "refused":
                self._count("tool", event.tool, NO_USAGE)

    def _take_text(self, event: events.Content) -> None:
        writing = self.writings.get(event.task_id)
        if writing is None or writing.call_id != event.call_id or event.body is None:
            return
        if event.of == "piece":
            writing.text = (writing.text + event.body)[-TAIL:]
        elif event.of == "reply":
            writing.text, writing.ended = event.body["text"][-TAIL:], True

    def _count(self, what: str, name: str, usage: Usage) -> None:
        before = self._sums.get((what, name), CallSum(what, name, 0, 0, NO_USAGE))
        self._sums[what, name] = before._replace(calls=before.calls + 1, usage=before.usage + usage)

    @property
    def sums(self) -> Sequence[CallSum]:
        """The ended calls by model and tool, in the order of their first ends."""
        return tuple(self._sums.values())

    @property
    def states(self) -> list[tuple[str, int]]:
        """How many tasks are in each state, the most frequent first."""
        return Counter(task.state.value for task in self.story.tasks.values()).most_common()

    @property
    def calls(self) -> Sequence[CallStory]:
        """The last calls, the newest first."""
        return self.story.calls[: -_SHOWN - 1 : -1]

    def waiting(self, task: TaskStory) -> str:
        """Return what an open task waits for, in words; "" if it does not wait."""
        wait = next(iter(task.open_waits.values()), None)
        if wait is None or task.state in _OVER:
            return ""
        whose = self.story.set_aside.describe(task.id) if wait.why == "budget" else ""
        return f"waits for {WAITS[wait.why]}" + (f": {whose}" if whose else "")

    def moment(self, after: float) -> datetime:
        """Return the date and time of a moment, given in seconds since the run's first event."""
        assert self.story.started_at is not None, "something happened"
        return self.story.started_at + timedelta(seconds=after)

    @property
    def span(self) -> float:
        """Seconds that timelines show: of a run under way rounded up, so that bars mostly stay where they are."""
        last = max(self.story.last, _SECOND)
        if self.now <= 0:
            return last
        return _STEP ** math.ceil(math.log(max(self.now, last), _STEP))

    @property
    def until(self) -> float:
        """The end of the time that is drawn, in seconds since the first event."""
        return max(self.now, self.story.last)

    def spans(self, task: TaskStory) -> list[Span]:
        """Return the attempts, reviews and waits of a task; a piece without an end has only its begin, which stays."""
        waited = waits(task, self.story.tasks, self.until) if task.attempts else ()
        goes_on = self.until if self.now else math.inf
        return [one._replace(end=None) if one.end == goes_on else one for one in spans(task, waited)]

    def curve(self, limit: int) -> str:
        """Return the points of the curve of tokens left over time, for a picture of 1,000 by 100.

        In lines, and on the axis of `span`, so that the points mostly stay when others come.
        """
        step = 2 ** max(math.ceil(math.log2(len(self.spent) / _POINTS)), 0) if self.spent else 1
        points = [(0.0, 0)]
        for after, used in [*self.spent[::step], (self.until, self.spent[-1][1] if self.spent else 0)]:
            points += [(after, points[-1][1]), (after, used)]  # a step: the tokens are spent at the end of a call
        return "\n".join(f"{after / self.span * _WIDTH:.0f},{min(used / limit, 1) * 100:.1f}" for after, used in points)


class Limit(NamedTuple):
    """One limit of a run's budget."""

    name: str
    used: float
    limit: float
    held: float

    @property
    def words(self) -> str:
        """The amounts as people write them."""
        if self.name == "seconds":
            return f"{seconds(self.used)} of {seconds(self.limit)}"
        used, limit = (f"{one:,.6g}" if one < _MILLION else f"{one:,.0f}" for one in (self.used, self.limit))
        return f"{used} of {limit}"


class Shown(NamedTuple):
    """What an open page shows of a run."""

    tab: str | None = None
    """The open tab, from `TABS`; None shows all tabs."""
    find: str = ""
    """Words of the tasks to list."""
    start: int = 0
    """The first row of the list of tasks; a negative one counts from the end."""
    opened: tuple[str, ...] = ()
    """Maps and loops whose tasks are listed, of a list that is long."""


class RunPage:
    """One run as its page shows it, kept up to date for all browsers."""

    def __init__(self, source: Source, run_id: str) -> None:
        self._source = source
        self.run_id = run_id
        self._view = RunView()
        self._started_at: float = 0.0
        self._lock = threading.Lock()
        self._result: tuple[object, Known] = (None, Known())
        """The state that a result was read in, and what the result says."""
        self._made: OrderedDict[Shown, tuple[object, Any]] = OrderedDict()
        """The state that parts were made from, and the parts, by what a page shows."""

    def parts(self, state: object, shown: Shown, make: Callable[[dict[str, Any]], Any], most: int | None = None) -> Any:
        """Return what `make` makes of the template's values; for an equal `state`, return the last result.

        `most` limits, roughly, how many new events are read. Raises `RunNotFound`.
        """
        with self._lock:
            # Taken out and put in again, so that the parts that were asked for last stay longest.
            before, made = self._made.pop(shown, (None, None))
            if before != state:
                made = make(self._read(most, shown))
            # None, which no state equals, while only a part of the events was read: the next call has to read on.
            self._made[shown] = state if self._view.whole else None, made
            if len(self._made) > _MOST_MADE:
                self._made.popitem(last=False)
            return made

    def read(self) -> dict[str, Any]:
        """Return the values of the template, with all events; raises `RunNotFound`."""
        with self._lock:
            return self._read(None, Shown())

    def task(self, task_id: str) -> dict[str, Any] | None:
        """Return the values of the page about one task, with its texts; None if the run has no such task."""
        with self._lock:
            page = self._read(None, Shown())
            view: RunView = page["view"]
            if task_id not in view.story.tasks:
                return None
            story, task = _with_texts(view.story, task_id, self._source, self.run_id)
            runs = [
                (f"/run?id={quote(one.run_id)}", f"run inside: {one.run_id}")
                for one in self._source.inside(self.run_id)
                if one.task_id == task_id
            ]
            details = task_details(story, task, runs)
        files, more = last_files(one for one in self._source.files(self.run_id) if one.task_id == task_id)
        run = page["run"]
        return {
            "run": run,
            "task": details,
            "files": files,
            "more_files": more,
            "fork": self._source.fork_hint(run, task_id),
            "is_at_work": page["is_at_work"],
            "is_open": task.state not in _OVER,
            "lost": lost_with(view.story.tasks, task_id),
            "end": end_without(view.story.tasks, task_id, tolerant=self._tolerates_losses()),
            "after": task.planned.depends_on,
        }

    def _tolerates_losses(self) -> bool | None:
        """Return whether the run can do without a task that it needs; None if this process does not know."""
        run = self._source.live(self.run_id)
        session = None if run is None else run.session
        if session is None:
            return None
        return session.tolerate_failures or session.request.config.risk_profile is RiskProfile.LOW

    def output(self, task_id: str = "") -> str | None:
        """Return the whole output of the run, or of one of its tasks; None if it made nothing."""
        with self._lock:
            if not task_id:
                result = self._source.result(self.run_id)
                return None if result is None else result.output or result.partial_output
            story: RunStory = self._read(None, Shown())["view"].story
            if task_id not in story.tasks:
                return None
            _, task = _with_texts(story, task_id, self._source, self.run_id)
            return next((one.artifact for one in reversed(task.attempts) if one.artifact), None)

    def _read(self, most: int | None, shown: Shown) -> dict[str, Any]:
        standing = self._source.standing(self.run_id)
        if standing.run.started_at != self._started_at:  # it was forgotten, and another run has its id now
            self._started_at = standing.run.started_at
            self._view = RunView()
        view = self._view
        view.take_from(self._source, self.run_id, most)
        view.now = 0.0
        if standing.run.state == "running" and view.story.started_at is not None:
            view.now = (datetime.now(UTC) - view.story.started_at).total_seconds()
        listed = tree(view.story.tasks, shown.find, shown.start, shown.opened)
        texts = list(view.writings.items())
        bad = next((one for one in view.story.tasks.values() if one.state in _NOT_ACCEPTED), None)
        known, questions = self._shown_result(standing), open_questions(self._source, self.run_id)
        facts = list(line_of(view.story, standing.budget))
        if view.story.started_at is not None:
            facts.pop()  # the time, which in events is the last session's alone
        return {
            "run": standing.run,
            "standing": standing,
            "line": " · ".join(facts),
            "why": list(reasons(view.story, known._replace(state=standing.run.state), with_questions=False)),
            "output": known.output,
            "is_partial": known.partial,
            "bad": bad.id if bad is not None else "",
            "again": self._source.fork_hint(standing.run, bad.id) if bad is not None else "",
            "resume_hint": self._source.resume_hint(standing.run),
            "calls": view.sums if standing.calls is None else standing.calls,
            "view": view,
            "listed": listed,
            "task_path": _task_path(self.run_id),
            "money": _money(view, standing),
            "waiting": {one.task.id: view.waiting(one.task) for one in listed.rows},
            "texts": texts[-MOST_TEXTS:],
            "more_texts": len(texts) - MOST_TEXTS,
            # What only a tab shows is made when it is open.
            "draw": partial(draw_run, view.story, _task_path(self.run_id)),
            "made_files": lambda: last_files(self._source.files(self.run_id)),
            "limits": _limits(standing),
            "questions": questions,
            "ended": standing.run.state in ENDED,
            "ends": list(ended_with(view.story, len(questions))),
            "is_at_work": standing.run.state == "running",
        }

    def _shown_result(self, standing: Standing) -> Known:
        """Return what the result of an ended or waiting run says, with the output cut."""
        run = standing.run
        if run.state in ("queued", "running"):
            return Known(error=standing.error)
        key = (run.started_at, run.state, run.updated_at)
        if self._result[0] != key:
            result = self._source.result(self.run_id)
            known = Known(error=standing.error) if result is None else known_of_result(result)
            output = None if known.output is None else cut(known.output, MOST_OUTPUT)[0]
            self._result = key, known._replace(output=output)
        return self._result[1]


def _task_path(run_id: str) -> Callable[[str], str]:
    """Return the function that makes the address of a task's page."""
    return lambda task_id: f"/run/task?id={quote(run_id, safe='')}&task={quote(task_id, safe='')}"


class RunPages:
    """The pages of the runs that were opened last."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pages: OrderedDict[str, RunPage] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run_id: str) -> RunPage:
        """Return the page of a run, the same for all browsers; raises `RunNotFound`."""
        # Raises for an unknown run, so that no page is kept for one.
        self._source.standing(run_id)
        with self._lock:
            page = self._pages.setdefault(run_id, RunPage(self._source, run_id))
            self._pages.move_to_end(run_id)
            if len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        return page


def _with_texts(story: RunStory, task_id: str, source: Source, run_id: str) -> tuple[RunStory, TaskStory]:
    """Return copies of a story and of one of its tasks, with the texts and artifacts that may be shown."""
    kept = story.tasks[task_id]
    task = replace(kept, attempts=[copy(one) for one in kept.attempts])
    whole = copy(story)
    whole.tasks, whole.texts = {**story.tasks, task_id: task}, {}
    by_number = {one.number: one for one in task.attempts}
    for event in source.texts(run_id, task_id):
        if event.of != "artifact":
            whole.texts.setdefault(event.call_id, {})[event.of] = event.body
        elif event.attempt in by_number and event.body is not None:
            by_number[event.attempt].artifact = str(event.body.get("text", ""))
    add_attempts(task, source.attempts(run_id, task_id))
    result = source.result(run_id, [task_id])
    add_outcomes(whole, result.outcomes if result is not None else ())
    return whole, task


def lost_with(tasks: Mapping[str, TaskStory], task_id: str) -> Sequence[str]:
    """Return the open tasks that can no longer start if a task is not accepted, in plan order."""
    lost = {one.id for one in tasks.values() if one.state in _NOT_ACCEPTED} | {task_id}
    found: list[str] = []
    changed = True
    while changed:
        changed = False
        for one in tasks.values():
            left = sum(name not in lost for name in one.planned.depends_on)
            if one.id not in lost and one.state is RowState.PENDING and left < one.planned.needs:
                lost.add(one.id)
                found.append(one.id)
                changed = True
    return found


def end_without(tasks: Mapping[str, TaskStory], task_id: str, *, tolerant: bool | None) -> str:
    """Return a sentence on how the run ends if a task is cancelled; `tolerant`: it can do without a needed one."""
    lost = {task_id, *lost_with(tasks, task_id)}
    left = [one for one in tasks.values() if one.id not in lost and one.state not in _NOT_ACCEPTED]
    if not left:
        return "The run then ends failed: nothing is left that could be accepted."
    dependents = [one.id for one in tasks.values() if task_id in one.planned.depends_on]
    dispensable = bool(dependents) and lost.isdisjoint(dependents)
    earlier = any(one.state in (RowState.FAILED, RowState.CANCELLED) for one in tasks.values())
    if tolerant or (dispensable and not earlier):
        return "The run then ends degraded, if another task is accepted and nothing else goes wrong."
    if tolerant is False and not earlier and tasks[task_id].planned.part_of is None:
        return "The run then ends failed: it needs this task, and its risk profile is not low."
    return (
        "The run then ends degraded if what needs this task can do without it, if its coordinator tolerates failures, "
        "or if its risk profile is low; otherwise it ends failed."
    )


def ended_with(story: RunStory, questions: int) -> Iterator[str]:
    """Yield what cancelling a run with so many open questions would end, and what would be kept, in sentences."""
    states = Counter(task.state for task in story.tasks.values())
    working = [one.id for one in story.tasks.values() if one.state in _AT_WORK]
    if working:
        named, are = some_of(working, _NAMED), "is" if len(working) == 1 else "are"
        yield f"{count(len(working), 'task')} under way {are} interrupted: {named}."
    if pending := states[RowState.PENDING]:
        yield f"{count(pending, 'task')} never {'begins' if pending == 1 else 'begin'}."
    if questions:
        yield f"{count(questions, 'open question')} {'needs' if questions == 1 else 'need'} no answer any more."
    if done := states[RowState.DONE]:
        stays = "stays" if done == 1 else "stay"
        yield f"{count(done, 'accepted task')} {stays} recorded: a fork continues from there."
    else:
        yield "No task was accepted yet."


def _money(view: RunView, standing: Standing) -> Sequence[Piece]:
    """Return the pieces of the bar of the run's tokens; none without a limit."""
    limit = standing.budget.tokens
    if limit is None:
        return ()
    asides, used = [one for one in view.story.set_aside.amounts() if one.tokens], standing.run.usage.tokens
    aside = min(sum(one.tokens for one in asides), max(limit - used - standing.held, 0))
    amounts = [
        ("m-spent", used, "spent"),
        ("m-held", standing.held, "held for calls under way"),
        ("m-aside", aside, f"set aside for {names_of(asides)}"),
        ("m-free", max(limit - used - standing.held - aside, 0), "free"),
    ]
    whole, x = max(limit, used + standing.held) or 1, 0.0
    pieces: list[Piece] = []
    for style, amount, words in amounts:
        if amount or style == "m-spent":
            width = round(amount / whole * 100, 2)
            pieces.append(Piece(style, round(x, 2), width, f"{amount:,} {words}"))
            x += width
    return pieces


def _limits(standing: Standing) -> list[Limit]:
    """Return the run's limits with what is spent and held of each."""
    found: list[Limit] = []
    run = standing.run
    for field in fields(Budget):
        limit = getattr(standing.budget, field.name)
        if limit is not None:
            used = run.seconds if field.name == "seconds" else getattr(run.usage, field.name)
            held = standing.held if field.name == "tokens" else 0
            found.append(Limit(field.name.replace("_", " "), float(used), float(limit), held))
    return found
