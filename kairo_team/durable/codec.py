"""Values as JSON text and back, exactly: what the engine records, and users' dataclasses, enums and pydantic models.

Nothing is pickled, and reading a text calls no constructor: fields are set as they were. A class of a user is found by
its module and name, and must be a value class.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final, cast
from uuid import UUID

from pydantic import BaseModel

from kairo_team._util.frozen import FrozenDict
from kairo_team.budget import ReadLater
from kairo_team.errors import GuardrailDenied

_TAG: Final = "~"
"""The key that marks an object as something else than a dict with words for keys."""
_VALUE: Final = "v"

_ALLOWED: Final = (
    "recorded are JSON values, bytes, decimals, dates, enums, tuples, sets, and dataclasses, named tuples and pydantic "
    "models that can be imported"
)

_LIBRARY: Final = (
    "budget", "engine.planning", "engine.questions", "engine.records.replay", "engine.run_services", "human",
    "messages", "results", "tasks", "team", "tools.result", "verdicts",
)  # fmt: skip
"""Modules whose value classes are written by their name alone: it stays when a class moves."""


class NotRecordable(ValueError):
    """A value that cannot be written down; the message names the place in it."""


class CorruptRecord(ValueError):
    """A text that this codec did not write."""


def encode(value: object) -> str:
    """Return a value as JSON; raises `NotRecordable` for what cannot be read back as it was."""
    return json.dumps(_plain(value, "value"), separators=(",", ":"), check_circular=False)


def decode(text: str) -> Any:
    """Return the value that `encode` made the text of; raises `CorruptRecord` for any other text."""
    try:
        return _value(json.loads(text))
    except CorruptRecord:
        raise
    except Exception as error:
        raise CorruptRecord(f"this is no recorded value: {error}") from error


# ---------------------------------------------------------------------- writing


def _plain(value: Any, where: str) -> Any:
    """Return a value as JSON values; `where` is its place in the whole."""
    kind = value.__class__
    if kind is str:
        return value if value.isascii() or not _SURROGATE.search(value) else {_TAG: "text", _VALUE: _bytes(value)}
    if kind in _AS_THEY_ARE:
        return value
    write = _WRITERS.get(kind)
    if write is None:
        write = _WRITERS[kind] = _writer_of(kind, where)
    return write(value, where)


def _writer_of(kind: type[Any], where: str) -> Callable[[Any, str], Any]:
    """Return the function that writes values of a class."""
    if issubclass(kind, Enum):
        name = _name_of(kind, where)
        return lambda value, _: {_TAG: name, _VALUE: value.name}
    if _is_named_tuple(kind):
        name = _name_of(kind, where)
        return lambda value, at: {_TAG: name, _VALUE: _items(value, at)}
    if issubclass(kind, BaseModel):
        name = _name_of(kind, where)
        return lambda value, at: {_TAG: name, _VALUE: _mapping(_state_of_model(value), at)}
    if is_dataclass(kind):
        return _dataclass_writer(kind, _name_of(kind, where))
    raise NotRecordable(f"{where}: {_described(kind)} cannot be recorded; {_ALLOWED}")


def _dataclass_writer(kind: type[Any], name: str) -> Callable[[Any, str], Any]:
    """Return the function that writes dataclasses of a class: the fields that differ from their default.

    An exception is left out: with its traceback it belongs to this process.
    """
    names = [(field.name, field.default) for field in fields(cast("Any", kind))]

    def write(value: Any, where: str) -> Any:
        written: dict[str, Any] = {}
        for field, default in names:
            content = getattr(value, field)
            if content is not default and not isinstance(content, BaseException):
                written[field] = _plain(content, f"{where}.{field}")
        return {_TAG: name, _VALUE: written}

    return write


def _state_of_model(value: Any) -> dict[str, Any]:
    state = {"fields": dict(value.__dict__), "set": sorted(value.model_fields_set)}
    for name in ("extra", "private"):
        more = getattr(value, f"__pydantic_{name}__")
        if more:
            state[name] = dict(more)
    return state


def _items(values: Iterable[Any], where: str) -> list[Any]:
    return [_plain(one, f"{where}[{number}]") for number, one in enumerate(values)]


def _mapping(value: Mapping[Any, Any], where: str) -> Any:
    """Write a mapping: as an object where all its keys are words, else as pairs."""
    if _TAG not in value and all(key.__class__ is str and not _SURROGATE.search(key) for key in value):
        return {key: _plain(one, f"{where}.{key}") for key, one in value.items()}
    pairs = [[_plain(key, f"{where}: a key"), _plain(one, f"{where}[{key!r:.40}]")] for key, one in value.items()]
    return {_TAG: "dict", _VALUE: pairs}


def _set(value: Iterable[Any], where: str) -> list[Any]:
    """Write the members of a set, in an order that does not depend on their hashes."""
    return sorted(_items(value, where), key=json.dumps)


def _tagged(tag: str, write: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, where: {_TAG: tag, _VALUE: write(value, where)}


def _described(kind: type[Any]) -> str:
    return f"a value of class {kind.__module__}.{kind.__qualname__}"


def _bytes(text: str) -> str:
    """Write a text with lone surrogates, of which JSON would join two to one character."""
    return base64.b85encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_AS_THEY_ARE: Final = frozenset({type(None), bool, int, float})

_WRITERS: Final[dict[type, Callable[[Any, str], Any]]] = {
    list: _items,
    dict: _mapping,
    tuple: _tagged("tuple", _items),
    ReadLater: _tagged("tuple", _items),
    FrozenDict: _tagged("frozen", _mapping),
    MappingProxyType: _tagged("proxy", _mapping),
    set: _tagged("set", _set),
    frozenset: _tagged("frozenset", _set),
    bytes: _tagged("bytes", lambda value, _: base64.b85encode(value).decode("ascii")),
    Decimal: _tagged("decimal", lambda value, _: str(value)),
    datetime: _tagged("datetime", lambda value, _: value.isoformat()),
    date: _tagged("date", lambda value, _: value.isoformat()),
    time: _tagged("time", lambda value, _: value.isoformat()),
    timedelta: _tagged("timedelta", lambda value, _: [value.days, value.seconds, value.microseconds]),
    UUID: _tagged("uuid", lambda value, _: str(value)),
    GuardrailDenied: _tagged("denied", lambda value, at: _items((value.policy, value.phase, value.reason), at)),
}


# ---------------------------------------------------------------------- classes


@cache
def _library() -> Mapping[str, type]:
    """Return the library's value classes by name."""
    modules = [import_module(f"kairo_team.{name}") for name in _LIBRARY]
    return {name: member for module in modules for name, member in vars(module).items() if _is_own(member, module)}


def _is_own(member: object, module: ModuleType) -> bool:
    return isinstance(member, type) and member.__module__ == module.__name__ and _is_value_class(member)


def _is_value_class(kind: type[Any]) -> bool:
    return is_dataclass(kind) or issubclass(kind, Enum | BaseModel) or _is_named_tuple(kind)


def _is_named_tuple(kind: type[Any]) -> bool:
    return hasattr(kind, "_make") and issubclass(kind, tuple)


def _name_of(kind: type[Any], where: str) -> str:
    """Return the name by which a class is found again."""
    if _library().get(kind.__name__) is kind:
        return kind.__name__
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        if _foreign(name) is kind:
            return name
    except CorruptRecord:
        pass
    raise NotRecordable(f"{where}: {_described(kind)} cannot be found again by its name: define it in a module")


def _class_of(name: str) -> type:
    kind = _library().get(name)
    return _foreign(name) if kind is None else kind


@cache
def _foreign(name: str) -> type:
    """Return a user's value class by module and name; `CorruptRecord` for anything else."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise CorruptRecord(f"there is no class {name!r}: {error}") from error
    if not isinstance(found, type) or not _is_value_class(found):
        raise CorruptRecord(f"{name!r} is no dataclass, named tuple, enum or pydantic model")
    return found


# ---------------------------------------------------------------------- reading


def _value(plain: Any) -> Any:
    kind = plain.__class__
    if kind is list:
        return [_value(one) for one in plain]
    if kind is not dict:
        return plain
    tag = plain.get(_TAG)
    if tag is None:
        return {key: _value(one) for key, one in plain.items()}
    content = plain[_VALUE]
    read = _READERS.get(tag)
    return _made(_class_of(tag), content) if read is None else read(content)


def _made(kind: type[Any], content: Any) -> Any:
    """Make a value of a class of what was written of it."""
    if issubclass(kind, Enum):
        return kind[content]
    if issubclass(kind, tuple):
        return cast("Any", kind)._make(map(_value, content))
    if issubclass(kind, BaseModel):
        state = _value(content)
        model = kind.model_construct(set(state["set"]), **state["fields"])
        object.__setattr__(model, "__dict__", state["fields"])
        for name in ("extra", "private"):
            if name in state:
                object.__setattr__(model, f"__pydantic_{name}__", state[name])
        return model
    return _filled(kind, content)


def _filled(kind: type[Any], content: Mapping[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    given = dict(content)
    for field in fields(cast("Any", kind)):
        if field.name in given:
            value = _value(given.pop(field.name))
        elif field.default is not MISSING:
            value = field.default
        elif field.default_factory is not MISSING:
            value = field.default_factory()
        else:
            raise CorruptRecord(f"a {kind.__name__} without its {field.name!r}")
        object.__setattr__(made, field.name, value)
    if given:
        raise CorruptRecord(f"{kind.__name__} has no {', '.join(map(repr, given))}: a newer version wrote it")
    if hasattr(kind, "__post_init__") and _library().get(kind.__name__) is kind:  # ours may be called again
        made.__post_init__()
    return made


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "dict": lambda content: {_value(key): _value(one) for key, one in content},
    "tuple": lambda content: tuple(map(_value, content)),
    "frozen": lambda content: FrozenDict(_value(content)),
    "proxy": lambda content: MappingProxyType(_value(content)),
    "set": lambda content: set(map(_value, content)),
    "frozenset": lambda content: frozenset(map(_value, content)),
    "bytes": base64.b85decode,
    "text": lambda content: base64.b85decode(content).decode("utf-8", "surrogatepass"),
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda content: timedelta(*content),
    "uuid": UUID,
    "denied": lambda content: GuardrailDenied(*map(_value, content)),
}
