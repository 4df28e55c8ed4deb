"""Paths as a guard sees them: resolved, whatever their spelling; and globs for paths."""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kairo_team.tools.globs import ANY_NAMES, ANYTHING, WILD, Name, loosened, meet, name_glob, names_meet
from kairo_team.tools.shell_words import LONGEST_PATH, alternatives

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_TILDE: Final = re.compile(r"~(?:[+-]|\d+)(?=/|$)")
_MOST_ENTRIES: Final = 10_000
"""Most folder entries that are read to find links for one call's globs; a glob that needs more may be anything."""
_MOST_NAMES: Final = 100
"""Most names in a glob from its first wildcard on; a glob with more may be anything."""
_MOST_DOTS: Final = 6
"""Most choices of `.` or `..` for names in a glob; a glob with more may be anything."""
_ANY_PATH: Final = (None,)
_OF_A_PROCESS: Final = re.compile(r"/(?:proc/(?:self|thread-self|\d+)|dev/fd)(?:/|$)")
"""Folders that lead each process to another place: its working directory, its root, its open files."""
_OF_PROCESSES: Final = [
    [*map(name_glob, names), None]
    for names in (("proc", "self"), ("proc", "thread-self"), ("proc", "[0123456789]*"), ("dev", "fd"))
]
_STREAMS: Final = frozenset({"/dev/stdin", "/dev/stdout", "/dev/stderr"})
_MOST_LINKS: Final = 40
"""Most links on the way to a file that a system follows."""

Names = Sequence[Name | None]
"""A glob for absolute paths, name by name, folded to one case and spelling; None is any number of names."""


@dataclass(frozen=True, slots=True)
class Path:
    """One path of a call; the parts of `resolved` and `written` are separated by `/`."""

    text: str
    """The path as it was written."""
    resolved: str | None
    """Absolute, without `..` and links; None for a text that is not a path, or is a path of another machine."""
    written: str | None
    """Absolute, without `..`, with links kept."""
    is_inside: bool
    """Whether it is the root or lies below it."""
    may_be: Sequence[Names] = ()
    """Globs for the paths that a shell may expand it to, if it has wildcards or the like."""

    def __str__(self) -> str:
        where = f", which is {self.resolved!r:.200}" if self.resolved not in (None, self.text) else ""
        return f"{self.text[:200]!r}{where}"


UNDECIDED: Final = Path("", None, None, is_inside=False, may_be=(_ANY_PATH,))
"""The path for a text with too many possible paths: it may be any path."""


def as_path(value: Any, folders: Folders) -> Iterator[Path]:
    """Yield the paths that an argument can mean: with `~` expanded and not, and with its wildcards as globs."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > LONGEST_PATH:
        yield Path(text, None, None, is_inside=False, may_be=(_ANY_PATH,))
        return
    plain = _without_scheme(text) if isinstance(value, str | os.PathLike) and "\0" not in text else None
    if plain is None:
        yield Path(text, None, None, is_inside=False)
        return
    # A tool may expand `~` or take it as a name: the guard looks at both.
    for meant in _with_home_expanded(plain):
        wild = [
            glob
            for word in alternatives(meant)
            if word != meant or WILD.search(word)
            for glob in _with_home_expanded(word)
        ]
        yield _resolve(text, meant, folders.root, [names for glob in wild for names in folders.led_to(glob)])


def paths_of_words(words: Mapping[str, bool], folders: Folders) -> Sequence[Path]:
    """Return the paths that a command's words can mean; words that a shell may expand are globs too."""
    found = list[Path]()
    for word, expands in words.items():
        plain = None if "\0" in word else _without_scheme(word)
        for meant in _with_home_expanded(plain) if plain is not None else ():
            glob = expands or _TILDE.match(meant)
            found.append(_resolve(word, meant, folders.root, folders.led_to(meant) if glob else ()))
    return found


def _with_home_expanded(text: str) -> Sequence[str]:
    return list(dict.fromkeys((text, os.path.expanduser(text))))  # noqa: PTH111 - the text may be anything


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


def _resolve(text: str, meant: str, root: str, may_be: Sequence[Names]) -> Path:
    whole = os.path.join(root, meant)  # noqa: PTH118 - the text may be anything
    try:
        resolved = None if _ANY_PATH in may_be else _placed(whole)
    except _AnyPlaceError:
        resolved = None
    except (OSError, ValueError):  # it cannot be a path here
        return Path(text, None, None, is_inside=False, may_be=may_be)
    if resolved is None:
        return Path(text, None, None, is_inside=False, may_be=(_ANY_PATH,))
    top = _parts(root)
    # With the slash, so that `/work2` is not inside `/work`.
    inside = resolved == top or resolved.startswith(top.rstrip("/") + "/")
    return Path(text, resolved, _without_parents(whole), inside, may_be)


class Folders:
    """Finds where one call's globs lead on this machine through links, reading a limited number of folder entries."""

    __slots__ = ("_left", "root")

    def __init__(self, root: str) -> None:
        self.root = root
        """The folder where relative paths begin."""
        self._left = _MOST_ENTRIES

    def led_to(self, glob: str) -> Sequence[Names]:
        """Return the globs for absolute paths, without `..`, that a glob may mean in a shell."""
        glob = _TILDE.sub(ANYTHING, glob)
        if ANYTHING in glob:  # a `..` or a link in it may undo what is before it
            _, slash, last = glob.rpartition(ANYTHING)[2].rpartition("/")
            named = last if slash else f"*{last}"
            return [_ANY_PATH if not last.strip(".") else _read_names("/", (ANY_NAMES, named))]
        parts = _parts(os.path.join(self.root, glob)).split("/")  # noqa: PTH118 - not a path yet
        wild = next((place for place, part in enumerate(parts) if WILD.search(part)), len(parts))
        fixed, choices = "/".join(parts[:wild]) or "/", [_dots(part) for part in parts[wild:]]
        # Each choice multiplies the combinations below.
        if len(choices) > _MOST_NAMES or sum(len(choice) - 1 for choice in choices) > _MOST_DOTS:
            return (_ANY_PATH,)
        found: dict[tuple[str, tuple[str, ...]], None] = {}
        try:
            # Every combination of a name and the dots that it may match leads elsewhere.
            for names in itertools.product(*choices):
                base = _placed(fixed)
                # With links resolved and not: some tools take `..` by the text, others by the file system.
                found |= dict.fromkeys((_climbed(base, names), _climbed(_without_parents(fixed), names)))
                found |= dict.fromkeys(_climbed(*behind) for behind in self._behind_links(base, names, set()))
        except (_AnyPlaceError, RecursionError):
            return (_ANY_PATH,)
        except (OSError, ValueError):  # it cannot be a path here
            return ()
        globs = [_read_names(*one) for one in found]
        return (_ANY_PATH,) if any(meet(one, of, names_meet) for one in globs for of in _OF_PROCESSES) else globs

    def _behind_links(
        self, folder: str, names: Sequence[str], seen: set[tuple[str, int]], *, linked: bool = False
    ) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the targets of the links that the names match, each with the remaining names."""
        if (folder, len(names)) in seen:  # links may form a circle
            return
        seen.add((folder, len(names)))
        if linked:
            yield folder, names
        if not names:
            return
        first, rest = names[0], names[1:]
        if not WILD.search(first):
            inner = f"{folder}/{first}"
            behind = _placed(inner)
            yield from self._behind_links(behind, rest, seen, linked=behind != _without_parents(inner))
            return
        if first == ANY_NAMES:
            yield from self._behind_links(folder, rest, seen, linked=linked)
        glob = name_glob(folded(first))
        for entry in self._entries(folder):
            if names_meet(glob, folded(entry.name)):
                if entry.is_symlink():
                    yield from self._behind_links(_placed(entry.path), rest, seen, linked=True)
                # Links were followed above.
                elif rest and entry.is_dir(follow_symlinks=False):
                    deeper = names if first == ANY_NAMES else rest
                    yield from self._behind_links(_parts(entry.path), deeper, seen)

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._left -= 1
                    if self._left < 0:
                        raise _AnyPlaceError
                    yield entry
        except OSError:  # the folder does not exist or cannot be read
            return


class _AnyPlaceError(Exception):
    """Where a path leads differs between processes, or takes more folder entries than may be read."""


def _dots(name: str) -> Sequence[str]:
    """Return the name, and `.` and `..` if it may match them; a shell's wildcards do not match a leading dot."""
    wild = WILD.search(name) and name.startswith(".")
    return [name, *(dots for dots in (".", "..") if wild and names_meet(name_glob(name), dots))]


def _climbed(base: str, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the folder and the names without `.` and `..`."""
    left: list[str] = []
    for name in names:
        # `**` also matches zero names, and then `..` leaves the folder: anything may be meant.
        if name == ".." and left[-1:] == [ANY_NAMES]:
            base, left = "/", [ANY_NAMES]
        elif name == ".." and left:
            left.pop()
        elif name == "..":
            base = base.rpartition("/")[0] or "/"
        elif name not in ("", "."):
            left.append(name)
    return base, tuple(left)


def _read_names(base: str, names: Sequence[str]) -> Names:
    fixed = [*folded(base).split("/")[1:]] if base != "/" else []
    return [*fixed, *(None if name == ANY_NAMES else name_glob(folded(name)) for name in names)]


class PathGlob:
    """A glob for absolute paths. The part before its first wildcard is resolved when the object is made."""

    __slots__ = ("_any_case", "_exact", "_is_ascii", "_names", "_written")

    def __init__(self, glob: str, root: str) -> None:
        whole = _parts(os.path.join(root, os.path.expanduser(glob)))  # noqa: PTH111, PTH118 - not a path yet
        parts = whole.split("/")
        wild = next((place for place, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
        if ".." in parts[wild:]:
            raise ValueError(f"the glob {glob!r} has '..' after a wildcard: write the folder it leads to")
        fixed = "/".join(parts[:wild]) or "/"
        rest = parts[wild:]
        # A rule names the folder as written and the place that it links to.
        bases = dict.fromkeys((_real(fixed), _without_parents(fixed)))
        self._is_ascii = whole.isascii()
        named = "/" in glob or not re.search(r"\s", glob)  # else it is a glob for a command
        self._names = [_read_names(base, rest) for base in bases] if named else []
        resolved = _pattern(_real(fixed), rest)
        written = _pattern(_without_parents(fixed), rest)
        self._exact = re.compile(resolved, re.DOTALL)
        self._any_case = re.compile(folded(resolved), re.DOTALL)
        self._written = re.compile(folded(written), re.DOTALL)

    def fits(self, path: Path) -> bool:
        """Return whether the resolved path matches."""
        return path.resolved is not None and self._exact.fullmatch(path.resolved) is not None

    def touches(self, path: Path) -> bool:
        """Return whether the path matches or may match, resolved or as written, in any case."""
        for glob in path.may_be:
            names = glob if self._is_ascii else [name and loosened(name) for name in glob]
            if any(meet(names, mine, names_meet) for mine in self._names):
                return True
        return any(
            pattern.fullmatch(folded(text)) is not None
            for text in (path.resolved, path.written)
            if text is not None
            for pattern in (self._any_case, self._written)
        )


def folded(text: str) -> str:
    """Return the text in one case and one Unicode form."""
    return unicodedata.normalize("NFC", text).casefold()


def _parts(path: str) -> str:
    return path.replace(os.sep, "/")


def _real(path: str) -> str:
    """Return the path with links resolved, and with one slash at its beginning."""
    # POSIX lets two leading slashes mean something else, so `realpath` keeps them; a glob would not match.
    return re.sub("^//", "/", _parts(os.path.realpath(path)))


def _placed(path: str) -> str:
    """Return the path with links resolved if they lead every process to the same place."""
    at, names, links = "", _parts(path).split("/")[::-1], 0
    while names and links <= _MOST_LINKS:
        name = names.pop()
        if name == "..":
            at = at.rpartition("/")[0]
        elif name not in ("", "."):
            at = f"{at}/{name}"
            if at in _STREAMS and not names:
                return at
            if _OF_A_PROCESS.match(at):
                raise _AnyPlaceError
            target = _target(at)
            if target is not None:
                links += 1
                names += target.split("/")[::-1]
                at = "" if target.startswith("/") else at.rpartition("/")[0]
    return _real(path)


def _target(path: str) -> str | None:
    """Return the target of a link; None for anything else."""
    try:
        return _parts(os.readlink(path))  # noqa: PTH115 - the text may be anything
    except OSError:
        return None


def _without_parents(path: str) -> str:
    """Return the path without `..`, with links kept."""
    return re.sub("^//", "/", _parts(os.path.normpath(path)))


def _pattern(fixed: str, rest: list[str]) -> str:
    """Translate a glob to a regular expression; `**` is zero or more names."""
    pattern = re.escape(fixed.rstrip("/"))
    for part in rest:
        pattern += "(?:/.*)?" if part == "**" else "/" + _name_pattern(part)
    return pattern or "/"


def _name_pattern(part: str) -> str:
    """Translate the glob for one name to a regular expression."""
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
    return f"(?!/)[{'^' if negated else ''}{escaped}]"  # a negated class must not match the slash
