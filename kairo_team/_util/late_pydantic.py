"""What the library uses of pydantic, which is slow to import and is not imported before it is needed.

The values of the library name the annotations in the types of their fields, as they would name pydantic's own. They
are made when a validator is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler


class _Late:
    """One annotation: its class is pydantic's of the same name, with the same arguments."""

    __slots__ = ("_function", "_named")

    def __init__(self, function: Callable[[Any], Any], **named: Any) -> None:
        self._function, self._named = function, named

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        import pydantic

        made = getattr(pydantic, type(self).__name__)(self._function, **self._named)
        return made.__get_pydantic_core_schema__(source, handler)


class AfterValidator(_Late):
    """What is done with a value after it was checked."""


class BeforeValidator(_Late):
    """What is done with a value before it is checked."""


class PlainSerializer(_Late):
    """What is written in place of a value."""


class WrapSerializer(_Late):
    """What is written in place of a value; the function gets how it would be written, too."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(cast("Any", function))


class Number:
    """What a number has to be, in the words of pydantic's schemas: `ge=0`, `strict=True`."""

    __slots__ = ("_rules",)

    def __init__(self, **rules: Any) -> None:
        self._rules = rules

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return {**handler(source), **self._rules}


class IsInstance:
    """A value of a class that pydantic knows nothing of."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(source)


class WithJsonSchema:
    """The JSON Schema of a field, in place of the one of its type."""

    __slots__ = ("_schema",)

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return dict(self._schema)


def without(name: str, kind: type, handler: GetCoreSchemaHandler) -> Any:
    """Return the schema of a dataclass that is written without one of its fields."""
    schema: Any = handler.resolve_ref_schema(handler(kind))
    for field in schema["schema"]["fields"]:
        if field["name"] == name:
            field["serialization_exclude"] = True
    return schema


def to_json(value: Any, **options: Any) -> bytes:
    """Write a value as pydantic does."""
    from pydantic_core import to_json

    return to_json(value, **options)


def to_jsonable_python(value: Any, **options: Any) -> Any:
    """Return a value as what pydantic would write of it: dicts, lists, strings, numbers, booleans and None."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, **options)
