"""Write values as JSON text and read them back unchanged: the engine's records and users' value classes.

Nothing is pickled. Reading a text calls no constructor of a dataclass or model: it sets the fields as they were. A
user's class is found by its module and name, and must be a dataclass, named tuple, enum or pydantic model.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cache, cached_property, partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel, RootModel
from pydantic_core import PydanticUndefined, to_json

from kairo_team._util.frozen import FrozenDict
from kairo_team._util.mistakes import with_article
from kairo_team.budget import ReadLater
from kairo_team.durable.value_classes import (
    CorruptRecord,
    NotRecordable,
    Refusal,
    described,
    foreign,
    is_named_tuple,
    library,
    loaded,
    name_of,
)
from kairo_team.errors import GuardrailDenied
from kairo_team.files import File

__all__ = [
    "CorruptRecord", "NotRecordable", "decode", "decode_loaded", "encode", "encode_apart", "fetching", "outline",
]  # fmt: skip

_TAG: Final = "~"
"""The key that marks an object as something other than a dict with plain strings as keys."""
_VALUE: Final = "v"
_MORE: Final = "+"
"""The key, next to a dataclass's fields, of its other attributes. No field can have this name."""
_APART: Final = 1_000
"""A text of so many characters is written apart: a reply is in its call, attempt, outcome, and twice in the result."""
_LONG: Final = 10**600
"""Larger integers are written in hex: Python limits decimal digits, and the limit can be set as low as 640."""

_ALLOWED: Final = (
    "recorded are JSON values, bytes, decimals, dates, enums, tuples, sets, and dataclasses, named tuples and pydantic "
    "models that can be imported"
)


def encode(value: object) -> str:
    """Return a value as JSON; raises `NotRecordable` for a value that cannot be read back unchanged."""
    try:
        return _written(_plain(value))
    except Refusal as refusal:
        raise NotRecordable(f"value{''.join(reversed(refusal.path))}: {refusal.problem}") from None
    except RecursionError:
        raise NotRecordable("value: it contains itself, or is nested too deeply to be recorded") from None


def encode_apart(value: object) -> tuple[str, list[File | LongText]]:
    """Return a value like `encode` without its long texts and the contents of its files, and these, each once.

    It is read where `fetching` says how to find a content by its digest.
    """
    apart: dict[str, File | LongText] = {}
    token = _apart.set(apart)
    try:
        return encode(value), [*apart.values()]
    finally:
        _apart.reset(token)


@contextmanager
def fetching(fetch: Callable[[str], bytes | None]) -> Generator[None]:
    """Inside the block, let what was written apart be found by its digest: a text at once, a file at its first use."""
    token = _fetch.set(fetch)
    try:
        yield
    finally:
        _fetch.reset(token)


@contextmanager
def texts_of(fetch: Callable[[str], bytes | None]) -> Generator[None]:
    """Inside the block, read long texts by `fetch` first: through an open connection instead of one for each."""
    token = _texts.set(fetch)
    try:
        yield
    finally:
        _texts.reset(token)


def decode(text: str) -> Any:
    """Return the value that `encode` wrote; raises `CorruptRecord` for any other text."""
    return _decoded(text, _DECODER)


def decode_loaded(text: str) -> Any:
    """Return the value like `decode`, importing nothing: `CorruptRecord` for a class whose module is not imported."""
    return _decoded(text, _LOADED_DECODER)


def look(text: str) -> Any:
    """Return the value like `decode`, importing nothing: a value of a class that is not imported becomes its name."""
    return _decoded(text, _LOOKER)


def outline(text: str) -> Any:
    """Return the value like `decode`, importing nothing: a value of a user's class becomes the name of the class."""
    return _decoded(text, _OUTLINER)


def outline_field(text: str, name: str) -> Any:
    """Return one field of a written object like `outline`, reading no other; None if the field has its default.

    Raises `CorruptRecord` for a text that is not an object.
    """
    try:
        field = json.loads(text).get(_VALUE, {}).get(name)
    except (ValueError, AttributeError, RecursionError) as error:
        raise CorruptRecord(f"this is not a recorded object: {error}") from error
    return _decoded(json.dumps(field), _OUTLINER)


def _decoded(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(text)
    except CorruptRecord:
        raise
    except _NotFetched as failed:
        raise failed.error from None
    except Exception as error:
        raise CorruptRecord(f"this is not a recorded value: {error}") from error


# ---------------------------------------------------------------------- writing


def _written(plain: Any) -> str:
    """Return JSON values as text."""
    try:
        return to_json(plain).decode()
    except ValueError:  # Python's own encoder nests deeper than pydantic's, and takes four times as long
        return _ENCODER.encode(plain)


def _plain(value: Any) -> Any:
    """Return a value as JSON values."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]  # the class of anything
    if kind is str:
        if len(value) >= _APART and (apart := _apart.get()) is not None:
            return _apart_from(value, apart)
        return value if value.isascii() or _is_whole(value) else {_TAG: "text", _VALUE: _bytes(value)}
    if kind in _AS_THEY_ARE or (kind is int and -_LONG < value < _LONG):
        return value
    write = _WRITERS.get(kind)
    if write is None:
        write = _WRITERS[kind] = _writer_of(kind)
    return write(value)


def _is_whole(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        text.encode()  # faster than a search
    except UnicodeEncodeError:
        return False
    return True


def _writer_of(kind: type[Any]) -> Callable[[Any], Any]:
    """Return the function that writes values of a class."""
    if issubclass(kind, Enum):
        return _enum_writer(kind, name_of(kind))
    if is_named_tuple(kind):
        return _tagged(name_of(kind), _items)
    if issubclass(kind, BaseModel):
        return _tagged(name_of(kind), _state_of_model)
    if is_dataclass(kind):
        name = name_of(kind)
        return _own_writer(kind, name) if name in library() else _foreign_writer(kind, name)
    raise Refusal(f"{described(kind)} cannot be recorded; {_ALLOWED}")


def _enum_writer(kind: type[Enum], name: str) -> Callable[[Any], Any]:
    """Return the function that writes members of an enum by name, and combined flags by their number."""
    members = dict[str, object](kind.__members__)

    def write(value: Any) -> Any:
        word: Any = value.name
        if members.get(word) is value:
            return {_TAG: name, _VALUE: word}
        if issubclass(kind, Flag):
            return {_TAG: name, _VALUE: value.value}
        raise Refusal(f"{value!r:.80} is not a member of {kind.__qualname__} and cannot be recorded")

    return write


def _own_writer(kind: type[Any], name: str) -> Callable[[Any], Any]:
    """Return the function that writes the library's dataclasses: the fields that differ from their default.

    Leaves exceptions out.
    """
    names = [(field.name, field.default) for field in fields(cast("Any", kind))]

    def write(value: Any) -> Any:
        written: dict[str, Any] = {}
        field = ""
        try:
            for field, default in names:
                content = getattr(value, field)
                # An exception, with its traceback, belongs to this process.
                if content is not default and not isinstance(content, BaseException):
                    written[field] = _plain(content)
        except Refusal as refusal:
            refusal.path.append(f".{field}")
            raise
        return {_TAG: name, _VALUE: written}

    return write


def _foreign_writer(kind: type[Any], name: str) -> Callable[[Any], Any]:
    """Return the function that writes a user's dataclasses: all attributes, including those that are not fields."""
    try:
        object.__new__(kind)
    except TypeError:
        raise Refusal(f"{described(kind)} is more than a dataclass and cannot be recorded; {_ALLOWED}") from None
    defaults = {field.name: field.default for field in fields(cast("Any", kind))}

    def write(value: Any) -> Any:
        held = _held_by(value)
        for field, default in defaults.items():
            if field not in held and default is MISSING:
                raise Refusal("this field is not set", f".{field}")
        written: dict[str, Any] = {}
        more: dict[str, Any] = {}
        for field, content in held.items():
            if field not in defaults:
                more[field] = content
            elif content is not defaults[field]:
                written[field] = _within(field, content)
        if more:
            written[_MORE] = _mapping(more)
        return {_TAG: name, _VALUE: written}

    return write


def _held_by(value: Any) -> dict[str, Any]:
    """Return the attributes of a user's dataclass, except those that a `cached_property` can compute again."""
    state: Any = object.__getstate__(value)
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]  # the class of anything
    parts = cast("tuple[dict[str, Any] | None, ...]", state if isinstance(state, tuple) else (state,))
    return {
        name: content
        for part in parts
        if part is not None
        for name, content in part.items()
        if not name.startswith("__") and not isinstance(getattr(kind, name, None), cached_property)
    }


def _state_of_model(value: BaseModel) -> Any:
    kind = type(value)
    held = value.__dict__
    for name in kind.model_fields:
        if name not in held:
            raise Refusal("this field is not set", f".{name}")
    state: dict[str, Any] = {
        "fields": _mapping({name: held[name] for name in kind.model_fields}),
        "set": sorted(value.model_fields_set),
    }
    for name in ("extra", "private"):
        more = getattr(value, f"__pydantic_{name}__")
        if more:
            state[name] = _mapping(more)
    return state


def _within(name: str, content: Any) -> Any:
    """Write an attribute; add its name to the path of a refusal."""
    try:
        return _plain(content)
    except Refusal as refusal:
        refusal.path.append(f".{name}")
        raise


def _items(values: Iterable[Any]) -> list[Any]:
    written: list[Any] = []
    try:
        for one in values:
            written.append(_plain(one))  # noqa: PERF401 - a refusal counts what was written
    except Refusal as refusal:
        refusal.path.append(f"[{len(written)}]")
        raise
    return written


def _mapping(value: Mapping[Any, Any]) -> Any:
    """Write a mapping: as an object if all its keys are plain strings, else as pairs."""
    if _TAG in value or not all(type(key) is str and (key.isascii() or _is_whole(key)) for key in value):
        return {_TAG: "dict", _VALUE: [_pair(key, one) for key, one in value.items()]}
    written: dict[str, Any] = {}
    key = ""
    try:
        for key, one in value.items():
            written[key] = _plain(one)
    except Refusal as refusal:
        refusal.path.append(f".{key}")
        raise
    return written


def _pair(key: Any, value: Any) -> list[Any]:
    try:
        written = _plain(key)
    except Refusal as refusal:
        refusal.path = [f"[a key, {key!r:.40}]"]
        raise
    try:
        return [written, _plain(value)]
    except Refusal as refusal:
        refusal.path.append(f"[{key!r:.40}]")
        raise


def _set(value: Iterable[Any]) -> list[Any]:
    """Write the members of a set, in an order that is independent of their hashes."""
    return sorted(_items(value), key=json.dumps)


def _moment(value: Any) -> Any:
    """Write a datetime or a time: as ISO text if that is complete, else as text, fold and zone."""
    zone: Any = value.tzinfo
    offset, *name = _arguments(zone) if type(zone) is timezone else (timedelta(), "")
    # `fromisoformat` loses fractions of a second in a zone's offset.
    if not value.fold and (zone is None or not (name or offset.microseconds)):
        return value.isoformat()
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _within("tzinfo", zone)]


class LongText(NamedTuple):
    """A long text that is kept apart, because several values of a run contain it."""

    digest: str
    data: bytes


_apart: Final[ContextVar[dict[str, File | LongText] | None]] = ContextVar("kairo_team_apart", default=None)
_fetch: Final[ContextVar[Callable[[str], bytes | None] | None]] = ContextVar("kairo_team_fetch", default=None)
_texts: Final[ContextVar[Callable[[str], bytes | None] | None]] = ContextVar("kairo_team_texts", default=None)


def _apart_from(text: str, apart: dict[str, File | LongText]) -> dict[str, Any]:
    data = text.encode("utf-8", "surrogatepass")
    digest = sha256(data).hexdigest()
    apart.setdefault(digest, LongText(digest, data))
    return {_TAG: "apart", _VALUE: digest}


class _NotFetched(Exception):
    """A text cannot be read at the moment: a broken connection does not make a record corrupt."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _read_text(digest: str) -> str:
    for fetch in filter(None, (_texts.get(), _fetch.get())):
        try:
            data = fetch(digest)
        except Exception as error:
            raise _NotFetched(error) from error
        if data is not None:
            return data.decode("utf-8", "surrogatepass")
    raise CorruptRecord(f"the text with the digest {digest:.12} is not kept here")


def _file(value: File) -> dict[str, Any]:
    apart = _apart.get()
    about: dict[str, Any] = {"media_type": value.media_type, "name": value.name}
    if value.url is not None:
        return {**about, "url": value.url}
    if apart is None and (data := value.data) is not None:
        return {**about, "data": _plain(data)}
    if apart is not None:
        apart.setdefault(value.digest, value)
    return {**about, "digest": value.digest, "size": value.size}


def _read_file(content: dict[str, Any]) -> File:
    fetch = _fetch.get()
    try:
        if "digest" not in content:
            return File(**content)
        return File.stored(None if fetch is None else partial(fetch, content["digest"]), **content)
    except (TypeError, ValueError) as error:
        raise CorruptRecord(f"a file: {error}") from error


def _arguments(zone: Any) -> tuple[Any, ...]:
    """Return a zone's offset from UTC, and its name if it has one."""
    arguments: tuple[Any, ...] = zone.__getinitargs__()
    return arguments


def _zone(value: ZoneInfo) -> str:
    key = cast("str | None", value.key)  # None where `ZoneInfo.from_file` was given none
    if key is None:
        raise Refusal("a time zone that was read from a file has no name and cannot be recorded")
    return key


def _tagged(tag: str, write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {_TAG: tag, _VALUE: write(value)}


def _bytes(text: str) -> str:
    """Write a text with lone surrogates; as JSON text, two of them could become one character."""
    return base64.b85encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


_AS_THEY_ARE: Final = frozenset({type(None), bool, float})

_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    int: _tagged("int", hex),
    list: _items,
    dict: _mapping,
    tuple: _tagged("tuple", _items),
    ReadLater: _tagged("tuple", _items),
    FrozenDict: _tagged("frozen", _mapping),
    MappingProxyType: _tagged("proxy", _mapping),
    set: _tagged("set", _set),
    frozenset: _tagged("frozenset", _set),
    bytes: _tagged("bytes", lambda value: base64.b85encode(value).decode("ascii")),
    Decimal: _tagged("decimal", str),
    datetime: _tagged("datetime", _moment),
    date: _tagged("date", date.isoformat),
    time: _tagged("time", _moment),
    timedelta: _tagged("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    timezone: _tagged("timezone", lambda value: _items(_arguments(value))),
    ZoneInfo: _tagged("zone", _zone),
    UUID: _tagged("uuid", str),
    File: _tagged("file", _file),
    GuardrailDenied: _tagged("denied", lambda value: _items((value.policy, value.phase, value.reason))),
}
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False)


# ---------------------------------------------------------------------- reading


def _read(plain: dict[str, Any], class_of: Callable[[str], type[Any]] = foreign) -> Any:
    """Return the value of a tagged object; the values inside it have been read already."""
    if _TAG not in plain:
        return plain
    if len(plain) != 2 or _VALUE not in plain:  # noqa: PLR2004 - the tag and the value
        raise CorruptRecord(f"an object with {_TAG!r} has {_VALUE!r} and no other key, not {[*plain]!r:.200}")
    tag, content = plain[_TAG], plain[_VALUE]
    if type(tag) is not str:
        raise CorruptRecord(f"a tag is a string, not {tag!r:.80}")
    known = _READERS.get(tag)
    if known is None:
        own = library().get(tag)
        return _made(class_of(tag), content, own=False) if own is None else _made(own, content, own=True)
    written, read = known
    return read(_checked(tag, content, *written))


def _checked(what: str, content: Any, *kinds: type) -> Any:
    """Return content if its type is one of `kinds`; raise `CorruptRecord`, which names `what`, if not."""
    if type(content) not in kinds:
        names = " or ".join(with_article(kind.__name__) for kind in kinds)
        raise CorruptRecord(f"{what} is written as {names}, not as {content!r:.80}")
    return content


def _made(kind: type[Any], content: Any, *, own: bool) -> Any:
    """Make a value of a class from its written content."""
    name = kind.__qualname__
    if issubclass(kind, Enum):
        if issubclass(kind, Flag) and type(content) is int:
            return kind(content)
        return kind[_checked(name, content, str)]
    if issubclass(kind, tuple):
        items = _checked(name, content, list)
        made: Any = cast("Any", kind)
        return made(*items) if own else made._make(items)  # ours may have new fields
    if issubclass(kind, BaseModel):
        return _model(kind, _checked(name, content, dict))
    return _filled(kind, _checked(name, content, dict), own=own)


def _model(kind: type[BaseModel], state: Mapping[str, Any]) -> Any:
    known = kind.model_fields
    given: dict[str, Any] = dict(state["fields"])
    _refuse_unknown(kind, given.keys() - known.keys())
    held: dict[str, Any] = {}
    for name, field in known.items():
        if name not in given and field.is_required():
            raise CorruptRecord(f"a {kind.__name__} without its {name!r}")
        held[name] = given[name] if name in given else field.get_default(call_default_factory=True)
    model = kind.__new__(kind)
    object.__setattr__(model, "__dict__", held)
    object.__setattr__(model, "__pydantic_fields_set__", set(state["set"]))
    if not issubclass(kind, RootModel):
        extra: Any = {} if kind.model_config.get("extra") == "allow" else None
        object.__setattr__(model, "__pydantic_extra__", state.get("extra", extra))
        object.__setattr__(model, "__pydantic_private__", _private_of(kind, state.get("private", {})))
    return model


def _private_of(kind: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a model's private attributes: the given ones, and the defaults of the others."""
    known = kind.__private_attributes__
    others = {name: known[name].get_default() for name in known if name not in given}
    held = {name: one for name, one in others.items() if one is not PydanticUndefined} | dict(given)
    return held if known or given else None


def _refuse_unknown(kind: type, names: Iterable[str]) -> None:
    unknown = sorted(names)
    if unknown:
        raise CorruptRecord(f"{kind.__name__} has no {', '.join(map(repr, unknown))}: a newer version wrote it")


@cache  # a result has thousands of values of the same classes
def _fields_of(kind: type[Any]) -> Sequence[tuple[str, Any, Any]]:
    """Return the names of a dataclass's fields with their defaults and the functions that make them."""
    return [(field.name, field.default, field.default_factory) for field in fields(cast("Any", kind))]


def _filled(kind: type[Any], content: Mapping[str, Any], *, own: bool) -> Any:
    made: Any = object.__new__(kind)
    given = dict(content)
    more: Mapping[str, Any] = {} if own else _checked(_MORE, given.pop(_MORE, {}), dict)
    for name, default, factory in _fields_of(cast("Any", kind)):
        if name in given:
            value = given.pop(name)
        elif default is not MISSING:
            value = default
        elif factory is not MISSING:
            value = factory()
        else:
            raise CorruptRecord(f"a {kind.__name__} without its {name!r}")
        object.__setattr__(made, name, value)
    _refuse_unknown(kind, given)
    for name, value in more.items():
        object.__setattr__(made, name, value)
    if own and hasattr(kind, "__post_init__"):  # ours may be called again
        made.__post_init__()
    return made


def _moment_reader(kind: Any) -> Callable[[Any], Any]:
    def read(content: Any) -> Any:
        if type(content) is str:
            return kind.fromisoformat(content)
        text, fold, zone = _checked(kind.__name__, content, list)
        return kind.fromisoformat(text).replace(fold=fold, tzinfo=zone)

    return read


_READERS: Final[Mapping[str, tuple[tuple[type, ...], Callable[[Any], Any]]]] = {
    "int": ((str,), lambda content: int(content, 16)),
    "dict": ((list,), lambda content: dict(_checked("a pair", pair, list) for pair in content)),
    "tuple": ((list,), tuple),
    "frozen": ((dict,), FrozenDict),
    "proxy": ((dict,), MappingProxyType),
    "set": ((list,), set),
    "frozenset": ((list,), frozenset),
    "bytes": ((str,), base64.b85decode),
    "text": ((str,), lambda content: base64.b85decode(content).decode("utf-8", "surrogatepass")),
    "decimal": ((str,), Decimal),
    "datetime": ((str, list), _moment_reader(datetime)),
    "date": ((str,), date.fromisoformat),
    "time": ((str, list), _moment_reader(time)),
    "timedelta": ((list,), lambda content: timedelta(*content)),
    "timezone": ((list,), lambda content: timezone(*content)),
    "zone": ((str,), ZoneInfo),
    "uuid": ((str,), UUID),
    "apart": ((str,), _read_text),
    "file": ((dict,), _read_file),
    "denied": ((list,), lambda content: GuardrailDenied(*content)),
}
"""For each tag, the JSON types of its content and the function that reads it."""
_DECODER: Final = json.JSONDecoder(object_hook=_read)
_LOADED_DECODER: Final = json.JSONDecoder(object_hook=partial(_read, class_of=loaded))


def _shown(plain: dict[str, Any], known: Collection[str] = ()) -> Any:
    """Read an object; return only the class name for a user's class, unless its module is `known`."""
    tag = plain.get(_TAG)
    is_foreign = type(tag) is str and tag not in _READERS and tag not in library()
    return f"<{tag}>" if is_foreign and str(tag).partition(":")[0] not in known else _read(plain)


_OUTLINER: Final = json.JSONDecoder(object_hook=_shown)
_LOOKER: Final = json.JSONDecoder(object_hook=partial(_shown, known=sys.modules))
