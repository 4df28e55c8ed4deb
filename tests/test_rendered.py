"""Texts of models as HTML: Markdown, JSON and code are readable, and nothing in them does anything."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("markdown_it", reason="Markdown needs the extra cli or console")

from kairo_team.views import rendered as views
from kairo_team.views.rendered import rendered

ALLOWED = {
    *("a", "blockquote", "br", "code", "del", "div", "em", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s"),
    *("strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
ATTRIBUTES = {"class", "dir", "href", "rel", "start", "tabindex", "title"}


class Seen(HTMLParser):
    """The elements of a piece of HTML, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]

    def handle_data(self, data: str) -> None:
        self.text += data


MARKDOWN = "# Tides\n\n- **two** a day\n\n| a | b |\n|---|:-:|\n| 1 | 2 |\n\n```py\nx = '<b>'\n```\n"


def test_markdown_becomes_headings_lists_tables_and_code() -> None:
    shown = rendered(MARKDOWN)
    assert shown.differs
    for part in (
        "<h4>Tides</h4>",
        "<strong>two</strong>",
        "<td>1</td>",
        "x = &#x27;&lt;b&gt;&#x27;",
        'class="language-py"',
    ):
        assert part.replace("&#x27;", "'") in str(shown.html).replace("&#x27;", "'")


def test_json_is_indented() -> None:
    shown = rendered('{"a": [1, {"b": "<script>"}]}')
    assert shown.differs
    assert "\n  &#34;a&#34;: [" in str(shown.html)
    assert "<script>" not in str(shown.html)


@pytest.mark.parametrize(
    "code",
    ["import os\n\n# not a heading\nx = [1](2)\n", "diff --git a/x b/x\n- one\n+ two\n", "<p>\n\n# not a heading\n"],
    ids=["python", "patch", "html"],
)
def test_code_is_shown_as_it_is(code: str) -> None:
    shown = rendered(code)
    assert not shown.differs
    assert Seen(shown.html).tags == {"pre"}
    assert Seen(shown.html).text == code


def test_a_plain_text_is_shown_as_it_is() -> None:
    shown = rendered("One line.\n  Another line: a_b_c, 2 * 3.")
    assert (Seen(shown.html).tags, shown.differs) == ({"pre"}, False)


HOSTILE = [
    "# a\n<script>alert(1)</script>",
    "**a** <img src=x onerror=alert(1)>",
    "- ![x](https://example.org/beacon.png)",
    "- ![x](data:image/svg+xml;base64,AAAA)",
    "- [x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](data:text/html,x) [v](vbscript:x) [f](file:///etc/passwd)",
    "- [here](/run/cancel) [there](//evil.example) [down](#cancel) [q](?token=1) [b](\\\\evil.example)",
    '- <javascript:alert(1)> <https://example.org/">x',
    '- [x](https://example.org "\\" onmouseover=alert(1)")',
    '```x" onload=alert(1)\n</code></pre><script>alert(1)</script>\n```',
    "| a |\n|:-:|\n| <b onclick=x>y</b> |",
    "&lt;script&gt; **x** &#60;script&#62;",
    "[a]: javascript:alert(1)\n\n# [a]",
    "# \u202etxt.exe\u202c \x1b[31mred",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_does_nothing(text: str) -> None:
    seen = Seen(str(rendered(text).html))
    assert seen.tags <= ALLOWED
    assert seen.attributes <= ATTRIBUTES
    assert {urlsplit(one).scheme for one in seen.links} <= {"http", "https", "mailto"}
    assert "\u202e" not in seen.text
    assert "\x1b" not in seen.text


@given(st.lists(st.sampled_from([*HOSTILE, *"<>[]()!\"'`*_~|#-+\n\\ &;:/=", "on", "src", "javascript:"]), max_size=30))
def test_no_text_makes_an_element_that_is_not_allowed(parts: list[str]) -> None:
    seen = Seen(str(rendered("# a\n" + "".join(parts)).html))
    assert seen.tags <= ALLOWED
    assert seen.attributes <= ATTRIBUTES
    assert {urlsplit(one).scheme for one in seen.links} <= {"http", "https", "mailto"}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "![[" * 6_600,
        ">" * 20_000,
        "- " * 10_000,
        "*_" * 10_000,
        "|a" * 4_000 + "\n" + "|-" * 4_000 + "\n" + "|\n" * 1_900,
        "[" * 10_000 + "]" * 9_999,
        "{" * 20_000,
        "[" * 9_999 + "1" + "]" * 9_999,
        "1" * 5_000,
        "[" + "9" * 19_000 + "]",
        "\n" * 20_000,
        "x" * 5_000_000,
    ],
    ids=lambda text: text[:6].replace("\n", "/"),
)
def test_a_text_made_to_be_slow_is_not(text: str) -> None:
    began = time.process_time()
    shown = rendered(text)
    assert time.process_time() - began < 10
    assert len(shown.html) < 50 * len(text) + 1_000


def masked(text: str) -> str:
    return text.replace("hunter2", "[secret]")


def test_a_secret_is_masked_before_the_text_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "clean", masked)
    assert "hunter2" not in rendered("# hunter2\n- [x](https://example.org/hunter2)").html


def test_without_the_parser_a_text_is_shown_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "find_spec", lambda _name: None)
    assert Seen(str(rendered(MARKDOWN).html)).tags == {"pre"}
    assert rendered('{"a":1}').differs


MARKS = st.text(st.sampled_from("ab 1.)-+=*_`#[]<>|~\\&!:'\"\t\n"), max_size=30)


@given(MARKS)
def test_a_text_without_marks_is_what_the_parser_would_make_of_it(text: str) -> None:
    quick = rendered(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "_MARKS", re.compile(""))
        assert rendered(text) == quick
