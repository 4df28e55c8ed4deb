"""Characters that nobody sees."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

IGNORED: Final = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D159, 0x1D159)),
    *((0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""First and last of what Unicode calls default ignorable, with the blank Braille pattern and the blank note head."""
_LAYOUT: Final = "\n\t\r"


def is_ignored(place: int) -> bool:
    """Say whether the character at a code point is one that takes no room, or a blank form."""
    return any(first <= place <= last for first, last in IGNORED)


@cache
def is_hidden(letter: str) -> bool:
    """Say whether a character shows nothing and is no white space: of no width, a control character, a blank form."""
    if letter in _LAYOUT:
        return False
    return is_ignored(ord(letter)) or unicodedata.category(letter) in ("Cf", "Cc", "Co", "Cn", "Cs")


def is_seen(letter: str) -> bool:
    """Say whether a character shows: white space and what is hidden do not."""
    return not letter.isspace() and not is_hidden(letter)
