"""Text of others in a prompt: between two lines that it cannot have in it."""

from __future__ import annotations

import hashlib
import itertools
import re
from typing import Final

CAP: Final = 6_000
"""Characters of an artifact that go into a prompt; the rest is cut with a notice."""
_LENGTH: Final = 16
"""Hexadecimal digits of a mark: 64 bits."""
_SHORT: Final = 400
"""The longest text, in characters, that may be part of a line of a prompt."""


def cap(text: str, limit: int = CAP) -> str:
    """Cut `text` to `limit` characters, with a notice."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {len(text) - limit} of {len(text)} characters are left out]"


class Mark:
    """The mark of one prompt, as its template sees it."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.used = False
        """Something was marked."""

    def __str__(self) -> str:
        self.used = True
        return self.word


def mark_of(prompt: str, length: int = _LENGTH) -> str:
    """Return a word that occurs nowhere in a prompt; `length` is in hexadecimal digits, at most 64.

    It is made from a digest of the whole prompt: a text in it that had the mark would have to know a digest of itself,
    and the same prompt has the same mark again, in a resumed run and in a record of a model's calls.
    """
    text = prompt.encode("utf-8", "surrogatepass")
    marks = (hashlib.sha256(b"%d\n%s" % (number, text)).hexdigest()[:length] for number in itertools.count())
    return next(mark for mark in marks if mark not in prompt)


def fence(text: str, mark: str) -> str:
    """Put a text between two equal lines that do not occur in it: of more `=` than the text has, and the mark."""
    line = "=" * (max((len(run) for run in re.findall("=+", text)), default=0) + 3) + f" {mark}"
    return f"{line}\n{text}\n{line}"


def is_short_line(text: str) -> bool:
    """Return whether a text can be part of a line of a prompt: it has no line break and is not long."""
    return len(text) <= _SHORT and text.isprintable()


def one_line(text: object) -> str:
    """Return a text as one line."""
    return " ".join(str(text).split())
