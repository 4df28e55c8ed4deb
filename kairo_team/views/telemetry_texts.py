"""The texts of one run that belong to spans which have not begun, or have not ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from kairo_team.events import PlannedTask


class Answered(NamedTuple):
    """The span of a call that has ended, and waits for its reply."""

    span: Span
    task_id: str | None
    at: int
    """When the call ended, in nanoseconds since 1970."""

    def end(self) -> None:
        """End the span at the time at which its call ended."""
        self.span.end(self.at)


class RunTexts:
    """Texts of a run. Without any, nothing is kept."""

    def __init__(self) -> None:
        self.prompts: dict[str, dict[str, str]] = {}
        """The last request of each call under way, as attributes, by the call's id."""
        self.answered: dict[str, Answered] = {}
        """Calls whose reply has not come, by their id."""
        self.descriptions: dict[str, str] = {}
        self.artifacts: dict[str, str] = {}
        """The last artifact of each task."""
        self.accepted: set[str] = set()
        self._needed: set[str] = set()
        """Tasks that others depend on."""

    def plan(self, planned: Iterable[PlannedTask]) -> None:
        """Take the tasks of a plan."""
        for task in planned:
            self.descriptions[task.id] = task.description
            self._needed.update(task.depends_on)

    def output(self) -> str:
        """Return the accepted artifacts on which no other task depends; "" without any."""
        last = [text for one, text in self.artifacts.items() if one in self.accepted and one not in self._needed]
        return "\n\n".join(last)

    def end_answered(self, *task_ids: str) -> None:
        """End the calls, of some tasks or of all, whose reply never came: a guardrail kept it, or it was cut short."""
        for call_id, one in list(self.answered.items()):
            if not task_ids or one.task_id in task_ids:
                one.end()
                del self.answered[call_id]
