"""Shapes of data, derived from the types of constructors; plug-ins by name, your own code, and rubrics in a team."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

from pydantic import BeforeValidator

from kairo_team import contracts, plugins
from kairo_team._util import late_pydantic
from kairo_team.data.files import SUFFIXES, Place, parts_of, read_data
from kairo_team.data.mistakes import sentences
from kairo_team.data.reading import IMPORT, MISSING, Missing, Reading, imported, is_import, not_declared
from kairo_team.data.teams.shapes import (
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
    shown,
)
from kairo_team.errors import known
from kairo_team.evaluators.criterion import Check
from kairo_team.evaluators.rubric import Rubric
from kairo_team.evaluators.rubric_data import rubric_of
from kairo_team.files import File
from kairo_team.governance.guardrails import GuardrailChain
from kairo_team.output_types import JsonSchema
from kairo_team.plugin_options import Unsayable, holds_path, is_path, is_unreadable, loose_paths, signature_of

_RUBRIC: Final = "; a rubric is written without a name, {criteria: [...]}, or as the path of its file"
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
_IMPORT_SCHEMA: Final[Schema] = {
    "type": "string",
    "pattern": f"^{IMPORT.pattern}$",
    "description": "module:name, code of your own. Data that is not trusted may not name any.",
}
_STARTS_A_PROGRAM: Final = "starts a program, {}: that is for trusted data (trusted=True)"
_STARTS_PROGRAMS: Final = ("mcp-stdio",)
_RUBRIC_KEYS: Final = ("criteria", "threshold", "check_timeout", "votes")
_PLACED: Final = {name: Argument(Json(), required=False) for name in ("id", "phase", "order")}
"""Arguments of a guardrail besides its own options; see `GuardrailChain.from_config`."""


@dataclass(frozen=True)
class FunctionOf(Shape):
    """A function in your own code: `module:name`."""

    says = "a function, written module:name"
    takes = str

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Import it."""
        return imported(value, place, reading) if is_import(value) else self.refuse(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow strings of that form."""
        return dict(_IMPORT_SCHEMA)


class OutputType(Shape):
    """The type of a task's output: a JSON Schema, or `module:name`."""

    says = "a JSON Schema, or a type of yours, written module:name"
    takes = (str, Mapping)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Check the schema, or import the type."""
        if is_import(value):
            return imported(value, place, reading)
        if not isinstance(value, Mapping):
            return self.refuse(value, place, reading)
        schema = cast("Mapping[str, Any]", value)
        try:
            JsonSchema(schema, "a JSON Schema as an output type")
        except (ValueError, ImportError) as error:
            return reading.refuse(place, f"is refused: {error}")
        return schema

    def schema(self, definitions: Definitions) -> Schema:
        """Allow mappings and strings."""
        return {"anyOf": [{"type": "object"}, dict(_IMPORT_SCHEMA)]}


@dataclass(frozen=True)
class Named(Shape):
    """A plug-in by its name, or `{name: its arguments}`; the name may be `module:name`."""

    kind: str
    takes = (str, Mapping)

    @property
    def words(self) -> str:
        """Say how to write the plug-in."""
        what = plugins.KINDS[self.kind].what
        return f"the name of {what}, or one name with its arguments such as {{name: {{...}}}}"

    def refuse(self, value: Any, place: Place, reading: Reading) -> Missing:
        """Note that the value is not such a plug-in, and list the names."""
        names = {one.name for one in plugins.installed(self.kind)}
        hint = ""
        if isinstance(value, Mapping) and (given := parts_of(value)).get("name") in names:
            arguments = {key: one for key, one in given.items() if key != "name"}
            hint = f": write {{{given['name']}: {shown(arguments)}}}"
        return reading.refuse(place, f"must be {self.words}, not {shown(value)}{hint}; there are {known(names)}")

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Find the plug-in's maker, read its arguments, and call it."""
        parts = parts_of(value)
        is_rubric = RubricOf().fits(value) and (isinstance(value, str) or any(key in parts for key in _RUBRIC_KEYS))
        if self.kind == "evaluator" and is_rubric:
            return RubricOf().read(value, place, reading)
        if isinstance(value, str):
            name, given = value, None
        elif isinstance(value, Mapping) and len(parts) == 1:
            [(key, given)] = parts.items()
            name = str(key)
        else:
            return self.refuse(value, place, reading)
        found, kind = self._find(name, place, reading), plugins.KINDS[self.kind]
        # Own code may be named alone: a class is then called without arguments, and an object is taken as it is.
        is_made = isinstance(found, type) if is_import(value) else kind.is_made
        if is_made and not isinstance(found, Missing):
            place = place if given is None else (*place, name)
            found = self._make(name, found, given, place, reading)
        if isinstance(found, Missing):
            return found
        try:
            kind.check(f"{kind.word} {name!r}", found)
        except ValueError as error:
            return reading.refuse(place, f"is refused: {error}")
        return found

    def _find(self, name: str, place: Place, reading: Reading) -> Any:
        """Return the plug-in, or what makes it."""
        if is_import(name):
            return imported(name, place, reading)
        if name in _STARTS_PROGRAMS and not reading.trusted:
            return reading.refuse(place, _STARTS_A_PROGRAM.format(repr(name)))
        try:
            return plugins.find(self.kind, name)
        except ValueError as error:
            also = _RUBRIC if self.kind == "evaluator" else ""
            return reading.refuse(place, f"is refused: {error}{also}")

    def _make(self, name: str, make: Any, given: Any, place: Place, reading: Reading) -> Any:
        if not callable(make):
            return reading.refuse(place, f"gives arguments to {name!r:.80}, which is not a class or function")
        shape = options_of(self.kind, name, make)
        if given is None or isinstance(given, Mapping):
            return shape.read(given or {}, place, reading)
        return shape.read_first(given, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Offer the built-in names with their arguments, and allow others."""
        called = plugins.KINDS[self.kind].word.title().replace(" ", "")
        if called not in definitions:
            definitions[called] = {}  # its arguments may be such plug-ins again
            names = [*plugins.KINDS[self.kind].built_in]
            made = {name: options_of(self.kind, name, plugins.find(self.kind, name)) for name in names}
            bare: Schema = {"anyOf": [{"enum": names}, {"type": "string"}]}
            arguments: Schema = {
                "type": "object",
                "properties": {name: _with_short(one, definitions) for name, one in made.items()},
                "minProperties": 1,
                "maxProperties": 1,
            }
            rubric = [RubricOf().schema(definitions)] if self.kind == "evaluator" else []
            definitions[called]["anyOf"] = [*rubric, bare, arguments]
        return {"$ref": f"#/$defs/{called}"}


def _with_short(shape: Built, definitions: Definitions) -> Schema:
    """Return the schema of arguments by name; if the first argument is enough, also allow it alone."""
    whole, arguments = shape.own_schema(definitions), shape.arguments
    required = [name for name, one in arguments.items() if one.required]
    short: list[Schema] = [] if required else [{"type": "null"}]
    if arguments and required in ([], [next(iter(arguments))]):
        short.append(next(iter(arguments.values())).shape.schema(definitions))
    return {"anyOf": [whole, *short]} if short else whole


@cache
def options_of(kind: str, name: str, make: Callable[..., Any]) -> Built:
    """Return the shape of a plug-in's arguments."""
    called = getattr(make, "__name__", name)
    if kind == "guardrail" and not is_import(name):
        # Made as a configuration makes it, so that `id`, `phase` and `order` mean the same in every file.
        return Built(called, partial(_make_guardrail, name), lambda: {**arguments_of(make), **_PLACED})
    return Built(called, make, lambda: arguments_of(make))


def _make_guardrail(guardrail_name: str, /, **given: Any) -> Any:
    return GuardrailChain.from_config([{"name": guardrail_name, **given}]).policies[0]


class ToolOf(Shape):
    """A tool by name, your own as `module:name`, or a source of tools with its arguments."""

    says = "the name of a tool, module:name, or one source of tools with its arguments"
    takes = (str, Mapping)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Take a mapping as a source, a name as a tool; `module:name` may be either."""
        if isinstance(value, Mapping):
            return Named("tool-source").read(value, place, reading)
        if not isinstance(value, str):
            return self.refuse(value, place, reading)
        return imported(value, place, reading) if is_import(value) else Named("tool").read(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow strings and sources."""
        return {"anyOf": [{"type": "string"}, Named("tool-source").schema(definitions)]}


class RubricOf(Shape):
    """A rubric: its data, or the path of its file."""

    says = "a rubric or the path of its file"

    def fits(self, value: Any) -> bool:
        """Take mappings and paths of files of data."""
        return isinstance(value, Mapping) or (isinstance(value, str) and value.lower().endswith(SUFFIXES))

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Make the rubric; each mistake in its file becomes a mistake here, with its line there."""
        if isinstance(value, Mapping):
            made, mistakes = rubric_of(Rubric, value, reading)
            for one in mistakes:
                reading.refuse((*place, *one.path), one.says, one.key)
            return MISSING if made is None else made
        if not self.fits(value):
            return self.refuse(value, place, reading)
        path = reading.path(value, place)
        if isinstance(path, Missing):
            return path
        try:
            found = read_data(path)
        except (ValueError, ImportError, OSError) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            return reading.refuse(place, f"names {value!r:.80}, which cannot be read: {said}")
        made, mistakes = rubric_of(Rubric, found.value, Reading(path.resolve().parent, reading.trusted))
        for wrong in sentences(mistakes, value, found.line_of):
            reading.refuse(place, f"names a rubric that is wrong: {wrong}")
        return MISSING if made is None else made

    def schema(self, definitions: Definitions) -> Schema:
        """Refer to the schema of rubrics."""
        if "Rubric" not in definitions:
            own = Rubric.json_schema()
            # A prefix, because a team may have definitions of the same names.
            inner = {f"Rubric.{name}": one for name, one in own.pop("$defs", {}).items()}
            own.pop("$schema", None)  # only the root of a schema may have it
            definitions.update(cast("Definitions", _with_new_references(inner)))
            definitions["Rubric"] = _with_new_references(own)
        files = {"type": "string", "pattern": r"\.(yaml|yml|toml|json)$", "description": "The path of a rubric."}
        return {"anyOf": [{"$ref": "#/$defs/Rubric"}, files]}


def _with_new_references(node: Any) -> Any:
    """Return a rubric's schema with its references changed to the new names of its definitions."""
    parts = parts_of(node)
    if isinstance(node, list):
        return [*map(_with_new_references, parts.values())]
    if not isinstance(node, Mapping):
        return node
    made = {key: _with_new_references(one) for key, one in parts.items()}
    if isinstance(made.get("$ref"), str):
        made["$ref"] = made["$ref"].replace("#/$defs/", "#/$defs/Rubric.")
    return made


@cache
def _kinds() -> Mapping[Any, str]:
    """Return the plug-in points by their protocols."""
    found = {getattr(contracts, one.contract, None): kind for kind, one in plugins.KINDS.items()}
    return {Check: "check", **{protocol: kind for protocol, kind in found.items() if protocol is not None}}


def shape_of(hint: Any, name: str = "") -> Shape | None:
    """Return the shape of the values that a type allows; None if data cannot express it. `name` is the argument's."""
    if get_origin(hint) is Annotated:
        inner, *how = get_args(hint)
        validated = any(isinstance(one, BeforeValidator | late_pydantic.BeforeValidator) for one in how)
        # Paths are checked here, because untrusted data may not leave its folder.
        if validated and not holds_path(inner):
            return Validated(hint)
        return Plain(hint) if _is_leaf(inner) else shape_of(inner, name)
    if get_origin(hint) in (Union, UnionType):
        return _shape_of_union(get_args(hint), name)
    if name == "agent" and hint is Any:  # two arguments whose types say too little are known by name
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
        return TrustedOnly(Plain(str), _STARTS_A_PROGRAM)
    if any(map(holds_path, kept)):  # then a text is a path too
        kept = list(dict.fromkeys(Path if one is str or is_path(one) else one for one in kept))
    if any(get_origin(one) is not None and issubclass(cast("type", get_origin(one)), Mapping)
           for one in kept if isinstance(get_origin(one), type)):  # fmt: skip
        kept = [one for one in kept if not _is_function(one)]
    if len(kept) > 1 and all(map(_is_leaf, kept)):
        return _nullable(Plain(Union[tuple(kept)]), null=null)  # noqa: UP007 - made of a list
    # Texts first, because Python takes a string as such, not as a plug-in's name.
    kept.sort(key=lambda one: one not in (str, Path))
    shapes = list(dict.fromkeys(shape for one in kept if (shape := shape_of(one, name)) is not None))
    if not shapes:
        return None
    return _nullable(shapes[0] if len(shapes) == 1 else OneOf(tuple(shapes)), null=null)


def _nullable(shape: Shape, *, null: bool) -> Shape:
    if isinstance(shape, Plain) and null:
        return Plain(shape.hint | None)
    return OrNull(shape) if null else shape


def _is_function(hint: Any) -> bool:
    return hint is Callable or get_origin(hint) is Callable


def _shape_of_list(hint: Any, name: str) -> Shape | None:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in _LISTS:
        mixed = origin is tuple and len(inside) > 1 and Ellipsis not in inside and holds_path(hint)
        kind = Union[inside] if mixed else inside[0] if inside else Any  # noqa: UP007 - made of a list
        item = shape_of(kind, name)
        return None if item is None else ListOf(item)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if name == "output_types":
            return MapOf(OutputType())
        value = shape_of(inside[1], name)
        return None if value is None else MapOf(value, PathOf() if holds_path(inside[0]) else None)
    return None


def _shape_of_class(hint: Any) -> Shape | None:
    if hint is Unsayable:
        return None
    if hint is Any or hint is object:
        return Json()
    if _is_function(hint):
        return FunctionOf()
    if is_path(hint):
        return PathOf()
    if hint is Rubric:
        return RubricOf()
    if hint is File:
        return FileOf()
    if hint in _kinds():
        return Named(_kinds()[hint]) if hint is not contracts.ChatModel else Plain(str)
    ours = str(getattr(hint, "__module__", "")).partition(".")[0] == "kairo_team"
    return built(cast("Any", hint)) if isinstance(hint, type) and (ours or is_dataclass(cast("Any", hint))) else None


@dataclass(frozen=True)
class TrustedOnly(Shape):
    """A value that only trusted data may give, such as a word of a command, which is passed on as it is."""

    shape: Shape
    why: str
    """Why other data may not; `{}` is the value."""

    @property
    def words(self) -> str:
        """The words of the value."""
        return self.shape.words

    def fits(self, value: Any) -> bool:
        """Take what the shape takes."""
        return self.shape.fits(value)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read it as it is."""
        if not reading.trusted:
            return reading.refuse(place, self.why.format(shown(value)))
        return self.shape.read(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow what the shape allows."""
        return self.shape.schema(definitions)


class FileOf(Shape):
    """A file: its path, or a path or URL with a media type and a name."""

    says = "the path of a file, or its path or url with a media_type and a name"
    takes = (str, Mapping)

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
def built(make: Callable[..., Any]) -> Built:
    """Return the shape of the object that a class or function makes from its arguments."""
    return Built(make.__name__, make, lambda: arguments_of(make))


def arguments_of(make: Callable[..., Any]) -> Mapping[str, Argument]:
    """Return the arguments that data can give to a class or function, by name."""
    parameters, hints = signature_of(make)
    undeclared, found = loose_paths(make), dict[str, Argument]()
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= _of_the_class(make, [*parameters])
        elif name not in _LEFT_OUT.get(make.__name__, ()):
            shape = shape_of(hints.get(name, Any), name)
            several = parameter.kind is parameter.VAR_POSITIONAL
            if shape is not None:
                loose = name in undeclared or is_unreadable(hints.get(name))
                shape = TrustedOnly(shape, not_declared(name)) if loose else shape
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
