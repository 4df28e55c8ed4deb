"""OpenAI's chat completions: read requests and write replies."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kairo_team.files import File
from kairo_team.messages import Message, ToolCall, ToolSpec
from kairo_team.models.address.parts import (
    Asked,
    Json,
    Refused,
    a_length,
    a_text,
    an_object,
    cannot,
    check_kind,
    effort_setting,
    event,
    file_from_base64,
    file_from_url,
    objects,
    refuse_fields,
    request_of,
    settings_of,
    thoughts_of,
    tool_spec,
    user_messages,
)
from kairo_team.models.tool_calls import arguments_text, made_call

if TYPE_CHECKING:
    from kairo_team.messages import ModelResponse
    from kairo_team.models.address.parts import Piece, Stream

LABELS: Final = frozenset(
    {"user", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention", "store"}
)
"""Fields about the call that change no reply: they are accepted and not sent on."""


class Chat:
    """`POST /v1/chat/completions`."""

    def read(self, body: Json, provider: str) -> Asked:
        """Return the request; raises `Refused` for one that cannot be carried."""
        rest = dict(body)  # read fields are taken out; the rest goes to the provider
        if rest.pop("modalities", None) not in (None, ["text"]):
            raise cannot("modalities", "replies are text")
        stream = bool(rest.pop("stream", False))
        options = an_object(rest.pop("stream_options", None) or {}, "stream_options")
        messages = [made for one in objects(rest.pop("messages", None), "messages") for made in _messages(one)]
        tools = [_tool(one) for one in objects(rest.pop("tools", None), "tools")]
        schema = _schema(rest)
        more = _stop(rest) | effort_setting(rest.pop("reasoning_effort", None), "reasoning_effort") | choice_of(rest)
        most = a_length(rest)
        request = request_of(messages, tools, schema, most, settings_of(rest, LABELS, more))
        return Asked(request, stream, bool(options.get("include_usage")))

    def write(self, asked: Asked, response: ModelResponse) -> Json:
        """Return the reply as a chat completion."""
        message: Json = {"role": "assistant", "content": response.text or None, "refusal": None}
        if response.tool_calls:
            message["tool_calls"] = [_written(call) for call in response.tool_calls]
        if thoughts := thoughts_of(response):
            message["reasoning_content"] = thoughts
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(response)}
        return _head("chat.completion", response.model) | {"choices": [choice], "usage": usage_of(response)}

    def stream(self, asked: Asked, model: str) -> Stream:
        """Begin the reply as the chunks of a stream."""
        return _Chunks(asked, model)

    def error(self, refused: Refused) -> Json:
        """Return an error of OpenAI's interface."""
        return {"error": {"message": refused.sentence, "type": refused.kind, "param": None, "code": refused.kind}}


class _Chunks:
    """A reply as the chunks of a stream."""

    def __init__(self, asked: Asked, model: str) -> None:
        self._asked = asked
        self._head = _head("chat.completion.chunk", model)
        self._sent: set[str] = set()
        """The kinds of pieces that were sent."""

    def _chunk(self, delta: Json, finish: str | None = None) -> str:
        return event(self._head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def piece(self, kind: Piece, text: str) -> str:
        """Return the chunk of a piece, the first one after the chunk that begins the reply."""
        first = "" if self._sent else self._chunk({"role": "assistant", "content": ""})
        self._sent.add(kind)
        return first + self._chunk({"content" if kind == "text" else "reasoning_content": text})

    def broken(self, refused: Refused) -> str:
        """Return the chunk of an error that ends the reply."""
        return event(Chat().error(refused))

    def end(self, response: ModelResponse) -> str:
        """Return the chunks that complete the reply."""
        self._head["model"] = response.model  # a fallback may have answered
        sent = "" if self._sent else self._chunk({"role": "assistant", "content": ""})
        # A model that cannot stream has sent no piece, so the parts come here.
        if "thinking" not in self._sent and (thoughts := thoughts_of(response)):
            sent += self._chunk({"reasoning_content": thoughts})
        if "text" not in self._sent and response.text:
            sent += self._chunk({"content": response.text})
        for at, call in enumerate(response.tool_calls):
            sent += self._chunk({"tool_calls": [{"index": at, **_written(call)}]})
        sent += self._chunk({}, _finish(response))
        if self._asked.usage_in_stream:
            # OpenAI sends usage in a chunk without choices.
            sent += event(self._head | {"choices": [], "usage": usage_of(response)})
        return sent + "data: [DONE]\n\n"


def choice_of(rest: Json) -> Json:
    """Take the choice of tools out of a body, as settings."""
    settings: Json = {}
    if (parallel := rest.pop("parallel_tool_calls", None)) is not None:
        settings["parallel_tool_calls"] = bool(parallel)
    match rest.pop("tool_choice", None):
        case None | "auto":
            return settings
        case "none" | "required" as word:
            return settings | {"tool_choice": word}
        # The second form is the one of Responses.
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return settings | {"tool_choice": [name]}
        case other:
            raise Refused(f"tool_choice is auto, none, required or a function's name, not {other!r:.80}")


def usage_of(response: ModelResponse) -> Json | None:
    """Return the usage that the provider reports; None without one."""
    used, billing = response.usage, response.billing
    if used is None:
        return None
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.tokens,
        "prompt_tokens_details": {"cached_tokens": billing.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": billing.reasoning_tokens},
    }


def _schema(rest: Json) -> Any:
    match rest.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            del rest["response_format"]
            return schema
        case {"type": "text"}:
            del rest["response_format"]
        case _:  # such as json_object, which goes to the provider as it is
            pass
    return None


def _stop(rest: Json) -> Json:
    stop = rest.pop("stop", None)
    if stop is None:
        return {}
    return {"stop_sequences": [stop] if isinstance(stop, str) else stop}


def _messages(one: Json) -> list[Message]:
    role, content = one.get("role"), one.get("content")
    match role:
        case "system" | "developer":
            return [Message.system(_text(content, "content"))]
        case "user":
            return user_messages([content] if isinstance(content, str) else _parts(content))
        case "assistant":
            refuse_fields(one, {"function_call": "give the functions as tools", "audio": "messages are text"})
            calls = [_call(call) for call in objects(one.get("tool_calls"), "tool_calls")]
            return [Message.assistant(_text(content or one.get("refusal") or "", "content"), calls)]
        case "tool":
            return [Message.tool(a_text(one.get("tool_call_id"), "tool_call_id"), _text(content, "content"))]
        case _:
            raise Refused(f"a message's role is system, developer, user, assistant or tool, not {role!r:.80}")


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    parts = objects(content, where)
    for part in parts:
        check_kind(part.get("type"), ("text", "refusal"), f"a part of {where}")
    return "\n\n".join(a_text(part.get("text", part.get("refusal")), where) for part in parts)


def _parts(content: Any) -> Iterator[str | File]:
    for part in objects(content, "content"):
        match part:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"type": "image_url", "image_url": {"url": url}}:
                yield file_from_url(url)
            case {"type": "input_audio", "input_audio": {"data": data, "format": str(form)}}:
                yield file_from_base64(data, {"mp3": "audio/mpeg"}.get(form, f"audio/{form}"))
            case {"type": "file", "file": {"file_data": data, **more}}:
                name: Any = more.get("filename")
                yield file_from_url(data, name=name)
            case _:
                kinds = ("text", "image_url", "input_audio", "file with file_data")
                check_kind(part.get("type"), kinds, "a part of content")
                raise Refused(f"a part of content is malformed, or its file is kept by the provider: {part!r:.80}")


def _call(call: Json) -> ToolCall:
    check_kind(call.get("type", "function"), ["function"], "a tool call")
    function = an_object(call.get("function"), "a tool call's function")
    arguments = a_text(function.get("arguments") or "", "a tool call's arguments")
    return made_call(a_text(call.get("id"), "a tool call's id"), a_text(function.get("name"), "its name"), arguments)


def _tool(tool: Json) -> ToolSpec:
    check_kind(tool.get("type"), ["function"], "a tool")
    function = an_object(tool.get("function"), "a tool's function")
    return tool_spec(function.get("name"), function.get("description"), function.get("parameters"))


def _head(kind: str, model: str) -> Json:
    made = f"chatcmpl-{secrets.token_hex(12)}"
    return {"id": made, "object": kind, "created": int(time.time()), "model": model}


def _written(call: ToolCall) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_text(call)}}


def _finish(response: ModelResponse) -> str:
    if response.finish_reason == "stop" and response.tool_calls:  # clients run tools only after this word
        return "tool_calls"
    return response.finish_reason
