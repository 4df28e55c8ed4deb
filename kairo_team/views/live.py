"""The live view: a table that redraws itself during the run."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kairo_team._util.counts import count
from kairo_team._util.terminal import TERMINAL
from kairo_team.budget import Budget
from kairo_team.views.open_tasks import describe_chain
from kairo_team.views.progress import RowState, RunProgress, TaskRow
from kairo_team.views.text import clock, describe_verdict, duration, one_line, some_of

if TYPE_CHECKING:
    from kairo_team.events import Event

WIDE: Final = 100
"""Columns from which the view has room for long words."""
NARROW: Final = 64
"""Columns below which a row shows only its task, its state and what happened last."""
_FRAME: Final = 9
"""Lines around the rows: team, tokens, dollars, blank, heads, fold, blank, notice, and the line with the cursor."""
_MANY: Final = 10
"""The fewest tasks for which a bar is drawn."""
_MOST_CAUSES: Final = 3
"""Causes of failures that stay in sight, in a terminal that is high enough."""
_HIGH: Final = 16
"""Lines from which a terminal is."""
_NAMED: Final = 3
"""Failed tasks that are named with a cause."""
_NEARLY: Final = 0.8
"""Share of a limit from which the bar warns."""

STYLES: Final = {
    RowState.PENDING: "dim",
    RowState.RUNNING: "cyan",
    RowState.REVIEWING: "magenta",
    RowState.DONE: "green",
    RowState.FAILED: "red",
    RowState.SKIPPED: "dim",
    RowState.CANCELLED: "yellow",
    RowState.SUSPENDED: "yellow",
}
"""How each state is coloured."""


class LiveView:
    """A subscriber that shows the run of its first event in a terminal; the view disappears after its `with` block.

    The spending of a run inside a task is shown when the attempt ends. An event costs the run one append: the view's
    own thread reads the events and draws `rate` times a second. `budget` has the team's limits.
    """

    def __init__(self, console: Console, budget: Budget | None = None, *, rate: float = 8.0) -> None:
        self.progress = RunProgress()
        self._console = console
        self._budget = budget or Budget()
        self._events: deque[Event] = deque()
        self._notice = ""
        self._drawn: tuple[object, ...] = ()
        """Seconds, notice and console size of the last drawing."""
        self._began = time.monotonic()
        self._read = self._began
        """When the latest event was read, which gives the events' clock."""
        self._pause = 1.0 / rate
        self._over = threading.Event()
        self._drawing = threading.Lock()
        """Held while the view draws, and while a question uses the terminal."""
        self._aside = TERMINAL.aside(self._stand_aside, self._go_on)
        self._live = Live(
            console=console,
            get_renderable=self.render,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
        )
        self._painter = threading.Thread(target=self._paint, name="kairo-view", daemon=True)

    def __call__(self, event: Event) -> None:
        """Keep the event for the next drawing."""
        self._events.append(event)

    def notify(self, text: str) -> None:
        """Show a notice under the table; safe in a signal handler."""
        self._notice = text

    def __enter__(self) -> Self:
        self._live.start()
        self._painter.start()
        self._aside.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._aside.__exit__(None, None, None)
        self._over.set()
        self._painter.join()
        with suppress(OSError):  # the terminal is gone
            self._live.stop()

    def _paint(self) -> None:
        with suppress(OSError):
            while not self._over.wait(self._pause):
                with self._drawing:
                    # An equal drawing is skipped: a model on this machine may need the cores.
                    if self._is_news():
                        self._live.refresh()

    def _stand_aside(self) -> None:
        """Free the terminal for a question and its answer."""
        self._drawing.acquire()
        with suppress(OSError):
            self._live.stop()

    def _go_on(self) -> None:
        self._drawn = ()  # so that the next look draws
        with suppress(OSError):
            self._live.start()
        self._drawing.release()

    def _is_news(self) -> bool:
        """Return whether another drawing would look different."""
        drawn, self._drawn = self._drawn, (int(time.monotonic() - self._began), self._notice, self._console.size)
        return bool(self._events) or self._drawn != drawn

    # ------------------------------------------------------------------ drawing

    def render(self) -> RenderableType:
        """Draw the current state; fits into the console's size."""
        if self._events:
            self._read = time.monotonic()
        while self._events:
            self.progress.take(self._events.popleft())
        width, height = self._console.size
        bar = [self._task_bar(width)] if len(self.progress.rows) >= _MANY else []
        rows = self.progress.visible(max(1, height - _FRAME - len(bar)))
        failures = self._failures() if height >= _HIGH and len(rows) < len(self.progress.rows) else []
        if failures:
            rows = self.progress.visible(height - _FRAME - len(bar) - len(failures))
        parts: list[RenderableType] = [self._head(width), *bar, *self._spending(width), "", self._table(rows, width)]
        parts += failures
        folded = self.progress.describe_counts(rows)
        if folded:
            parts.append(Text(f"and {folded}", style="dim", no_wrap=True, overflow=self._cut))
        if self._notice:
            parts.append(Text(f"\n{self._notice}", style="bold yellow", no_wrap=True, overflow=self._cut))
        return Group(*parts)

    def _now(self) -> datetime:
        """Return the time by the clock of the events."""
        assert self.progress.latest is not None, "a task has had an event"
        over = self.progress.ended is not None
        return self.progress.latest + timedelta(seconds=0.0 if over else time.monotonic() - self._read)

    def _task_bar(self, width: int) -> Text:
        """Draw the shares of tasks that are done, at work and lost, with the pace and the time that is left."""
        progress = self.progress
        lost = progress.count(RowState.FAILED, RowState.SKIPPED, RowState.CANCELLED)
        busy = progress.count(RowState.RUNNING, RowState.REVIEWING)
        done, whole = progress.count(RowState.DONE), len(progress.rows)
        pace = progress.pace.describe(progress.count(RowState.PENDING) + busy, self._now())
        marks = "#x+-" if self._console.options.ascii_only else "\u2588\u2593\u2592\u2591"
        cells = _shared((done, lost, busy, whole - done - lost - busy), width // 6 if width < NARROW else width // 4)
        line = Text(f"{'tasks':<8}", no_wrap=True, overflow=self._cut)
        for mark, style, part in zip(marks, ("green", "red", "cyan", "dim"), cells, strict=True):
            line.append(mark * part, style=style)
        words = [f"{busy:,} at work" if busy else "", pace]
        return line.append(f" {', '.join(filter(None, words))}")

    def _failures(self) -> list[RenderableType]:
        """Draw why tasks failed, each cause once: they stay in sight while the table moves on."""
        lines: list[RenderableType] = []
        failures = self.progress.failures
        for cause, ids in list(failures.items())[:_MOST_CAUSES]:
            words = one_line(f"failed: {some_of(ids, _NAMED)}: {cause}")
            lines.append(Text(words, style="red", no_wrap=True, overflow=self._cut))
        if len(failures) > _MOST_CAUSES:
            lines.append(Text(f"and {count(len(failures) - _MOST_CAUSES, 'more cause')}", style="red"))
        return lines

    def _head(self, width: int) -> RenderableType:
        progress = self.progress
        heading = Text(one_line(progress.team) or "planning", style="bold", no_wrap=True, overflow=self._cut)
        if progress.rows:
            done = progress.count(RowState.DONE)
            heading.append(f"  {done:,} of {len(progress.rows):,} done", style="not bold")
            lost = progress.count(RowState.FAILED, RowState.SKIPPED)
            heading.append(f", {lost:,} not" if lost else "", style="not bold red")
            chain = "" if width < NARROW else describe_chain(progress.chain_left())
            heading.append(f", {chain}" if chain else "", style="not bold")
        limit = self._budget.seconds
        elapsed = clock(time.monotonic() - self._began) + (f" of {clock(limit)}" if limit is not None else "")
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_row(heading, elapsed)
        return grid

    def _spending(self, width: int) -> list[RenderableType]:
        progress, limits = self.progress, self._budget
        set_aside, unlimited = progress.set_aside, f"{progress.tokens:,} tokens"
        lines: list[RenderableType] = []
        if limits.tokens is not None:
            most = limits.tokens + progress.more_tokens
            spent, held = progress.tokens, set_aside.held
            aside = min(set_aside.tokens, max(most - spent - held, 0))
            words = f"{spent:,} of {most:,}, {held:,} held" + (f", {aside:,} set aside" if aside else "")
            free = f", {max(most - spent - held - aside, 0):,} free"
            lines.append(self._bar("tokens", words, free, [_share(one, most) for one in (spent, held, aside)], width))
        elif set_aside.held:
            unlimited += f" and {set_aside.held:,} held"
        if limits.dollars is not None:
            all_dollars, paid, kept = limits.dollars + progress.more_dollars, progress.dollars, set_aside.held_dollars
            saved = min(set_aside.dollars, max(all_dollars - paid - kept, Decimal(0)))
            words = f"{_money(paid)} of {_money(all_dollars)}, {_money(kept)} held"
            words += f", {_money(saved)} set aside" if saved else ""
            free = f", {_money(max(all_dollars - paid - kept - saved, Decimal(0)))} free"
            shares = [_share(one, all_dollars) for one in (paid, kept, saved)]
            lines.append(self._bar("dollars", words, free, shares, width))
        elif progress.dollars:
            unlimited += f", {_money(progress.dollars)}"
        return lines if limits.tokens is not None else [Text(f"{unlimited}, no limit"), *lines]

    def _bar(self, what: str, words: str, free: str, shares: Sequence[float], width: int) -> Text:
        """Draw shares of a limit: spent, held for calls, set aside, and free; the four differ without colours too.

        On a short line the words leave out the free amount.
        """
        marks = "#+/-" if self._console.options.ascii_only else "\u2588\u2592\u259a\u2591"
        colour = "red" if shares[0] >= 1 else "yellow" if shares[0] >= _NEARLY else "green"
        cells = width // 6 if width < NARROW else width // 4
        ends = [min(round(end * cells), cells) for end in accumulate((*shares, 1.0))]
        line = Text(f"{what:<8}", no_wrap=True, overflow=self._cut)
        for mark, style, start, end in zip(marks, (colour, "cyan", "blue", "dim"), (0, *ends), ends, strict=False):
            line.append(mark * (end - start), style=style)
        line.append(f" {words}")
        return line if width < NARROW or len(line) + len(free) > width else line.append(free)

    @property
    def _cut(self) -> OverflowMethod:
        """How a text that is too long ends; a terminal with only ASCII has no ellipsis."""
        return "crop" if self._console.options.ascii_only else "ellipsis"

    def _table(self, rows: list[TaskRow], width: int) -> Table:
        wide, narrow = width >= WIDE, width < NARROW
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0) if wide else (0, 1, 0, 0))
        longest = max([len(row.id) for row in rows], default=4)
        table.add_column("task", width=max(4, min(longest, width // 4)), no_wrap=True, overflow=self._cut)
        table.add_column("state", width=9, no_wrap=True)
        if not narrow:
            table.add_column("try", justify="right", width=3, no_wrap=True)
            table.add_column("verdict", width=18 if wide else 9, no_wrap=True, overflow=self._cut)
            table.add_column("tokens", justify="right", width=15 if wide else 13, no_wrap=True)
        if wide:
            table.add_column("time", justify="right", width=7, no_wrap=True)
        table.add_column("last", ratio=1, no_wrap=True, overflow=self._cut)
        for row in rows:
            task, state, *work = _cells(row, brief=not wide)
            seconds = row.seconds(self._now()) if wide else None
            took = ["" if seconds is None else duration(seconds)] if wide else []
            last = Text(self.progress.describe_last(row), style="dim")
            table.add_row(task, state, *(() if narrow else work), *took, last)
        return table


def _share(part: Decimal | int, whole: Decimal | int) -> float:
    # A limit of 0 is used up from the start.
    return float(part / whole) if whole else 1.0


def _money(dollars: Decimal) -> str:
    """Write dollars to a hundredth of a cent."""
    return f"${dollars:,.4f}"


def _shared(parts: Sequence[int], cells: int) -> list[int]:
    """Share cells among parts, at least one for each that is not 0."""
    whole = sum(parts) or 1
    least = [int(part > 0) for part in parts]
    shared = [max(one, part * cells // whole) for one, part in zip(least, parts, strict=True)]
    most = shared.index(max(shared))
    shared[most] += cells - sum(shared)
    return shared


def _cells(row: TaskRow, *, brief: bool) -> tuple[Text, ...]:
    style = STYLES[row.state]
    idle = style if row.state in (RowState.PENDING, RowState.SKIPPED) else ""
    verdict = describe_verdict(row.verdict, brief=brief) if row.verdict else ""
    spent = f"{row.tokens:,}" if row.tokens else ""
    tokens = f"{row.tokens:,} / {row.guarantee:,}" if row.guarantee is not None else spent
    return (
        Text(one_line(row.id), style=idle),
        Text(row.state, style=style),
        Text(str(row.attempt or ""), style=idle),
        Text(verdict, style="green" if verdict == "pass" else "yellow"),
        Text(tokens, style=idle),
    )
