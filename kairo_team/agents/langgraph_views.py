"""Convert LangChain's messages into the library's, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from kairo_team._util.frozen import EMPTY, thaw
from kairo_team._util.narrowing import fields_of
from kairo_team.agents.foreign_files import part_bound
from kairo_team.budget import Usage
from kairo_team.messages import Billing, Message, ModelRequest, ModelResponse, ToolCall, ToolSpec
from kairo_team.models.readings import finish_of_word, read_billing, read_usage, without_thoughts
from kairo_team.models.tool_calls import made_call

_ROLES: Final[Mapping[str, Literal["system", "user", "assistant", "tool"]]] = {
    "system": "system", "developer": "system", "ai": "assistant", "AIMessageChunk": "assistant", "tool": "tool",
}  # fmt: skip
_PROVIDERS: Final = {"google_genai": "google", "amazon_bedrock": "bedrock"}
_MODELS: Final = frozenset({"ai", "AIMessageChunk"})
_PLAIN: Final = (str, int, float, bool)
"""Types of settings that can be recorded."""
_FINISHES: Final = ("finish_reason", "stop_reason", "stopReason", "done_reason", "status")
"""Where integrations keep the provider's word about why a reply ended."""
_USAGE_FIRST: Final = frozenset({"anthropic", "google_genai", "google_vertexai"})
"""Providers whose streams report usage before the end."""
_CALLS: Final = frozenset({"tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta"})
"""Types of content blocks in which providers repeat their tool calls."""
_CALLS_BESIDE: Final = frozenset({"tool_calls", "function_call"})
"""Keys in `additional_kwargs` in which providers repeat their tool calls."""


class View(NamedTuple):
    """A model call as the governed path sees it."""

    name: str
    """`provider:model`."""
    request: ModelRequest
    """The request as text; `max_tokens` is the model's declared limit."""
    beyond: int
    """Most tokens of the content that is not text, such as pictures and files."""


def view(messages: Sequence[Any], details: Mapping[str, Any], settings: Mapping[str, Any]) -> View:
    """Convert a call; `details` and `settings` are the data that the model gives LangChain's tracers."""
    most = details.get("ls_max_tokens")
    provider = str(details.get("ls_provider") or "langchain")
    name = f"{_PROVIDERS.get(provider, provider)}:{details.get('ls_model_name') or 'model'}"
    most = most if isinstance(most, int) and most > 0 else None
    tools: list[ToolSpec] = []
    for tool in settings.get("tools") or ():
        if (function := _function(tool)) is not None:
            tools.append(ToolSpec(function["name"], function.get("description", ""), function.get("parameters", {})))
        else:  # in its provider's own form
            tools.append(ToolSpec("other", repr(tool)))
    request = ModelRequest(
        [message_view(message) for message in messages],
        tools,
        max_tokens=most,
        settings={name: found for name, found in settings.items() if name != "tools" and isinstance(found, _PLAIN)},
    )
    contents = [message.content for message in messages if not isinstance(message.content, str)]
    return View(name, request, sum(part_bound(one, name) for blocks in contents for one in blocks if not _is_text(one)))


def message_view(message: Any) -> Message:
    """Convert a message: its text and tool calls."""
    role: Literal["system", "user", "assistant", "tool"] = _ROLES.get(message.type, "user")
    calls = [_call(call) for call in getattr(message, "tool_calls", ())]
    return Message(role, text_of(message), calls, getattr(message, "tool_call_id", None))


def text_of(message: Any) -> str:
    """Return the text of a message; of a model's, without its thoughts, and of a refusal its words."""
    if message.type not in _MODELS:
        return written_in(message)
    return without_thoughts(written_in(message)) or _refusal(message) or ""


def written_in(message: Any) -> str:
    """Return the text of a message, or of a piece of one, as it is written."""
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(one if isinstance(one, str) else str(one.get("text", "")) for one in content if _is_text(one))


def with_all_calls(message: Any) -> Any:
    """Add a reply's invalid tool calls, whose arguments are not JSON, to its tool calls.

    LangChain keeps them apart. A graph would take a reply with only invalid calls for an answer; this way the model
    reads what is wrong.
    """
    broken = [call for call in message.invalid_tool_calls if call.get("name")]
    if not broken:
        return message
    calls = [made_call(call.get("id") or "", call["name"], call.get("args")) for call in broken]
    every = [*message.tool_calls, *_native_calls(calls)]
    return message.model_copy(update={"tool_calls": every, "invalid_tool_calls": []})


def response_view(message: Any, output: Mapping[str, Any] = EMPTY) -> ModelResponse:
    """Convert a reply; `output` is what an integration reports of the whole call."""
    metadata: Mapping[str, Any] = message.response_metadata
    finish = "content_filter" if _refusal(message) is not None else finish_of_word(_word(metadata))
    calls = [_call(call) for call in message.tool_calls]
    used: Mapping[str, Any] = message.usage_metadata or {}
    counted = fields_of(output.get("token_usage"))  # a model of text completion reports its usage for the whole call
    spent = _usage(used) if used else _usage(counted, "prompt_tokens", "completion_tokens")
    model = str(metadata.get("model_name") or metadata.get("model") or "")
    return ModelResponse(text_of(message), calls, spent, model, finish, _billing(used, {**output, **metadata}))


def came_to_its_end(message: Any, response: ModelResponse) -> bool:
    """Return whether a streamed reply is whole: its provider gave a finish reason, or the usage that comes last.

    A model that names no provider, such as one of the user's own, need not give either.
    """
    provider = message.response_metadata.get("model_provider")
    if not provider or not (response.text or response.tool_calls):
        return True
    ended = response.usage is not None and provider not in _USAGE_FIRST
    return ended or response.finish_reason != "stop" or _word(message.response_metadata) is not None


def _refusal(message: Any) -> str | None:
    """Return the text of a model's refusal; None without one."""
    found: Any = message.additional_kwargs.get("refusal")
    if not found and not isinstance(message.content, str):
        blocks = map(fields_of, message.content)
        found = next((block.get("refusal") for block in blocks if block.get("type") == "refusal"), None)
    return str(found) if found else None


def _word(metadata: Mapping[str, Any]) -> str | None:
    """Return the provider's word about why a reply ended, from the metadata of LangChain's integrations."""
    if fields_of(metadata.get("prompt_feedback")).get("block_reason"):
        return "content_filter"
    words = (fields_of(metadata.get("incomplete_details")).get("reason"), *(metadata.get(name) for name in _FINISHES))
    return next((str(word) for word in words if word), None)


def with_text(message: Any, text: str) -> Any:
    """Return the message with another text, keeping its other content."""
    if text == text_of(message):
        return message
    if isinstance(message.content, str):
        return message.model_copy(update={"content": text})
    others = [block for block in message.content if not _is_text(block)]
    return message.model_copy(update={"content": [{"type": "text", "text": text}, *others]})


def with_calls(message: Any, calls: Sequence[ToolCall]) -> Any:
    """Return the message with other tool calls, only in `tool_calls` and not in a provider's own form."""
    if list(calls) == [_call(call) for call in getattr(message, "tool_calls", ())]:
        return message
    content: Any = message.content
    if not isinstance(content, str):
        content = [block for block in content if isinstance(block, str) or block.get("type") not in _CALLS]
    extra = {name: value for name, value in message.additional_kwargs.items() if name not in _CALLS_BESIDE}
    changed = {"tool_calls": _native_calls(calls), "content": content, "additional_kwargs": extra}
    return message.model_copy(update=changed)


def native_reply(response: ModelResponse, reply: Any) -> Any:
    """Return LangChain's message for a response: `reply` with the changes, or a new message if `reply` is None."""
    if reply is not None:
        return with_text(with_calls(reply, response.tool_calls), response.text)
    from langchain_core.messages import AIMessage

    used = response.usage
    usage: Any = None
    if used is not None:
        usage = {
            "input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens, "total_tokens": used.tokens
        }  # fmt: skip
    metadata = {"finish_reason": response.finish_reason, "model_name": response.model}
    return AIMessage(
        response.text, tool_calls=_native_calls(response.tool_calls), usage_metadata=usage, response_metadata=metadata
    )


def _native_calls(calls: Sequence[ToolCall]) -> list[Any]:
    """Convert tool calls to LangChain's form; arguments that are not an object are put under `input`."""
    return [
        {
            "name": call.name,
            "args": {"input": call.arguments} if isinstance(call.arguments, str) else thaw(call.arguments),
            "id": call.id,
            "type": "tool_call",
        }
        for call in calls
    ]


def _call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call["args"]
    try:
        return ToolCall(call["id"] or "", call["name"], arguments)
    except ValueError:  # arguments that are not JSON values
        return ToolCall(call["id"] or "", call["name"], repr(arguments))


def tool_name(tool: Any) -> str | None:
    """Return the name of a tool as models see it; None for a provider's own tool, such as its web search."""
    function = _function(tool)
    return None if function is None else str(function["name"])


def _function(tool: Any) -> Mapping[str, Any] | None:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    try:
        function: Mapping[str, Any] = convert_to_openai_tool(tool)["function"]
        return function if "name" in function else None
    except (KeyError, TypeError, ValueError):
        return None


def _is_text(block: Any) -> bool:
    return isinstance(block, str) or block.get("type") == "text"


def _usage(used: Mapping[str, Any], prompt: str = "input_tokens", completion: str = "output_tokens") -> Usage | None:
    """Return the usage; None when it is missing or reported as zero."""
    if used.get("total_cost") == 0:  # LangChain marks answers of its cache so
        return Usage()
    return read_usage(used.get(prompt) or 0, used.get(completion) or 0, used.get("total_tokens"))


def _billing(used: Mapping[str, Any], metadata: Mapping[str, Any]) -> Billing:
    if used.get("total_cost") == 0:
        return Billing(served={"cache": "hit"})
    tier: Any = metadata.get("service_tier")
    details: Mapping[str, Any] = used.get("input_token_details") or {}
    # LangChain names the tokens of some tiers after them.
    read, written = (details.get(f"{tier}_{name}", details.get(name)) for name in ("cache_read", "cache_creation"))
    return read_billing(read, written, served={"service_tier": tier} if isinstance(tier, str) else EMPTY)
