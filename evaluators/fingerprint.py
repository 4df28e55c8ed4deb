"""What distinguishes one check from another: code, arguments and state, in a form that is the same in every process."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, cast

_MOST: Final = 10_000
"""Values that are looked at before something counts as too large."""
_PLAIN: Final = (str, bool, int, float, bytes, tuple, list, dict, set, frozenset, re.Pattern, type(None))


class NoFingerprint(ValueError):
    """A state cannot be read: nothing distinguishes the object from others of its kind."""


def digest_of(value: Any) -> str:
    """Return the SHA-256, in hex, of a value made of JSON values."""
    return hashlib.sha256(_written(value).encode()).hexdigest()


def fingerprint(value: Any) -> Any:
    """Describe a value by JSON values; two that decide differently are described differently.

    A function counts by its name and source, its defaults, what it closes over and is bound to, and by what it names of
    its own module: functions, classes and plain values, other objects by their class. An object counts by its
    `fingerprint` attribute when it has one, else by its class and its state, as a pickle would hold it. Raises
    `NoFingerprint` for a state that cannot be read, such as a lock, a socket or a model's, and for a very large one.
    """
    return _Reader().read(value)


def name_of(value: Any) -> str:
    """Return the full name of a function or class, for an object that of its class."""
    named = cast("Any", value if hasattr(value, "__qualname__") else type(value))
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


class _Reader:
    """Describes one value and all it is made of."""

    def __init__(self) -> None:
        self._within: list[int] = []
        """Identities of what is being described: it may be in itself."""
        self._seen = 0

    def read(self, value: Any) -> Any:
        """Describe one value."""
        if value is None or isinstance(value, str | bool | int | float):
            return value if type(value) in _PLAIN else [name_of(value), str(value)]
        self._seen += 1
        if self._seen > _MOST:
            raise NoFingerprint(f"it holds more than {_MOST:,} values")
        if id(value) in self._within:
            return ["again", len(self._within) - self._within.index(id(value))]
        self._within.append(id(value))
        try:
            return self._read(value)
        finally:
            self._within.pop()

    def _read(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray):
            return ["bytes", value.hex()]
        if type(value) in (list, tuple):
            return [self.read(item) for item in value]
        if isinstance(value, set | frozenset):
            return ["set", *sorted(map(self.read, cast("Iterable[Any]", value)), key=_written)]
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, re.Pattern):
            return self._pattern(value)
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, functools.partial):
            part = cast("Any", value)
            return ["partial", *map(self.read, (part.func, part.args, part.keywords))]
        return self._thing(value)

    def _pattern(self, value: Any) -> Any:
        return ["pattern", self.read(value.pattern), value.flags]

    def _mapping(self, value: Any) -> Any:
        pairs = sorted(([self.read(key), self.read(item)] for key, item in value.items()), key=_written)
        return ["mapping", *pairs]

    def _thing(self, value: Any) -> Any:
        """Describe what has code: a function, a class, or an object."""
        if isinstance(value, type):
            return self._class(value)
        given = getattr(value, "fingerprint", None)
        if isinstance(given, str):
            return [name_of(type(value)), given]
        if isinstance(value, MethodType):
            return ["method", self.read(value.__func__), self.read(value.__self__)]
        if isinstance(value, FunctionType):
            return self._function(value)
        inner = getattr(value, "__wrapped__", None)  # as `functools.cache` leaves it
        if callable(inner):
            return [name_of(type(value)), self.read(inner)]
        if inspect.isroutine(value):  # written in another language
            owner = getattr(value, "__self__", None)
            return [name_of(value), None if isinstance(owner, ModuleType) else self.read(owner)]
        return self._object(value)

    def _function(self, function: FunctionType) -> Any:
        cells = [self._content(cell) for cell in function.__closure__ or ()]
        own = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
        state = (function.__defaults__, function.__kwdefaults__, own)
        return [name_of(function), _source(function), *map(self.read, state), cells, self._named(function)]

    def _content(self, cell: Any) -> Any:
        try:
            content = cell.cell_contents
        except ValueError:  # an empty cell
            return None
        return self.read(content)

    def _named(self, function: FunctionType) -> dict[str, Any]:
        """Describe what a function names of its own module."""
        found: dict[str, Any] = {}
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                value = function.__globals__[name]
                own = isinstance(value, FunctionType | type) and value.__module__ == function.__module__
                found[name] = self.read(value) if own or type(value) in _PLAIN else name_of(value)
        return found

    def _class(self, kind: type) -> Any:
        """Describe a class with those of its package that it inherits from, others by their names."""
        whose = _package(kind)
        if whose in sys.stdlib_module_names and whose != "__main__":
            return name_of(kind)
        return [self._body(one) if _package(one) == whose else name_of(one) for one in kind.__mro__[:-1]]

    def _body(self, kind: type) -> Any:
        parts = {name: getattr(part, "__func__", part) for name, part in vars(kind).items()}
        functions = {name: part for name, part in parts.items() if isinstance(part, FunctionType)}
        values = {
            name: part for name, part in parts.items() if type(part) in _PLAIN and not re.fullmatch("__.*__", name)
        }
        named = {name: self._function(part) for name, part in functions.items() if part.__module__ == kind.__module__}
        return [name_of(kind), _source(kind), named, self.read(values)]

    def _object(self, value: Any) -> Any:
        """Describe an object by its class and what a pickle would hold of it."""
        kind = cast("Any", type(value))
        reduce: Any = copyreg.dispatch_table.get(kind)
        try:
            held = reduce(value) if reduce is not None else value.__reduce_ex__(2)
        except Exception as error:  # noqa: BLE001 - whatever an object raises that will not be taken apart
            raise NoFingerprint(f"the state of a {name_of(kind)} cannot be read ({error})") from None
        if isinstance(held, str):
            return [name_of(kind), held]
        parts = [list(part) if hasattr(part, "__next__") else part for part in held[1:]]
        return [self._class(kind), *map(self.read, parts)]


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _names(code: CodeType) -> set[str]:
    """Return the names that code looks up, also in the functions that stand in it."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names}.union(*map(_names, inner))


def _source(thing: Any) -> Any:
    """Return what a function or class does, as written; of a lambda, of which a line may hold several, its code."""
    code: CodeType | None = getattr(thing, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        try:
            return textwrap.dedent(inspect.getsource(thing if code is None else code))
        except (OSError, TypeError, SyntaxError):  # typed at a prompt, or made by code
            pass
    return None if code is None else _code(code)


def _code(code: CodeType) -> Any:
    consts = [_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    return [code.co_code.hex(), consts, list(code.co_names), list(code.co_varnames)]
