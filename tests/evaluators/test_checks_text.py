"""Checks on plain text: length, phrases, regular expressions that no text can hang, Markdown, revisions."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.evaluators.artifact_view import obvious_defect, view_of
from kairo_team.evaluators.checks.markdown import headings
from kairo_team.evaluators.checks.patterns import LONGEST, Pattern
from kairo_team.evaluators.quotes import stands_in

pytestmark = pytest.mark.real_time  # some of them work in a thread

Says = Callable[..., Awaitable[str | None]]


@pytest.mark.parametrize(
    ("check", "text", "wrong"),
    [
        (checks.not_blank, "x", ""),
        (checks.not_blank, " \n\t\u00a0", "the artifact is blank"),
        (checks.not_blank, "\u200b\ufeff\u2060 \U000e0041", "the artifact is blank"),
        (checks.not_blank, "\u200b\u6f6e", ""),
        (checks.max_words(2), "two words", ""),
        (checks.max_words(2), "now three words", "the text has 3 words, at most 2 are allowed"),
        (checks.min_words(3), "now three words", ""),
        (checks.min_words(3), "two words", "the text has 2 words, at least 3 are needed"),
        (checks.max_words(1), "two words", "the text has 2 words, at most 1 is allowed"),
        (checks.min_words(2), "one", "the text has 1 word, at least 2 are needed"),
        (checks.max_chars(3), "abc", ""),
        (checks.max_chars(3), "abcd", "the text has 4 characters, at most 3 are allowed"),
        (checks.min_chars(3), "abc", ""),
        (checks.min_chars(3), " ab  ", "the text has 2 characters, at least 3 are needed"),
        (checks.contains("Moon", "sea"), "The moon pulls the SEA.", ""),
        (checks.contains("moon", "sea"), "The moon.", "the text lacks 'sea'"),
        (checks.forbidden("as an AI"), "As a sailor", ""),
        (checks.forbidden("as an AI", "sorry"), "As an  \u201cAI\u201d", ""),
        (checks.forbidden("as an AI"), "AS AN AI", "the text must not say 'as an AI'"),
        (checks.forbidden("as an AI"), "as\n an a\u200bi", "the text must not say 'as an AI'"),
        (checks.forbidden("password"), "\uff50assword", "the text must not say 'password'"),
        (checks.regex(r"^\d+ mg$"), "5 mg", ""),
        (checks.regex(r"\d+ mg"), "take 5 mg now", ""),
        (checks.regex(r"\d+ mg"), "some", r"nothing in the text matches '\\d+ mg'"),
        (checks.regex(r"\d+ mg", "give a dose in mg"), "some", "give a dose in mg"),
        (checks.forbidden_regex(r"(?i)\btodo\b"), "done", ""),
        (checks.forbidden_regex(r"(?i)\btodo\b"), "a\nb ToDo c", r"the text must not match '(?i)\\btodo\\b' in line 2"),
        (checks.forbidden_regex(r"b\nc", "no b before c"), "a\nb\nc", "no b before c"),
        (checks.forbidden_regex("x"), "\ud800 x", "the text must not match 'x' in line 1"),
    ],
)
async def test_what_a_check_says(says: Says, check: Any, text: str, wrong: str) -> None:
    assert await says(check, text) == wrong


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: checks.max_words(0), "max_words takes a whole number >= 1, not 0"),
        (lambda: checks.min_chars(2.5), "min_chars takes a whole number >= 1, not 2.5"),  # type: ignore[arg-type]
        (lambda: checks.max_chars(True), "max_chars takes a whole number >= 1, not True"),
        (checks.contains, "contains: give at least one phrase"),
        (lambda: checks.forbidden("a", " "), "forbidden: give at least one phrase, and none that is blank"),
        (lambda: checks.regex(""), "a pattern is a string that is not empty"),
        (lambda: checks.regex("(a"), "unclosed group"),
        (lambda: checks.regex(r"(?=a)b"), "look-around"),
        (lambda: checks.regex(r"(a)\1"), "backreferences are not supported"),
        (lambda: checks.forbidden_regex(r"(x{1000}){1000}"), "exceeds size limit"),
        (checks.markdown_outline, "needs at least one heading"),
        (lambda: checks.markdown_outline("Title"), "a heading of an outline is '#' to '######'"),
        (lambda: checks.markdown_outline("####### Deep"), "a heading of an outline"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        make()


CATASTROPHES = [
    (r"(a+)+b", "a" * 50_000),
    (r"(a|a)*b", "a" * 50_000),
    (r"(a|aa)+$", "a" * 50_000 + "!"),
    (r"(.*a){12}b", "a" * 50_000),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 50_000),
    (r"(\w+\s?)*!", "word " * 10_000),
]


@pytest.mark.parametrize(("pattern", "text"), CATASTROPHES)
def test_no_text_hangs_a_pattern(pattern: str, text: str) -> None:
    """Python's own engine needs longer than the universe is old for each of these."""
    begun = time.process_time()
    assert not Pattern(pattern).found_in(text)
    assert time.process_time() - begun < 5


def test_the_same_patterns_do_hang_pythons_own_engine() -> None:
    """The proof that they are what they are said to be: on 26 letters each more letter doubles the time."""

    def seconds(letters: int) -> float:
        begun = time.process_time()
        re.search(r"(a+)+b", "a" * letters)
        return time.process_time() - begun

    assert seconds(22) > 8 * seconds(17)


@given(st.from_regex(r"[ab(|)*+?.]{1,8}", fullmatch=True), st.text("abc\n", max_size=12))
def test_it_finds_what_pythons_engine_finds(pattern: str, text: str) -> None:
    try:
        expected = re.search(pattern, text) is not None
    except re.error:
        return
    try:
        ours = Pattern(pattern)
    except ValueError:
        return
    if not re.search(r"[*+?]\+", pattern):  # possessive in Python only
        assert ours.found_in(text) == expected


async def test_a_text_too_long_to_look_through_is_undecided(says: Says) -> None:
    assert await says(checks.forbidden_regex("secret"), "x" * (LONGEST + 1)) is None


# ---------------------------------------------------------------- Markdown

REPORT = """# Report

Some text.

## Costs ##
```
# no heading
```
Summary
-------
    # code
### Outlook"""


def test_headings_are_found_and_code_is_not() -> None:
    assert [str(heading) for heading in headings(REPORT)] == ["# Report", "## Costs", "## Summary", "### Outlook"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#no space", []),
        ("# C#", ["# C#"]),
        ("#", ["# "]),
        ("Title\n===", ["# Title"]),
        ("\n---\n", []),
        ("- item\n---", []),
        ("| a |\n---", []),
        ("~~~\n# a\n```\n# b\n~~~\n# c", ["# c"]),
        ("````\n# a\n```\n# b\n````\n# c", ["# c"]),
        ("```python\n# a", []),
        ("   # three", ["# three"]),
        ("    # four", []),
    ],
)
def test_the_corners_of_headings(text: str, found: list[str]) -> None:
    assert [str(heading) for heading in headings(text)] == found


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (checks.markdown_outline("# Report", "## Costs", "### outlook"), ""),
        (checks.markdown_outline("# *", "## *"), ""),
        (checks.markdown_outline("# Report", "## Risks"), "the heading '## risks' is missing"),
        (
            checks.markdown_outline("## Summary", "## Costs"),
            "the heading '## costs' is not where it belongs: '## summary', '## costs'",
        ),
        (checks.markdown_outline("# *", "## *", "## *", "### *", exact=True), ""),
        (checks.markdown_outline("# *", "## *", exact=True), "the heading '## Summary' is one too many"),
        (checks.markdown_outline("# *", "### *", exact=True), "heading 2 is '## Costs' where '### *' belongs"),
        (checks.markdown_outline("# *", "## *", "## *", "### *", "## *", exact=True), "the heading '## *' is missing"),
    ],
)
async def test_an_outline(says: Says, check: Any, wrong: str) -> None:
    assert await says(check, REPORT) == wrong


# ---------------------------------------------------------------- revisions


async def test_a_revision_must_change_something_a_reader_notices() -> None:
    """What was read before is found in the verdict before, and nowhere else."""
    rubric = Rubric([Criterion("new", "something has changed", checks.changed)])
    task = kt.Task("t", "do")
    first = await rubric.evaluate(kt.EvaluationContext(task, kt.Artifact("The moon."), 1))
    assert first.outcome is kt.VerdictOutcome.PASS
    same = kt.EvaluationContext(task, kt.Artifact("the  moon.\u200b"), 2, [first])
    assert (await rubric.evaluate(same)).outcome is kt.VerdictOutcome.REVISE
    other = replace(same, artifact=kt.Artifact("The sun."))
    assert (await rubric.evaluate(other)).outcome is kt.VerdictOutcome.PASS


HIDDEN = "\u3164\u2800\u115f\u1160\u034f\ufe0f\ufe00\uffa0\u17b4\u180b\U000e0100\U0001d173\u200d\u00ad\u202e\ufeff"


@pytest.mark.parametrize("letter", [*HIDDEN, f" {HIDDEN}\n\t\u00a0\u3000"])
async def test_audit_g09_what_nobody_sees_is_blank(says: Any, letter: str) -> None:
    assert await says(checks.not_blank, letter * 3) == "the artifact is blank"
    assert await says(checks.not_blank, f"{letter}x") == ""
    view = view_of(f"{letter}x")
    assert view.hidden == sum(one in HIDDEN for one in letter)
    assert not set(HIDDEN) & set(view.text)
    assert obvious_defect(kt.Artifact(letter * 3)) == "it says nothing"
    assert stands_in("pay nothing", f"pay{HIDDEN} not{HIDDEN}hing")


@pytest.mark.parametrize("text", ["\u2764\ufe0f", "\u2801", "\u1100", "\u0301x", "-", "\U0001f44d\U0001f3fd", "\u6f6e"])
async def test_what_a_reader_sees_is_not_blank(says: Any, text: str) -> None:
    assert await says(checks.not_blank, text) == ""
