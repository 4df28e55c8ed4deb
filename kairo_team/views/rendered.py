"""Texts of models as HTML: Markdown, JSON and code. Raw HTML stays text, and nothing is loaded."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from markupsafe import Markup

from kairo_team._util.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_MOST: Final = 20_000
"""Characters of a text that are read as Markdown."""
_PLAIN: Final = frozenset({"paragraph_open", "paragraph_close", "inline", "text", "softbreak", "hardbreak"})
"""Tokens of a text without any Markdown."""
_HEADINGS: Final = {"h1": "h4", "h2": "h5", "h3": "h6", "h4": "h6", "h5": "h6"}
"""Levels of headings in a text; the page has the higher ones."""
_CODE: Final = re.compile(
    r"\s*(#!|diff --git |--- |@@ |<[a-z!?/]|import \w|from \S+ import |def \w+\(|class \w+[:(]|package \w|#include|"
    r"(pub )?fn \w|const \w|let \w+ =|func \w+\(|select .+ from )",
    re.IGNORECASE,
)
_MARKS: Final = re.compile(r"[*_`#\[<>|~\\]|^[ \t]*([-+=]|\d+[.)])|^(\t| {4})", re.MULTILINE)
"""Marks that Markdown has at least one of; a search for them is quicker than a parser."""
_PRE: Final = Markup('<pre class="{}" tabindex="0" dir="auto">{}</pre>')


class Rendered(NamedTuple):
    """A text as a page shows it."""

    html: Markup
    differs: bool
    """Whether the page looks different from the text, so that a reader may want its source."""


def rendered(text: str) -> Rendered:
    """Return a text as harmless HTML: JSON with indents, Markdown, code, or as it is.

    Markdown needs `markdown-it-py`, which the extras `cli` and `console` bring; without it the text is shown as it is.
    """
    text = clean(text)
    indented = _indented(text)
    if indented is not None:
        return Rendered(_PRE.format("code", indented), indented != text)
    if _CODE.match(text) and "```" not in text:
        return Rendered(_PRE.format("code", text), differs=False)
    is_read = len(text) <= _MOST and _MARKS.search(text) is not None and find_spec("markdown_it")
    tokens = _parser().parse(text) if is_read else []
    if all(one.type in _PLAIN and all(inner.type in _PLAIN for inner in one.children or ()) for one in tokens):
        return Rendered(_PRE.format("plain", text), differs=False)
    parser = _parser()
    html = parser.renderer.render(tokens, parser.options, {})
    return Rendered(Markup('<div class="rich" dir="auto">{}</div>').format(Markup(html)), differs=True)  # noqa: S704 - the parser escapes all text


def _indented(text: str) -> str | None:
    """Return a JSON object or list with indents; None for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return None


@cache
def _parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables, without raw HTML and images."""
    from markdown_it import MarkdownIt

    class Parser(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # noqa: N802 - the parser's name for what links it may make
            return is_web_link(url)

    made = Parser("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    made.disable(["image", "html_block", "html_inline", "entity"])
    made.core.ruler.push("harmless", lambda state: _change(state.tokens))
    return made


def is_web_link(address: str) -> bool:
    """Return whether a text may link to an address: an absolute one of the web, or one for mail."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme == "mailto" or (parts.scheme in ("http", "https") and bool(parts.netloc))


def _change(tokens: Sequence[Token]) -> None:
    """Lower headings, take styles away, which the pages' policy forbids, and say where links lead."""
    for token in tokens:
        token.tag = _HEADINGS.get(token.tag, token.tag)
        token.attrs.pop("style", None)
        if token.type == "link_open":
            token.attrs |= {"rel": "noopener noreferrer nofollow", "title": str(token.attrs.get("href", ""))}
        if token.type in ("fence", "code_block"):
            token.attrs["tabindex"] = "0"
        _change(token.children or ())
