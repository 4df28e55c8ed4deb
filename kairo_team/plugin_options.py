"""The options of a plug-in: their types, read from the maker's annotations, and which of them are paths."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

_FUNCTION: Final[Any] = get_origin(Callable[[], None])
_NAMED_LIKE_A_PATH: Final = re.compile(r"(?:^|_)(?:path|file|filename|dir|directory|folder)s?$|(?:^|_)directories$")


class Unsayable:
    """Replaces types in hints that data cannot express."""

    def __class_getitem__(cls, _item: Any) -> type[Unsayable]:
        return cls


class _Names(dict[str, Any]):
    """Finds the names in a module's annotations, including imports for type checkers alone."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def __missing__(self, name: str) -> Any:
        found = sys.modules.get(self._module)
        for scope in (vars(found) if found is not None else {}, vars(builtins)):
            if name in scope:
                return scope[name]
        home, original = _typed_imports(self._module).get(name, ("", ""))
        if home.partition(".")[0] != "kairo_team" and home not in sys.modules:
            return Unsayable
        found = import_module(home)
        return getattr(found, original, Unsayable) if original else found


@cache
def _typed_imports(module: str) -> Mapping[str, tuple[str, str]]:
    """Return a module's imports for type checkers alone: by local name, the source module and the name there.

    The name there is "" for a module itself.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    guarded = [one for one in tree.body if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test)]
    lines = [line for one in guarded for line in one.body]
    whole = [name for line in lines if isinstance(line, ast.Import) for name in line.names]
    parts = [line for line in lines if isinstance(line, ast.ImportFrom) and line.module]
    modules = {one.asname or one.name: (one.name, "") for one in whole if one.asname or "." not in one.name}
    return modules | {name.asname or name.name: (str(line.module), name.name) for line in parts for name in line.names}


def signature_of(make: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], Mapping[str, Any]]:
    """Return the parameters and their types."""
    parameters, written = inspect.signature(make).parameters, cast("Any", make)
    if is_dataclass(make) and written.__dataclass_params__.init:
        return parameters, _hints(written, written.__module__)
    function: Any = inspect.unwrap(written.__init__ if isinstance(make, type) else written)
    function = getattr(function, "__func__", function)
    return parameters, _hints(function, getattr(function, "__module__", ""))


def _hints(owner: Any, module: str) -> Mapping[str, Any]:
    """Return the types of the arguments; `Unsayable` for an annotation that cannot be read."""
    # `typing.get_type_hints` would also evaluate the inside of aliases, and needs all names at run time.
    names = _Names(module)
    kinds: Sequence[Any] = [one for one in getattr(owner, "__mro__", [owner]) if one is not object]
    # Reversed: a class replaces hints of its bases.
    written = {name: hint for one in reversed(kinds) for name, hint in inspect.get_annotations(one).items()}
    return {name: _evaluated(hint, names) if isinstance(hint, str) else hint for name, hint in written.items()}


def _evaluated(hint: str, names: _Names) -> Any:
    try:
        return eval(hint, {}, names)  # noqa: S307 - an annotation in the source of code that was imported
    except Exception:  # noqa: BLE001 - the annotations of a package may be anything
        return Unsayable


# ---------------------------------------------------------------- paths


def is_path(hint: Any) -> bool:
    """Return whether a type declares a path: `Path` or `os.PathLike`."""
    found = get_origin(hint) or hint
    return isinstance(found, type) and (found is PathLike or issubclass(found, Path))


def holds_path(hint: Any) -> bool:
    """Return whether a type declares a path anywhere: `str | os.PathLike[str]`, `list[Path]`, `dict[str, Path]`."""
    return is_path(hint) or any(map(holds_path, _parts(hint)))


def is_unreadable(hint: Any) -> bool:
    """Return whether a part of a type could not be read: it could be a path."""
    return hint is Unsayable or any(map(is_unreadable, _parts(hint)))


def holds_path_as_key(hint: Any) -> bool:
    """Return whether a type has a mapping anywhere whose keys are paths: `dict[Path, int]`."""
    origin, parts = get_origin(hint), _parts(hint)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return (is_mapping and holds_path(parts[0])) or any(map(holds_path_as_key, parts))


def _parts(hint: Any) -> tuple[Any, ...]:
    """Return the types that a type is made of, but not the arguments of a function."""
    origin, parts = get_origin(hint), get_args(hint)
    return parts[:1] if origin is Annotated else () if origin is _FUNCTION else parts


def _has_loose_text(hint: Any) -> bool:
    """Return whether a type takes texts that it does not declare as paths."""
    origin, parts = get_origin(hint), _parts(hint)
    if hint in (str, Any, object, list, dict, tuple):
        return True
    if origin in (Union, UnionType):
        several = any(map(holds_path, parts))  # `str | Path` declares a path, `str | int` does not
        return any(_has_loose_text(one) for one in parts if not (several and one is str))
    if not isinstance(origin, type) or not issubclass(origin, Iterable) or (origin is tuple and holds_path(hint)):
        return False
    return any(map(_has_loose_text, parts[1:] if issubclass(origin, Mapping) else parts))


def loose_paths(make: Callable[..., Any]) -> list[str]:
    """Return the options that are named like paths, and whose types declare none; see `plugins.undeclared_paths`."""
    try:
        parameters, hints = signature_of(make)
    except (TypeError, ValueError):  # a builtin without a signature
        return []
    named = [name for name in parameters if _NAMED_LIKE_A_PATH.search(name)]
    return [name for name in named if _has_loose_text(hints.get(name, Any))]
