"""Shapes of data: how each is read, and its JSON Schema."""

from __future__ import annotations

import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from kairo_team.data.files import Place, parts_of
from kairo_team.data.mistakes import unknown_key
from kairo_team.data.reading import MISSING, Missing, Reading

Schema = dict[str, Any]
Definitions = dict[str, Any]
"""Schemas by the names that references to them use."""
_WORDS: Final[Mapping[Any, str]] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Decimal: "a number",
    datetime: "a date and time",
    type(None): "null",
}
LEAVES: Final = frozenset(_WORDS)
"""Types of single values."""


class Shape(ABC):
    """The kind of value that one place of data allows."""

    says = "a value"
    takes: ClassVar[Any] = object
    """The types of the values that are meant for this shape, right or wrong."""

    @property
    def words(self) -> str:
        """The kind of value in words, for a sentence."""
        return self.says

    def fits(self, value: Any) -> bool:
        """Return whether a value is meant for this shape, right or wrong."""
        return isinstance(value, self.takes)

    @abstractmethod
    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Return the object that the value describes; `MISSING` if it was refused."""

    @abstractmethod
    def schema(self, definitions: Definitions) -> Schema:
        """Return the JSON Schema, and add what it refers to to the definitions."""

    def refuse(self, value: Any, place: Place, reading: Reading) -> Missing:
        """Note that the value does not have this shape."""
        # YAML reads `1.0` and `yes` as other types, where a person meant a text.
        unquoted = self.words == "a string" and isinstance(value, bool | int | float)
        return reading.refuse(place, f"must be {self.words}, not {shown(value)}{': put it in quotes' * unquoted}")


def shown(value: Any) -> str:
    """Return a value as JSON, cut to 80 characters."""
    return f"{json.dumps(value, ensure_ascii=False)!s:.80}"


def joined(words: Sequence[str]) -> str:
    """Join alternatives as a sentence does; every whole number is a number."""
    *before, last = dict.fromkeys(word for word in words if word != "a whole number" or "a number" not in words)
    return f"{', '.join(before)} or {last}" if before else last


# ---------------------------------------------------------------- single values


def _words_of(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _words_of(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return joined([_words_of(one) for one in get_args(hint)])
    if get_origin(hint) is Literal:
        return joined([repr(one) for one in get_args(hint)])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return joined([repr(one.value) for one in hint])
    return _WORDS.get(hint, "a value")


@dataclass(frozen=True)
class Plain(Shape):
    """A single value of a Python type, of its own JSON type."""

    hint: Any

    @property
    def words(self) -> str:
        """The type's words."""
        return _words_of(self.hint)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.hint)

    def fits(self, value: Any) -> bool:
        """Take all single values."""
        return not isinstance(value, list | Mapping)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Validate the value as JSON, without changing its type."""
        try:
            # As JSON: in Python mode, strict validation would refuse a string for a date or an enum.
            return self._adapter.validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                if one["type"] == "value_error":  # a validator's own words say more than the shape's
                    return reading.refuse(place, f"is refused: {one.get('ctx', {})['error']}")
            return self.refuse(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Return pydantic's schema of the type."""
        made: Schema = self._adapter.json_schema()
        made.pop("title", None)  # pydantic makes it of the type's name
        return made


@dataclass(frozen=True)
class Validated(Shape):
    """A value of a type that defines its own JSON form."""

    hint: Any

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.hint)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Validate it."""
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            return reading.refuse(place, f"is refused: {first.get('ctx', {}).get('error', first['msg'])}")

    def schema(self, definitions: Definitions) -> Schema:
        """Return the type's own schema."""
        return self._adapter.json_schema()


class Json(Shape):
    """Any JSON value."""

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Return it as it is."""
        return value

    def schema(self, definitions: Definitions) -> Schema:
        """Allow everything."""
        return {}


class PathOf(Shape):
    """The path of a file or folder; a relative one begins at the file of the data."""

    says = "a path"
    takes = str

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Return the path from here."""
        return reading.path(value, place) if isinstance(value, str) else self.refuse(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow strings."""
        return {"type": "string", "minLength": 1, "description": "A path; a relative one begins at this file."}


class SecretText(Shape):
    """A text in which `${NAME}` is replaced with a variable of the environment."""

    says = "a string"
    takes = str

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Put the variables in."""
        return reading.from_environment(value, place) if isinstance(value, str) else self.refuse(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow strings."""
        return {"type": "string", "description": "A text; ${NAME} is taken from the environment."}


# ---------------------------------------------------------------- several


@dataclass(frozen=True)
class ListOf(Shape):
    """A list."""

    item: Shape
    says = "a list"
    takes = list

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read each item."""
        if not isinstance(value, list):
            return self.refuse(value, place, reading)
        read = [self.item.read(one, (*place, step), reading) for step, one in parts_of(value).items()]
        return MISSING if MISSING in read else read

    def schema(self, definitions: Definitions) -> Schema:
        """Describe the items."""
        return {"type": "array", "items": self.item.schema(definitions)}


@dataclass(frozen=True)
class MapOf(Shape):
    """Values by name."""

    item: Shape
    key: Shape | None = None
    """The shape of the names; None: texts as they are."""
    says = "a mapping"
    takes = Mapping

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read each value."""
        if not isinstance(value, Mapping):
            return self.refuse(value, place, reading)
        names = {name: self._name(name, place, reading) for name in parts_of(value)}
        read = {names[name]: self.item.read(one, (*place, name), reading) for name, one in parts_of(value).items()}
        return MISSING if MISSING in read.values() or MISSING in read else read

    def _name(self, name: int | str, place: Place, reading: Reading) -> Any:
        # YAML and JSON differ in which keys are numbers.
        return str(name) if self.key is None else self.key.read(str(name), (*place, name), reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Describe the values."""
        return {"type": "object", "additionalProperties": self.item.schema(definitions)}


@dataclass(frozen=True)
class OneOf(Shape):
    """One of several shapes: the first that a value fits."""

    shapes: tuple[Shape, ...]

    @property
    def words(self) -> str:
        """The words of each."""
        return joined([one.words for one in self.shapes])

    def fits(self, value: Any) -> bool:
        """Take what one of them takes."""
        return any(one.fits(value) for one in self.shapes)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read it as the one that fits."""
        for one in self.shapes:
            if one.fits(value):
                return one.read(value, place, reading)
        return self.refuse(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow any of them."""
        return {"anyOf": [one.schema(definitions) for one in self.shapes]}


@dataclass(frozen=True)
class OrNull(Shape):
    """A shape, or null, which is Python's None."""

    shape: Shape

    @property
    def words(self) -> str:
        """The shape's words, or null."""
        return f"{self.shape.words} or null"

    def fits(self, value: Any) -> bool:
        """Take null too."""
        return value is None or self.shape.fits(value)

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read it, or take the null."""
        if value is None:
            return None
        return self.shape.read(value, place, reading) if self.fits(value) else self.refuse(value, place, reading)

    def schema(self, definitions: Definitions) -> Schema:
        """Allow null."""
        return {"anyOf": [self.shape.schema(definitions), {"type": "null"}]}


# ---------------------------------------------------------------- objects of constructors


@dataclass(frozen=True)
class Argument:
    """One argument of a constructor."""

    shape: Shape
    required: bool
    several: bool = False
    """Whether the argument takes the rest of the positional arguments."""


@dataclass(frozen=True)
class Built(Shape):
    """An object that a constructor makes from arguments by name."""

    name: str
    make: Callable[..., Any]
    find: Callable[[], Mapping[str, Argument]]
    """Returns the arguments; called late, because a class may contain itself."""
    says = "a mapping"
    takes = Mapping

    @cached_property
    def arguments(self) -> Mapping[str, Argument]:
        """The arguments, by name."""
        return self.find()

    def read(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read each argument and call the constructor, unless one of them is wrong."""
        if not isinstance(value, Mapping):
            return self.refuse(value, place, reading)
        given = parts_of(value)
        before = len(reading.mistakes)
        self._check_keys([*map(str, given)], place, reading)
        read = {
            name: one.shape.read(given[name], (*place, name), reading)
            for name, one in self.arguments.items()
            if name in given
        }
        if len(reading.mistakes) == before:
            return self.call(read, place, reading)
        self._look_at({name: one for name, one in read.items() if one is not MISSING}, place, reading)
        return MISSING

    def _check_keys(self, given: Sequence[str], place: Place, reading: Reading) -> None:
        """Note the unknown keys, and the missing ones except those that an unknown key is probably meant to be."""
        unknown = [key for key in given if key not in self.arguments]
        for key in unknown:
            reading.refuse(place, unknown_key(key, [*self.arguments]), key)
        # One mistake, not two: a misspelt key is also a missing one.
        meant = {name for key in unknown for name in get_close_matches(key, [*self.arguments], 1)}
        required = [name for name, one in self.arguments.items() if one.required]
        lacks = ", ".join(repr(name) for name in required if name not in given and name not in meant)
        if lacks:
            reading.refuse(place, f"needs {lacks}; it takes {', '.join(self.arguments)}")

    def _look_at(self, given: Mapping[str, Any], place: Place, reading: Reading) -> None:
        """Note a value class's mistakes in single arguments, although other arguments are already wrong."""
        if not is_dataclass(self.make) or any(one.required and n not in given for n, one in self.arguments.items()):
            return
        # A reading of its own: that arguments are missing is known already, and not reported again.
        apart = Reading(reading.folder, reading.trusted)
        self.call(given, place, apart)
        reading.mistakes += [one for one in apart.mistakes if len(one.path) > len(place)]

    def read_first(self, value: Any, place: Place, reading: Reading) -> Any:
        """Read a value that is not a mapping as the first argument."""
        name, one = next(iter(self.arguments.items()), (None, None))
        if name is None or one is None:
            return reading.refuse(place, "takes no arguments: write its name alone")
        lacks = [other for other, argument in self.arguments.items() if argument.required and other != name]
        if lacks:
            return reading.refuse(place, f"needs {', '.join(map(repr, [name, *lacks]))}: write them as a mapping")
        read = one.shape.read([value] if one.several and not isinstance(value, list) else value, place, reading)
        return read if read is MISSING else self.call({name: read}, place, reading)

    def call(self, given: Mapping[str, Any], place: Place, reading: Reading) -> Any:
        """Call the constructor; note its error as a mistake."""
        try:
            bound = inspect.signature(self.make).bind_partial()
            bound.arguments.update(given)
            # For `**kwargs`, which `bind_partial` would not fill.
            beyond = {name: bound.arguments.pop(name) for name in given if name not in bound.signature.parameters}
            return self.make(*bound.args, **bound.kwargs, **beyond)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a package's constructor may raise anything
            return self._refused(error, given, place, reading)

    def _refused(self, error: BaseException, given: Mapping[str, Any], place: Place, reading: Reading) -> Missing:
        said = " ".join(str(error).split()) or "without a reason"
        if not isinstance(error, TypeError | ValueError | ImportError):
            said = f"{type(error).__name__}: {said}"
        # A message that begins with `Class.argument` points at that argument.
        found = re.match(rf"{re.escape(self.name)}\.(\w+):? (.*)", said)
        if found is None or found[1] not in given:
            return reading.refuse(place, f"is refused: {said:.400}")
        says = found[2] if found[2].startswith(("must ", "needs ")) else f"is refused: {found[2]}"
        return reading.refuse((*place, found[1]), f"{says:.400}")

    def schema(self, definitions: Definitions) -> Schema:
        """Refer to the definition of its name."""
        if self.name not in definitions:
            definitions[self.name] = {}  # it may refer to itself
            definitions[self.name].update(self.own_schema(definitions))
        return {"$ref": f"#/$defs/{self.name}"}

    def own_schema(self, definitions: Definitions) -> Schema:
        """Return the schema of the mapping itself."""
        summary = (inspect.getdoc(self.make) or "").partition("\n")[0]
        return {
            **({"description": summary} if summary else {}),
            "type": "object",
            "properties": {name: one.shape.schema(definitions) for name, one in self.arguments.items()},
            "required": [name for name, one in self.arguments.items() if one.required],
            "additionalProperties": False,
        }
