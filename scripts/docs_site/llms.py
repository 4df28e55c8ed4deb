"""The documentation for language models: `llms.txt` lists the pages, `llms-full.txt` has their text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from scripts.docs_site.navigation import sections
from scripts.docs_site.pages import BOX, Page

_OPENING = re.compile(r"^:{3,}\{py:(\w+)\} (.+)$")
_OPTION = re.compile(r"^:(?:module:.*|async:|classmethod:|staticmethod:)$")
_WORDS = {"attribute": "field"}


def contents(front: Page) -> str:
    """Write `llms.txt`: the title, what the library is, and a list of links by kind, to pages in Markdown."""
    said = front.text.split("\n\n")[1].replace("\n", " ")
    parts = [f"# {front.title}\n\n> {said}\n\nThe text of all pages: [llms-full.txt](llms-full.txt)"]
    for section in sections():
        lines = [f"- [{title}]({path}){f': {text}' if text else ''}" for title, path, text in section.entries]
        parts.append("\n".join([f"## {section.heading}", "", *lines]))
    return "\n\n".join(parts) + "\n"


def full(pages: Sequence[Page]) -> str:
    """Write `llms-full.txt`: the text of the pages in the order of the navigation, each under its path."""
    return "\n\n".join(f"<!-- {page.path} -->\n\n{plain(page.text).strip()}" for page in pages) + "\n"


def plain(text: str) -> str:
    """Return a page in Markdown that needs no Sphinx."""
    return "\n".join(_plain_lines(text.splitlines()))


def _plain_lines(lines: Sequence[str]) -> Iterator[str]:
    hidden = False
    for line in lines:
        opening = _OPENING.match(line)
        if line == "```{toctree}":
            hidden = True
        elif hidden:
            hidden = line != "```"
        elif opening:
            kind, head = opening[1], opening[2]
            yield f"{'##' if kind in {'class', 'function', 'data'} else '###'} {_WORDS.get(kind, kind)} `{head}`"
        elif line.startswith((":type:", ":value:")):
            yield f"`{line.partition(': ')[2]}`"
        elif not _OPTION.match(line) and not BOX.match(line) and not re.fullmatch(r":{4,}", line):
            yield line
