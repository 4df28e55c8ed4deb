"""Convert conversations and tools into pydantic-ai's types, and its replies into ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import thaw
from kairo_team.budget import Usage
from kairo_team.messages import Billing
from kairo_team.models.natives import native_reply, reasoning_tokens
from kairo_team.models.readings import finish_of_word
from kairo_team.models.tool_calls import arguments_text, sound

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.tools import ToolDefinition

    from kairo_team.messages import Message, ToolSpec
    from kairo_team.models.readings import Finish


_BETWEEN: Final = "\n\n"
"""Between parts of a reply's text that something else separates, as pydantic-ai joins them."""


def conversation(messages: Sequence[Message], reader: str = "") -> Iterator[ModelMessage]:
    """Yield requests for messages to the model, tool results included, and replies for the model's own messages.

    Replies of `reader` (see `reader_of`) are as they came, all others are text and calls.

    Raises `ValueError` for a tool's message that answers no call of an earlier message.
    """
    from pydantic_ai.messages import ModelRequest

    asked: list[ModelRequestPart] = []
    called: dict[str, str] = {}
    for message in messages:
        if message.role != "assistant":
            asked.append(_part(message, called))
            continue
        if asked:
            yield ModelRequest(asked)
        asked = []
        called.update((call.id, call.name) for call in message.tool_calls)
        yield native_reply(message, reader) or _reply(message)
    if asked:
        yield ModelRequest(asked)


def _part(message: Message, called: dict[str, str]) -> ModelRequestPart:
    from pydantic_ai.messages import SystemPromptPart, ToolReturnPart, UserPromptPart

    match message.role:
        case "system":
            return SystemPromptPart(message.text)
        case "tool":
            call_id = message.tool_call_id or ""
            if call_id not in called:
                raise ValueError(f"a tool's message answers the call {call_id!r}, which no message before it makes")
            return ToolReturnPart(called[call_id], message.text, call_id)
        case _:
            return UserPromptPart(message.text)


def _reply(message: Message) -> ModelResponse:
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    calls = [ToolCallPart(call.name, arguments_text(call), call.id) for call in message.tool_calls]
    return ModelResponse([TextPart(message.text), *calls] if message.text or not calls else calls)


def usage_of(reply: ModelResponse) -> Usage | None:
    """Return the usage that the provider reports; None if it reports none, or an impossible one."""
    spent = reply.usage
    if not (spent.input_tokens or spent.output_tokens):
        return None
    try:
        return Usage(spent.input_tokens, spent.output_tokens, spent.cost or Decimal(0))
    except ValueError:
        return None


def finish_of(reply: ModelResponse) -> Finish:
    """Return why the reply ended."""
    details = reply.provider_details or {}
    if "block_reason" in details:  # Gemini refused the prompt
        return "content_filter"
    known = finish_of_word(reply.finish_reason)
    return finish_of_word(str(details.get("finish_reason"))) if known == "stop" else known


def billing_of(reply: ModelResponse) -> Billing:
    """Return the facts that the price depends on: cached tokens, and the service that the provider reports."""
    spent, details = reply.usage, reply.provider_details or {}
    return Billing(
        spent.cache_read_tokens,
        max(0, spent.cache_write_tokens - spent.cache_write_1h_tokens),
        spent.cache_write_1h_tokens,
        {name: word for name, word in details.items() if isinstance(word, str)},
        reasoning_tokens(reply),
    )


def tool_definition(tool: ToolSpec) -> ToolDefinition:
    """Return the description of a tool for the model."""
    from pydantic_ai.tools import ToolDefinition

    parameters: Any = thaw(tool.parameters) or {"type": "object", "properties": {}}
    return ToolDefinition(name=tool.name, parameters_json_schema=parameters, description=tool.description or None)


class Pieces:
    """Emit a streamed reply piece by piece: the text, which the joined pieces are, and separately the reasoning."""

    def __init__(self, on_text: Callable[[str], object], on_thinking: Callable[[str], object]) -> None:
        self._on_text, self._on_thinking = on_text, on_thinking
        self._held = ""
        """Blank text at the beginning: a reply without more has no text."""
        self._last: type[Any] | None = None
        """The class of the part that began last."""
        self._begun: set[type[Any]] = set()
        self.text = ""
        """The pieces of text so far."""

    def take(self, event: ModelResponseStreamEvent) -> None:
        """Emit what an event adds to the reply."""
        from pydantic_ai import messages as native

        if isinstance(event, native.PartStartEvent):
            kind = type(event.part)
            # The parts of a text are joined like this where something else is between them; thoughts always are.
            apart = kind in self._begun and (kind is native.ThinkingPart or kind is not self._last)
            self._last = kind
            self._begun.add(kind)
            if isinstance(event.part, native.TextPart):
                self._add(_BETWEEN * apart + event.part.content)
            elif isinstance(event.part, native.ThinkingPart):
                self._think(_BETWEEN * apart + event.part.content)
        elif isinstance(event, native.PartDeltaEvent):
            if isinstance(event.delta, native.TextPartDelta):
                self._add(event.delta.content_delta)
            elif isinstance(event.delta, native.ThinkingPartDelta):
                self._think(event.delta.content_delta or "")

    def end(self, text: str) -> str:
        """Emit the rest of a whole reply's text, such as a refusal's words; return the text that was emitted."""
        if text.startswith(self.text):
            self._held = ""
            self._add(text[len(self.text) :])
        return self.text

    def _add(self, piece: str) -> None:
        self._held += sound(piece)
        if self._held and (self.text or self._held.strip()):
            piece, self._held = self._held, ""
            self.text += piece
            self._on_text(piece)

    def _think(self, piece: str) -> None:
        if piece:
            self._on_thinking(sound(piece))
