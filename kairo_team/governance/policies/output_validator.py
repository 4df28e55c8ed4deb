"""`output-validator`: denies replies that are not JSON of a certain form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from kairo_team._util.frozen import freeze_json
from kairo_team._util.reply_json import read_json
from kairo_team.guardrails import GuardrailContext, GuardrailDecision, GuardrailPhase, ModelOutput
from kairo_team.output_types import JsonSchema
from kairo_team.plugin_calls import problem_of

Fault = Callable[[str], str | None]
"""Returns the fault of a reply, or None."""


@dataclass(frozen=True, slots=True)
class OutputValidator:
    """Deny a reply that is not JSON of the given form; the reason is the first error.

    `schema` is a JSON Schema (extra `json-schema`; references must stay inside the schema, nothing is fetched) or a
    type that pydantic can validate. A reply that calls tools is an intermediate step and always passes, whatever its
    text; replies of planners and judges pass too.
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
        object.__setattr__(
            self, "_fault", _by_schema(cast("Mapping[str, Any]", schema)) if is_json else _by_type(schema)
        )

    async def evaluate(self, context: GuardrailContext) -> GuardrailDecision:
        """Validate the reply's text."""
        reply = context.payload
        if context.metadata.get("purpose", "generate") != "generate":  # planners and judges reply in forms of their own
            return GuardrailDecision.allow()
        if not isinstance(reply, ModelOutput) or reply.response.tool_calls:
            return GuardrailDecision.allow()
        fault = self._fault(reply.text)
        return GuardrailDecision.allow() if fault is None else GuardrailDecision.deny(f"the reply {fault}")


def _by_schema(schema: Mapping[str, Any]) -> Fault:
    try:
        wanted = JsonSchema(schema, "an OutputValidator with a JSON Schema")
    except ValueError as error:
        raise ValueError(f"OutputValidator.schema: {error}") from error

    def fault(text: str) -> str | None:
        try:
            value = read_json(text)
        except (ValueError, RecursionError) as error:
            return f"is not JSON: {problem_of(error)}"
        found = wanted.faults(value)
        return f"does not match the schema: at {found[0]}" if found else None

    return fault


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
            # Without the input, which may be long or secret.
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"]) or "its root"
            return f"does not have the required form: at {where}: {first['msg']:.300}"
        return None

    return fault
