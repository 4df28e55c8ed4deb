"""Normalise text to what a person reads: replace look-alike characters and drop invisible ones."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from kairo_team._util.masking import is_hidden

_LOOKS_LIKE: Final = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405"
    "\u03bf"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u0585\u057d\u0570\u0578",
    "aeopcyxijshdqwABEKMHOPCTXIJSoABEZHIKMNOPTYXouhn",
)
"""Look-alikes of Latin characters (Unicode's confusables.txt) in the scripts that forgeries use: Cyrillic, Greek and
Armenian. Small Greek characters are left out, because formulas mix them with Latin ones. Applied only to words that mix
scripts."""
_OVERLAYS: Final = re.compile("[\u0334-\u0338\u20d2\u20d3\u20d8-\u20da\u20dd-\u20e0\u20e2-\u20e6\u20ea\u20eb]")
"""Combining marks that strike a character out or enclose it."""
_INSIDE: Final = re.compile("(?<=[A-Za-z0-9])([^A-Za-z0-9\\s!-/:-@\\[-`{-~]+)(?=[A-Za-z0-9])")
"""Other characters between two alphanumeric ones."""
_WORD: Final = re.compile(r"[^\W\d_]+")
_STACKED: Final = re.compile("([\u0300-\u036f])[\u0300-\u036f]{2,}")
"""More combining marks in a row than any language has."""


def as_read(text: str) -> str:
    """Return a text as a person reads it.

    Full-width, bold and other forms of a letter become the plain letter, and so does a look-alike in a word that also
    has Latin letters. Marks drawn over letters, and invisible characters between them, are dropped.
    """
    if text.isascii():
        return text
    seen = _INSIDE.sub(_without_hidden, _STACKED.sub("", _OVERLAYS.sub("", text)))
    return _WORD.sub(_word_as_read, "".join(map(_letter_as_read, seen)))


def _without_hidden(match: re.Match[str]) -> str:
    return "".join(letter for letter in match[0] if not is_hidden(letter))


def _letter_as_read(letter: str) -> str:
    """Return the ASCII letter that a character is a form of; any other character unchanged."""
    if letter.isascii():
        return letter
    plain = unicodedata.normalize("NFKC", letter)
    return plain if len(plain) == 1 and plain.isascii() and plain.isalpha() else letter


def _word_as_read(match: re.Match[str]) -> str:
    word = match[0]
    # A word all in Cyrillic is a word of its language.
    if word.isascii() or not any(letter.isascii() for letter in word):
        return word
    return word.translate(_LOOKS_LIKE)
