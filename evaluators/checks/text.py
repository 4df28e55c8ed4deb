"""Checks on plain text."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kairo_team._util.counts import count, counted
from kairo_team._util.narrowing import is_several
from kairo_team.artifacts import is_blank
from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.criterion import Answer
from kairo_team.evaluators.quotes import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from kairo_team.artifacts import Artifact
    from kairo_team.verdicts import EvaluationContext


def _is_not_blank(artifact: Artifact) -> CheckAnswer:
    return not is_blank(artifact) or "the artifact is blank"


not_blank = NamedCheck("not_blank", _is_not_blank)
"""Check that the text has a visible character, more than white space and invisible ones, or that there is data or a
file."""


@by_name
def max_words(limit: int) -> NamedCheck:
    """Make a check that the text has at most `limit` words (runs of non-space characters)."""
    return _at_most("words", limit, _words)


@by_name
def min_words(limit: int) -> NamedCheck:
    """Make a check that the text has at least `limit` words (runs of non-space characters)."""
    return _at_least("words", limit, _words)


@by_name
def max_chars(limit: int) -> NamedCheck:
    """Make a check that the text has at most `limit` characters (code points)."""
    return _at_most("chars", limit, len)


@by_name
def min_chars(limit: int) -> NamedCheck:
    """Make a check that the text has at least `limit` characters (code points) besides white space around it."""
    return _at_least("chars", limit, lambda text: len(text.strip()))


@by_name
def contains(*phrases: str) -> NamedCheck:
    """Make a check that the text has every phrase, in upper or lower case."""
    _refuse_blank("contains", phrases)

    def check(artifact: Artifact) -> CheckAnswer:
        text = artifact.text.casefold()
        missing = [phrase for phrase in phrases if phrase.casefold() not in text]
        return not missing or f"the text lacks {', '.join(map(repr, missing))}"

    return NamedCheck(_shown("contains", phrases), check)


@by_name
def forbidden(*phrases: str) -> NamedCheck:
    """Make a check that the text has none of the phrases.

    Case, kinds of white space and quotation marks, look-alike forms and invisible characters make no difference.
    """
    _refuse_blank("forbidden", phrases)
    wanted = {phrase: (phrase.casefold(), plain(phrase)) for phrase in phrases}

    def check(artifact: Artifact) -> CheckAnswer:
        text, seen = artifact.text.casefold(), plain(artifact.text)
        found = [phrase for phrase, (written, read) in wanted.items() if written in text or read in seen]
        return not found or f"the text must not say {', '.join(map(repr, found))}"

    return NamedCheck(_shown("forbidden", phrases), check)


@by_name
def equals(text: str) -> NamedCheck:
    """Make a check that the artifact is this text; white space around either is ignored."""
    if not isinstance(text, str):
        raise ValueError(f"equals takes a text, not {text!r}")

    def check(artifact: Artifact) -> CheckAnswer:
        return artifact.text.strip() == text.strip() or f"the text is not {text!r:.200}"

    return NamedCheck(f"equals({text!r})", check)


def _equals_reference(artifact: Artifact, context: EvaluationContext) -> CheckAnswer:
    reference = context.task.reference
    if reference is None:
        raise ValueError("the task has no reference")
    return artifact.text.strip() == reference.strip() or "the text is not the reference answer"


equals_reference = NamedCheck("equals_reference", _equals_reference, wants_context=True)
"""Check that the artifact equals `Task.reference`, except for white space around it; without a reference it is
unknown."""


def _is_changed(artifact: Artifact, context: EvaluationContext) -> Answer:
    mark = "read as " + hashlib.sha256(plain(artifact.text).encode("utf-8", "surrogatepass")).hexdigest()
    # Only the last: the rounds find older versions.
    last = context.prior_verdicts[-1].criteria if context.prior_verdicts else ()
    if any(result.reason == mark for result in last):
        return Answer(level=False, reason="it is the last attempt again: nothing a reader would notice has changed")
    return Answer(level=True, reason=mark)


changed = NamedCheck("changed", _is_changed, in_place=False, wants_context=True)
"""Check that a revision differs from the attempt before it in more than case, white space and the form of punctuation.
The context does not contain the last attempt's text. So the check leaves a digest of the text as the reason of its
result, and compares it with the one in the verdict before; nothing is kept anywhere else.
"""


def _words(text: str) -> int:
    return len(text.split())


_UNIT = {"words": "word", "chars": "character"}


def _at_most(what: str, limit: int, number_in: Callable[[str], int]) -> NamedCheck:
    _check_limit(f"max_{what}", limit)

    def check(artifact: Artifact) -> CheckAnswer:
        found = number_in(artifact.text)
        return found <= limit or f"the text has {count(found, _UNIT[what])}, at most {counted(limit)} allowed"

    return NamedCheck(f"max_{what}({limit})", check)


def _at_least(what: str, limit: int, number_in: Callable[[str], int]) -> NamedCheck:
    _check_limit(f"min_{what}", limit)

    def check(artifact: Artifact) -> CheckAnswer:
        found = number_in(artifact.text)
        return found >= limit or f"the text has {count(found, _UNIT[what])}, at least {counted(limit)} needed"

    return NamedCheck(f"min_{what}({limit})", check)


def _check_limit(owner: str, limit: int) -> None:
    if type(limit) is not int or limit < 1:
        raise ValueError(f"{owner} takes a whole number >= 1, not {limit!r}")


def _refuse_blank(owner: str, phrases: tuple[str, ...]) -> None:
    if len(phrases) == 1 and is_several(phrases[0]):
        raise ValueError(f"{owner} takes the phrases one by one: {owner}({', '.join(map(repr, phrases[0]))})")
    if not phrases or not all(isinstance(phrase, str) and phrase.strip() for phrase in phrases):
        raise ValueError(f"{owner}: give at least one phrase, and none that is blank, not {phrases!r}")


def _shown(name: str, phrases: tuple[str, ...]) -> str:
    return f"{name}({', '.join(map(repr, phrases))})"
