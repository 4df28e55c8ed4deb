"""Decide whether a text really contains a quote."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

from kairo_team._util.masking import is_ignored

_STRAIGHT: Final = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    }
)


def plain(text: str) -> str:
    """Remove differences that a reader would not notice: case, and kinds of white space, quotation marks and dashes.

    Invisible characters, such as zero-width spaces and bidirectional marks, are dropped; compatible forms, such as
    full-width characters, become the usual ones.
    """
    if text.isascii():
        return " ".join(text.casefold().split())
    return " ".join(unicodedata.normalize("NFKC", text).translate(_as_seen()).casefold().split())


@cache
def _as_seen() -> dict[int, str | None]:
    """Map look-alike characters to one form, and invisible ones to nothing."""
    places = (*range(0x20000), *range(0xE0000, 0xE1000))  # where the invisible characters are
    unseen = {place: None for place in places if is_ignored(place) or unicodedata.category(chr(place)) == "Cf"}
    return {**unseen, **_STRAIGHT}


LEAST_QUOTE: Final = 8
"""Fewest alphanumeric characters of a quote: fewer, such as "is good", may be in any text by chance."""


def quote_problem(quote: str | None, text: str) -> str | None:
    """Return why a quote is not evidence; None where it is. A quote of the whole text always is."""
    if not quote:
        return "no quote was given"
    words, whole = plain(quote), plain(text)
    if not stands_in_plain(quote, whole):
        return "its quote is not in the artifact"
    if words != whole and sum(map(str.isalnum, words)) < LEAST_QUOTE:
        return f"its quote has fewer than {LEAST_QUOTE} letters and digits, which may occur anywhere by chance"
    return None


def stands_in(quote: str, text: str) -> bool:
    """Return whether a text contains a quote, ignoring what a reader would not notice; False for a blank quote."""
    return stands_in_plain(quote, plain(text))


def stands_in_plain(quote: str, text: str) -> bool:
    """Do the same as `stands_in` for a text that is already `plain`."""
    words = plain(quote)
    return bool(words.strip("'\".- ")) and words in text  # marks alone are in every text
