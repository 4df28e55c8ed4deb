"""`output-validator`: replies that must be JSON of a certain form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from kairo_team.errors import MissingExtra
from kairo_team.frozen import freeze_json, thaw
from kairo_team.governance.guardrail_decisions import GuardrailDecision
from kairo_team.governance.guardrail_payloads import GuardrailPhase, ModelOutput
from kairo_team.governance.plug_ins import problem_of

if TYPE_CHECKING:
    from kairo_team.governance.guardrail_decisions import GuardrailContext

Fault = Callable[[str], str | None]
"""Says what is wrong with a reply, or None."""


@dataclass(frozen=True, slots=True)
class OutputValidator:
    """Denies a reply that is not JSON of the given form, with the first error.

    `schema` is a JSON Schema (extra `json-schema`; what it refers to must stand in it, nothing is fetched) or a type
    that pydantic can validate. A reply that calls tools is a step on the way and is left alone, whatever it says
    besides; so are the replies of planners and judges.
    """

    name: ClassVar[str] = "output-validator"
    phases: ClassVar[frozenset[GuardrailPhase]] = frozenset({GuardrailPhase.POST_MODEL})
    schema: Any = field(hash=False)
    order: float = field(default=0, kw_only=True)
    _fault: Fault = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema: Any = self.schema
        is_json = isinstance(schema, Mapping)
        object.__setattr__(self, "schema", freeze_json(schema) if is_json else schema)
        object.__setattr__(self, "_fault", _by_schema(thaw(schema)) if is_json else _by_type(schema))

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Validate the reply's text."""
        reply = context.payload
        if context.metadata.get("purpose", "generate") != "generate":
            return GuardrailDecision.allow()
        if not isinstance(reply, ModelOutput) or reply.response.tool_calls:
            return GuardrailDecision.allow()
        fault = self._fault(reply.text)
        return GuardrailDecision.allow() if fault is None else GuardrailDecision.deny(f"the reply {fault}")


def _by_schema(schema: dict[str, Any]) -> Fault:
    if find_spec("jsonschema") is None:
        raise MissingExtra("an OutputValidator with a JSON Schema", "json-schema")
    validators: Any = import_module("jsonschema.validators")
    registry: Any = import_module("referencing").Registry()  # an empty one: the default would fetch what is referred to
    try:
        kind = validators.validator_for(schema, default=validators.Draft202012Validator)
        kind.check_schema(schema)
    except Exception as error:
        raise ValueError(f"OutputValidator.schema is no JSON Schema: {problem_of(error)}") from error
    validator = kind(schema, registry=registry)
    best: Any = import_module("jsonschema.exceptions").best_match

    def fault(text: str) -> str | None:
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            return f"is no JSON: {problem_of(error)}"
        worst = best(validator.iter_errors(value))
        return None if worst is None else f"is not what the schema asks for: at {worst.json_path}: {worst.message:.300}"

    return fault


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _by_type(kind: Any) -> Fault:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    if kind is None or isinstance(kind, str):
        raise ValueError(f"OutputValidator.schema must be a JSON Schema or a type, not {kind!r}")
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except PydanticUserError as error:
        raise ValueError(
            f"OutputValidator.schema must be a JSON Schema or a type that pydantic can validate: {error}"
        ) from error

    def fault(text: str) -> str | None:
        try:
            adapter.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"]) or "its root"
            return f"is not what is asked for: at {where}: {first['msg']:.300}"
        return None

    return fault
