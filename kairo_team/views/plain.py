"""One line for each event that matters: for pipes, log files and terminals that cannot redraw."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from kairo_team import events
from kairo_team.views.progress import RunProgress
from kairo_team.views.text import count, one_line, say_verdict, say_why

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from kairo_team.events import Event

_LONGEST: Final = 200
"""Characters of a line after which what was found is cut; the result has it in full."""


class PlainView:
    """A subscriber that prints lines.

    `say` prints one; `warn` prints a notice, from a signal handler too. One view shows one run.
    """

    def __init__(self, say: Callable[[str], object], warn: Callable[[str], object]) -> None:
        self.notify = warn
        self._say = say
        self._progress = RunProgress()
        self._began: datetime | None = None
        self._opening = ""
        """The first line, held back until something follows: a run that is refused is not worth it."""
        self._errors: dict[str, str] = {}
        """Of attempts that gave nothing, by task, until it is known what comes of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        return None

    def __call__(self, event: Event) -> None:
        """Print what is worth a line."""
        self._began = self._began or event.at
        self._progress.take(event)
        if self._opening:
            if isinstance(event, events.TaskSkipped | events.TeamEnded):
                return
            self._print(0.0, self._opening)
            self._opening = ""
        line = self._line(event)
        if line is not None:
            self._print((event.at - self._began).total_seconds(), line)

    def _print(self, elapsed: float, line: str) -> None:
        self._say(f"{elapsed:7.1f}s  {one_line(line, _LONGEST)}")

    def _line(self, event: Event) -> str | None:
        match event:
            case events.TeamStarted():
                self._opening = f"{event.team}: started with {count(len(event.members), 'member')}"
                return None
            case events.PlanReady():
                return f"{self._progress.team}: {count(len(event.tasks), 'task')} planned"
            case events.TeamEnded():
                return f"{self._progress.team}: {event.status}, {count(event.usage.tokens, 'token')}"
            case events.TaskEvent():
                said = self._task_line(event.task_id, event)
                return None if said is None else f"{event.task_id}: {said}"
            case _:
                return None

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
                why = say_why(event.verdict)
                return say_verdict(event.verdict) + (f": {why}" if why else "")
            case events.TaskEnded():
                return self._end_line(task_id, event)
            case _:
                pass
        return None

    def _end_line(self, task_id: str, event: events.TaskEnded) -> str:
        row = self._progress.rows[task_id]
        spent = f", {count(row.tokens, 'token')}" if row.tokens else ""
        work = f" after {count(event.attempts, 'attempt')}{spent}" if event.attempts else ""
        unpassed = event.verdict if isinstance(event, events.TaskCompleted) else None
        accepted = f", accepted without a pass ({unpassed})" if unpassed not in (None, "pass") else ""
        return f"{row.state}{work}{accepted}" + (f": {event.reason}" if event.reason else "")
