"""What an artifact's data must be: a type pydantic can validate, or a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import ValidationError

from kairo_team.errors import InvalidReply
from kairo_team.frozen import thaw
from kairo_team.json_schema import JsonSchema
from kairo_team.results import Artifact, adapter


def schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of an output type."""
    if isinstance(kind, Mapping):
        schema: dict[str, Any] = thaw(kind)
        return schema
    return adapter(kind).json_schema()


def check_output(kind: Any, artifact: Artifact) -> Any:
    """Return the artifact's data (else its text, read as JSON) as JSON values, or raise `InvalidReply`."""
    try:
        if isinstance(kind, Mapping):
            return _check_schema(cast("Mapping[str, Any]", kind), thaw(artifact.data_as(Any)))
        return adapter(kind).dump_python(artifact.data_as(kind), mode="json")
    except (ValidationError, ValueError) as error:
        raise InvalidReply(_name(kind), _first_error(error)) from None


def output_type_problem(what: str, kind: Any) -> str | None:
    """Say why an output type, called `what`, cannot be used; None when it can."""
    try:
        if isinstance(kind, Mapping):
            _json_schema(cast("Mapping[str, Any]", kind))
        else:
            adapter(kind).rebuild()  # raises for a name that stands for nothing
    except Exception as error:  # noqa: BLE001 - pydantic raises many kinds for what is no type
        return f"{what} can be validated by nobody: {str(error).partition(chr(10))[0]}"
    return None


def _check_schema(schema: Mapping[str, Any], data: Any) -> Any:
    faults = _json_schema(schema).faults(data)
    if faults:
        raise ValueError("; ".join(faults))
    return data


def _json_schema(schema: Mapping[str, Any]) -> JsonSchema:
    return JsonSchema(schema, "an output type that is a JSON Schema")


def _name(kind: Any) -> str:
    if isinstance(kind, Mapping):
        return str(cast("Mapping[str, Any]", kind).get("title", "JSON Schema"))
    return str(getattr(kind, "__name__", kind))


def _first_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error)
