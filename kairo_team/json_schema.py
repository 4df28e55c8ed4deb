"""JSON Schemas that come from somewhere else: applied by the library `jsonschema` (extra `json-schema`)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final

from kairo_team.errors import MissingExtra
from kairo_team.frozen import thaw

MAX_FAULTS: Final = 3
"""Faults that are looked for: a large value can have a million."""
MAX_QUOTE: Final = 300
"""Characters of one fault that are quoted at most: a validator repeats the value it found."""


class JsonSchema:
    """One JSON Schema. Nothing it refers to is ever fetched: a reference must end inside the schema.

    Raises `MissingExtra` in the name of `what` without the extra, `ValueError` for what is no JSON Schema.
    """

    def __init__(self, schema: Mapping[str, Any], what: str) -> None:
        if find_spec("jsonschema") is None:
            raise MissingExtra(what, "json-schema")
        validators: Any = import_module("jsonschema.validators")
        registry: Any = import_module("referencing").Registry()  # an empty one: the default fetches
        plain = thaw(schema)
        try:
            kind = validators.validator_for(plain, default=validators.Draft202012Validator)
            kind.check_schema(plain)
        except Exception as error:  # also what a hostile schema makes the validator raise
            raise ValueError(f"it is no valid JSON Schema: {short(error)}") from error
        self._validator: Any = kind(plain, registry=registry)

    def faults(self, value: Any) -> list[str]:
        """Say what is wrong with a value, the first few faults; empty when nothing is.

        Raises `ValueError` when the schema itself cannot be applied, such as one that refers to another document.
        """
        try:
            found: list[Any] = list(islice(self._validator.iter_errors(value), MAX_FAULTS))
        except Exception as error:  # an unresolvable or endless reference, a pattern that does not compile
            raise ValueError(f"its schema cannot be applied: {short(error)}") from error
        return [f"{fault.json_path}: {short(fault)}" for fault in found]


def short(error: BaseException) -> str:
    """Return an error's message in one line of bounded length."""
    message = getattr(error, "message", "") or str(error) or type(error).__name__
    line = " ".join(message[: MAX_QUOTE * 4].split())
    return line if len(line) <= MAX_QUOTE else f"{line[:MAX_QUOTE]}..."
