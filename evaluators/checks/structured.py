"""Checks on structured data: JSON, JSON Schema, pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import ValidationError, from_json

from kairo_team._util.frozen import freeze, thaw
from kairo_team._util.late_pydantic import adapter
from kairo_team._util.mistakes import faults_of
from kairo_team.artifacts import Artifact
from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.output_types import JsonSchema

MAX_FAULTS: Final = 3
"""Most faults of a model's data that a finding lists: a large value can have a million."""


def _is_json(artifact: Artifact) -> CheckAnswer:
    try:
        from_json(artifact.text.encode(), allow_inf_nan=False)  # `encode` raises a ValueError for half a surrogate pair
    except ValueError as error:
        return f"the text is not valid JSON: {error}"
    return True


json_valid = NamedCheck("json_valid", _is_json)
"""Check that the whole text is one JSON value."""


@by_name
def json_schema(schema: Mapping[str, Any]) -> NamedCheck:
    """Make a check that the artifact's data, else its text read as JSON, matches a JSON Schema.

    Needs the extra `json-schema`. Patterns are searched for in linear time; nothing the schema refers to is fetched.
    Raises `MissingExtra`, and `ValueError` for an invalid JSON Schema or patterns that take more than linear time.
    """
    frozen = freeze(schema)
    validator = JsonSchema(frozen, "the check json_schema", linear=True)

    def check(artifact: Artifact) -> CheckAnswer:
        try:
            data = artifact.data_as(Any)
        except ValidationError as error:
            return f"the text is not valid JSON: {faults_of(error, 1)[0]}"
        faults = validator.faults(thaw(data))
        return not faults or "; ".join(faults)

    return NamedCheck("json_schema(...)", check, source=frozen, in_place=False)


def pydantic_model(kind: Any) -> NamedCheck:
    """Make a check that the artifact's data, else its text read as JSON, validates as a model or any other type."""
    kind_adapter = adapter(kind)
    name = getattr(kind, "__name__", str(kind))

    def check(artifact: Artifact) -> CheckAnswer:
        try:
            artifact.data_as(kind)
        except ValidationError as error:
            return f"it is not a valid {name}: {'; '.join(faults_of(error, MAX_FAULTS))}"
        return True

    return NamedCheck(f"pydantic_model({name})", check, source=(kind, kind_adapter.json_schema()), in_place=False)
