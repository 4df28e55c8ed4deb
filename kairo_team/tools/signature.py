"""`Signature`: a function's parameters as a JSON Schema, and calls with checked arguments."""

from __future__ import annotations

import functools
import inspect
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from types import CellType
from typing import TYPE_CHECKING, Annotated, Any, Final, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from kairo_team._util.threads import run_in_thread
from kairo_team.errors import known

if TYPE_CHECKING:
    from docstring_parser import Docstring

MAX_COMPLAINTS: Final = 8
"""Most errors of one call's arguments that a member receives."""


class Signature:
    """The parameters of a function and how to call it; `ValueError` for a function that cannot be a tool."""

    __slots__ = ("_function", "_is_async", "_parameters", "_positional", "_validate", "description", "schema")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        inner = function_of(function)
        if isinstance(function, type) or not callable(function):
            raise ValueError(f"a tool is a function, a method, a callable object or a Tool, not {function!r:.200}")
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise ValueError(f"{shown(function)} yields: a tool must return its result")
        self._is_async = inspect.iscoroutinefunction(inner)
        outer = unbound(function)
        # A callable object's method need not have a docstring of its own: then its class's counts.
        text: str | None = inner.__doc__ if inner.__doc__ or outer is inner else type(outer).__doc__
        self.description, descriptions = read_docstring(text)
        self._parameters = _parameters(function, inner, descriptions)
        model, self.schema = _build(shown(function), self._parameters)
        self._positional = {one.name: None for one in self._parameters if one.positional}
        self._validate = model.__pydantic_validator__.validate_python
        self.schema.pop("title", None)  # the model's class name says nothing about the tool

    @property
    def name(self) -> str:
        """The function's own name, or the class's name of a callable object. `ValueError` for a lambda."""
        function = unbound(self._function)
        name = str(getattr(function, "__name__", type(function).__name__))
        if name == "<lambda>":
            raise ValueError("a lambda has no name: give the tool one, as_tool(..., name='...')")
        return name

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments to call the function with, including defaults; `ValueError` with all errors."""
        try:
            found = self._validate(arguments)
            values: dict[str, Any] = _whole(found.__dict__)
        except ValidationError as error:
            faults = [_fault(one) for one in error.errors(include_url=False, include_context=False)]
            if len(faults) > MAX_COMPLAINTS:
                faults[MAX_COMPLAINTS:] = [f"and {len(faults) - MAX_COMPLAINTS} more"]
            names = known((one.name for one in self._parameters), none="none")
            raise ValueError(f"{'; '.join(faults)}; the parameters are {names}") from None
        # Where an argument was not given, the function's own default is taken, which pydantic has never copied.
        given = found.__pydantic_fields_set__
        return {
            one.name: values[one.field] if one.field in given or one.default is Parameter.empty else one.default
            for one in self._parameters
        }

    async def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function with the result of `check`: in the event loop if it is async, else in a worker thread."""
        positional: Sequence[Any] = ()
        named = arguments
        if self._positional:
            positional = [arguments[name] for name in self._positional]
            named = {name: value for name, value in arguments.items() if name not in self._positional}
        if self._is_async:
            return await self._function(*positional, **named)
        result = await run_in_thread(functools.partial(self._function, *positional, **named))
        # A plain function may return a coroutine, such as a lambda around an async one.
        return await result if inspect.isawaitable(result) else result


def function_of(function: Any) -> Any:
    """Return the function that is actually called: the one inside a partial, or the method of a callable object."""
    function = unbound(function)
    plain = inspect.isroutine(function) or isinstance(function, type)
    return function if plain else getattr(function, "__call__", function)  # noqa: B004 - the method itself is needed


def shown(function: Any) -> str:
    """Name a function in an error message."""
    function = unbound(function)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def unbound(function: Any) -> Any:
    """Return the function inside a partial; any other object as it is."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


class _Parameter:
    """One parameter of a function."""

    __slots__ = ("annotation", "default", "description", "field", "name", "positional")

    def __init__(self, parameter: Parameter, number: int, annotation: Any, description: str | None) -> None:
        self.name = parameter.name
        self.field = f"p{number}"
        """The name in the model: a parameter may have a name that a model's field must not have."""
        self.positional = parameter.kind is Parameter.POSITIONAL_ONLY
        self.annotation = annotation
        self.default: Any = parameter.default
        """`Parameter.empty`: the argument is required, or pydantic's own default is used."""
        self.description = description
        if isinstance(self.default, FieldInfo):  # q: str = Field(...)
            self.annotation, self.default = Annotated[annotation, self.default], Parameter.empty

    @property
    def definition(self) -> tuple[Any, Any]:
        """The type and field for the model."""
        options: dict[str, Any] = {"alias": self.name}
        extras = get_args(self.annotation)[1:] if get_origin(self.annotation) is Annotated else ()
        described = any(isinstance(extra, FieldInfo) and extra.description for extra in extras)
        if self.description and not described:  # a pydantic description has priority over the docstring's
            options["description"] = self.description
        if self.default is not Parameter.empty:
            options["default_factory"] = _nothing
            if _is_json(self.default):
                options["json_schema_extra"] = {"default": self.default}
        return (self.annotation, Field(**options))


def _whole(value: Any) -> Any:
    """Replace iterators by lists."""
    if type(value) is dict:
        mapping = cast("dict[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
        return {key: _whole(item) for key, item in mapping.items()}
    # pydantic validates an `Iterable` as an iterator, which guards would consume before the tool.
    if type(value) is list or isinstance(value, Iterator):
        return [_whole(item) for item in cast("Iterable[Any]", value)]
    return value


def _nothing() -> None:
    """Mark a default: the function's own default is used, unchecked and unchanged."""


def _is_json(value: Any) -> bool:
    return value is None or type(value) in (str, bool, int) or (type(value) is float and math.isfinite(value))


def _parameters(function: Any, inner: Any, descriptions: Mapping[str, str]) -> tuple[_Parameter, ...]:
    """Read the signature, without the arguments that a partial has fixed."""
    name = shown(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} has no signature to make a schema of: write a function around it") from error
    fixed = set[str]()  # no model may see or change arguments that a partial fixes
    partly: Any = function
    while isinstance(partly, functools.partial):
        fixed.update(partly.keywords)
        partly = partly.func
    found: list[_Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            raise ValueError(
                f"{name} takes {str(parameter).partition(':')[0]}: a tool has parameters with names; write them out"
            )
        if parameter.name == "self" and not found:
            raise ValueError(f"{name} takes self: give a method of an object, not of its class")
        if parameter.name not in fixed:
            annotation = _annotation(name, parameter, inner)
            found.append(_Parameter(parameter, len(found), annotation, descriptions.get(parameter.name)))
    return tuple(found)


def _annotation(owner: str, parameter: Parameter, inner: Any) -> Any:
    """Return a parameter's type, or Any without an annotation; a string is resolved in the function's module."""
    if parameter.annotation is Parameter.empty:
        return Any
    function = inspect.unwrap(inner)
    free: tuple[str, ...] = getattr(getattr(function, "__code__", None), "co_freevars", ())
    cells: tuple[CellType, ...] = getattr(function, "__closure__", None) or ()

    # One annotation at a time: `get_type_hints` of the function would fail as a whole for a single wrong one.
    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    try:
        # A string annotation may name a local of the function around it.
        local: dict[str, Any] = {name: cell.cell_contents for name, cell in zip(free, cells, strict=False)}
        hints = get_type_hints(holder, getattr(function, "__globals__", {}), local, include_extras=True)
    except Exception as error:
        raise ValueError(
            f"{owner}: the type {parameter.annotation!r} of parameter {parameter.name!r} cannot be found: {error}; "
            "write a type that is known where the module's own names are"
        ) from error
    return hints[parameter.name]


class _PlainSchema(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes of names, because each word costs tokens."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _build(owner: str, parameters: tuple[_Parameter, ...]) -> tuple[type[BaseModel], dict[str, Any]]:
    """Make the model that checks arguments, and its JSON Schema; `ValueError` names a parameter that has none."""
    try:
        return _model(parameters)
    except Exception as error:
        for one in parameters:
            try:
                _model((one,))
            except Exception as its_own:
                raise ValueError(
                    f"{owner}: the type {one.annotation!r} of parameter {one.name!r} has no JSON Schema "
                    f"({type(its_own).__name__}): take types that go through JSON"
                ) from its_own
        raise ValueError(f"{owner}: no JSON Schema can be made of its parameters: {error}") from error


def _model(parameters: tuple[_Parameter, ...]) -> tuple[type[BaseModel], dict[str, Any]]:
    definitions: dict[str, Any] = {one.field: one.definition for one in parameters}
    model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **definitions)
    # The schema too, to see whether it can be made: `_build` asks for all parameters, then for each.
    return model, model.model_json_schema(schema_generator=_PlainSchema)


def _fault(error: Any) -> str:
    """Describe the error of one argument."""
    name, *path = error["loc"] or ("",)
    where = repr(name) + "".join(f"[{step!r}]" for step in path)
    if error["type"] == "missing":
        return f"{where} is missing"
    if error["type"] == "extra_forbidden":
        return f"there is no {where}"
    return f"{where}: {error['msg']}, not {reprlib.repr(error['input'])}"


_BLANK: Final = re.compile(r"\n\s*\n")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the first paragraph and the parameters' descriptions of a Google, NumPy, Sphinx or Epydoc docstring.

    The style that describes the most parameters is used. A docstring in none of these styles gives only its first
    paragraph; this never raises.
    """
    if not text or not text.strip():
        return "", {}
    # Every style needs one of these characters, and the parser takes longer to import than to work.
    readings = _readings(text) if any(mark in text for mark in ":@-=") else []
    if not readings:
        return _one_line(_BLANK.split(text.strip(), maxsplit=1)[0]), {}
    found = max(readings, key=lambda reading: (len(reading.params), len(reading.meta)))
    words = {
        name.strip().lstrip("*"): _one_line(parameter.description or "")
        for parameter in found.params
        for name in parameter.arg_name.split(",")  # NumPy describes several parameters at once: `x, y : int`
    }
    return _first_paragraph(found), {name: text for name, text in words.items() if text}


def _readings(text: str) -> list[Docstring]:
    """Parse the text in each style that can read it."""
    from docstring_parser import DocstringStyle, parse  # imported for the first tool: runs without tools do not need it

    found: list[Docstring] = []
    # The parser's own choice of a style counts a role at the start of a line (`:class:`) as much as a parameter.
    for style in (DocstringStyle.REST, DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.EPYDOC):
        try:
            found.append(parse(text, style))
        except Exception:  # noqa: BLE001, S112 - the parser raises more than its ParseError, and no text is an error here
            continue
    return found


def _first_paragraph(found: Docstring) -> str:
    first, rest = found.short_description or "", found.long_description or ""
    if not found.blank_after_short_description:
        first = f"{first}\n{_BLANK.split(rest, maxsplit=1)[0]}"
    return _one_line(first)


def _one_line(text: str) -> str:
    return " ".join(text.split())
