"""`Sanitizer`: the last step for a tool's result: mask secrets and cut a text that is too long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kairo_team._util.masking import MASK, Masker, Span

MAX_RESULT: Final = 50_000
"""Most characters of a tool's result that a member receives; a notice gives the number of the others."""


class Sanitizer:
    """Masks the given secrets in all forms that `Masker` knows, and limits the length."""

    __slots__ = ("_masker", "_most")

    def __init__(self, secrets: Iterable[str] = (), most: int = MAX_RESULT) -> None:
        self._masker = Masker(secrets)
        self._most = most

    def __call__(self, text: str) -> str:
        """Return the text as a member may read it."""
        length = len(text)
        if length > self._most and text.isascii():
            text = text[: self._most + self._masker.longest]  # keep a secret across the edge whole
        spans = self._masker.spans(text) if self._masker else []
        if length <= self._most and not spans and _is_sound(text):
            return text
        return self._rewrite(text, spans, length)

    def _rewrite(self, text: str, spans: list[Span], length: int) -> str:
        pieces: list[str] = []
        at, room, end = 0, self._most, min(length, self._most)
        for start, stop in spans:
            if start >= end or start - at >= room:
                break
            pieces += [text[at:start], MASK]
            room -= start - at + len(MASK)
            at = stop
        end = max(at, min(end, at + room))
        pieces.append(text[at:end])
        left_out = length - end
        if left_out > 0:
            pieces.append(f"\n[{left_out} more characters left out]")
        return "".join(pieces).encode(errors="replace").decode()


def _is_sound(text: str) -> bool:
    """Return whether the text can be encoded: half a surrogate pair cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
