"""Shapes of data, derived from the types of constructors."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

from pydantic import BeforeValidator

from kairo_team import contracts, plugins
from kairo_team._util import late_pydantic
from kairo_team.evaluators.data_files import Place
from kairo_team.evaluators.rubric import Rubric
from kairo_team.files import File
from kairo_team.team_data.named import Imported, Named, OutputType, ToolOf
from kairo_team.team_data.reading import Missing, Reading
from kairo_team.team_data.rubrics import RubricOf
from kairo_team.team_data.shapes import (
    LEAVES,
    Argument,
    Built,
    Definitions,
    Json,
    ListOf,
    MapOf,
    OneOf,
    OrNull,
    PathOf,
    Plain,
    Schema,
    SecretText,
    Shape,
    Validated,
)

_SECRETS: Final = ("headers", "env", "secrets")
"""Arguments whose texts may come from the environment."""
_WORDS_OF_COMMANDS: Final = ("command", "args")
"""Arguments that may be paths, and are passed on as they are."""
_LISTS: Final = (list, tuple, frozenset, set, Sequence, Iterable, Collection, AbstractSet)
_LEFT_OUT: Final = {
    "TeamExecutionRequest": ("run_id",),  # every run needs one of its own
    "SqliteJournal": ("source",),
    "Task": ("part_of",),  # the run sets it
}
"""Arguments that data may not give."""


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
        return getattr(import_module(home), original, Unsayable)


@cache
def _typed_imports(module: str) -> Mapping[str, tuple[str, str]]:
    """Return a module's imports for type checkers alone: by local name, the source module and the name there."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    guarded = [one for one in tree.body if isinstance(one, ast.If) and "TYPE_CHECKING" in ast.unparse(one.test)]
    lines = [line for one in guarded for line in one.body if isinstance(line, ast.ImportFrom) and line.module]
    return {name.asname or name.name: (str(line.module), name.name) for line in lines for name in line.names}


@cache
def _kinds() -> Mapping[Any, str]:
    """Return the plug-in points by their protocols."""
    found = {getattr(contracts, one.contract, None): kind for kind, one in plugins.KINDS.items()}
    return {protocol: kind for protocol, kind in found.items() if protocol is not None}


def shape_of(hint: Any, name: str = "") -> Shape | None:
    """Return the shape of the values that a type allows; None if data cannot express it. `name` is the argument's."""
    if get_origin(hint) is Annotated:
        inner, *how = get_args(hint)
        if any(isinstance(one, BeforeValidator | late_pydantic.BeforeValidator) for one in how):
            return Validated(hint)
        return Plain(hint) if _is_leaf(inner) else shape_of(inner, name)
    if get_origin(hint) in (Union, UnionType):
        return _shape_of_union(get_args(hint), name)
    if name == "agent" and hint is Any:
        return Named("agent")
    if name == "tools" and get_origin(hint) in _LISTS:
        return ListOf(ToolOf())
    if _is_leaf(hint):
        return SecretText() if hint is str and name in _SECRETS else Plain(hint)
    return _shape_of_list(hint, name) or _shape_of_class(hint)


def _is_leaf(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_leaf(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_leaf, get_args(hint)))
    return get_origin(hint) is Literal or (isinstance(hint, type) and (hint in LEAVES or issubclass(hint, Enum)))


def _shape_of_union(branches: Sequence[Any], name: str) -> Shape | None:
    null = NoneType in branches
    kept = [one for one in branches if one is not NoneType]
    if any(one is contracts.AgentFunction or one is contracts.Agent for one in kept) and str not in kept:
        return _nullable(Named("agent"), null=null)
    if str in kept and contracts.TeamCoordinator in kept:  # the string is its name
        return _nullable(Named("coordinator"), null=null)
    if str in kept:  # a model is named by a string
        kept = [one for one in kept if one is not contracts.ChatModel and not _is_function(one)]
    if name in _WORDS_OF_COMMANDS:
        return Plain(str)
    if any(_is_path(one) for one in kept):
        return _nullable(PathOf(), null=null)
    if any(get_origin(one) is not None and issubclass(cast("type", get_origin(one)), Mapping)
           for one in kept if isinstance(get_origin(one), type)):  # fmt: skip
        kept = [one for one in kept if not _is_function(one)]
    if len(kept) > 1 and all(map(_is_leaf, kept)):
        return _nullable(Plain(Union[tuple(kept)]), null=null)  # noqa: UP007 - made of a list
    kept.sort(key=lambda one: one is not str)  # first, because Python takes a string as such, not as a plug-in's name
    shapes = list(dict.fromkeys(shape for one in kept if (shape := shape_of(one, name)) is not None))
    if not shapes:
        return None
    return _nullable(shapes[0] if len(shapes) == 1 else OneOf(tuple(shapes)), null=null)


def _nullable(shape: Shape, *, null: bool) -> Shape:
    if isinstance(shape, Plain) and null:
        return Plain(shape.hint | None)
    return OrNull(shape) if null else shape


def _is_path(hint: Any) -> bool:
    found = get_origin(hint) or hint
    return isinstance(found, type) and (found is PathLike or issubclass(found, Path))


def _is_function(hint: Any) -> bool:
    return hint is Callable or get_origin(hint) is Callable


def _shape_of_list(hint: Any, name: str) -> Shape | None:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in _LISTS:
        item = shape_of(inside[0], name) if inside else Json()
        return None if item is None else ListOf(item)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if name == "output_types":
            return MapOf(OutputType())
        value = shape_of(inside[1], name)
        return None if value is None else MapOf(value)
    return None


def _shape_of_class(hint: Any) -> Shape | None:
    if hint is Unsayable:
        return None
    if hint is Any or hint is object:
        return Json()
    if _is_function(hint):
        return Imported("a function")
    if _is_path(hint):
        return PathOf()
    if hint is Rubric:
        return RubricOf()
    if hint is File:
        return FileOf()
    if hint in _kinds():
        return Named(_kinds()[hint]) if hint is not contracts.ChatModel else Plain(str)
    ours = str(getattr(hint, "__module__", "")).partition(".")[0] == "kairo_team"
    return built(cast("Any", hint)) if isinstance(hint, type) and (ours or is_dataclass(cast("Any", hint))) else None


class FileOf(Shape):
    """A file: its path, or a path or URL with a media type and a name."""

    says = "the path of a file, or its path or url with a media_type and a name"

    def fits(self, value: Any) -> bool:
        """Take strings and mappings."""
        return isinstance(value, str | Mapping)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read the file; a relative path begins at the file of the data."""
        if not isinstance(value, str):
            return built(File).read(value, place, reading)
        path = reading.path(value, place)
        if isinstance(path, Missing):
            return path
        try:
            return File(path=path)
        except ValueError as error:
            return reading.refuse(place, str(error))

    def schema(self, definitions: Definitions) -> Schema:
        """Allow a path, or the arguments of a file."""
        return {"anyOf": [PathOf().schema(definitions), built(File).schema(definitions)]}


@cache
def built(make: Callable[..., Any], name: str = "") -> Built:
    """Return the shape of the object that a class or function makes from its arguments."""
    return Built(name or make.__name__, make, lambda: arguments_of(make))


def arguments_of(make: Callable[..., Any]) -> Mapping[str, Argument]:
    """Return the arguments that data can give to a class or function, by name."""
    parameters, hints = _signature(make)
    found: dict[str, Argument] = {}
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= _of_the_class(make, [*parameters])
        elif name not in _LEFT_OUT.get(make.__name__, ()):
            shape = shape_of(hints.get(name, Any), name)
            several = parameter.kind is parameter.VAR_POSITIONAL
            if shape is not None:
                required = parameter.default is parameter.empty and not several
                found[name] = Argument(ListOf(shape) if several else shape, required, several)
    return found


def _of_the_class(make: Callable[..., Any], taken: Collection[str]) -> Mapping[str, Argument]:
    """Return the fields of a class whose class method passes on the rest of its arguments."""
    kind = getattr(make, "__self__", None)
    if not isinstance(kind, type) or not is_dataclass(kind):
        return {}
    usual = {one.name for one in fields(kind) if one.default is not NO_DEFAULT or one.default_factory is not NO_DEFAULT}
    return {name: one for name, one in arguments_of(kind).items() if name in usual and name not in taken}


def _signature(make: Callable[..., Any]) -> tuple[Mapping[str, inspect.Parameter], Mapping[str, Any]]:
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
    written = {name: hint for one in reversed(kinds) for name, hint in inspect.get_annotations(one).items()}
    return {name: _evaluated(hint, names) if isinstance(hint, str) else hint for name, hint in written.items()}


def _evaluated(hint: str, names: _Names) -> Any:
    try:
        return eval(hint, {}, names)  # noqa: S307 - an annotation in the source of code that was imported
    except Exception:  # noqa: BLE001 - the annotations of a package may be anything
        return Unsayable
