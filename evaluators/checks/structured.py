"""Checks on structured data: JSON, JSON Schema, pydantic models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, cast

from pydantic_core import ValidationError, from_json

from kairo_team.evaluators.checks.made import Made, Said
from kairo_team.evaluators.checks.patterns import Pattern, search
from kairo_team.frozen import freeze, thaw
from kairo_team.json_schema import JsonSchema
from kairo_team.results import Artifact, adapter

MAX_FAULTS: Final = 3
"""Faults of a model's data that are told: a large value can have a million."""


def _is_json(artifact: Artifact) -> Said:
    try:
        from_json(artifact.text.encode(), allow_inf_nan=False)
    except ValueError as error:
        return f"the text is no valid JSON: {error}"
    return True


json_valid = Made("json_valid", _is_json)
"""Check that the text, all of it, is one JSON value."""


def json_schema(schema: Mapping[str, Any]) -> Made:
    """Make a check that the artifact's data, else its text read as JSON, is as a JSON Schema says.

    Needs the extra `json-schema`. Patterns are searched for in linear time; nothing the schema refers to is fetched.
    Raises `MissingExtra`, and `ValueError` for what is no JSON Schema or has patterns that take more than linear time.
    """
    frozen = freeze(schema)
    validator = _LinearSchema(frozen, "the check json_schema")

    def check(artifact: Artifact) -> Said:
        try:
            data = artifact.data_as(Any)
        except ValidationError as error:
            return f"the text is no valid JSON: {error.errors()[0]['msg']}"
        faults = validator.faults(thaw(data))
        return not faults or "; ".join(faults)

    return Made("json_schema(...)", check, source=frozen, in_place=False)


def pydantic_model(kind: Any) -> Made:
    """Make a check that the artifact's data, else its text read as JSON, validates as a model or any other type."""
    kind_adapter = adapter(kind)
    name = getattr(kind, "__name__", str(kind))

    def check(artifact: Artifact) -> Said:
        try:
            artifact.data_as(kind)
        except ValidationError as error:
            return f"it is no {name}: {'; '.join(_faults(error))}"
        return True

    return Made(f"pydantic_model({name})", check, source=(kind, kind_adapter.json_schema()), in_place=False)


def _faults(error: ValidationError) -> list[str]:
    shown = error.errors(include_url=False, include_context=False, include_input=False)[:MAX_FAULTS]
    return [": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"]))) for fault in shown]


class _LinearSchema(JsonSchema):
    """A JSON Schema whose patterns, and uniqueness of items, take time in proportion to what they are applied to."""

    def __init__(self, schema: Mapping[str, Any], what: str) -> None:
        super().__init__(schema, what)
        if {"patternProperties", "unevaluatedProperties"} <= {key for key, _ in _parts(schema)}:
            raise ValueError(
                f"{what}: unevaluatedProperties beside patternProperties are searched by an engine that a text "
                "can hang: take additionalProperties"
            )
        for pattern in _patterns(schema):
            Pattern(pattern)
        validators: Any = import_module("jsonschema.validators")
        registry: Any = import_module("referencing").Registry()
        self._validator = validators.extend(type(self._validator), _RULES)(_without_dialects(schema), registry=registry)


def _parts(schema: Any) -> Iterator[tuple[str, Any]]:
    """Walk through a schema: every key with its value, wherever it stands."""
    if isinstance(schema, Mapping):
        for key, value in cast("Mapping[str, Any]", schema).items():
            yield key, value
            yield from _parts(value)
    elif isinstance(schema, list | tuple):
        for item in cast("Iterable[Any]", schema):
            yield from _parts(item)


def _patterns(schema: Any) -> Iterator[str]:
    for key, value in _parts(schema):
        if key == "pattern" and isinstance(value, str):
            yield value
        elif key == "patternProperties" and isinstance(value, Mapping):
            yield from cast("Mapping[str, Any]", value)


def _without_dialects(schema: Any) -> Any:
    """Leave out `$schema`: where a part of the schema names its own, that part is applied by other rules than ours."""
    if isinstance(schema, Mapping):
        mapping = cast("Mapping[str, Any]", schema)
        return {
            key: _without_dialects(value)
            for key, value in mapping.items()
            if key != "$schema" or not isinstance(value, str)
        }
    if isinstance(schema, list | tuple):
        return [_without_dialects(item) for item in cast("Iterable[Any]", schema)]
    return schema


def _fault(message: str) -> Any:
    return import_module("jsonschema.exceptions").ValidationError(message)


def _pattern(_validator: Any, pattern: Any, value: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(value, str) and not search(pattern, value):
        yield _fault(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    for pattern, part in patterns.items():
        for key, item in cast("dict[str, Any]", value).items():
            if search(pattern, key):
                yield from validator.descend(item, part, path=key, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, item in cast("dict[str, Any]", value).items():
        if key not in named and not any(search(pattern, key) for pattern in patterns):
            if rule is False:
                yield _fault(f"the property {key!r} is not allowed")
            elif rule is not True:
                yield from validator.descend(item, rule, path=key)


def _unique_items(_validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
    if wanted and isinstance(value, list):
        items = [json.dumps(_comparable(item), sort_keys=True) for item in cast("Iterable[Any]", value)]
        if len(set(items)) < len(items):
            yield _fault("it has the same item twice")


def _comparable(value: Any) -> Any:
    """Write 1.0 as 1: to JSON Schema they are the same."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _comparable(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in cast("Iterable[Any]", value)]
    return value


_RULES: Final = {
    "additionalProperties": _additional_properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}
