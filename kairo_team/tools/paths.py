"""Paths as a guard must see them, resolved from every way of writing; and globs of them."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Path:
    """One path of a call; the parts of `resolved` and `written` are separated by `/`."""

    text: str
    """As it was written."""
    resolved: str | None
    """Absolute, without `..` and links; None for a text that is no path, or is one of another machine."""
    written: str | None
    """Absolute, without `..`, links left as they are."""
    is_inside: bool
    """It lies below the root, or is the root."""

    def __str__(self) -> str:
        where = f", which is {self.resolved!r:.200}" if self.resolved not in (None, self.text) else ""
        return f"{self.text[:200]!r}{where}"


def as_path(value: Any, root: str) -> Iterator[Path]:
    """Read a path argument: all it can mean, for `~` may or may not be one's home."""
    text = value if isinstance(value, str) else str(value)
    plain = _without_scheme(text) if isinstance(value, str | os.PathLike) and "\0" not in text else None
    if plain is None:
        yield Path(text, None, None, is_inside=False)
        return
    for meant in dict.fromkeys((plain, os.path.expanduser(plain))):  # noqa: PTH111 - of a string that may be anything
        yield _resolve(text, meant, root)


def _without_scheme(text: str) -> str | None:
    """Return the path of a `file:` address, None for another address, else the text itself."""
    if not _SCHEME.match(text):
        return text
    try:
        address = urlsplit(text)
    except ValueError:
        return None
    if address.scheme != "file" and not text[len(address.scheme) + 1 :].startswith("//"):
        return text  # a name with a colon in it
    return unquote(address.path) if address.scheme == "file" and address.netloc in ("", "localhost") else None


def _resolve(text: str, meant: str, root: str) -> Path:
    whole = os.path.join(root, meant)  # noqa: PTH118 - of a string that may be anything
    try:
        resolved, top = _parts(os.path.realpath(whole)), _parts(root)
    except (OSError, ValueError):  # it cannot be a path here
        return Path(text, None, None, is_inside=False)
    inside = resolved == top or resolved.startswith(top.rstrip("/") + "/")
    return Path(text, resolved, _parts(os.path.normpath(whole)), inside)


class PathGlob:
    """A glob of absolute paths. The part before its first wildcard is resolved when it is made."""

    __slots__ = ("_any_case", "_exact", "_written")

    def __init__(self, glob: str, root: str) -> None:
        whole = _parts(os.path.join(root, os.path.expanduser(glob)))  # noqa: PTH111, PTH118 - it is no path yet
        parts = whole.split("/")
        wild = next((place for place, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
        if ".." in parts[wild:]:
            raise ValueError(f"the glob {glob!r} has '..' behind a wildcard: write where it leads")
        fixed = "/".join(parts[:wild]) or "/"
        rest = parts[wild:]
        resolved = _pattern(_parts(os.path.realpath(fixed)), rest)
        written = _pattern(_parts(os.path.normpath(fixed)), rest)
        self._exact = re.compile(resolved, re.DOTALL)
        self._any_case = re.compile(folded(resolved), re.DOTALL)
        self._written = re.compile(folded(written), re.DOTALL)

    def fits(self, path: Path) -> bool:
        """Return whether the path, resolved, is one of these."""
        return path.resolved is not None and self._exact.fullmatch(path.resolved) is not None

    def touches(self, path: Path) -> bool:
        """Return whether the path, resolved or as it is written, is one of these, in any case."""
        return any(
            pattern.fullmatch(folded(text)) is not None
            for text in (path.resolved, path.written)
            if text is not None
            for pattern in (self._any_case, self._written)
        )


def folded(text: str) -> str:
    """Return the text in one case and one spelling."""
    return unicodedata.normalize("NFC", text).casefold()


def _parts(path: str) -> str:
    return path.replace(os.sep, "/")


def _pattern(fixed: str, rest: list[str]) -> str:
    """Translate a glob; `**` is any number of names, none of them too."""
    pattern = re.escape(fixed.rstrip("/"))
    for part in rest:
        pattern += "(?:/.*)?" if part == "**" else "/" + _name_pattern(part)
    return pattern or "/"


def _name_pattern(part: str) -> str:
    """Translate the glob of one name."""
    pattern, at = "", 0
    while at < len(part):
        letter = part[at]
        closing = part.find("]", at + 2) if letter == "[" else -1
        if letter in "*?":
            pattern += "[^/]*" if letter == "*" else "[^/]"
        elif closing > 0:
            pattern += _class(part[at + 1 : closing])
            at = closing
        else:
            pattern += re.escape(letter)
        at += 1
    return pattern


def _class(inside: str) -> str:
    negated = inside[0] in "!^"
    letters = inside[1:] if negated else inside
    escaped = letters.replace("\\", "\\\\").replace("]", "\\]").replace("[", "\\[").replace("^", "\\^")
    return f"(?!/)[{'^' if negated else ''}{escaped}]"
