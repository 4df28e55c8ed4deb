"""The page of a run: its state and its events; each event is read once for all browsers."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from sys import maxsize
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team import events
from kairo_team.budget import NO_USAGE, Budget
from kairo_team.recorded import ENDED
from kairo_team.views.report_graph import draw_run
from kairo_team.views.run_notes import describe
from kairo_team.views.run_record import CallSum
from kairo_team.views.run_story import RunStory
from kairo_team.web_console.made_files import last_files
from kairo_team.web_console.open_questions import open_questions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kairo_team.budget import Usage
    from kairo_team.events import Event
    from kairo_team.views.run_story import CallStory, TaskStory
    from kairo_team.web_console.sources import Source, Standing

MOST_TASKS: Final = 200
"""Tasks that a table shows."""
MOST_TEXTS: Final = 20
"""Most replies that are shown while they are written; the calls that began last are kept."""
AT_ONCE: Final = 2_000
"""About how many events are read before a page is sent; the page gets the others right after."""
_MOST_PAGES: Final = 8
"""Runs whose events are kept; the run that was opened least recently is dropped, and read again when needed."""
_FIRST: Final = ("running", "reviewing", "suspended", "failed", "cancelled", "pending")
"""States of the tasks that are shown first when there are many."""
_SHOWN: Final = 100
"""The last calls and notes that are shown."""
_POINTS: Final = 400
"""Most points of a curve."""
_WIDTH: Final = 1_000
"""Width of a picture, in its own units."""
TAIL: Final = 4_000
"""How many of the last characters of an unfinished reply are shown."""
_LEAST: Final = 3
"""The width of a bar that takes no time."""
_SECOND: Final = 0.001


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a timeline: `x` and `width` of 1,000."""

    x: float
    width: float
    status: str


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
                self.notes.append((event.at, sentence))
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

    def moment(self, seconds: float) -> datetime:
        """Return the date and time of a moment, given in seconds since the run's first event."""
        assert self.story.started_at is not None, "something happened"
        return self.story.started_at + timedelta(seconds=seconds)

    def bars(self, task: TaskStory) -> list[Bar]:
        """Return the attempts of a task as pieces of the run's time; one without an end lasts until the next."""
        unit = _WIDTH / max(self.now, self.story.last, _SECOND)
        found: list[Bar] = []
        for one, following in zip_longest(task.attempts, task.attempts[1:]):
            latest = max(self.now, self.story.last) if following is None else following.start
            end = latest if one.end is None else one.end
            found.append(Bar(round(one.start * unit, 1), round(max((end - one.start) * unit, _LEAST), 1), one.status))
        return found

    def curve(self, limit: int) -> str:
        """Return the points of the curve of tokens left over time, for a picture of 1,000 by 100."""
        whole = max(self.now, self.story.last, _SECOND)
        step = max(len(self.spent) // _POINTS, 1)
        points = [(0.0, 0)]
        for seconds, used in [*self.spent[::step], (whole, self.spent[-1][1] if self.spent else 0)]:
            points += [(seconds, points[-1][1]), (seconds, used)]  # a step: the tokens are spent at the end of a call
        return " ".join(f"{seconds / whole * _WIDTH:.1f},{min(used / limit, 1) * 100:.1f}" for seconds, used in points)


class Limit(NamedTuple):
    """One limit of a run's budget."""

    name: str
    used: float
    limit: float
    held: float


class RunPage:
    """One run as its page shows it, kept up to date for all browsers."""

    def __init__(self, source: Source, run_id: str) -> None:
        self._source = source
        self.run_id = run_id
        self._view = RunView()
        self._started_at: float = 0.0
        self._lock = threading.Lock()
        self._made: tuple[object, object] = (None, None)
        """The state that the parts were made from, and the parts."""

    def parts(self, state: object, make: Callable[[dict[str, Any]], Any], most: int | None = None) -> Any:
        """Return what `make` makes of the template's values; for an equal `state`, return the last result.

        `most` limits, roughly, how many new events are read. Raises `RunNotFound`.
        """
        with self._lock:
            if self._made[0] != state or not self._view.whole:
                self._made = state, make(self._read(most))
            return self._made[1]

    def read(self) -> dict[str, Any]:
        """Return the values of the template, with all events; raises `RunNotFound`."""
        with self._lock:
            return self._read(None)

    def _read(self, most: int | None) -> dict[str, Any]:
        standing = self._source.standing(self.run_id)
        if standing.run.started_at != self._started_at:  # it was forgotten, and another run has its id now
            self._started_at = standing.run.started_at
            self._view = RunView()
        view = self._view
        view.take_from(self._source, self.run_id, most)
        view.now = 0.0
        if standing.run.state == "running" and view.story.started_at is not None:
            view.now = (datetime.now(UTC) - view.story.started_at).total_seconds()
        tasks = list(view.story.tasks.values())
        more = len(tasks) - MOST_TASKS
        if more > 0:
            tasks.sort(key=lambda one: _FIRST.index(one.state) if one.state in _FIRST else len(_FIRST))
        texts = list(view.writings.items())
        picture, on_picture = draw_run(view.story)
        files, more_files = last_files(self._source.files(self.run_id))
        return {
            "run": standing.run,
            "standing": standing,
            "resume_hint": self._source.resume_hint(standing.run),
            "calls": view.sums if standing.calls is None else standing.calls,
            "view": view,
            "tasks": tasks[:MOST_TASKS],
            "more": more,
            "texts": texts[-MOST_TEXTS:],
            "more_texts": len(texts) - MOST_TEXTS,
            "picture": picture,
            "on_picture": on_picture,
            "files": files,
            "more_files": more_files,
            "limits": _limits(standing),
            "questions": open_questions(self._source, self.run_id),
            "ended": standing.run.state in ENDED,
            "here_live": self._source.live(self.run_id) is not None,
        }


class RunPages:
    """The pages of the runs that were opened last."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pages: OrderedDict[str, RunPage] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run_id: str) -> RunPage:
        """Return the page of a run, the same for all browsers; raises `RunNotFound`."""
        self._source.standing(run_id)
        with self._lock:
            page = self._pages.setdefault(run_id, RunPage(self._source, run_id))
            self._pages.move_to_end(run_id)
            if len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        return page


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
