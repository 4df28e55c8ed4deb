"""Print lines on a terminal that questions to a person use too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from kairo_team._util.terminal import TERMINAL


class Lines:
    """Prints lines; holds them back while a question is open, and prints them after the answer."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self.printed = 0
        """The number of lines so far, lines held back included."""
        self._show = show
        self._held: list[str] | None = None
        """Lines held back while a question is open; None while no question is."""
        self._aside = TERMINAL.aside(self._stand_aside, self._go_on)

    @property
    def waiting(self) -> bool:
        """Whether a question is open."""
        return self._held is not None

    def print(self, text: str) -> None:
        """Print a line, now or after the answer."""
        self.printed += 1
        if self._held is None:
            self._show(text)
        else:
            self._held.append(text)

    def __enter__(self) -> Self:
        self._aside.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._aside.__exit__(None, None, None)

    def _stand_aside(self) -> None:
        self._held = []

    def _go_on(self) -> None:
        held, self._held = self._held or (), None
        for text in held:
            self._show(text)
