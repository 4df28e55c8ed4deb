"""The page of a run: its state and its events; each event is read once for all browsers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kairo_team.budget import Budget
from kairo_team.recorded import ENDED
from kairo_team.views.report_graph import draw_run
from kairo_team.web_console.open_questions import open_questions
from kairo_team.web_console.run_view import RunView

if TYPE_CHECKING:
    from collections.abc import Callable

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
