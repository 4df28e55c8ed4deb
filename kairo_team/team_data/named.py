"""Names in data: plug-ins with their arguments, and `module:name` for your own code."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, Final, cast

from kairo_team import plugins
from kairo_team._util.mistakes import did_you_mean
from kairo_team.errors import known
from kairo_team.evaluators.data_files import SUFFIXES, Place, parts_of
from kairo_team.governance.guardrail_config import policies_of
from kairo_team.output_types import JsonSchema
from kairo_team.team_data.reading import Missing, Reading
from kairo_team.team_data.rubrics import RubricOf
from kairo_team.team_data.shapes import Argument, Built, Definitions, Json, Schema, Shape, shown

_IMPORT: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_IMPORT_SCHEMA: Final[Schema] = {
    "type": "string",
    "pattern": f"^{_IMPORT.pattern}$",
    "description": "module:name, code of your own. Data that is not trusted may not name any.",
}
_STARTS_PROGRAMS: Final = ("mcp-stdio",)
_RUBRIC_KEYS: Final = ("criteria", "threshold", "check_timeout")
_PLACED: Final = {"id": Argument(Json(), required=False), "phase": Argument(Json(), required=False)}
"""Arguments of a guardrail besides its own options; see `GuardrailChain.from_config`."""


def imported(text: str, place: Place, reading: Reading) -> Any:
    """Return the object that `module:name` names."""
    if not reading.trusted:
        return reading.refuse(place, f"imports code, {text!r:.80}: that is for trusted data (trusted=True)")
    module, _, path = text.partition(":")
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module may raise anything
        return reading.refuse(place, f"names {text!r:.80}, and {module!r} cannot be imported: {_said(error)}")
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, getattr(found, "__dict__", {}))
            return reading.refuse(place, f"names {text!r:.80}, and {module!r} has no {name!r}; {hint}".strip(" ;"))
        found = getattr(found, name)
    return found


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split()):.300}"


def is_import(value: Any) -> bool:
    """Return whether a value is written `module:name`."""
    return isinstance(value, str) and _IMPORT.fullmatch(value) is not None


@dataclass(frozen=True)
class Imported(Shape):
    """An object in your own code: `module:name`."""

    what: str

    @property
    def words(self) -> str:
        """Say what the object is, and how to write it."""
        return f"{self.what}, written module:name"

    def fits(self, value: Any) -> bool:
        """Take strings."""
        return isinstance(value, str)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Import it."""
        return imported(value, place, reading) if is_import(value) else self.refuse(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow strings of that form."""
        return dict(_IMPORT_SCHEMA)


class OutputType(Shape):
    """The type of a task's output: a JSON Schema, or `module:name`."""

    says = "a JSON Schema, or a type of yours, written module:name"

    def fits(self, value: Any) -> bool:
        """Take mappings and strings."""
        return isinstance(value, Mapping | str)

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

    @property
    def words(self) -> str:
        """Say how to write the plug-in."""
        what = plugins.KINDS[self.kind].what
        return f"the name of {what}, or one name with its arguments such as {{name: {{...}}}}"

    def fits(self, value: Any) -> bool:
        """Take strings and mappings."""
        return isinstance(value, str | Mapping)

    def refuse(self, value: Any, place: Place, reading: Reading) -> Missing:
        """Note that the value is not such a plug-in, and list the names."""
        there = known({one.name for one in plugins.installed(self.kind)})
        return reading.refuse(place, f"must be {self.words}, not {shown(value)}; there are {there}")

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Find the plug-in's maker, read its arguments, and call it."""
        if self.kind == "evaluator" and _is_rubric(value):
            return RubricOf().read(value, place, reading)
        parts = parts_of(value)
        if isinstance(value, str):
            return self._bare(value, place, reading)
        if isinstance(value, Mapping) and len(parts) == 1:
            ((name, given),) = parts.items()
            return self._called(str(name), given, place, reading)
        return self.refuse(value, place, reading)

    def _bare(self, name: str, place: Place, reading: Reading) -> Any:
        if not is_import(name):
            return self._called(name, None, place, reading)
        found = imported(name, place, reading)
        if isinstance(found, type):
            return self._made(name, found, None, place, reading)
        return self._checked(name, found, place, reading)

    def _called(self, name: str, given: Any, place: Place, reading: Reading) -> Any:
        make = self._maker(name, place, reading)
        if isinstance(make, Missing):
            return make
        if not plugins.KINDS[self.kind].is_made:
            return self._checked(name, make, place, reading)
        return self._made(name, make, given, (*place, name) if given is not None else place, reading)

    def _maker(self, name: str, place: Place, reading: Reading) -> Any:
        if is_import(name):
            return imported(name, place, reading)
        if name in _STARTS_PROGRAMS and not reading.trusted:
            return reading.refuse(place, f"starts a program, {name!r}: that is for trusted data (trusted=True)")
        try:
            return plugins.find(self.kind, name)
        except ValueError as error:
            return reading.refuse(place, f"is refused: {error}")

    def _made(self, name: str, make: Any, given: Any, place: Place, reading: Reading) -> Any:
        if not callable(make):
            return reading.refuse(place, f"gives arguments to {name!r:.80}, which is not a class or function")
        shape = options_of(self.kind, name, make)
        if given is None or isinstance(given, Mapping):
            made = shape.read(given or {}, place, reading)
        else:
            made = shape.read_first(given, place, reading)
        return self._checked(name, made, place, reading)

    def _checked(self, name: str, made: Any, place: Place, reading: Reading) -> Any:
        if isinstance(made, Missing):
            return made
        kind = plugins.KINDS[self.kind]
        try:
            kind.check(f"{kind.word} {name!r}", made)
        except ValueError as error:
            return reading.refuse(place, f"is refused: {error}")
        return made

    def schema(self, definitions: Definitions) -> Schema:
        """Offer the built-in names with their arguments, and allow others."""
        called = plugins.KINDS[self.kind].word.title().replace(" ", "")
        if called not in definitions:
            definitions[called] = {}  # its arguments may be such plug-ins again
            definitions[called].update(self._own_schema(definitions))
        return {"$ref": f"#/$defs/{called}"}

    def _own_schema(self, definitions: Definitions) -> Schema:
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
        return {"anyOf": [*rubric, bare, arguments]}


def _with_short(shape: Built, definitions: Definitions) -> Schema:
    """Return the schema of arguments by name; if the first argument is enough, also allow it alone."""
    whole, arguments = shape.own_schema(definitions), shape.arguments
    required = [name for name, one in arguments.items() if one.required]
    short: list[Schema] = [] if required else [{"type": "null"}]
    if arguments and required in ([], [next(iter(arguments))]):
        short.append(next(iter(arguments.values())).shape.schema(definitions))
    return {"anyOf": [whole, *short]} if short else whole


def _is_rubric(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower().endswith(SUFFIXES)
    return any(key in parts_of(value) for key in _RUBRIC_KEYS)


@cache
def options_of(kind: str, name: str, make: Callable[..., Any]) -> Built:
    """Return the shape of a plug-in's arguments."""
    from kairo_team.team_data.hints import arguments_of  # the shapes of arguments are plug-ins again

    called = getattr(make, "__name__", name)
    if kind == "guardrail" and not is_import(name):
        return Built(called, partial(_make_guardrail, name), lambda: _placed(make))
    return Built(called, make, lambda: arguments_of(make))


def _make_guardrail(guardrail_name: str, /, **given: Any) -> Any:
    return policies_of([{"name": guardrail_name, **given}])[0]


def _placed(make: Callable[..., Any]) -> Mapping[str, Argument]:
    from kairo_team.team_data.hints import arguments_of

    order = {"order": Argument(Json(), required=False)}
    return {**arguments_of(make), **_PLACED, **order}


class ToolOf(Shape):
    """A tool by name, your own as `module:name`, or a source of tools with its arguments."""

    says = "the name of a tool, module:name, or one source of tools with its arguments"

    def fits(self, value: Any) -> bool:
        """Take strings and mappings."""
        return isinstance(value, str | Mapping)

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
