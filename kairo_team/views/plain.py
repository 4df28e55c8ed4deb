"""One line for each event that matters: for pipes, log files and terminals that cannot redraw."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self

import anyio

from kairo_team import events
from kairo_team._util.counts import count
from kairo_team.views.lines import Lines
from kairo_team.views.progress import RowState, RunProgress, TaskRow, describe_decision
from kairo_team.views.text import describe_findings, describe_verdict, one_line

if TYPE_CHECKING:
    from kairo_team.events import Event

_LONGEST: Final = 200
"""Characters of a line after which findings are cut; the result has them in full."""
_PATIENCE: Final = 10.0
"""Seconds that a task must have waited before a line says so."""
_QUIET: Final = 30.0
"""Seconds between two checks; a check describes the state of the run if no line was printed since the last one."""
_NAMED: Final = 3
"""How many waiting tasks that line names."""


class PlainView:
    """A subscriber that prints lines.

    `show` prints a line; `warn` prints a notice, from a signal handler too. A view shows the run of its first event;
    of runs inside that run's tasks it reports only questions to people.
    """

    def __init__(self, show: Callable[[str], object], warn: Callable[[str], object]) -> None:
        self.notify = warn
        self._lines = Lines(show)
        self.progress = RunProgress()
        """The sum of the events so far."""
        self._began: datetime | None = None
        self._opening = ""
        """The first line, held back until something follows, so that a refused run prints nothing."""
        self._errors: dict[str, str] = {}
        """The errors of failed attempts, by task, until the next event of the task."""
        self._waits: deque[tuple[datetime, TaskRow, str]] = deque()
        """Waits that began, and their reasons, in order; printed once they last `_PATIENCE`."""
        self._told: set[tuple[str, str]] = set()
        """Tasks and reasons that already have their line."""

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        """Print the events that need a line."""
        self._began = self._began or event.at
        self._tell_waits(event.at)
        self.progress.take(event)
        if event.run_id != self.progress.run_id and not isinstance(event, events.HumanRequested | events.HumanDecided):
            return
        if isinstance(event, events.TaskWaiting | events.ModelWaiting) and event.task_id:
            row = self.progress.rows[event.task_id]
            if row.waits.reason:
                self._waits.append((event.at, row, row.waits.reason))
        # Nothing has begun: the command itself says why the run was refused.
        if self._opening and isinstance(event, events.TaskSkipped | events.TeamEnded):
            return
        self._open()
        line = self._line(event)
        if line is not None:
            self._print((event.at - self._began).total_seconds(), line)

    async def watch(self) -> None:
        """Print the state of the run after each half minute without a line; run until cancelled."""
        while True:
            before = self._lines.printed
            await anyio.sleep(_QUIET)
            if self._began is not None and self.progress.ended is None and not self._lines.waiting:
                now = datetime.now(UTC)
                self._open()
                self._tell_waits(now)
                if self._lines.printed == before:
                    self._print((now - self._began).total_seconds(), self._describe_state())

    def _open(self) -> None:
        """Print the first line, if it was held back."""
        if self._opening:
            self._print(0.0, self._opening)
            self._opening = ""

    def _describe_state(self) -> str:
        """Describe how many tasks are in each state, and what the running ones wait for."""
        progress = self.progress
        busy = [row for row in progress.rows.values() if row.state in (RowState.RUNNING, RowState.REVIEWING)]
        waiting = [f"{row.id} waits for {progress.describe_wait(row)}" for row in busy if row.waits.reason]
        more = [f"{len(waiting) - _NAMED:,} more wait"] if len(waiting) > _NAMED else []
        state = progress.describe_counts() or "no plan yet"
        return f"{progress.team}: {'; '.join([state, *waiting[:_NAMED], *more])}"

    def _print(self, elapsed: float, line: str) -> None:
        self._lines.print(f"{elapsed:7.1f}s  {one_line(line, _LONGEST)}")

    def _tell_waits(self, now: datetime) -> None:
        """Print the waits that have lasted `_PATIENCE`, once for each task and reason."""
        while self._waits and (now - self._waits[0][0]).total_seconds() >= _PATIENCE:
            since, row, reason = self._waits.popleft()
            if row.waits.reason == reason and (row.id, reason) not in self._told and self._began is not None:
                self._told.add((row.id, reason))
                waited = (now - since).total_seconds()
                what = self.progress.describe_wait(row)
                self._print((now - self._began).total_seconds(), f"{row.id}: has waited {waited:.0f}s for {what}")

    def _line(self, event: Event) -> str | None:
        match event:
            case events.TeamStarted() | events.TeamResumed():
                begun = "started" if isinstance(event, events.TeamStarted) else "resumed"
                self._opening = f"{event.team}: {begun} with {count(len(event.members), 'member')}"
                return None
            case events.PlanReady():
                return f"{self.progress.team}: {count(len(event.tasks), 'task')} planned"
            case events.PlanGrew():
                by = f" by {event.by}" if event.by else ""
                return f"{self.progress.team}: {count(len(event.added), 'task')} added{by}"
            case events.TeamEnded():
                return f"{self.progress.team}: {event.state}, {count(event.usage.tokens, 'token')}"
            case events.HumanRequested():
                return f"{self._task_of_question(event)}: a person is asked"
            case events.HumanDecided():
                return f"{self._task_of_question(event)}: {describe_decision(event)}"
            case events.TaskEvent():
                line = self._task_line(event.task_id, event)
                return None if line is None else f"{event.task_id}: {line}"
            case _:
                return None

    def _task_of_question(self, event: events.WorkEvent) -> str:
        """Return the task that a question is about, or the task whose inner run asks it."""
        return self.progress.around.get(event.run_id) or event.task_id or self.progress.team

    def _task_line(self, task_id: str, event: events.TaskEvent) -> str | None:
        match event:
            case events.TaskAssigned():
                return f"assigned to {event.member}"
            case events.AttemptFinished(error=str() as error):
                self._errors[task_id] = error
            case events.AttemptStarted():
                before = self._errors.pop(task_id, None)
                return f"attempt {event.attempt}, because: {before}" if before else None
            case events.EvaluationResult():
                what, why = describe_verdict(event.verdict), describe_findings(event.verdict)
                return f"{what}: {why}" if why not in ("", what) else what
            case events.TaskEnded():
                row = self.progress.rows[task_id]
                spent = f", {count(row.tokens, 'token')}" if row.tokens else ""
                work = f" after {count(event.attempts, 'attempt')}{spent}" if event.attempts else ""
                unpassed = event.verdict if isinstance(event, events.TaskCompleted) else None
                accepted = f", accepted without a pass ({unpassed})" if unpassed not in (None, "pass") else ""
                return f"{row.state}{work}{accepted}" + (f": {event.reason}" if event.reason else "")
            case _:
                pass
        return None
