"""Checks on plain text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kairo_team.results import Artifact

TextCheck = Callable[["Artifact"], "bool | str"]


def not_blank(artifact: Artifact) -> bool | str:
    """Check that there is text that is more than white space."""
    return bool(artifact.text.strip()) or "the artifact is blank"


def max_words(limit: int) -> TextCheck:
    """Make a check that the text has at most `limit` words (runs of non-space characters)."""

    def check(artifact: Artifact) -> bool | str:
        words = len(artifact.text.split())
        return words <= limit or f"the text has {words} words, at most {limit} are allowed"

    return check


def min_words(limit: int) -> TextCheck:
    """Make a check that the text has at least `limit` words (runs of non-space characters)."""

    def check(artifact: Artifact) -> bool | str:
        words = len(artifact.text.split())
        return words >= limit or f"the text has {words} words, at least {limit} are needed"

    return check


def contains(*phrases: str) -> TextCheck:
    """Make a check that the text has every phrase, whatever the case of its letters."""
    _refuse_blank(phrases)

    def check(artifact: Artifact) -> bool | str:
        text = artifact.text.casefold()
        missing = [phrase for phrase in phrases if phrase.casefold() not in text]
        return not missing or f"the text lacks {', '.join(map(repr, missing))}"

    return check


def forbidden(*phrases: str) -> TextCheck:
    """Make a check that the text has none of the phrases, whatever the case of its letters."""
    _refuse_blank(phrases)

    def check(artifact: Artifact) -> bool | str:
        text = artifact.text.casefold()
        found = [phrase for phrase in phrases if phrase.casefold() in text]
        return not found or f"the text must not say {', '.join(map(repr, found))}"

    return check


def _refuse_blank(phrases: tuple[str, ...]) -> None:
    if not phrases or not all(phrase.strip() for phrase in phrases):
        raise ValueError("give at least one phrase, and none that is blank")
