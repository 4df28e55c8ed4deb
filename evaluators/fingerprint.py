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
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final, cast
from weakref import finalize

_MOST: Final = 10_000
"""Values that are looked at before something counts as too large."""
_PLAIN: Final = (str, bool, int, float, dict, set, frozenset, type(None))
_CACHED: Final[Any] = type(functools.cache(len))
_OF_CLASSES: Final = (MemberDescriptorType, GetSetDescriptorType)
"""Parts of a class that have no state: slots and the like."""
_SOURCES: Final[dict[int, str | None]] = {}
"""By the id of a class, as classes may be equal to each other: to find a source, Python parses the whole module."""
_MADE_BY_PYTHON: Final = re.compile(r"__.*__|_abc_impl")


class NoFingerprint(ValueError):
    """A state cannot be read: nothing distinguishes the object from others of its kind."""


def digest_of(value: Any) -> str:
    """Return the SHA-256, in hex, of a value made of JSON values."""
    return hashlib.sha256(_written(value).encode()).hexdigest()


def fingerprint(value: Any) -> Any:
    """Describe a value by JSON values; two that decide differently are described differently.

    A function counts by its name and source, its defaults, what it closes over and is bound to, and by what it names of
    its own module; functions and classes that were imported count by their names. A class counts by its source and by
    what its methods and attributes hold, an object by its `fingerprint` attribute when it has one, else by its class
    and its state, as a pickle would hold it. Raises `NoFingerprint` for a state that cannot be read, such as a lock, a
    socket or a model's, and for a very large one.
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
        kind = cast("Any", type(value))
        if kind in (bytes, bytearray):
            return [kind.__name__, value.hex()]
        if kind in (list, tuple):
            return [kind.__name__, *map(self.read, value)]
        if isinstance(value, set | frozenset):
            return [self._kind(value), *sorted(map(self.read, cast("Iterable[Any]", value)), key=_written)]
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, re.Pattern):
            return self._pattern(value)
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if isinstance(value, functools.partial):
            part = cast("Any", value)
            return ["partial", *map(self.read, (part.func, part.args, part.keywords))]
        if isinstance(value, property):
            return ["property", *map(self.read, (value.fget, value.fset, value.fdel))]
        if isinstance(value, functools.cached_property):
            return ["cached", self.read(cast("Any", value).func)]
        return self._thing(value)

    def _pattern(self, value: Any) -> Any:
        return ["pattern", self.read(value.pattern), value.flags]

    def _kind(self, value: Any) -> Any:
        """Describe the kind of a container, with the state that it has beside its items."""
        if type(value) in _PLAIN:
            return type(value).__name__
        beside = getattr(value, "__dict__", {}), getattr(value, "default_factory", None)
        kind = cast("Any", type(value))
        return [self._class(kind), *map(self.read, beside)]

    def _mapping(self, value: Any) -> Any:
        pairs = sorted(([self.read(key), self.read(item)] for key, item in value.items()), key=_written)
        return ["mapping", self._kind(value), *pairs]

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
        if isinstance(value, _CACHED):
            return ["cached", self.read(value.__wrapped__)]
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
                found[name] = name_of(value) if _is_foreign(value, function.__module__) else self.read(value)
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
        named = {name: self._function(part) for name, part in functions.items() if part.__module__ == kind.__module__}
        others = {
            name: self.read(part)
            for name, part in parts.items()
            if name not in functions and not isinstance(part, _OF_CLASSES) and not _MADE_BY_PYTHON.fullmatch(name)
        }
        return [name_of(kind), _source(kind), named, others]

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


def _is_foreign(value: Any, module: str) -> bool:
    """Whether something is named by its name alone: a function or class of another module that was not made by code."""
    if not isinstance(value, FunctionType | type) or value.__module__ == module:
        return False
    return isinstance(value, type) or not (value.__closure__ or vars(value) or "<locals>" in value.__qualname__)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _names(code: CodeType) -> set[str]:
    """Return the names that code looks up, also in the functions that stand in it."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names}.union(*map(_names, inner))


def _source(thing: Any) -> Any:
    """Return what a function or class does, as written; of a lambda, of which a line may hold several, its code."""
    code: CodeType | None = getattr(thing, "__code__", None)
    if code is not None:
        return _code(code) if code.co_name == "<lambda>" else _written_source(code) or _code(code)
    if id(thing) not in _SOURCES:
        _SOURCES[id(thing)] = _written_source(thing)
        finalize(thing, _SOURCES.pop, id(thing), None)
    return _SOURCES[id(thing)]


def _written_source(thing: Any) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, or made by code
        return None


def _code(code: CodeType) -> Any:
    takes = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    consts = [_constant(one) for one in code.co_consts]
    return [code.co_code.hex(), takes, consts, list(code.co_names), list(code.co_varnames)]


def _constant(value: Any) -> Any:
    """Describe a constant of code; the order of a set is another one in each process."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple | frozenset):
        items = list(map(_constant, cast("Iterable[Any]", value)))
        return ["set", *sorted(items, key=_written)] if isinstance(value, frozenset) else ["tuple", *items]
    return repr(value)
