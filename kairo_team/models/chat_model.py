"""What is said to a chat model and what it answers; the protocol itself stands in `contracts.ChatModel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass as value

from kairo_team.budget import Usage
from kairo_team.frozen import VALUE, no_other_fields
from kairo_team.governance.pricing import PLAIN, Billing


@no_other_fields
@value(frozen=True, config=VALUE)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    text: str

    @classmethod
    def system(cls, text: str) -> Message:
        """Make the instructions that stand above the conversation."""
        return cls("system", text)

    @classmethod
    def user(cls, text: str) -> Message:
        """Make a message of the caller's."""
        return cls("user", text)

    @classmethod
    def assistant(cls, text: str) -> Message:
        """Make a message of the model's."""
        return cls("assistant", text)


@no_other_fields
@value(frozen=True, config=VALUE)
class ModelRequest:
    """One call of a chat model."""

    messages: Annotated[Sequence[Message], AfterValidator(tuple)]
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    """JSON Schema the reply must satisfy; None asks for plain text."""
    max_tokens: int | None = None
    """Most tokens of the reply; None leaves it to the model's own default."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    """Sampling settings by the provider's usual names, such as temperature and seed."""


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A chat model's reply."""

    text: str
    usage: Usage | None = None
    """What the provider says it used; None means unknown, and the whole hold is charged."""
    model: str = ""
    finish_reason: Literal["stop", "length", "content_filter"] = "stop"
    """Why the reply ended; `length` means it was cut off at the token limit."""
    billing: Billing = PLAIN
    """What the price depends on beyond the tokens, as the provider tells it."""
