"""Replies in their provider's own form: written as JSON text, and read back for a request to the same model.

Reasoning with its signature, encrypted reasoning, calls of the provider's own tools and the order of parts are there.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from kairo_team.models.readings import without_thoughts
from kairo_team.models.tool_calls import made_call, sound

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse
    from pydantic_ai.models import Model

    from kairo_team.messages import Message, ToolCall

_logger = logging.getLogger("kairo_team")

# An alias and the dated model behind it read each other's replies.
_DATE: Final = re.compile(r"[-@](\d{8}|\d{4}-\d\d-\d\d|latest)$")
"""The end of a model's name that says which issue of the model it is."""
_LOCAL: Final = ("usage", "timestamp", "run_id", "conversation_id", "metadata", "state", "failed_attempts")
"""Fields of a reply that never go back to a provider."""


def reader_of(model: Model[Any]) -> str:
    """Return the name of who can read a reply: the class of client, the provider, and the model without its date."""
    return f"{type(model).__name__}:{model.system}:{_DATE.sub('', model.model_name)}"


def native_of(reply: ModelResponse, reader: str) -> str | None:
    """Return a reply as JSON text for `reader`; None if its text and calls are all that there is to send back."""
    # One text, if any, comes before all calls: as text and calls alone are sent.
    in_usual_order = all(part.part_kind != "text" for part in reply.parts[1:])
    if in_usual_order and all(map(_is_plain, reply.parts)):
        return None
    from pydantic_ai.messages import ModelMessagesTypeAdapter, TextPart

    kept = [_sound_part(part) for part in reply.parts]
    if not reply.text and (said := text_of(reply)):  # a refusal's words, without which reasoning is not taken back
        kept.append(TextPart(sound(said)))
    (written,) = ModelMessagesTypeAdapter.dump_python([replace(reply, parts=kept)], mode="json", exclude={0: {*_LOCAL}})
    written = _without_none(written) | {"parts": list(map(_without_none, written["parts"]))}
    return json.dumps({"reader": reader, "reply": written}, ensure_ascii=False, separators=(",", ":"))


def native_reply(message: Message, reader: str) -> ModelResponse | None:
    """Return the reply that a message came from, with the ids of the message's calls, if `reader` may have it.

    None for another model's reply, and for one whose text or calls were changed since.
    """
    from pydantic_ai.messages import ThinkingPart

    reply = read_native(message.native, reader)
    if reply is None:
        return None
    # Ids are left out of the comparison: they may have been replaced (`with_own_ids`).
    calls = [made_call("", call.tool_name, call.args) for call in reply.tool_calls]
    said = [replace(call, id="") for call in message.tool_calls]
    if sound(text_of(reply)) != message.text or calls != said:
        _logger.info("%s gets a reply as text and calls, because it was changed after it came", reader)
        return None
    reply = with_ids(reply, message.tool_calls)
    thoughts = [part for part in reply.parts if isinstance(part, ThinkingPart)]
    if reader.startswith("OpenRouterModel:") and not any(part.provider_details for part in thoughts):
        # OpenRouter's client sends thoughts without details, such as a text alone, only if another system made them.
        return replace(reply, canonical_system="")
    return reply


def loses_thoughts(messages: Sequence[Message], reader: str) -> bool:
    """Return whether tool calls whose results are in the last messages are sent without the thought before them.

    Their reply was changed, or another model made it.
    """
    from pydantic_ai.messages import ThinkingPart

    replies: list[Message] = []
    answered = False
    for message in reversed(messages):
        if message.role == "tool":
            answered = True
        elif message.role == "assistant":
            if not answered:  # another question has come since
                break
            replies.append(message)
            answered = False
    sent = [native_reply(message, reader) for message in replies]
    if any(reply is None and message.native is not None for reply, message in zip(sent, replies, strict=True)):
        return True
    first = sent[-1] if sent else None
    return bool(sent) and (first is None or not any(isinstance(part, ThinkingPart) for part in first.parts))


def read_native(native: str | None, reader: str) -> ModelResponse | None:
    """Return the reply that `native_of` wrote for `reader`; None for anything else, with a note in the log."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    if native is None:
        return None
    by = "another library"
    try:
        written: Any = json.loads(native)
        by = str(written["reader"])
        if by == reader:
            (reply,) = ModelMessagesTypeAdapter.validate_python([written["reply"]])
            return cast("ModelResponse", reply)
    except (ValueError, LookupError, TypeError):  # a record of another version, or another library's form
        pass
    _logger.info("%s gets a reply of %s as text and calls: reasoning goes back only to its own model", reader, by)
    return None


def text_of(reply: ModelResponse) -> str:
    """Return the text without the model's thoughts; of a refusal, its words."""
    details = reply.provider_details or {}
    said = (without_thoughts(reply.text or ""), details.get("refusal"), details.get("block_reason_message"))
    return next((text for text in said if isinstance(text, str) and text.strip()), "")


def reasoning_tokens(reply: ModelResponse) -> int:
    """Return the tokens of reasoning that the provider reports; they are part of the reply's tokens."""
    spent, details = reply.usage, reply.usage.details or {}
    known = (
        getattr(spent, "output_reasoning_tokens", 0),
        details.get("reasoning_tokens"),
        details.get("thoughts_tokens"),
    )
    return max((tokens for tokens in known if isinstance(tokens, int)), default=0)


def with_ids(reply: ModelResponse, calls: Sequence[ToolCall]) -> ModelResponse:
    """Return the reply with its calls' ids replaced by the ids of `calls` if their numbers are equal."""
    from pydantic_ai.messages import ToolCallPart

    asked = reply.tool_calls
    if len(asked) != len(calls) or all(part.tool_call_id == call.id for part, call in zip(asked, calls, strict=True)):
        return reply
    left = iter(calls)
    parts = [
        replace(part, tool_call_id=next(left).id) if isinstance(part, ToolCallPart) else part for part in reply.parts
    ]
    return replace(reply, parts=parts)


def sound_reply(reply: ModelResponse) -> ModelResponse:
    """Return a reply with text that can be encoded: replace lone surrogates by question marks.

    A model's thoughts, between tags before its text, are left out.
    """
    parts: list[Any] = []
    for part in map(_sound_part, reply.parts):
        text = without_thoughts(part.content) if part.part_kind == "text" else None
        parts.append(part if text is None or text == part.content else replace(part, content=text))
    return replace(reply, parts=parts)


def _sound_part(part: Any) -> Any:
    for name in ("content", "args"):
        words: Any = getattr(part, name, None)
        if isinstance(words, str):
            return part if words == sound(words) else replace(part, **{name: sound(words)})
    return part


def _is_plain(part: Any) -> bool:
    """Return whether a part is a text or a call without ids, signatures or other details."""
    more = ("id", "provider_details", "citations", "signature")
    return part.part_kind in ("text", "tool-call") and not any(getattr(part, name, None) for name in more)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
