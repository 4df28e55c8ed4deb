"""`Sanitizer`: the last thing that happens to what a tool returned. Secrets are masked, and what is too long is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

MAX_RESULT: Final = 50_000
"""Most characters of a tool's result that a member gets to read; a notice says how many more there were."""
MASK: Final = "[secret]"

_ESCAPE: Final = re.compile(r"%[0-9A-F]{2}")


class Sanitizer:
    """Masks the given secrets, also where they are written as JSON or in a URL, and caps the text."""

    __slots__ = ("_forms", "_longest", "_most")

    def __init__(self, secrets: Iterable[str] = (), most: int = MAX_RESULT) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._longest = len(self._forms[0]) if self._forms else 0
        self._most = most

    def __call__(self, text: str) -> str:
        """Return the text as a member may read it."""
        length = len(text)
        if length > self._most:
            text = text[: self._most + self._longest]  # a secret across the edge is still whole in it
        written = [form for form in self._forms if form in text]
        if length <= self._most and not written and _is_sound(text):
            return text
        spans = _merged(span for form in written for span in _occurrences(text, form))
        return self._rewrite(text, spans, length)

    def _rewrite(self, text: str, spans: list[tuple[int, int]], length: int) -> str:
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


def _forms(secret: str) -> Iterator[str]:
    """Yield how a secret may be written: as it is, in a URL, in JSON, and in JSON within JSON."""
    yield secret
    for quoted in (
        quote(secret, errors="replace"),
        quote(secret, "", errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield from (quoted, _ESCAPE.sub(lambda escape: escape[0].lower(), quoted))
    for ascii_only in (False, True):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield from (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii_only)[1:-1])


def _occurrences(text: str, form: str) -> Iterator[tuple[int, int]]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        at = text.find(form, at + 1)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sort spans, and join those that overlap: half a secret must not be left over beside another."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def _is_sound(text: str) -> bool:
    """Say whether the text can be sent at all: half a surrogate pair cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
