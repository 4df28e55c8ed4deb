"""What an artifact's data must be: a type pydantic can validate, or a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, cast

from pydantic import ValidationError

from kairo_team.errors import InvalidReply, MissingExtra
from kairo_team.frozen import thaw
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


def output_type_problem(name: str, kind: Any) -> str | None:
    """Say why a team's output type cannot be used; None when it can."""
    try:
        if isinstance(kind, Mapping):
            _validator(cast("Mapping[str, Any]", kind))
        else:
            adapter(kind)
    except Exception as error:  # noqa: BLE001 - pydantic raises many kinds for what is no type
        return f"the team's output type {name!r} can be validated by nobody: {str(error).partition(chr(10))[0]}"
    return None


def _check_schema(schema: Mapping[str, Any], data: Any) -> Any:
    from referencing.exceptions import Unresolvable

    try:
        error = next(_validator(schema).iter_errors(data), None)
    except Unresolvable as unknown:
        raise ValueError(f"its JSON Schema refers to {unknown.ref!r}, which is not in it") from None
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path)
        raise ValueError(f"{where}: {error.message}" if where else error.message)
    return data


def _validator(schema: Mapping[str, Any]) -> Any:
    if find_spec("jsonschema") is None:
        raise MissingExtra("an output type that is a JSON Schema", "json-schema")
    import jsonschema
    from referencing import Registry

    plain = thaw(schema)
    kind: Any = jsonschema.validators.validator_for(plain)
    kind.check_schema(plain)
    nothing: Registry[Any] = Registry()  # a reference to somewhere else is an error, never a download
    return kind(plain, registry=nothing)


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
