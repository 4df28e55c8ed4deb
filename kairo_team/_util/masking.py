"""Mask secrets in everything that the library writes: tool results, events, run results, errors, logs, terminal."""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from base64 import b64encode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from copy import copy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from itertools import chain
from operator import is_
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote, quote_plus
from weakref import ReferenceType, ref

from kairo_team._util.frozen import FrozenDict

IGNORED: Final = (
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F)),
    *((0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D159, 0x1D159)),
    *((0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
"""Ranges (first, last) of Unicode's default ignorable characters, and of the blank Braille pattern and note head."""
_LAYOUT: Final = "\n\t\r"


def is_ignored(place: int) -> bool:
    """Return whether the character at a code point has no width, or is a blank form."""
    return any(first <= place <= last for first, last in IGNORED)


@cache
def is_hidden(letter: str) -> bool:
    """Return whether a character is invisible and not white space: without width, a control, or a blank form."""
    if letter in _LAYOUT:
        return False
    return is_ignored(ord(letter)) or unicodedata.category(letter) in ("Cf", "Cc", "Co", "Cn", "Cs")


def is_seen(letter: str) -> bool:
    """Return whether a character is visible: neither white space nor hidden."""
    return not letter.isspace() and not is_hidden(letter)


T = TypeVar("T")
E = TypeVar("E", bound=BaseException)
Span = tuple[int, int]
_Seen = dict[int, tuple[Any, Any]]
"""Values by their id: the value, which keeps its id taken, and the masked value."""

MASK: Final = "[secret]"

_ESCAPE: Final = re.compile(r"%[0-9A-F]{2}")
_INVISIBLE: Final = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in IGNORED)}]")
"""Matches one invisible character."""
_LEAST_BASE64: Final = 6
"""Fewest characters of base64: shorter texts would match too many ordinary words."""

_MOST_ERRORS: Final = 1_000
"""Most causes, contexts and parts of one error that are read; others are left out where secrets are masked."""
_DEEPEST_GROUP: Final = 100
"""Most levels of groups inside groups that are rebuilt with masked texts."""
_LINKS: Final = ("__cause__", "__context__", "__suppress_context__", "__traceback__", "args")


class MaskedError(Exception):
    """Replaces an error with a secret in its text that cannot be rebuilt with masked text."""


class Masker:
    """Masks secrets as they are, in JSON, HTML, URLs and Python, in base64, and split by invisible characters."""

    __slots__ = ("__weakref__", "_forms", "longest")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets if secret for form in _forms(secret)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self.longest = len(self._forms[0]) if self._forms else 0
        """Length of the longest form of a secret, in characters."""

    def __bool__(self) -> bool:
        return bool(self._forms)

    def spans(self, text: str) -> list[Span]:
        """Return the start and end of each secret, in order and without overlaps."""
        places: list[int] | None = None
        shown = text
        if not text.isascii() and _INVISIBLE.search(text):
            places = [place for place, letter in enumerate(text) if not _INVISIBLE.match(letter)]
            shown = "".join(text[place] for place in places)
        found = chain.from_iterable(_occurrences(shown, form) for form in self._forms)
        if places is None:
            return _merged(found)
        return _merged((places[start], places[end - 1] + 1) for start, end in found)

    def settled(self, text: str) -> int:
        """Return how many characters of an unfinished text can be masked now, so that no secret crosses that end."""
        if not self._forms:
            return len(text)
        # So many visible characters may be the beginning of a secret.
        end, open_end = len(text), self.longest - 1
        while end and open_end:
            end -= 1
            open_end -= not _INVISIBLE.match(text[end])
        return next((start for start, stop in self.spans(text) if start < end < stop), end)

    def text(self, text: str) -> str:
        """Return the text with each secret replaced by a mask."""
        if not self._forms:
            return text
        parts, at = list[str](), 0
        for start, end in self.spans(text):
            parts += [text[at:start], MASK]
            at = end
        return "".join([*parts, text[at:]]) if parts else text

    def value(self, value: T) -> T:
        """Return a value with the secrets in its texts masked, at any depth; the value itself if it has none.

        Copies are not validated again: a mask may be where only an id is allowed. This never raises: a value that
        cannot be read, or contains itself, becomes a mask.
        """
        return cast("T", self._value(value, {})) if self._forms else value

    def _value(self, value: Any, seen: _Seen) -> Any:
        if isinstance(value, str):
            return value if isinstance(value, Enum) else self.text(value)
        if value is None or isinstance(value, int | float | type | Enum):
            return value
        if isinstance(value, BaseException):
            return self.error(value)
        if id(value) not in seen:
            seen[id(value)] = value, MASK  # for a value that contains itself; and keeps the id taken
            try:
                seen[id(value)] = value, self._inner(value, seen)
            except BaseException:  # noqa: BLE001 - foreign code: a value's own methods
                return MASK
        return seen[id(value)][1]

    def _inner(self, value: Any, seen: _Seen) -> Any:
        if isinstance(value, Mapping):
            mapping = cast("Mapping[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
            made = {self._value(key, seen): self._value(item, seen) for key, item in mapping.items()}
            # A masked key is not found: then `made`, which differs from each item.
            same = len(made) == len(mapping) and all(made.get(key, made) is item for key, item in mapping.items())
            return mapping if same else FrozenDict(made) if isinstance(mapping, FrozenDict) else made
        if isinstance(value, list | tuple | AbstractSet):
            return self._items(cast("Any", value), seen)
        if isinstance(value, bytes | bytearray):
            # So decoded, any bytes come back as they were.
            text = value.decode("utf-8", "surrogateescape")
            shown = self.text(text)
            return value if shown == text else type(value)(shown.encode("utf-8", "surrogateescape"))
        if is_dataclass(value):
            return self._fields(value, seen)
        if hasattr(cast("Any", type)(value), "__pydantic_fields__"):
            # Undeclared fields too.
            return self._attributes(value, ("__dict__", "__pydantic_extra__", "__pydantic_private__"), seen)
        if hasattr(cast("Any", type)(value), "masked_by"):  # a `File`, which stays one
            return value.masked_by(self.text)
        shown = self.text(said := repr(value))
        return value if shown == said else shown

    def _items(self, value: Any, seen: _Seen) -> Any:
        items = list(value)
        made = [self._value(item, seen) for item in items]
        if all(map(is_, made, items)):
            return value
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)  # a named tuple unpacks them

    def _fields(self, value: Any, seen: _Seen) -> Any:
        names = [field.name for field in fields(value)]
        made = self._attributes(value, names, seen)
        if made is not value and getattr(made, "__dict__", {}).keys() - names:  # derived, such as a graph's index by id
            made.__post_init__()
        return made

    def _attributes(self, value: Any, names: Iterable[str], seen: _Seen) -> Any:
        old = {name: getattr(value, name) for name in names}
        new = {name: self._value(item, seen) for name, item in old.items()}
        if all(new[name] is old[name] for name in old):
            return value
        made: Any = copy(value)
        for name, item in new.items():
            # Not by the constructor, which would refuse a mask where only an id is allowed.
            object.__setattr__(made, name, item)
        return made

    def error(self, error: E) -> E | MaskedError:
        """Return an error with the secrets masked in its text and in its causes' texts, with its traceback.

        This never raises: an error that cannot be read or rebuilt becomes a `MaskedError`.
        """
        if not self._forms:
            return error
        try:
            return cast("E | MaskedError", _Errors(self, error).masked(error))
        except BaseException:  # noqa: BLE001 - foreign code: the classes of the errors
            return MaskedError(f"{MASK}: an error that cannot be shown")


class _Errors:
    """One error with all errors it leads to: its causes, contexts and parts, each once, however they are connected."""

    def __init__(self, masker: Masker, error: BaseException) -> None:
        self._masker = masker
        self._links: dict[int, _Links] = {}
        """Links by the id of an error; they keep the errors alive, so that no id is reused."""
        self._made: dict[int, BaseException] = {}
        hostile = self._find(error)
        self._secretive = self._add_causes(hostile)

    def masked(self, error: BaseException) -> BaseException:
        """Return the first error masked; the error itself if neither it nor those it leads to have a secret."""
        for links in self._links.values():
            # All are made before they are connected, because the links may form a ring.
            self._shown(links.error, 0)
        for key, made in self._made.items():
            self._connect(made, self._links[key])
        return self._shown(error, 0)

    def _shown(self, error: BaseException, depth: int) -> BaseException:
        key = id(error)
        if key not in self._links or depth > _DEEPEST_GROUP:
            return MaskedError(f"{MASK}: more errors are left out")
        if key not in self._secretive:
            return error
        if key not in self._made:
            parts = [self._shown(part, depth + 1) for part in self._links[key].parts]
            self._made[key] = self._rewritten(error, parts)
        return self._made[key]

    def _find(self, error: BaseException) -> set[int]:
        """Find the errors, nearest first, up to the limit; return the ids of those to replace."""
        replaced: set[int] = set()
        waiting = deque([error])
        while waiting:
            one = waiting.popleft()
            if id(one) in self._links or len(self._links) == _MOST_ERRORS:
                continue
            try:
                parts = tuple(cast("Any", one).exceptions) if _is_group(one) else ()
                links = _Links(one, one.__cause__, one.__context__, parts)
                waiting.extend(led for led in links[1:3] if led is not None)
                waiting.extend(parts)
                if self._masker.spans(_texts_of_error(one)):
                    replaced.add(id(one))
            except BaseException:  # noqa: BLE001 - foreign code: the class of the error
                links = _Links(one, None, None, ())
                replaced.add(id(one))
            self._links[id(one)] = links
        return replaced

    def _add_causes(self, replaced: set[int]) -> set[int]:
        """Add the errors that lead to one that is replaced, or to one that was not read."""
        led_by: dict[int, list[int]] = {}
        for key, (_, cause, context, parts) in self._links.items():
            for one in (cause, context, *parts):
                if one is not None:
                    led_by.setdefault(id(one), []).append(key)
        waiting = [*replaced, *(key for key in led_by if key not in self._links)]
        found = set(waiting)
        while waiting:
            new = [key for key in led_by.get(waiting.pop(), ()) if key not in found]
            found.update(new)
            waiting += new
        return found

    def _rewritten(self, error: BaseException, parts: Sequence[BaseException]) -> BaseException:
        """Return the same error with masked text, or a `MaskedError` if that is not possible."""
        masker, kind = self._masker, type(error)
        try:
            made: Any
            is_own = all(getattr(kind, name) is getattr(BaseException, name) for name in _LINKS)
            if _is_group(error):
                is_own = is_own and vars(BaseExceptionGroup)["exceptions"] is cast("Any", kind).exceptions
                made = cast("Any", kind)(masker.text(cast("Any", error).message), parts)
            else:
                made = copy(error)
                made.args = masker.value(error.args)
            if notes := getattr(error, "__notes__", None):
                made.__notes__ = masker.value(list(notes))
            # Read again: its class may have copied the secret to where only its text shows it.
            is_clean = is_own and type(made) is kind and made is not error and not masker.spans(_texts_of_error(made))
        except BaseException:  # noqa: BLE001 - foreign code: the class of the error
            is_clean, made = False, error
        if is_clean:
            return cast("BaseException", made)
        return MaskedError(masker.text(f"{kind.__name__}: {_try(str, error)}"))

    def _connect(self, made: BaseException, links: _Links) -> None:
        """Connect a new error to the masked causes and context of the old one."""
        error = links.error
        made.__cause__ = None if links.cause is None else self._shown(links.cause, 0)
        made.__context__ = None if links.context is None else self._shown(links.context, 0)
        # Setting `__cause__` has set it. Read past the error's class, which may have an attribute of that name.
        made.__suppress_context__ = vars(BaseException)["__suppress_context__"].__get__(error)
        made.__traceback__ = vars(BaseException)["__traceback__"].__get__(error)


class _Links(NamedTuple):
    """An error, and the errors it leads to."""

    error: BaseException
    cause: BaseException | None
    context: BaseException | None
    parts: tuple[BaseException, ...]


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)


def _texts_of_error(error: BaseException) -> str:
    """Return all texts of an error itself, without the errors it leads to."""
    notes = getattr(error, "__notes__", "")
    line = getattr(error, "text", "") if isinstance(error, SyntaxError) else ""
    return f"{_try(str, error)} {_try(repr, error)} {_try(str, notes)} {line}"


def _try(write: Callable[[object], str], value: object) -> str:
    try:
        return str(write(value))
    except BaseException:  # noqa: BLE001 - foreign code: a value's own methods
        return ""


@lru_cache(maxsize=256)
def _forms(secret: str) -> tuple[str, ...]:
    """Return the forms in which a secret may be written."""
    plain = _INVISIBLE.sub("", secret)
    ways = (_in_html, _in_urls, _in_json, _in_python, _in_base64)
    written = [plain, *(form for text in {secret, plain} for way in ways for form in way(text))]
    return tuple(form for form in dict.fromkeys(_INVISIBLE.sub("", form) for form in written) if form)


def _in_python(secret: str) -> Iterator[str]:
    """Yield the secret as `repr` shows it in a text: a `KeyError` is shown so, and a private key has many lines."""
    for shown in (repr(secret)[1:-1], ascii(secret)[1:-1], repr(secret.encode(errors="replace"))[2:-1]):
        # `repr` escapes a quote or not, depending on the rest of the text.
        bare = shown.replace("\\'", "'")
        yield from (bare, bare.replace("'", "\\'"))


def _in_html(secret: str) -> Iterator[str]:
    import html  # it makes tables of thousands of names, and a run without secrets has no use for them

    yield html.escape(secret)
    yield html.escape(secret, quote=False)


def _in_urls(secret: str) -> Iterator[str]:
    for quoted in (
        quote(secret, errors="replace"),
        quote(secret, "", errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield from (quoted, _ESCAPE.sub(lambda escape: escape[0].lower(), quoted))


def _in_json(secret: str) -> Iterator[str]:
    """Yield the secret as JSON, and as JSON within JSON."""
    for ascii_only in (False, True):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield from (once, once.replace("/", "\\/"))
        yield from (json.dumps(once, ensure_ascii=again)[1:-1] for again in (False, True))


def _in_base64(secret: str) -> Iterator[str]:
    """Yield the base64 characters that depend on the secret alone, for the three offsets where it may begin."""
    octets = secret.encode(errors="replace")
    for before in range(3):
        # The first is rounded up and the last down: a character at an edge has bits of the text around.
        first, last = -(-before * 8 // 6), (before + len(octets)) * 8 // 6
        if last - first < _LEAST_BASE64:
            return
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + octets).decode()[first:last]


def _occurrences(text: str, form: str) -> Iterator[Span]:
    at = text.find(form)
    while at >= 0:
        yield at, at + len(form)
        # Only one further, because a secret may overlap itself.
        at = text.find(form, at + 1)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Sort spans and join overlapping ones, so that no part of a secret is left."""
    merged: list[Span] = []
    for start, stop in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


# ---------------------------------------------------------------- the log and terminal of the process

_maskers: Final = set[ReferenceType[Masker]]()
"""A plain set: every text that is shown asks whether it is empty, and a `WeakSet` is slow to say so."""
_LONGEST_LINE: Final = 8_000
"""Most characters of a log line, and of a traceback: an error may quote a whole artifact."""


def mask_in_log(masker: Masker) -> None:
    """Mask these secrets in the library's log and at its terminal as long as `masker` is alive."""
    if masker:
        _maskers.add(ref(masker, _maskers.discard))


def is_any_secret() -> bool:
    """Return whether some runtime has a secret to mask."""
    return bool(_maskers)


def masked(value: T) -> T:
    """Return a value that is written outside any run, with the secrets of all runtimes masked."""
    for masker in _live_maskers() if _maskers else ():
        value = masker.value(value)
    return value


def _clean_record(record: logging.LogRecord) -> bool:
    """Mask a log record, and shorten its texts; one whose text cannot be made becomes a mask."""
    for masker in _live_maskers():  # before it is shortened: half a secret would not be recognized
        try:
            message = record.getMessage()
        except BaseException:  # noqa: BLE001 - foreign code: the logged objects
            record.msg, record.args, message = MASK, (), MASK
        clean = masker.text(message)
        if clean != message:
            record.msg, record.args = clean, ()
        if isinstance(record.exc_info, tuple) and record.exc_info[1] is not None:
            error = masker.error(record.exc_info[1])
            record.exc_info = (type(error), error, error.__traceback__)
    with suppress(Exception):  # foreign code: the logged objects. The log's handler says what they raise
        message = record.getMessage()
        if len(message) > _LONGEST_LINE:
            record.msg, record.args = shortened(message), ()
        if isinstance(record.exc_info, tuple):
            trace = logging.Formatter().formatException(record.exc_info)
            if len(trace) > _LONGEST_LINE:
                record.exc_text = shortened(trace)  # what a formatter takes instead of its own
    return True


def shortened(text: str) -> str:
    """Return a text for a log line; of a long one, the beginning and the end, and how much is left out."""
    end = _LONGEST_LINE // 4
    left_out = len(text) - _LONGEST_LINE
    if left_out <= 0:
        return text
    said = f" [{left_out:,} of {len(text):,} characters are left out] "
    return f"{text[: _LONGEST_LINE - end]}{said}{text[-end:]}"


logging.getLogger("kairo_team").addFilter(_clean_record)


def _live_maskers() -> list[Masker]:
    # A tuple, because another thread may add a masker meanwhile.
    return [masker for one in tuple(_maskers) if (masker := one()) is not None]
