"""The output streams: text for people to the screen, and with --json only one document to stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from kairo_team._util.counts import count
from kairo_team._util.terminal import BAR, barred, clean
from kairo_team.cli.refusal import Refusal
from kairo_team.views.text import one_line

_STDOUT: Final = 1
_STDERR: Final = 2
_LONGEST: Final = 4_000
"""Characters of an indented text: a longer one would push all else off the screen."""
_INDENT: Final = " " * 6
"""The beginning of the further lines of a row."""
_LEAST: Final = 8
"""Characters of a column that is cut."""


class Screen(Console):
    """A rich console that survives its reader: when nothing reads the output, it calls `on_lost` and prints nothing."""

    def __init__(self, *, to_stderr: bool = False) -> None:
        super().__init__(stderr=to_stderr, highlight=False, emoji=False, markup=False)
        self.lost: OSError | None = None
        self.on_lost: Callable[[], object] = lambda: None

    @property
    def watched(self) -> bool:
        """Whether a person reads along; FORCE_COLOR, which makes a pipe coloured, does not count."""
        return is_terminal(self.file)

    @property
    def live(self) -> bool:
        """Whether the screen can be redrawn: a real terminal, and not a dumb one."""
        return self.watched and not self.is_dumb_terminal

    def show(self, *what: Any, **how: Any) -> None:
        """Print, or note the error."""
        try:
            self.print(*what, **how)
        except OSError as error:
            self.lose(error)

    def print_text(self, text: str = "", style: str = "") -> None:
        """Print a text; wrapped between words at a terminal, unchanged elsewhere."""
        self.show(Text(clean(text), style=style), soft_wrap=not self.watched)

    def print_head(self, title: str) -> None:
        """Print the head of a section, below an empty line."""
        self.print_text()
        self.print_text(title, "bold")

    def print_more(self, number: int, noun: str) -> None:
        """Say how many more things --json has, if there are more."""
        if number > 0:
            self.print_text(f"  and {count(number, f'more {noun}')} (--json has them all)", "dim")

    def print_indented(self, text: str, columns: int = 2, style: str = "") -> None:
        """Print a text in one line, or its beginning; lines that a terminal wraps stay indented."""
        line = one_line(text, _LONGEST)
        if self.watched:
            self.show(Padding(Text(line, style=style), (0, 0, 0, columns)))
        else:
            self.print_text(f"{' ' * columns}{line}")

    def print_row(self, row: Text, *, cuts_last: bool = False) -> None:
        """Print columns that two spaces separate; at a narrow terminal the last ones come in indented lines below.

        With `cuts_last` the last column is cut at the edge instead, where it begins before it.
        """
        columns = [column for column in row.split("  ") if column.plain.strip()]
        if not self.watched or row.cell_len <= self.width or not columns:
            self.show(row, **self.uncut)
            return
        line = Text(" " * (len(row.plain) - len(row.plain.lstrip(" "))))
        begun = False
        for number, column in enumerate(columns, 1):
            column = column[len(column.plain) - len(column.plain.lstrip(" ")) :]  # noqa: PLW2901 - the padding
            column.rstrip()
            needed = _LEAST if cuts_last and number == len(columns) else column.cell_len
            if begun and line.cell_len + len("  ") + needed > self.width:
                self.show(line, **self.uncut)
                line, begun = Text(_INDENT), False
            line.append("  " if begun else "").append_text(column)
            begun = True
        self.show(line, **self.uncut)

    def print_barred(self, text: str) -> None:
        """Print a text that a member wrote, with a bar before each line on the screen."""
        text = clean(text)
        if self.watched:  # it is wrapped here, so that the rest of a line has its bar too
            lines = Text(text).wrap(self, max(1, self.width - len(BAR)), tab_size=4)
            text = "\n".join(line.plain for line in lines)
        for line in barred(text).split("\n"):
            self.show(Text(line), **self.uncut)

    @property
    def uncut(self) -> dict[str, Any]:
        """Options to print a line without wrapping: cut at a terminal's edge, whole anywhere else."""
        return {"no_wrap": True, "overflow": "ellipsis"} if self.watched else {"soft_wrap": True}

    def on_broken_pipe(self) -> None:
        """Note that the reader has gone."""
        # Rich's own method would end the program here.
        self.lose(BrokenPipeError())

    def lose(self, error: OSError) -> None:
        """Discard all output from now on."""
        self.quiet = True
        self.lost = self.lost or error
        silence(self.file)
        self.on_lost()


def is_terminal(stream: IO[str] | None) -> bool:
    """Return whether the stream is a terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def silence(stream: IO[str] | None) -> None:
    """Discard the stream's buffer, so that the end of the program raises no error."""
    if stream is None:
        return
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def claim_stdout(what: str) -> Callable[[str], None]:
    """Keep stdout for one document, and return a function that writes it; all other output goes to stderr.

    This holds for the rest of the process, and for native code and child processes too, because an abandoned thread may
    still print after the document. `what` begins the error message if stdout is closed.
    """
    try:
        sys.stdout.flush()
        own = os.dup(_STDOUT)
    except (OSError, AttributeError):
        raise Refusal(f"{what}, which is closed") from None
    try:
        os.dup2(_STDERR, _STDOUT)
    except OSError:  # stderr is closed
        silence(sys.stdout)
    sys.stdout = sys.stderr

    def write(text: str) -> None:
        with os.fdopen(own, "w", encoding="utf-8") as stream:
            stream.write(text)

    return write
