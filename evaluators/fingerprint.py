"""Describe what a check decides by: code, arguments and state, in a form that is the same in every process."""

from __future__ import annotations

import copyreg
import functools
import hashlib
import inspect
import json
import linecache
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, Final, cast
from weakref import finalize

_MOST: Final = 10_000
"""Most values that are read before an object counts as too large."""
_PLAIN: Final = (str, bool, int, float, dict, set, frozenset, type(None))
_CACHED: Final[Any] = type(functools.cache(len))
_OF_CLASSES: Final = (MemberDescriptorType, GetSetDescriptorType)
"""Parts of a class without state, such as slots."""
_SOURCES: Final[dict[int, str | None]] = {}
"""Sources of classes by id, because classes may be equal; kept because Python parses the whole module to find one."""
_MADE_BY_PYTHON: Final = re.compile(r"__.*__|_abc_impl")


class NoFingerprint(ValueError):
    """An object's state cannot be read, so it cannot be distinguished from others of its kind."""


def digest_of(value: Any) -> str:
    """Return the SHA-256, in hex, of a JSON value."""
    return hashlib.sha256(_written(value).encode()).hexdigest()


def fingerprint(value: Any) -> Any:
    """Describe a value by JSON values; values that decide differently get different descriptions.

    A function is described by its name and source, its defaults, its closure, the object it is bound to, and the
    globals of its own module that it uses; imported functions and classes by their names. A class is described by its
    source and by its methods and attributes, an object by its `fingerprint` attribute if it has one, else by its class
    and its state, as pickle would store it. Raises `NoFingerprint` for a state that cannot be read, such as the state
    of a lock, a socket or a model, and for a very large one.
    """
    return _Reader().read(value)


def name_of(value: Any) -> str:
    """Return the full name of a function or class; for an object, its class's name."""
    named = cast("Any", value if hasattr(value, "__qualname__") else type(value))
    return f"{getattr(named, '__module__', '')}.{named.__qualname__}"


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


class _Reader:
    """Describes one value and everything in it."""

    def __init__(self) -> None:
        self._within: list[int] = []
        """Ids of the values that are being described, because a value may contain itself."""
        self._seen = 0

    def read(self, value: Any) -> Any:
        """Describe one value."""
        if value is None or isinstance(value, str | bool | int | float):
            # A member of an enum is more than its value.
            return value if type(value) in _PLAIN else [name_of(value), str(value)]
        self._seen += 1
        if self._seen > _MOST:
            raise NoFingerprint(f"it holds more than {_MOST:,} values")
        if id(value) in self._within:
            # How far up, which is the same in every process.
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
        return self._function_or_object(value)

    def _pattern(self, value: Any) -> Any:
        return ["pattern", self.read(value.pattern), value.flags]

    def _kind(self, value: Any) -> Any:
        """Describe the kind of a container, with its state apart from its items."""
        if type(value) in _PLAIN:
            return type(value).__name__
        beside = getattr(value, "__dict__", {}), getattr(value, "default_factory", None)
        kind = cast("Any", type(value))
        return [self._class(kind), *map(self.read, beside)]

    def _mapping(self, value: Any) -> Any:
        pairs = sorted(([self.read(key), self.read(item)] for key, item in value.items()), key=_written)
        return ["mapping", self._kind(value), *pairs]

    def _function_or_object(self, value: Any) -> Any:
        """Describe a function, a class or an object."""
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
        # The closure has `__wrapped__` already.
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
        """Describe the globals of its own module that a function uses."""
        found: dict[str, Any] = {}
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                value = function.__globals__[name]
                found[name] = name_of(value) if _is_foreign(value, function.__module__) else self.read(value)
        return found

    def _class(self, kind: type) -> Any:
        """Describe a class and its bases of the same package; other bases by their names."""
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
        """Describe an object by its class and the state that pickle would store."""
        kind = cast("Any", type(value))
        reduce: Any = copyreg.dispatch_table.get(kind)
        try:
            # Protocol 2 is the first that stores the slots of an object.
            held = reduce(value) if reduce is not None else value.__reduce_ex__(2)
        except Exception as error:  # noqa: BLE001 - objects that refuse to be pickled raise anything
            raise NoFingerprint(f"the state of a {name_of(kind)} cannot be read ({error})") from None
        if isinstance(held, str):
            return [name_of(kind), held]
        # Items of lists and dicts come as iterators.
        parts = [list(part) if hasattr(part, "__next__") else part for part in held[1:]]
        return [self._class(kind), *map(self.read, parts)]


def _is_foreign(value: Any, module: str) -> bool:
    """Return whether a value is described by its name alone: an imported function or class that no code generated."""
    if not isinstance(value, FunctionType | type) or value.__module__ == module:
        return False
    return isinstance(value, type) or not (value.__closure__ or vars(value) or "<locals>" in value.__qualname__)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _names(code: CodeType) -> set[str]:
    """Return the names that code looks up, also in its inner functions."""
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return {*code.co_names}.union(*map(_names, inner))


def _source(thing: Any) -> Any:
    """Return the source of a function or class; of a lambda the code, because a line may contain several lambdas."""
    if isinstance(thing, FunctionType):
        code = thing.__code__
        return _code(code) if code.co_name == "<lambda>" else _written_function(thing) or _code(code)
    if id(thing) not in _SOURCES:
        _SOURCES[id(thing)] = _written_class(thing)
        finalize(thing, _SOURCES.pop, id(thing), None)  # an id is used again once its class is gone
    return _SOURCES[id(thing)]


def _written_function(function: FunctionType) -> str | None:
    # `inspect.getsource` of code, which a decorator cannot change, looks through all modules for the code's own.
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)[code.co_firstlineno - 1 :]
    try:
        return textwrap.dedent("".join(inspect.getblock(lines))) or None
    except SyntaxError:  # lines of another file of that name
        return None


def _written_class(kind: type) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError, SyntaxError):  # typed at a prompt, or made by code
        return None


def _code(code: CodeType) -> Any:
    takes = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    consts = [_constant(one) for one in code.co_consts]
    return [code.co_code.hex(), takes, consts, list(code.co_names), list(code.co_varnames)]


def _constant(value: Any) -> Any:
    """Describe a constant of code; a set is sorted, because its order differs between processes."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple | frozenset):
        items = list(map(_constant, cast("Iterable[Any]", value)))
        return ["set", *sorted(items, key=_written)] if isinstance(value, frozenset) else ["tuple", *items]
    return repr(value)
