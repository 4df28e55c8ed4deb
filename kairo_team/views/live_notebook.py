"""The live view in a notebook: the output of a cell shows its run."""

from __future__ import annotations

import contextvars
import io
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from kairo_team import events
from kairo_team._util.frozen import known_arguments
from kairo_team.errors import Misuse
from kairo_team.views.live import LiveView

if TYPE_CHECKING:
    from kairo_team.budget import Budget
    from kairo_team.events import Event

_PAGE: Final = '<pre style="line-height:1.2;overflow-x:auto">{code}</pre>'
_HEIGHT: Final = 30
"""Lines of the picture."""


@known_arguments
class NotebookView:
    """A subscriber that shows each run in the output of its cell: `Runtime(subscribers=[NotebookView()])`.

    The view draws soon after an event, at most `rate` times a second, in its own thread, and at the end of a run.
    `budget` has the limits that the bars show, `width` is in columns. Raises `Misuse` outside IPython, and `ValueError`
    for a rate that is not above 0.
    """

    def __init__(self, budget: Budget | None = None, *, width: int = 100, rate: float = 4.0) -> None:
        if not rate > 0:
            raise ValueError(f"NotebookView.rate must be a number of drawings per second above 0, not {rate!r}")
        try:
            self._display: Any = import_module("IPython.display").display
        except ImportError:
            raise Misuse("NotebookView needs IPython: use it in a notebook, or install ipykernel") from None
        self._budget = budget
        self._width = width
        self._pause = 1.0 / rate
        self._cells: dict[str, _Cell] = {}
        """Cells of the runs that have not ended, by run id."""

    def __call__(self, event: Event) -> None:
        """Keep the event for the next drawing."""
        cell = self._cells.get(event.run_id)
        if cell is None:
            cell = self._cells[event.run_id] = _Cell(self._display, self._width, self._budget)
        cell.view(event)
        if isinstance(event, events.TeamEnded):
            del self._cells[event.run_id]
            cell.draw()
        else:
            cell.draw_after(self._pause)


class _Cell:
    """One run in the output of a cell."""

    def __init__(self, display: Any, width: int, budget: Budget | None) -> None:
        self._display = display
        self._console = Console(
            file=io.StringIO(), record=True, width=width, height=_HEIGHT, force_jupyter=False, force_terminal=False
        )
        self.view = LiveView(self._console, budget)
        self._shown: Any = None
        self._due: threading.Timer | None = None
        """The timer of the next drawing."""
        self._drawing = threading.Lock()

    def draw_after(self, seconds: float) -> None:
        """Draw after so many seconds, unless a drawing is due already."""
        if self._due is None:
            # IPython finds the cell to write to through the context, which a new thread does not have.
            self._due = threading.Timer(seconds, contextvars.copy_context().run, [self.draw])
            self._due.daemon = True
            self._due.start()

    def draw(self) -> None:
        """Draw the current state, in place of the last drawing."""
        due, self._due = self._due, None
        if due is not None:
            due.cancel()
        with self._drawing:
            self._console.print(self.view.render())
            text = self._console.export_text(clear=False)
            page = self._console.export_html(inline_styles=True, code_format=_PAGE)
            data = {"text/html": page, "text/plain": text}
            if self._shown is None:
                self._shown = self._display(data, raw=True, display_id=True)
            else:
                self._shown.update(data, raw=True)
