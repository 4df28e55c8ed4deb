"""Convert the agents library's requests and replies into plain messages, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from agents import AgentOutputSchemaBase, FunctionTool, ModelBehaviorError, ModelSettings
from agents import ModelResponse as TheirReply
from agents import Usage as TheirUsage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
)
from pydantic_core import to_jsonable_python

from kairo_team._util.frozen import freeze, thaw
from kairo_team._util.narrowing import is_list, is_mapping
from kairo_team._util.reply_json import json_in, read_json
from kairo_team.agents.foreign_files import part_bound
from kairo_team.budget import Usage
from kairo_team.messages import Billing, Message, ModelRequest, ModelResponse, ToolCall, ToolSpec
from kairo_team.models.call_keys import headers_with_key
from kairo_team.models.prompt_bounds import capped
from kairo_team.models.readings import finish_of_word, read_billing, read_usage, without_thoughts
from kairo_team.models.tool_calls import made_call, sound
from kairo_team.output_types import schema_of

if TYPE_CHECKING:
    from agents import Handoff
    from agents import Tool as TheirTool

Item = dict[str, Any]
"""One input item, in the shape of the Responses API."""

_TOLD_SETTINGS: Final = (
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "parallel_tool_calls", "truncation"),
    *("verbosity", "prompt_cache_retention", "top_logprobs", "store"),
)
"""Settings that guardrails and prices receive, in addition to the extra ones."""
_RANDOM: Final = "prompt_cache_key"
"""A setting that is new in every run: with it, recorded calls would never be found again."""


@dataclass(frozen=True, slots=True)
class NativeCall:
    """The arguments of one model call, in the library's order: its runner passes some by position, some by name."""

    system_instructions: str | None
    input: str | list[Any]
    model_settings: ModelSettings
    tools: list[TheirTool]
    output_schema: AgentOutputSchemaBase | None
    handoffs: list[Handoff[Any, Any]]
    tracing: Any
    previous_response_id: str | None
    conversation_id: str | None
    prompt: Any

    def arguments(self) -> dict[str, Any]:
        """Return the arguments by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def is_structured(self) -> bool:
        """Whether the answer is JSON."""
        return self.output_schema is not None and not self.output_schema.is_plain_text()

    @property
    def items(self) -> list[Item]:
        """The input as a list of items."""
        if isinstance(self.input, str):
            return [{"role": "user", "content": self.input}]
        return [cast("Item", item if isinstance(item, Mapping) else to_jsonable_python(item)) for item in self.input]

    def media(self, model: str) -> int:
        """Return the tokens that pictures and files may take in addition to the text."""
        parts = (part for item in self.items for part in _parts(item))
        return sum(part_bound(part, model) for part in parts if is_mapping(part) and not _is_text(part))

    def view(self) -> ModelRequest:
        """Return the call as a plain request: all its text, the schemas of tools and reply, and its settings."""
        system = [Message.system(self.system_instructions)] if self.system_instructions is not None else []
        schema = self.output_schema
        return ModelRequest(
            [*system, *map(message_of, self.items)],
            [*map(_tool_spec, self.tools), *map(_handoff_spec, self.handoffs)],
            None if schema is None or schema.is_plain_text() else schema.json_schema(),
            self.model_settings.max_tokens,
            _shown_settings(self.model_settings),
        )

    def under(self, request: ModelRequest, view: ModelRequest) -> NativeCall:
        """Return the call with the changes of `request`: its cap, and what guardrails changed since `view`."""
        changed: dict[str, Any] = {"model_settings": self._settings(request, view)}
        if request.messages != view.messages:
            changed |= self._changed_input(request.messages, view.messages)
        return replace(self, **changed)

    def with_key(self) -> NativeCall:
        """Return the call with the idempotency key of the current try, if it has one."""
        settings = self.model_settings
        headers = headers_with_key(settings.extra_headers)
        if headers is settings.extra_headers:
            return self
        return replace(self, model_settings=replace(settings, extra_headers=headers))

    def _settings(self, request: ModelRequest, view: ModelRequest) -> ModelSettings:
        now, before, most = thaw(request.settings), thaw(view.settings), request.max_tokens
        changed: dict[str, Any] = {"max_tokens": most}
        changed |= {name: now.get(name) for name in _TOLD_SETTINGS if now.get(name) != before.get(name)}
        for field in ("extra_args", "extra_body"):
            given = getattr(self.model_settings, field)
            if isinstance(given, Mapping):
                changed[field] = capped(_changed(cast("Item", given), now, before), most)
        return replace(self.model_settings, **changed)

    def _changed_input(self, messages: Sequence[Message], before: Sequence[Message]) -> dict[str, Any]:
        """Return instructions and input for changed messages, keeping the items of unchanged messages."""
        native: list[Item | None] = [None] if self.system_instructions is not None else []
        native += self.items
        same_length = len(messages) == len(before)
        kept = zip(before, native, strict=True) if same_length else _paired(messages, before, native)
        instructions: str | None = None
        items: list[Item] = []
        for message, (old, item) in zip(messages, kept, strict=True):
            if item is not None and message.role == old.role:
                items.append(item if message == old else _with_message(item, message, old))
            elif message.role == "system" and not items:
                # System messages before all items are the instructions; the library takes those apart.
                instructions = message.text if instructions is None else f"{instructions}\n\n{message.text}"
            else:
                items += items_of(message)
        return {"system_instructions": instructions, "input": items}


def _paired(
    messages: Sequence[Message], before: Sequence[Message], native: Sequence[Item | None]
) -> list[tuple[Message, Item | None]]:
    """Return, for each message, the first equal earlier message and its item; the item is None for a new message."""
    left = list(zip(before, native, strict=True))
    found: list[tuple[Message, Item | None]] = []
    for message in messages:
        at = next((i for i, (old, _) in enumerate(left) if old == message), None)
        found.append((message, None) if at is None else left.pop(at))  # each item once: equal texts may differ natively
    return found


# ---------------------------------------------------------------- input items


_ROLES: Final[Mapping[Any, Literal["system", "user", "assistant"]]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


def message_of(item: Item) -> Message:
    """Return an input item as a message; an item of an unknown type is shown as JSON."""
    match item.get("type", "message"):
        case "message" if item.get("role") in _ROLES:
            return Message(_ROLES[item["role"]], _text(item.get("content")))
        case "function_call":
            call = made_call(str(item.get("call_id")), str(item.get("name")), item.get("arguments"))
            return Message.assistant("", [call])
        case "function_call_output":
            return Message.tool(str(item.get("call_id")), _text(item.get("output")))
        case _:
            return Message.assistant(to_text(item))


def items_of(message: Message) -> list[Item]:
    """Return a message as input items: its text, and each of its tool calls."""
    if message.role == "tool":
        return [{"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}]
    items: list[Item] = [{"role": message.role, "content": message.text}] if message.text else []
    return [*items, *(_native_call(call).model_dump(exclude_unset=True) for call in message.tool_calls)]


def _with_message(item: Item, message: Message, old: Message) -> Item:
    """Return a copy of an item with the current text of its message."""
    kind = item.get("type", "message")
    if kind == "function_call":
        call = message.tool_calls[0] if message.tool_calls else old.tool_calls[0]
        return {**item, "arguments": _written(call, item.get("arguments"))}
    if kind not in ("message", "function_call_output"):
        return read_arguments(message.text) or {"role": "assistant", "content": message.text}
    field = "output" if kind == "function_call_output" else "content"
    return {**item, field: _replaced(item.get(field), message.text)}


def _parts(item: Item) -> list[Any]:
    """Return the parts of an item's content; a string is one part."""
    content = item.get("output" if item.get("type") == "function_call_output" else "content")
    return content if is_list(content) else [content]


def _text(content: Any) -> str:
    """Return the text of an item's content, or of a tool's output."""
    if not is_list(content):
        return content if isinstance(content, str) else "" if content is None else to_text(content)
    texts = filter(_is_text, content)
    return "\n".join(one if isinstance(one, str) else str(one.get("text") or one.get("refusal") or "") for one in texts)


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and ("text" in part or "refusal" in part))


def _replaced(content: Any, text: str) -> Any:
    """Return a content with another text in one part, keeping pictures and files."""
    if not is_list(content):
        return text
    first = next(filter(_is_text, content), {"type": "input_text"})
    named = {**first, "text": text} if isinstance(first, Mapping) else text
    return [named, *(part for part in content if not _is_text(part))]


# ---------------------------------------------------------------- tools, schemas and settings


class TaskOutput(AgentOutputSchemaBase):
    """The task's output type for an agent without one; the data is validated when the attempt ends."""

    def __init__(self, kind: Any) -> None:
        self._schema = schema_of(kind)

    def is_plain_text(self) -> bool:
        """Return False, because the output is JSON."""
        return False

    def name(self) -> str:
        """Return the schema's title."""
        return str(self._schema.get("title", "output"))

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema."""
        return self._schema

    def is_strict_json_schema(self) -> bool:
        """Return False, because a strict schema cannot express every type."""
        return False

    def validate_json(self, json_str: str) -> Any:
        """Return the data; `ModelBehaviorError` for a text that is not JSON."""
        try:
            return json.loads(json_str)
        except (ValueError, RecursionError) as error:
            raise ModelBehaviorError(f"the reply is not JSON: {error}") from error


def _tool_spec(tool: TheirTool) -> ToolSpec:
    if isinstance(tool, FunctionTool):
        return ToolSpec(tool.name, tool.description or "", tool.params_json_schema)
    return ToolSpec(str(getattr(tool, "name", type(tool).__name__)), repr(tool))


def _handoff_spec(handoff: Handoff[Any, Any]) -> ToolSpec:
    return ToolSpec(handoff.tool_name, handoff.tool_description or "", handoff.input_json_schema)


def _shown_settings(settings: ModelSettings) -> dict[str, Any]:
    given = {name: getattr(settings, name, None) for name in _TOLD_SETTINGS}
    shown = {name: value for name, value in given.items() if value is not None}
    for extra in (settings.extra_args, settings.extra_body):
        if isinstance(extra, Mapping):
            shown |= cast("Item", to_jsonable_python(extra, fallback=repr))
    shown.pop(_RANDOM, None)
    return shown


def _changed(extra: Mapping[str, Any], now: Mapping[str, Any], before: Mapping[str, Any]) -> Item:
    """Return the extra settings with the changes of guardrails."""
    same = {name: value for name, value in extra.items() if now.get(name) == before.get(name)}
    return same | {name: now[name] for name in extra if name in now and name not in same}


# ---------------------------------------------------------------- replies


def reply_view(reply: TheirReply, most: int | None, word: str | None = None, tier: str | None = None) -> ModelResponse:
    """Return a plain reply, whose usage may be None; `word` is the provider's finish reason, `tier` its service.

    Without a word, a reply of the full length counts as cut off.
    """
    usage = _usage(reply.usage)
    finish = finish_of_word(word)
    if finish == "stop" and any(getattr(item, "status", None) == "incomplete" for item in reply.output):
        finish = "length"
    if word is None and usage is not None and most is not None and usage.completion_tokens >= most:
        finish = "length"
    if finish == "stop" and any(isinstance(part, ResponseOutputRefusal) for part in _reply_parts(reply)):
        finish = "content_filter"
    calls = [
        made_call(item.call_id, item.name, item.arguments)
        for item in reply.output
        if isinstance(item, ResponseFunctionToolCall)
    ]
    texts = (part.refusal if isinstance(part, ResponseOutputRefusal) else part.text for part in _reply_parts(reply))
    text = "".join(one or "" for one in texts)
    return ModelResponse(text, calls, usage, "", finish, _billing(reply.usage, tier))


def sound_reply(reply: TheirReply, *, structured: bool = False) -> TheirReply:
    """Return a reply with text that can be encoded: replace lone surrogates by question marks.

    A model's thoughts, between tags before its text, are left out; of a structured answer, all but its JSON.
    """
    answers = structured and not any(isinstance(item, ResponseFunctionToolCall) for item in reply.output)
    output = list[Any]()
    for item in reply.output:
        changed: dict[str, Any] = {}
        if isinstance(item, ResponseFunctionToolCall):
            # The library makes a fingerprint of the arguments, and JSON may escape lone surrogates.
            read = read_arguments(item.arguments)
            plain = to_text(read) if read is not None else item.arguments
            changed = {} if plain == sound(plain) else {"arguments": sound(plain)}
        elif isinstance(item, ResponseOutputMessage):
            changed = {"content": [_sound_part(part, structured=answers) for part in item.content]}
        output.append(item.model_copy(update=changed) if changed else item)
    return replace(reply, output=output)


def _sound_part(part: Any, *, structured: bool) -> Any:
    field = "refusal" if isinstance(part, ResponseOutputRefusal) else "text"
    text = sound(without_thoughts(getattr(part, field) or ""))
    return part.model_copy(update={field: json_in(text) if structured else text})


def rebuilt(reply: TheirReply | None, before: ModelResponse | None, now: ModelResponse) -> TheirReply:
    """Return the reply for the library: the model's own, with the changes of guardrails.

    For a recorded call, which has no model's reply, it is made from the record.
    """
    if reply is None or before is None:
        used = now.usage or Usage()
        spent = TheirUsage(1, used.prompt_tokens, output_tokens=used.completion_tokens, total_tokens=used.tokens)
        return TheirReply([*_text_items(now.text), *map(_native_call, now.tool_calls)], spent, None)
    output: list[Any] = list(_with_ids(reply.output, now.tool_calls))
    if now.text != before.text:
        rest = [item for item in output if not isinstance(item, ResponseOutputMessage)]
        output = [*_text_items(now.text), *rest]
    if tuple(now.tool_calls) != tuple(before.tool_calls):
        output = list(_with_calls(output, now.tool_calls))
    return replace(reply, output=output)


def _with_ids(output: Sequence[Any], calls: Sequence[ToolCall]) -> Iterable[Any]:
    """Yield the output, with its calls' ids replaced by the ids of `calls` if their numbers are equal."""
    asked = [item for item in output if isinstance(item, ResponseFunctionToolCall)]
    left = iter(calls if len(asked) == len(calls) else ())
    for item in output:
        call = next(left, None) if isinstance(item, ResponseFunctionToolCall) else None
        yield item if call is None or call.id == item.call_id else item.model_copy(update={"call_id": call.id})


def _with_calls(output: Iterable[Any], calls: Sequence[ToolCall]) -> Iterable[Any]:
    """Yield the output with the remaining tool calls, as guardrails changed them."""
    left = {call.id: call for call in calls}
    for item in output:
        if not isinstance(item, ResponseFunctionToolCall):
            yield item
        elif item.call_id in left:
            call = left[item.call_id]
            yield item.model_copy(update={"name": call.name, "arguments": _written(call, item.arguments)})


def _reply_parts(reply: TheirReply) -> Iterable[ResponseOutputText | ResponseOutputRefusal]:
    for item in reply.output:
        if isinstance(item, ResponseOutputMessage):
            yield from item.content


def _native_call(call: ToolCall) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        type="function_call", call_id=call.id, name=call.name, arguments=_written(call, None)
    )


def _text_items(text: str) -> list[ResponseOutputMessage]:
    if not text:
        return []
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=[part])]


def _usage(usage: TheirUsage) -> Usage | None:
    return read_usage(usage.input_tokens or 0, usage.output_tokens or 0, usage.total_tokens)


def _billing(usage: TheirUsage, tier: str | None) -> Billing:
    details = usage.input_tokens_details
    return read_billing(
        getattr(details, "cached_tokens", 0),
        getattr(details, "cache_write_tokens", 0),
        reasoning=getattr(usage.output_tokens_details, "reasoning_tokens", 0),
        served={"service_tier": tier} if isinstance(tier, str) else {},
    )


# ---------------------------------------------------------------- arguments


def read_arguments(text: str) -> dict[str, Any] | None:
    """Return a tool call's arguments by name; None unless the text is a JSON object. Blank means no arguments."""
    try:
        read: Any = read_json(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", read) if isinstance(read, dict) else None


def _written(call: ToolCall, before: Any) -> str:
    """Return a call's arguments as text: the model's own text if they are unchanged."""
    if isinstance(call.arguments, str):
        return call.arguments
    return (
        before
        if isinstance(before, str) and freeze(read_arguments(before)) == call.arguments
        else to_text(call.arguments)
    )


def to_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, default=repr, ensure_ascii=False)
