"""What is said to a chat model and what it answers; the protocol itself stands in `contracts.ChatModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kairo_team.budget import Usage
from kairo_team.frozen import EMPTY, checked, freeze
from kairo_team.governance.pricing import PLAIN, Billing
from kairo_team.messages import Message, ToolCall, ToolSpec

__all__ = ["Message", "ModelRequest", "ModelResponse", "ToolCall", "ToolSpec"]

Frozen = Annotated[Mapping[str, Any], AfterValidator(freeze)]
"""Values by name, copied read-only."""


@checked
@dataclass(frozen=True)
class ModelRequest:
    """One call of a chat model."""

    messages: Annotated[Sequence[Message], AfterValidator(tuple)]
    tools: Annotated[Sequence[ToolSpec], AfterValidator(tuple)] = ()
    """What the model may ask for; it decides itself whether it does."""
    output_schema: Frozen | None = field(default=None, hash=False)
    """JSON Schema the reply must satisfy; None asks for plain text."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens of the reply; None leaves it to the model's own default."""
    settings: Frozen = field(default=EMPTY, hash=False)
    """Sampling settings by the provider's usual names, such as temperature and seed."""


@checked
@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A chat model's reply."""

    text: str
    tool_calls: Annotated[Sequence[ToolCall], AfterValidator(tuple)] = ()
    """What it asks tools to do, in order."""
    usage: Usage | None = None
    """What the provider says it used; None means unknown, and the whole hold is charged."""
    model: str = ""
    finish_reason: Literal["stop", "length", "content_filter"] = "stop"
    """Why the reply ended; `length` means it was cut off at the token limit."""
    billing: Billing = PLAIN
    """What the price depends on beyond the tokens, as the provider tells it."""
