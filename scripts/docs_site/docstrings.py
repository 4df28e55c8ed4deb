"""Docstrings as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_CLAUSE = re.compile(r"^([A-Z]\d+)\. ")
_NAME = re.compile(r"(?<!\[)`(?:kt\.)?([A-Za-z_]\w*)(\(\))?`(?!\])")
_TREE = re.compile(r"^[ |]*\+- ")


def as_markdown(said: str, link: Callable[[str], str | None], up: str) -> str:
    """Return a docstring as Markdown: examples and trees as code, clauses as a list, public names as links.

    `link` gives the page of a public name from the root of the site, `up` leads from this page to the root.
    """
    blocks = re.split(r"\n{2,}(?=\S)", said.strip())
    return "\n\n".join(_block(block, link, up) for block in blocks if block)


def _block(block: str, link: Callable[[str], str | None], up: str) -> str:
    if block.startswith(">>>"):
        return f"```pycon\n{block}\n```"
    if any(_TREE.match(line) for line in block.splitlines()):
        return f"```text\n{block}\n```"
    if "```" in block or (re.search(r"^    ", block.partition("\n")[2], re.MULTILINE) and not _CLAUSE.match(block)):
        return block
    return linked("\n".join(_clauses(block)), link, up)


def _clauses(block: str) -> Iterator[str]:
    inside = False
    for line in block.splitlines():
        match = _CLAUSE.match(line)
        if match:
            inside = True
            yield f"- **{match[1]}.** {line[match.end() :]}"
        elif inside and not line.startswith(" "):
            inside = False
            yield ""
            yield line
        else:
            yield f"  {line.strip()}" if inside else line


def linked(text: str, link: Callable[[str], str | None], up: str) -> str:
    """Turn the first mention of each public name into a link to its page."""
    seen: set[str] = set()

    def replace(match: re.Match[str]) -> str:
        page = link(match[1])
        if page is None or match[1] in seen:
            return match[0]
        seen.add(match[1])
        return f"[{match[0]}]({up}{page})"

    return _NAME.sub(replace, text)
