"""Stand-ins for pydantic's names, because pydantic is slow to import and is imported only when it is needed.

The library's value classes use these annotations in the types of their fields, like pydantic's own. The real ones are
made when a validator is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import not_
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter

T = TypeVar("T")


class _Late:
    """An annotation that becomes pydantic's class with the same name and arguments."""

    __slots__ = ("_function", "_named")

    def __init__(self, function: Callable[[Any], Any], **named: Any) -> None:
        self._function, self._named = function, named

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        import pydantic

        made = getattr(pydantic, type(self).__name__)(self._function, **self._named)
        return made.__get_pydantic_core_schema__(source, handler)


class AfterValidator(_Late):
    """Calls a function on a value after validation."""


class BeforeValidator(_Late):
    """Calls a function on a value before validation."""


class PlainSerializer(_Late):
    """Serialises the function's result instead of a value."""


class WrapSerializer(_Late):
    """Serialises the function's result instead of a value; the function also gets the usual serialiser."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__(cast("Any", function))


class AsTuple:
    """Makes a tuple of any sequence but a text; writes it without a Python function for each one, as pydantic does."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        from pydantic_core import core_schema

        (item,) = get_args(source)
        items = core_schema.tuple_schema([handler.generate_schema(item)], variadic_item_index=0)
        some = core_schema.is_instance_schema(Sequence, cls_repr="Sequence")
        given = core_schema.no_info_before_validator_function(_items, items)
        return core_schema.json_or_python_schema(items, core_schema.chain_schema([some, given]))


def _items(value: Sequence[Any]) -> Sequence[Any]:
    if isinstance(value, str | bytes):
        from pydantic_core import PydanticCustomError

        raise PydanticCustomError("sequence_str", "a text is not a list of values")
    return tuple(value)


class Number:
    """Rules for a number, named as in pydantic's schemas: `ge=0`, `strict=True`."""

    __slots__ = ("_rules",)

    def __init__(self, **rules: Any) -> None:
        self._rules = rules

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return {**handler(source), **self._rules}


class IsInstance:
    """A value of a class that pydantic does not know: checked by `isinstance`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(source)


class WithJsonSchema:
    """The JSON Schema of a field, instead of its type's."""

    __slots__ = ("_schema",)

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return dict(self._schema)


def omit_empty(*names: str, always: tuple[str, ...] = ()) -> Any:
    """Return a schema hook for a dataclass that omits these fields from its JSON where they are empty.

    A value without them keeps the JSON that it had before the class had such a field. The fields `always`
    are never in the JSON.
    """

    def schema_of(_cls: type, source: type, handler: GetCoreSchemaHandler) -> Any:
        schema: Any = handler.resolve_ref_schema(handler(source))
        for field in schema["schema"]["fields"]:
            if field["name"] in names:
                field["serialization_exclude_if"] = not_
            if field["name"] in always:
                field["serialization_exclude"] = True
        return schema

    return classmethod(cast("Any", schema_of))


def to_json(value: Any, **options: Any) -> bytes:
    """Serialise a value to JSON like pydantic."""
    from pydantic_core import to_json

    return to_json(value, **options)


def to_jsonable_python(value: Any, **options: Any) -> Any:
    """Return a value as pydantic's JSON values: dicts, lists, strings, numbers, booleans and None."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, **options)


def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return the validator of a type, built once."""
    return _adapter(kind)


@cache  # by a function of its own: a type checker takes a cached one for one of hashable arguments
def _adapter(kind: Any) -> TypeAdapter[Any]:
    import pydantic  # it is slow to import, and most runs validate nothing

    return pydantic.TypeAdapter(kind)


def read_json(kind: type[T], written: bytes) -> T:
    """Make a value from its JSON, more quickly than `read` does from what `json.loads` returns.

    Raises pydantic's error, a `ValueError`, also for JSON that `json.loads` reads: half a surrogate pair.
    """
    made: T = adapter(kind).validator.validate_json(written)
    return made


def read(kind: type[T], data: Any) -> T:
    """Make a value from data such as `json.loads` returns; raises `ValueError` with readable sentences."""
    from pydantic import ValidationError  # slow to import

    try:
        made: T = adapter(kind).validate_python(data)
    except ValidationError as error:
        from kairo_team._util.mistakes import explain  # imported only after a mistake

        raise ValueError("; ".join(explain(kind, error))) from None
    return made
