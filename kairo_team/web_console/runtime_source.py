"""The runs of a runtime without a journal, which the console keeps while it is open."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kairo_team import events
from kairo_team._util.frozen import EMPTY
from kairo_team.budget import NO_USAGE, Budget, Usage
from kairo_team.errors import Misuse, RunFinished, RunNotFound
from kairo_team.files import File
from kairo_team.recorded import ENDED, RecordedRun
from kairo_team.views.report_html import render_report
from kairo_team.views.report_page import Known
from kairo_team.views.run_record import Progress, RunInside
from kairo_team.views.run_story import tell
from kairo_team.web_console.made_files import MadeFile
from kairo_team.web_console.sources import Deferral, Source, Standing, Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.engine.records.run_handle import Run
    from kairo_team.engine.work.runtime import Runtime
    from kairo_team.events import Content, Event, TeamEnded
    from kairo_team.human import HumanDecision

MOST_ENDED: Final = 100
"""Ended runs that are kept, the newest ones."""
MOST_EVENTS: Final = 200_000
"""Most events of ended runs that are kept; the newest ended run keeps all of its events."""


@dataclass(slots=True, eq=False)
class _Kept:
    """One run with its events."""

    run_id: str
    within: str | None
    """The run around this one."""
    events: list[Event] = field(default_factory=list["Event"])
    """Events in order; they begin in the middle of the run if the console was opened later."""
    team: str = ""
    goal: str = ""
    budget: Budget = field(default_factory=Budget)
    usage: Usage = NO_USAGE
    began: float | None = None
    """Seconds since 1970; None until it is needed."""
    seconds: float = 0.0
    held: int = 0
    ended: TeamEnded | None = None
    """The end of the last session; None while one is open."""
    tasks: dict[str, bool | None] = field(default_factory=dict[str, "bool | None"])
    """Whether each task was accepted; None while it has not ended."""
    asked: dict[str, datetime] = field(default_factory=dict[str, "datetime"])
    """Times at which the run's questions were asked, by question id."""

    def take(self, event: Event) -> None:
        """Keep the next event, unless it is kept already."""
        if self.events and event.seq <= self.events[-1].seq:
            return
        self.events.append(event)
        if isinstance(event, events.HumanRequested):
            self.asked[event.question.id] = event.at
        elif isinstance(event, events.PlanReady | events.PlanGrew):
            added = event.graph if isinstance(event, events.PlanReady) else event.added
            self.tasks = {**dict.fromkeys(one.id for one in added), **self.tasks}
        elif isinstance(event, events.TaskCompleted | events.TaskFailed):
            self.tasks[event.task_id] = isinstance(event, events.TaskCompleted)
        elif isinstance(event, events.TeamStarted | events.TeamResumed):
            self.team, self.goal, self.ended = event.team, event.goal, None
        elif isinstance(event, events.TeamEnded):
            self.ended, self.usage, self.seconds, self.held = event, event.usage, event.duration, 0

    def look(self, run: Run | None) -> None:
        """Read the run's limits and usage, while a session of it is open."""
        session = None if run is None else run.session
        if session is None:
            return
        governor = session.governor
        self.team, self.goal, self.budget = session.team.name, session.request.goal, governor.budget
        self.usage, self.seconds, self.held = governor.usage, governor.elapsed, governor.held.tokens


class RuntimeSource(Source):
    """The runs of a runtime from the time it was opened on; it subscribes to the runtime until it is closed.

    Runs that are already under way are shown too: with all their events if `Runtime.start` or `stream` began them,
    else with their events from now on. Running and waiting runs are kept, and the newest `MOST_ENDED` ended ones.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._closed = False
        self._opened = datetime.now(UTC)
        self._kept: dict[str, _Kept] = {}
        """Runs by id, in the order they began."""
        self._deferred: dict[str, Deferral] = {}
        """Deferrals made here, by question id."""
        runtime.subscribers = (*runtime.subscribers, self._take)
        for run in runtime.runs.handles():
            self._take_in(run)

    def _take_in(self, run: Run) -> None:
        """Take in a run that is already under way."""
        before: Sequence[Event] = ()
        try:
            before = run.tell(self._take)
        except (Misuse, RunFinished):  # it has not begun, waits for an answer, or ended just now
            if run.suspension is None:
                return
        with self._lock:
            kept = self._kept.setdefault(run.run_id, _Kept(run.run_id, run.within))
            # An event may be in both: `_Kept.take` drops numbers that it has.
            since, kept.events = kept.events, []
            for event in (*before, *since):
                kept.take(event)
            if run.suspension is not None:
                asked = run.suspension
                kept.goal, kept.budget, kept.usage = asked.request.goal, asked.budget, asked.usage
                kept.seconds = asked.usage.seconds

    def close(self) -> None:
        """Take no more events, and keep nothing."""
        # `!=`, not `is not`: each access of a method makes a new object.
        self._runtime.subscribers = tuple(one for one in self._runtime.subscribers if one != self._take)
        with self._lock:
            self._closed = True
            self._kept.clear()

    def _take(self, event: Event) -> None:
        """Keep an event of any run; called in that run's thread."""
        run = self._runtime.runs.live(event.run_id)
        with self._lock:
            if self._closed:
                return
            kept = self._kept.setdefault(event.run_id, _Kept(event.run_id, run.within if run else None))
        last = isinstance(event, events.TeamEnded)
        if last:
            kept.look(run)  # without the lock, because this takes the budget's lock
        with self._lock:
            kept.take(event)
            if last:
                self._drop_old()

    def _drop_old(self) -> None:
        """Forget the oldest ended runs that are too many, or have too many events."""
        ended = [one for one in self._kept.values() if self._state(one) in ENDED]
        total = sum(len(one.events) for one in ended)
        for number, one in enumerate(ended[:-1]):  # the newest one stays, however long it is
            if len(ended) - number <= MOST_ENDED and total <= MOST_EVENTS:
                return
            total -= len(one.events)
            del self._kept[one.run_id]

    def _state(self, kept: _Kept) -> str:
        ended = kept.ended  # read once: the run may be resumed meanwhile
        if ended is None:
            waits = kept.run_id in self._runtime.runs and self._runtime.runs.live(kept.run_id) is None
            return "suspended" if waits else "running"
        given_up = isinstance(ended, events.TeamSuspended) and kept.run_id not in self._runtime.runs
        return "cancelled" if given_up else ended.state

    def _find(self, run_id: str) -> _Kept:
        with self._lock:
            if run_id not in self._kept:
                raise RunNotFound(run_id, self._kept, place="this console, which has")
            return self._kept[run_id]

    def _up_to_date(self, kept: _Kept) -> RecordedRun:
        kept.look(self.live(kept.run_id))
        last = kept.events[-1].at.timestamp() if kept.events else time.time()
        if kept.began is None:
            # If the console was opened later, the begin is estimated from the run's seconds.
            whole = kept.events and kept.events[0].seq == 1
            kept.began = kept.events[0].at.timestamp() if whole else last - kept.seconds
        times = (kept.seconds, kept.began, last)
        return RecordedRun(kept.run_id, kept.team, kept.goal, self._state(kept), kept.within, EMPTY, kept.usage, *times)

    # ------------------------------------------------------------------ what pages read

    @property
    def name(self) -> str:
        """The text shown in place of a file's name."""
        return "in memory"

    def runs(self, state: str | None = None) -> Sequence[RecordedRun]:
        """Return the runs, the newest first."""
        with self._lock:
            kept = [one for one in self._kept.values() if one.within is None]
        shown = map(self._up_to_date, reversed(kept))
        return [one for one in shown if state in (None, one.state)]

    def show(self, run_id: str) -> RecordedRun:
        """Return one run."""
        return self._up_to_date(self._find(run_id))

    def standing(self, run_id: str) -> Standing:
        """Return the state of a run."""
        kept = self._find(run_id)
        run, ended = self._up_to_date(kept), kept.ended
        return Standing(run, kept.budget, None, None if ended is None else ended.error, kept.held)

    def limit(self, run: RecordedRun) -> int | None:
        """Return the tokens that a run may use."""
        return self._find(run.run_id).budget.tokens

    def progress(self, run: RecordedRun) -> Progress:
        """Return how far a run is."""
        with self._lock:
            ends = Counter(self._kept[run.run_id].tasks.values() if run.run_id in self._kept else ())
        return Progress(ends[True], ends[False], ends.total())

    def events_after(self, run_id: str, seq: int, most: int) -> Sequence[Event]:
        """Return kept events with a number above `seq`, at most `most`."""
        kept = self._find(run_id)
        with self._lock:
            start = bisect_right(kept.events, seq, key=lambda event: event.seq)
            return kept.events[start : start + most]

    def changes(self, run_id: str | None) -> object:
        """Return the open questions; for a run also its number of events and its state."""
        waiting = [(one.asked.id, one.deferral) for one in self.pending()]
        if run_id is None:
            return waiting
        kept = self._find(run_id)
        return waiting, len(kept.events), self._state(kept)

    def live(self, run_id: str) -> Run | None:
        """Return the handle of a run with an open session."""
        return self._runtime.runs.live(run_id)

    def at_work(self, run_id: str) -> Run:
        """Return the handle of a run."""
        self._find(run_id)
        return self._runtime.runs[run_id]

    def cancel(self, run_id: str, reason: str) -> None:
        """End a run for good."""
        self._find(run_id)
        self._runtime.runs[run_id].cancel(reason)

    def pending(self, run_id: str | None = None) -> Sequence[Waiting]:
        """Return the open questions: the oldest first, deferred ones last."""
        if run_id is not None and run_id not in self._runtime.runs:
            return []
        try:
            waiting = self._runtime.pending(run_id)
        except (RunFinished, RunNotFound):  # it has ended meanwhile
            return []
        with self._lock:
            asked = {name: at for one in self._kept.values() for name, at in one.asked.items()}
            deferred = dict(self._deferred)
        return [Waiting(one, asked.get(one.id, self._opened), deferred.get(one.id)) for one in waiting]

    def number_open(self) -> int:
        """Return how many questions are open."""
        return len(self._runtime.pending())

    def files(self, run_id: str) -> Sequence[MadeFile]:
        """Return the files of artifacts, if `Runtime(content=...)` asks for texts; the content of small ones."""
        kept = self._find(run_id)
        with self._lock:
            made = [one for one in kept.events if isinstance(one, events.Content) and one.of == "artifact"]
        shown = [
            (one, File.of_shown(file)) for one in made if one.body is not None for file in one.body.get("files", ())
        ]
        return [
            MadeFile(one.task_id or "", one.attempt or 1, file, is_kept=file.data is not None)
            for one, file in shown
            if file is not None
        ]

    def texts(self, run_id: str, task_id: str) -> Sequence[Content]:
        """Return the texts of the work on a task."""
        kept = self._find(run_id)
        with self._lock:
            texts = [one for one in kept.events if isinstance(one, events.Content) and one.of != "piece"]
        return [one for one in texts if one.task_id == task_id]

    def inside(self, run_id: str) -> Sequence[RunInside]:
        """Return the runs inside the tasks of a run."""
        with self._lock:
            kept = [one for one in self._kept.values() if one.within == run_id and one.events]
        return [RunInside(one.run_id, run_id, getattr(one.events[0], "within_task", None) or "") for one in kept]

    def report(self, run_id: str) -> str:
        """Return the report of a run, from its events."""
        kept = self._find(run_id)
        with self._lock:
            told = list(kept.events)
        return render_report(tell(told), Known(self._state(kept), limits=kept.budget))

    def fork(self, run_id: str, task_id: str) -> str:
        """Refuse: only a recorded run can be forked."""
        raise Misuse(f"run {run_id!r} is not recorded: only a run in a journal can be forked")

    def answer(self, question_id: str, decision: HumanDecision) -> None:
        """Answer a question."""
        self._runtime.answer(question_id, decision)
        with self._lock:
            if decision.action == "defer":
                self._deferred[question_id] = Deferral(decision.by, datetime.now(UTC))
            else:
                self._deferred.pop(question_id, None)

    def resume_hint(self, run: RecordedRun) -> str:
        """Return the call that resumes a run."""
        return f"await runtime.resume({run.run_id!r}, team)"
