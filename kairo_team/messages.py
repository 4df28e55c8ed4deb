"""Conversations with models: messages, tool calls and tool descriptions; `ModelRequest` and `ModelResponse`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from kairo_team._util.frozen import EMPTY, checked, freeze, freeze_json, trusted
from kairo_team._util.late_pydantic import AfterValidator, AsTuple, Number, omit_empty
from kairo_team.budget import Usage, check_count
from kairo_team.files import File

Json = Annotated[Mapping[str, Any], AfterValidator(freeze_json)]
"""JSON values by name, copied read-only."""


@checked
@dataclass(frozen=True)
class ToolSpec:
    """The description of a tool that a model gets."""

    name: str
    description: str = ""
    parameters: Json = field(default=EMPTY, hash=False)
    """JSON Schema of the arguments: an object."""


@checked
@dataclass(frozen=True)
class ToolCall:
    """A call of a tool that a model requests."""

    id: str
    """Unique in its conversation; the result names it."""
    name: str
    arguments: Json | str = field(default=EMPTY, hash=False)
    """Arguments by name; the model's own text if it was not a JSON object."""


@checked
@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    tool_calls: Annotated[Sequence[ToolCall], AsTuple()] = ()
    """The tool calls that the assistant requested, in order."""
    tool_call_id: str | None = None
    """The call that a tool's message answers."""
    native: str | None = field(default=None, repr=False)
    """The `ModelResponse.native` of the reply that this message came from; None without one. The journal keeps it, the
    JSON of a message leaves it out."""
    files: Annotated[Sequence[File], AsTuple()] = field(default=(), repr=False)
    """Files that the model gets after the text: of the caller, or of a tool's result."""
    aside: bool = field(default=False, compare=False, repr=False)
    """Whether it is about circumstances, such as the turns that are left: a recorded reply is found without it, and no
    conversation keeps it."""

    __get_pydantic_core_schema__ = omit_empty("files", always=("native", "aside"))

    def __post_init__(self) -> None:
        if self.files and self.role not in ("user", "tool"):
            raise ValueError(f"files belong to a user's or a tool's message, not to one of the role {self.role!r}")

    @classmethod
    def system(cls, text: str) -> Message:
        """Make the instructions before the conversation."""
        return _make_trusted(cls, "system", text)

    @classmethod
    def user(cls, text: str, files: Sequence[File] = ()) -> Message:
        """Make a message from the caller."""
        return _make_trusted(cls, "user", text) if files == () else cls("user", text, files=files)

    @classmethod
    def assistant(cls, text: str, tool_calls: Sequence[ToolCall] = (), native: str | None = None) -> Message:
        """Make a message from the model; `native` is the reply's, so that reasoning goes back to its provider."""
        known = isinstance(tool_calls, tuple | list) and {type(call) for call in tool_calls} <= {ToolCall}
        if known and (native is None or type(native) is str):
            return _make_trusted(cls, "assistant", text, tuple(tool_calls), native=native)
        return cls("assistant", text, tool_calls, native=native)

    @classmethod
    def tool(cls, call_id: str, text: str, files: Sequence[File] = ()) -> Message:
        """Make the answer to a tool call."""
        if files == () and type(call_id) is str:
            return _make_trusted(cls, "tool", text, tool_call_id=call_id)
        return cls("tool", text, tool_call_id=call_id, files=files)


_trusted_message: Final = trusted(Message)


def _make_trusted(
    kind: type[Message],
    role: Literal["system", "user", "assistant", "tool"],
    text: str,
    tool_calls: tuple[ToolCall, ...] = (),
    tool_call_id: str | None = None,
    native: str | None = None,
) -> Message:
    """Make a message of which the validator has only the text left to check."""
    make = _trusted_message if kind is Message and type(text) is str else kind
    return make(role, text, tool_calls, tool_call_id, native)


Frozen = Annotated[Mapping[str, Any], AfterValidator(freeze)]
"""Values by name, copied read-only."""


@checked
@dataclass(frozen=True)
class ModelRequest:
    """One call of a chat model."""

    messages: Annotated[Sequence[Message], AsTuple()]
    tools: Annotated[Sequence[ToolSpec], AsTuple()] = ()
    """Tools that the model may request; it need not."""
    output_schema: Frozen | None = field(default=None, hash=False)
    """JSON Schema the reply must satisfy; None asks for plain text."""
    max_tokens: Annotated[int, Number(ge=1)] | None = None
    """Most tokens of the reply; None leaves it to the model's own default."""
    settings: Frozen = field(default=EMPTY, hash=False)
    """Sampling settings by the provider's usual names, such as temperature and seed."""

    @property
    def without_asides(self) -> ModelRequest:
        """The request by which a recorded reply is found; see `Message.aside`."""
        if not any(message.aside for message in self.messages):
            return self
        kept = tuple(message for message in self.messages if not message.aside)
        # This request has validated the parts.
        return _trusted_request(kept, self.tools, self.output_schema, self.max_tokens, self.settings)

    @property
    def files(self) -> Sequence[File]:
        """The files of all messages, in order."""
        return [file for message in self.messages for file in message.files]


_trusted_request: Final = trusted(ModelRequest)


@dataclass(frozen=True, slots=True)
class Billing:
    """What the price of a call depends on besides its tokens, as the provider reports it."""

    cached_tokens: int = 0
    """Tokens of the prompt that were read from the provider's cache."""
    cache_write_tokens: int = 0
    """Tokens of the prompt that were written to the cache."""
    cache_write_1h_tokens: int = 0
    """Tokens of the prompt that were written to the cache for an hour, not included in `cache_write_tokens`."""
    served: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """How the call was served, in the provider's words, such as `{"service_tier": "priority"}`. `{"cache": "hit"}`: the
    model was not called, and a usage of 0 is true."""
    reasoning_tokens: int = 0
    """Tokens of the reply that were reasoning, which its text does not show. `Usage.completion_tokens` has them too."""

    def __post_init__(self) -> None:
        for name in ("cached_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens"):
            check_count(f"Billing.{name}", getattr(self, name))


PLAIN: Final = Billing()


@checked
@dataclass(frozen=True, slots=True)
class ModelResponse:
    """A chat model's reply."""

    text: str
    tool_calls: Annotated[Sequence[ToolCall], AsTuple()] = ()
    """The tool calls it requests, in order."""
    usage: Usage | None = None
    """Usage that the provider reports; None, or no tokens and no dollars, is unknown: the whole hold is charged."""
    model: str = ""
    finish_reason: Literal["stop", "length", "content_filter"] = "stop"
    """Why the reply ended; `length` means it was cut off at the token limit."""
    billing: Billing = PLAIN
    """What the price depends on besides the tokens, as the provider reports it."""
    native: str | None = field(default=None, repr=False)
    """The whole reply in the provider's own form: reasoning, signatures, order of parts. Put it into the `Message` of
    this reply: a request to the same model is then built from it, one to another model from text and calls. A message
    whose text or calls were changed since is sent as it is, without this."""

    @property
    def cut_by(self) -> str | None:
        """The cause that cut the reply off, in words; None for a whole reply. Make no tool call of a cut reply."""
        match self.finish_reason:
            case "length":
                most = "" if self.usage is None else f" of {self.usage.completion_tokens:,} tokens"
                return f"the reply was cut off at its limit{most}"
            case "content_filter":
                words = f": {self.text.strip():.200}" if self.text.strip() else ""
                return f"the provider's filter cut off or refused the reply{words}"
            case _:
                return None
