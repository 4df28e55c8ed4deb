"""Convert conversations and tools into pydantic-ai's types, and its replies into ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import thaw
from kairo_team.budget import Usage
from kairo_team.messages import Billing
from kairo_team.models.readings import finish_of_word
from kairo_team.models.tool_calls import arguments_text

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponse, ModelResponseStreamEvent
    from pydantic_ai.tools import ToolDefinition

    from kairo_team.messages import Message, ToolSpec
    from kairo_team.models.readings import Finish


def conversation(messages: Sequence[Message]) -> Iterator[ModelMessage]:
    """Yield requests for messages to the model, tool results included, and replies for the model's own messages.

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
        yield _reply(message)
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


def text_of(reply: ModelResponse) -> str:
    """Return the text without the model's thoughts; of a refusal, its words."""
    details = reply.provider_details or {}
    said = (reply.text, details.get("refusal"), details.get("block_reason_message"))
    return next((text for text in said if isinstance(text, str) and text.strip()), "")


def billing_of(reply: ModelResponse) -> Billing:
    """Return the facts that the price depends on: cached tokens, and the service that the provider reports."""
    spent, details = reply.usage, reply.provider_details or {}
    return Billing(
        spent.cache_read_tokens,
        max(0, spent.cache_write_tokens - spent.cache_write_1h_tokens),
        spent.cache_write_1h_tokens,
        {name: word for name, word in details.items() if isinstance(word, str)},
    )


def tool_definition(tool: ToolSpec) -> ToolDefinition:
    """Return the description of a tool for the model."""
    from pydantic_ai.tools import ToolDefinition

    parameters: Any = thaw(tool.parameters) or {"type": "object", "properties": {}}
    return ToolDefinition(name=tool.name, parameters_json_schema=parameters, description=tool.description or None)


def new_text(event: ModelResponseStreamEvent) -> str:
    """Return the text that an event of a stream adds to the reply."""
    from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta

    if isinstance(event, PartStartEvent):
        return event.part.content if isinstance(event.part, TextPart) else ""
    if isinstance(event, PartDeltaEvent):
        return event.delta.content_delta if isinstance(event.delta, TextPartDelta) else ""
    return ""
