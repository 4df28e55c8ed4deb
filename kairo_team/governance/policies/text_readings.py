"""Forms in which policies read a text: unchanged, without disguises, and, for JSON, its strings."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from kairo_team._util.narrowing import is_several
from kairo_team.guardrails import TextFunction, map_json

_NOT_SHOWN: Final = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")
"""Soft hyphens, joiners, marks of direction, tags: invisible characters."""


def plain(text: str) -> str:
    """Return the text without invisible characters; full-width, bold and other forms become plain characters."""
    return text if text.isascii() else unicodedata.normalize("NFKC", _NOT_SHOWN.sub("", text))


def readings(text: str) -> Iterator[str]:
    """Yield the text in every form that policies search."""
    yield text
    if (shown := plain(text)) != text:
        yield shown
    document = _document(text)
    if document is not None:
        held: list[str] = []

        def note(piece: str) -> str:
            held.append(piece)
            return piece

        map_json(document, note)
        yield plain("\n".join(held))


def rewrite(text: str, function: TextFunction) -> str:
    """Apply `function` to the text in every form and return the result.

    JSON stays JSON unless a match spans its structure. If a match was disguised, the whole text comes back without
    disguise.
    """
    document = _document(text)
    if document is not None and (mapped := map_json(document, function)) is not document:
        text = json.dumps(mapped, ensure_ascii=False)
    changed = function(text)
    if text.isascii():
        return changed  # nothing can be disguised
    undisguised = function(plain(text))
    # Equal: no match was disguised, and the text keeps its characters.
    return changed if plain(changed) == undisguised else undisguised


def _document(text: str) -> Any:
    """Parse the text as a JSON object or list; None if it is neither."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def compiled(owner: str, patterns: Any, *, ignore_case: bool) -> tuple[re.Pattern[str], ...]:
    """Compile regular expressions; `ValueError` naming `owner` for one that is invalid or matches an empty text."""
    if not is_several(patterns):
        raise ValueError(f"{owner} must be a list of regular expressions, not {patterns!r}")
    made: list[re.Pattern[str]] = []
    for one in patterns:
        if not isinstance(one, str):
            raise ValueError(f"{owner} must be a list of regular expressions, and {one!r} is none")
        try:
            pattern = re.compile(one, re.IGNORECASE if ignore_case else 0)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{owner}: {one!r} is not a regular expression: {error}") from error
        if pattern.search("") is not None:  # it would deny, or replace, between all characters
            raise ValueError(f"{owner}: {one!r} matches every text, even an empty one")
        made.append(pattern)
    return tuple(made)
