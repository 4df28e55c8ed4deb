"""Encode a sentence so that a list of phrases does not find it and a model still reads it."""

from __future__ import annotations

import base64
import codecs
from typing import Final

_LEET: Final = str.maketrans("aeiostAEIOST", "431057431057")
_CYRILLIC: Final = dict(zip("acekopxyABCEHKMOPTX", "асекорхуАВСЕНКМОРТХ", strict=True))
_ALIKE: Final = str.maketrans(_CYRILLIC | {letter: latin for latin, letter in _CYRILLIC.items()})
"""Maps Latin characters to Cyrillic ones that look the same, and back."""
_WIDE: Final = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
_ZERO_WIDTH: Final = "\u200b"
_OVERLAY: Final = "\u0336"


def in_base64(text: str) -> str:
    """Write the bytes of a text in base64."""
    return base64.b64encode(text.encode()).decode()


def in_hexadecimal(text: str) -> str:
    """Write the bytes of a text as hexadecimal digits."""
    return text.encode().hex()


def in_rot13(text: str) -> str:
    """Replace each Latin letter with the one 13 places on."""
    return codecs.encode(text, "rot13")


def in_leetspeak(text: str) -> str:
    """Replace characters with the digits that look like them."""
    return text.translate(_LEET)


def in_look_alikes(text: str) -> str:
    """Replace characters with look-alikes of another alphabet."""
    return text.translate(_ALIKE)


def in_full_width(text: str) -> str:
    """Replace printable ASCII characters with their full-width forms."""
    return text.translate(_WIDE)


def with_zero_width(text: str) -> str:
    """Put a zero-width space after each alphanumeric character."""
    return "".join(f"{letter}{_ZERO_WIDTH}" if letter.isalnum() else letter for letter in text)


def with_overlay(text: str) -> str:
    """Strike out each alphanumeric character with a combining one."""
    return "".join(f"{letter}{_OVERLAY}" if letter.isalnum() else letter for letter in text)


def written_backwards(text: str) -> str:
    """Write a text backwards, between characters that make it display forwards."""
    return f"\u202e{text[::-1]}\u202c"
