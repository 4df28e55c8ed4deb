"""The live view in a notebook: the output of a cell shows a run while it goes on."""

from __future__ import annotations

import io
import time
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

    It draws when events come, at most `rate` times a second, and at the end of a run. `budget` has the limits that the
    bars show, `width` is in columns. Raises `Misuse` outside IPython.
    """

    def __init__(self, budget: Budget | None = None, *, width: int = 100, rate: float = 4.0) -> None:
        try:
            self._display: Any = import_module("IPython.display").display
        except ImportError:
            raise Misuse("NotebookView needs IPython: use it in a notebook, or install ipykernel") from None
        self._budget = budget
        self._width = width
        self._pause = 1.0 / rate
        self._cells: dict[str, _Cell] = {}
        """Of the runs that go on, by run id."""

    def __call__(self, event: Event) -> None:
        """Take in the event, and draw if it is time."""
        cell = self._cells.get(event.run_id)
        if cell is None:
            cell = self._cells[event.run_id] = _Cell(self._width, self._budget)
        cell.view(event)
        over = isinstance(event, events.TeamEnded)
        if over or time.monotonic() - cell.drawn >= self._pause:
            cell.draw(self._display)
        if over:
            del self._cells[event.run_id]


class _Cell:
    """One run in the output of a cell."""

    def __init__(self, width: int, budget: Budget | None) -> None:
        self.console = Console(
            file=io.StringIO(), record=True, width=width, height=_HEIGHT, force_jupyter=False, force_terminal=False
        )
        self.view = LiveView(self.console, budget)
        self.drawn = float("-inf")
        """When it was drawn last."""
        self._shown: Any = None

    def draw(self, display: Any) -> None:
        """Draw the current state, in place of the last drawing."""
        self.console.print(self.view.render())
        text = self.console.export_text(clear=False)
        page = self.console.export_html(inline_styles=True, code_format=_PAGE)
        data = {"text/html": page, "text/plain": text}
        if self._shown is None:
            self._shown = display(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)
        self.drawn = time.monotonic()
