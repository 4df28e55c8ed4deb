"""What is said in a conversation: messages, the tool calls in them, and what tools are offered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from kairo_team.frozen import EMPTY, checked, freeze_json

Json = Annotated[Mapping[str, Any], AfterValidator(freeze_json)]
"""JSON values by name, copied read-only."""


@checked
@dataclass(frozen=True)
class ToolSpec:
    """What a model is told of a tool."""

    name: str
    description: str = ""
    parameters: Json = field(default=EMPTY, hash=False)
    """JSON Schema of the arguments: an object."""


@checked
@dataclass(frozen=True)
class ToolCall:
    """What a model asks a tool to do."""

    id: str
    """Unique in its conversation; the result names it."""
    name: str
    arguments: Json | str = field(default=EMPTY, hash=False)
    """By name; the model's own text where that was no JSON object."""


@checked
@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    tool_calls: Annotated[Sequence[ToolCall], AfterValidator(tuple)] = ()
    """What the assistant asked tools to do, in order."""
    tool_call_id: str | None = None
    """Of a tool's message: the call it answers."""

    @classmethod
    def system(cls, text: str) -> Message:
        """Make the instructions that stand above the conversation."""
        return cls("system", text)

    @classmethod
    def user(cls, text: str) -> Message:
        """Make a message of the caller's."""
        return cls("user", text)

    @classmethod
    def assistant(cls, text: str, tool_calls: Sequence[ToolCall] = ()) -> Message:
        """Make a message of the model's."""
        return cls("assistant", text, tool_calls)

    @classmethod
    def tool(cls, call_id: str, text: str) -> Message:
        """Make the answer to a tool call."""
        return cls("tool", text, tool_call_id=call_id)
