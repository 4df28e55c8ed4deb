"""Quote the text of others in a prompt, between two lines that the text cannot contain."""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import Final

CAP: Final = 6_000
"""Most characters of an artifact in a prompt; the rest is cut, with a notice."""
_LENGTH: Final = 16
"""Length of a mark in hexadecimal digits: 64 bits."""
_SHORT: Final = 400
"""Most characters of a text that may be part of a line of a prompt."""


def cap(text: str, limit: int = CAP) -> str:
    """Cut `text` to `limit` characters, with a notice."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit} of {len(text)} characters are left out]"


class Mark:
    """The mark of one prompt, for its template."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.used = False
        """Whether the template has used the mark."""

    def __str__(self) -> str:
        self.used = True
        return self.word


def mark_of(prompt: str) -> str:
    """Return a word that occurs nowhere in a prompt.

    The word is made from a digest of the whole prompt, so a text with the mark would have to contain a digest of
    itself. The same prompt has the same mark again, in a resumed run and in a record of a model's calls.
    """
    text = prompt.encode("utf-8", "surrogatepass")
    marks = (hashlib.sha256(b"%d\n%s" % (number, text)).hexdigest()[:_LENGTH] for number in itertools.count())
    return next(mark for mark in marks if mark not in prompt)


def fence(text: str, mark: str) -> str:
    """Put a text between two equal lines that do not occur in it: longer runs of `=` than in the text, and the mark."""
    longest = max(map(len, re.findall("=+", text))) if "=" in text else 0
    line = "=" * (longest + 3) + f" {mark}"
    return f"{line}\n{text}\n{line}"


def is_short_line(text: str) -> bool:
    """Return whether a text can be part of a line of a prompt: without line breaks, and short."""
    return len(text) <= _SHORT and text.isprintable()


def one_line(text: object) -> str:
    """Return a text as one line, with single spaces."""
    return " ".join(str(text).split())
