"""The stream of an open page: the parts that have changed, and of each only what differs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

import anyio

from kairo_team._util.threads import run_in_thread
from kairo_team.errors import JournalError

_LOOK: Final = 0.5
"""Seconds between two reads of the journal for an open page."""
_REST: Final = 3
"""A slow page is made less often: between two times passes this multiple of the time it took."""
_PACE: Final = 10_000
"""Most characters a second that an open page is sent, apart from whole parts; faster changes are sent together."""
_LONGEST: Final = 5.0
"""Most seconds between two reads because of the pace."""
_MOST_COMPARED: Final = 10_000_000
"""Most pairs of lines of two texts that are compared."""
_PING: Final = 30
"""Reads without news after which a comment is sent, to find out whether the browser is still there."""
_KEY: Final = re.compile(r'<\w+ data-key="[^"]*"')
"""The beginning of an element that stays the same one wherever it moves."""
_LAST_OF_TWO_BYTES: Final = "\uffff"
"""The last character that a script counts as one; it counts later ones as two."""

Line = str | int | tuple[int, int, int, str]
"""A new line: its text; or the index of an equal old line; or the index of an old line, and the place, the length and
the replacement of the part that differs."""
Change = tuple[int, int, list[Line]]
"""The index of the first line, how many lines go, and the lines that come."""


async def messages(
    last: str,
    look: Callable[[], object],
    render: Callable[[object], dict[str, str]],
    is_closing: Callable[[], bool],
) -> AsyncIterator[str]:
    """Send the parts of a page that differ from the browser's; `last` is the digest of the parts it has.

    Ends where the journal cannot be read: the browser says so, and connects again.
    """
    seen: object = None
    sent: dict[str, str] = {}
    silent, took, characters = 0, 0.0, 0
    while not is_closing():
        try:
            found, began = await run_in_thread(look), anyio.current_time()
            parts = sent if found == seen else await run_in_thread(render, found)
        except JournalError:
            return
        if found != seen:
            seen = found
            name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
            if name != last:
                last, silent = name, 0
                news = {part: change_of(sent.get(part), html) for part, html in parts.items() if html != sent.get(part)}
                message = f"retry: 1000\nid: {name}\ndata: {_written(news)}\n\n"
                characters = len(message) if sent else 0
                yield message
            took = anyio.current_time() - began
            sent = parts
        silent += 1
        if silent >= _PING:
            silent = 0
            yield ": nothing new\n\n"
        next_look, characters = anyio.current_time() + pause_after(took, characters), 0
        while not is_closing() and (left := next_look - anyio.current_time()) > 0:  # noqa: ASYNC110 - another thread closes it
            await anyio.sleep(min(left, _LOOK))


def pause_after(took: float, characters: int) -> float:
    """Return the seconds until the next read, after a page that `took` so long to make and had so many characters."""
    return max(_LOOK, _REST * took, min(characters / _PACE, _LONGEST))


def change_of(before: str | None, after: str) -> str | list[Change]:
    """Return how a text became another: its changes from the end on, or the new text if that is shorter."""
    if before is None:
        return after
    old, new = before.split("\n"), after.split("\n")
    start = next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    matcher = SequenceMatcher(None, old[start:], new[start:], autojunk=False)
    if (len(old) - start) * (len(new) - start) > _MOST_COMPARED:
        found = [(0, len(old) - start, 0, len(new) - start)]
    else:
        found = [(a, b, c, d) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal"]
    by_key = {key.group(): at for at, line in enumerate(old) if (key := _KEY.match(line))}
    changes = [
        (start + a, b - a, [*_lines(old, by_key, start + a, new[start + c : start + d])])
        for a, b, c, d in reversed(found)
    ]
    return changes if len(_written(changes)) < len(after) else after


def _common_length(one: str, other: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _written(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _lines(old: Sequence[str], by_key: dict[str, int], at: int, new: Sequence[str]) -> Iterator[Line]:
    """Yield lines that come, as old ones where that is shorter; the first may be like the old line `at`."""
    for line in new:
        key = _KEY.match(line)
        at = by_key.get(key.group(), at) if key else at
        yield line if at >= len(old) else _piece(at, old[at], line)
        at += 1


def _piece(at: int, old: str, new: str) -> Line:
    if old == new:
        return at
    if max(old + new, default="") > _LAST_OF_TWO_BYTES:
        return new
    first = _common_length(old, new)
    same = _common_length(old[first:][::-1], new[first:][::-1])
    piece = (at, first, len(old) - first - same, new[first : len(new) - same])
    return piece if len(_written(piece)) < len(_written(new)) else new
