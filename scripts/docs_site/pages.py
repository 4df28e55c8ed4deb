"""A page of the site."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

BOX = re.compile(r"^<!-- (/?)(columns|wide|cards) -->$", re.MULTILINE)
"""Comments that begin and end a box of the site: columns, a wide picture, or a list as cards."""


@dataclass(frozen=True)
class Page:
    """A page in Markdown; `nav` are the pages below it in the navigation, from its own folder."""

    path: str
    """From the root of the site, with `.md`."""
    text: str
    nav: Sequence[str] = ()
    searched: bool = True
    """Whether the search of the site finds it."""

    def source(self) -> str:
        """Return what the generator reads: the text, its place in the navigation, and whether it is searched."""
        options = "" if self.searched else "---\norphan: true\nnosearch: true\n---\n\n"
        below = "\n".join(["", "```{toctree}", ":hidden:", "", *self.nav, "```", ""]) if self.nav else ""
        text = BOX.sub(lambda box: "::::" if box[1] else f"::::{{container}} {box[2]}", self.text)
        return f"{options}{text.rstrip()}\n{below}"

    @property
    def title(self) -> str:
        """The text of the first heading."""
        return next(line[2:] for line in self.text.splitlines() if line.startswith("# "))
