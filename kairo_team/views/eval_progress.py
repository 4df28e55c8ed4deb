"""Print one line for each trial of an eval as it ends; runs inside a trial get no line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from kairo_team import events
from kairo_team.views.lines import Lines
from kairo_team.views.text import describe_verdict, one_line

if TYPE_CHECKING:
    from kairo_team.events import Event

_LONGEST: Final = 120
"""Characters of a line."""


class EvalProgress:
    """A subscriber that prints the progress of an eval: the run `run_id`, which has `trials` trials."""

    def __init__(self, show: Callable[[str], object], warn: Callable[[str], object], run_id: str, trials: int) -> None:
        """`show` prints a line; `warn` prints a notice, from a signal handler too."""
        self.notify = warn
        self._lines = Lines(show)
        self._run_id = run_id
        self._trials = trials
        self._ended = 0
        self._verdicts: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        """Print the trials that end."""
        if event.run_id != self._run_id:
            return
        if isinstance(event, events.EvaluationResult):
            self._verdicts[event.task_id] = describe_verdict(event.verdict)
        elif isinstance(event, events.TaskEnded):
            self._ended += 1
            verdict = self._verdicts.pop(event.task_id, "")
            said = "; ".join(filter(None, [verdict or "no result", "" if verdict == "pass" else event.reason or ""]))
            self._lines.print(one_line(f"{self._ended} of {self._trials}  {event.task_id}: {said}", _LONGEST))
