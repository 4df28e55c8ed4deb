"""Read data files that people write: YAML, TOML and JSON, with the line of each value."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from kairo_team._util.frozen import freeze_json, thaw
from kairo_team._util.narrowing import is_list, is_mapping
from kairo_team._util.reply_json import refuse_constant, without_doubles
from kairo_team.errors import MissingExtra, first_of, known

T = TypeVar("T")

Place = tuple[int | str, ...]
"""Keys and indices that lead to a value, outermost first."""
LARGEST: Final = 250_000
"""Most characters of a file."""
DEEPEST: Final = 30
"""Most levels of lists and mappings."""
_MOST_LINES: Final = 3
"""Most lines of a file that an error names."""
_BLANK: Final = re.compile(r"[ \t\n\r]*")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS: Final[tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...]] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)
"""How plain YAML scalars are read, by the core schema of YAML 1.2: `no`, `on` and dates are texts."""


class Data(NamedTuple):
    """The content of a file, or of a mapping in the caller's code."""

    value: Any
    line_of: Callable[[Place], int | None] = lambda _: None
    """Returns the line of a value, from 1; where it is not known, the line of the value around it."""


class Unreadable(ValueError):
    """A file or its text cannot be read; `line` says where, from 1."""

    def __init__(self, says: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(says)


def parts_of(value: Any) -> dict[int | str, Any]:
    """Return the items of a mapping or list by key or index; nothing for other values."""
    if is_list(value):
        return dict(enumerate(value))
    return dict(value) if is_mapping(value) else {}


def plain_copy(data: Any, name: str) -> Any:
    """Return data of JSON values as new dicts and lists; `ValueError` for anything else, with the data's `name`."""
    try:
        return thaw(freeze_json(data))
    except RecursionError:
        raise ValueError(f"{name}: the data is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read_data(file: Path, *, largest: int = LARGEST) -> Data:
    """Read a file by its suffix: .yaml, .yml, .toml or .json; refuse more than `largest` characters.

    YAML needs the extra `yaml` and may only contain what JSON can express: tags, anchors, aliases and duplicate keys
    are refused. Raises `ValueError` with the file and the line, `OSError`, `MissingExtra`.
    """
    read = _READERS.get(file.suffix.lower())
    if read is None:
        raise ValueError(f"{file}: the suffix of data must be {known(_READERS)}, not {file.suffix!r}")
    try:
        return read(_text_of(file, largest))
    except Unreadable as error:
        where = f"{file}, line {error.line}" if error.line else str(file)
        raise ValueError(f"{where}: {error}") from None


def read_lines(text: str, example: str, make: Callable[[dict[str, Any], int], T]) -> list[T]:
    """Read JSON Lines: make a value of each line's object and number, from 1; skip blank lines and a byte order mark.

    Raises `ValueError` that names the first lines that cannot be read, and why; `example` shows what a line is.
    """
    made: list[T] = []
    problems: list[str] = []
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            made.append(make(_object(line, example), number))
        except (TypeError, ValueError) as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise ValueError(first_of(problems, _MOST_LINES))
    return made


def _object(line: str, example: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(line, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({str(error).partition(':')[0]})") from None
    if not isinstance(found, dict):
        raise ValueError(f"it is not an object such as {example}: {line:.40}")
    return cast("dict[str, Any]", found)


def _text_of(file: Path, largest: int) -> str:
    with file.open("rb") as stream:
        raw = stream.read(4 * largest + 1)  # a character has at most four bytes in UTF-8
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        if len(raw) <= 4 * largest:
            raise Unreadable("it is not UTF-8 text") from None
        text = "." * (largest + 1)  # cut in the middle of a character: it is too long, not another encoding
    if len(text) > largest:
        raise Unreadable(f"it has more than {largest:,} characters")
    if not text.strip():
        raise Unreadable("it is empty")
    return text


def _finder(lines: dict[Place, int]) -> Callable[[Place], int | None]:
    def line_of(place: Place) -> int | None:
        return next((lines[place[:n]] for n in range(len(place), -1, -1) if place[:n] in lines), None)

    return line_of


# ---------------------------------------------------------------- YAML


def read_yaml(text: str) -> Data:
    """Read the text of one YAML document, as `read_data` does; raises `Unreadable`, `MissingExtra`."""
    if find_spec("yaml") is None:
        raise MissingExtra("a file in YAML", "yaml")
    yaml: Any = import_module("yaml")
    try:
        # The events alone are read, because a YAML loader would accept aliases and lose the lines.
        quick = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # written in C, and not in every build
        reader = _Yaml(yaml.parse(text, Loader=quick), yaml)
        return Data(reader.document(), _finder(reader.lines))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise Unreadable(f"it is not valid YAML: {problem}", None if mark is None else mark.line + 1) from None
    except Unreadable:
        raise
    except (ValueError, OverflowError) as error:  # an escape of a character that does not exist
        raise Unreadable(f"it is not valid YAML: {error}") from None


class _Yaml:
    """Builds a value from the events of a YAML parser."""

    def __init__(self, events: Iterator[Any], yaml: Any) -> None:
        self._events = events
        self._yaml = yaml
        self.lines: dict[Place, int] = {}

    def document(self) -> Any:
        """Return the value of the only document."""
        self._skip(self._yaml.StreamStartEvent)
        self._skip(self._yaml.DocumentStartEvent)
        value = self._value(next(self._events), ())
        self._skip(self._yaml.DocumentEndEvent)
        after = next(self._events)
        if not isinstance(after, self._yaml.StreamEndEvent):
            raise Unreadable("it holds a second document: keep one", after.start_mark.line + 1)
        return value

    def _skip(self, kind: Any) -> None:
        event = next(self._events)
        if not isinstance(event, kind):
            raise Unreadable("it holds no value", event.start_mark.line + 1)

    def _value(self, event: Any, place: Place) -> Any:
        line = event.start_mark.line + 1
        self.lines.setdefault(place, line)  # a key's own line, set before, stays
        if isinstance(event, self._yaml.AliasEvent) or event.anchor is not None:
            raise Unreadable("anchors (&) and aliases (*) are not taken: write the value again", line)
        if event.tag is not None:
            raise Unreadable(f"tags such as {event.tag!r:.60} are not taken: leave it out", line)
        if isinstance(event, self._yaml.ScalarEvent):
            return _scalar(event.value, line) if event.implicit[0] else event.value  # a quoted scalar is a text
        if len(place) >= DEEPEST:
            raise Unreadable(f"it is nested more than {DEEPEST} deep", line)
        return self._list(place) if isinstance(event, self._yaml.SequenceStartEvent) else self._mapping(place)

    def _list(self, place: Place) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            values.append(self._value(event, (*place, len(values))))
        return values

    def _mapping(self, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            if not isinstance(event, self._yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
                raise Unreadable("a key must be a text", line)
            if event.value in values:
                raise Unreadable(f"the key {event.value!r:.80} is given twice", line)
            self.lines[*place, event.value] = line
            values[event.value] = self._value(next(self._events), (*place, event.value))
        return values


def _scalar(text: str, line: int) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    make = next((make for pattern, make in _NUMBERS if pattern.fullmatch(text)), str)
    try:
        return make(text)
    except ValueError:  # a number of thousands of digits
        raise Unreadable(f"the number {text:.20}... is too long", line) from None


# ---------------------------------------------------------------- JSON


def _read_json(text: str) -> Data:
    reader = _Json(text)
    return Data(reader.document(), _finder(reader.lines))


class _Json:
    """Reads JSON and keeps the line of each value; the standard library reads the texts and numbers."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._scalars = json.JSONDecoder(parse_constant=refuse_constant)
        self._counted = (0, 1)
        self.lines: dict[Place, int] = {}

    def document(self) -> Any:
        """Return the only value."""
        value, end = self._value(self._skip_blanks(0), ())
        if self._skip_blanks(end) < len(self._text):
            raise self._mistake_at("there is text after the value", self._skip_blanks(end))
        return value

    def _value(self, at: int, place: Place) -> tuple[Any, int]:
        self.lines.setdefault(place, self._line(at))
        opening = self._text[at : at + 1]  # a slice is empty at the end, an index would raise
        if opening in ("{", "["):
            if len(place) >= DEEPEST:
                raise self._mistake_at(f"it is nested more than {DEEPEST} deep", at)
            return self._items(at + 1, place, "}" if opening == "{" else "]")
        try:
            return self._scalars.raw_decode(self._text, at)
        except json.JSONDecodeError as error:
            raise self._mistake_at(f"it is not JSON: {error.msg}", error.pos) from None
        except ValueError as error:
            raise self._mistake_at(str(error), at) from None

    def _items(self, at: int, place: Place, closing: str) -> tuple[Any, int]:
        """Return the list or mapping that `closing` ends, and where it ends; the keys of a list are its indices."""
        values: dict[int | str, Any] = {}
        at = self._skip_blanks(at)
        ended = self._text[at : at + 1] == closing
        if ended:
            at += 1
        while not ended:
            key: int | str = len(values)
            if closing == "}":
                key, at = self._key(self._skip_blanks(at), values)
                self.lines[*place, key] = self._line(at)
            values[key], at = self._value(self._skip_blanks(at), (*place, key))
            at, ended = self._read_after(at, closing)
        return (values if closing == "}" else [*values.values()]), at

    def _key(self, at: int, values: dict[int | str, Any]) -> tuple[str, int]:
        if self._text[at : at + 1] != '"':
            raise self._mistake_at("it is not JSON: expected a key in double quotes", at)
        try:
            key, end = self._scalars.raw_decode(self._text, at)
        except json.JSONDecodeError as error:
            raise self._mistake_at(f"it is not JSON: {error.msg}", error.pos) from None
        if key in values:
            raise self._mistake_at(f"the key {key!r:.80} is given twice", at)
        end = self._skip_blanks(end)
        if self._text[end : end + 1] != ":":
            raise self._mistake_at("it is not JSON: expected a colon", end)
        return key, end + 1

    def _read_after(self, at: int, closing: str) -> tuple[int, bool]:
        at = self._skip_blanks(at)
        found = self._text[at : at + 1]
        if found not in (",", closing) or not found:
            raise self._mistake_at(f"it is not JSON: expected a comma or {closing}", at)
        return at + 1, found == closing

    def _skip_blanks(self, at: int) -> int:
        found = _BLANK.match(self._text, at)
        return found.end() if found else at

    def _line(self, at: int) -> int:
        # Counted on from the last place: from the start each time would be quadratic.
        before, line = self._counted if self._counted[0] <= at else (0, 1)
        line += self._text.count("\n", before, at)
        self._counted = (at, line)
        return line

    def _mistake_at(self, says: str, at: int) -> Unreadable:
        return Unreadable(says, self._line(at))


# ---------------------------------------------------------------- TOML


def _read_toml(text: str) -> Data:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Python before 3.14 has the line of a TOML error only in its text.
        found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        says = str(error) if found is None else str(error)[: found.start()]
        raise Unreadable(
            f"it is not valid TOML: {says}", int(found[1]) if found and found[1] else text.count("\n") + 1
        ) from None
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise Unreadable(str(error)) from None
    lines = cache(lambda: _toml_lines(text))  # only a file with a mistake pays for this

    def line_of(place: Place) -> int | None:
        return _finder(lines())(place)

    return Data(value, line_of)


_MOST_READ: Final = 2_000_000
"""Most characters of TOML that are parsed again to find the lines of values: about a second or two."""


def _toml_lines(text: str) -> dict[Place, int]:
    """Return the line of each value, by parsing ever longer beginnings of the text."""
    lines: dict[Place, int] = {(): 1}
    read_to, again, beginning = 0, 0, ""
    for number, row in enumerate(text.splitlines(keepends=True), 1):
        beginning += row
        bare = row.strip()
        if not bare or bare.startswith("#"):
            read_to = number if read_to == number - 1 else read_to
            continue
        again += len(beginning)
        if again > _MOST_READ:
            break
        try:
            # tomllib gives no lines: a value belongs to the statement that ends the first beginning that contains it.
            value = tomllib.loads(beginning)
        except ValueError:
            continue
        _add_places(value, (), read_to + 1, lines)
        read_to = number
    return lines


def _add_places(value: Any, place: Place, line: int, lines: dict[Place, int]) -> None:
    for key, inner in parts_of(value).items():
        lines.setdefault((*place, key), line)
        _add_places(inner, (*place, key), line, lines)


_READERS: Final[dict[str, Callable[[str], Data]]] = {
    ".json": _read_json,
    ".toml": _read_toml,
    ".yaml": read_yaml,
    ".yml": read_yaml,
}
SUFFIXES: Final = (*_READERS,)
"""The suffixes of data files."""
