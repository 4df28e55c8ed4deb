"""Anthropic's Messages: read requests and write replies."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import thaw
from kairo_team.files import File
from kairo_team.messages import Message, ToolCall, ToolSpec
from kairo_team.models.address.parts import (
    Asked,
    Json,
    Refused,
    a_length,
    a_text,
    an_object,
    check_kind,
    effort_setting,
    event,
    file_from_base64,
    file_from_url,
    objects,
    request_of,
    settings_of,
    thoughts_of,
    tool_spec,
    user_messages,
)
from kairo_team.models.tool_calls import made_call

if TYPE_CHECKING:
    from kairo_team.messages import ModelResponse
    from kairo_team.models.address.parts import Piece, Stream

_LABELS: Final = frozenset({"metadata", "cache_control"})
_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal", "stop": "end_turn"}
# Clients send a thinking block back only with a signature; the real one stays with the reply that is kept here.
_SIGNATURE: Final = "kept-by-the-governed-address"
_THOUGHTS: Final = ("thinking", "redacted_thinking")
"""Blocks that go back to the model with the reply they came from, as its provider wrote it."""


class Messages:
    """`POST /v1/messages`, and `/v1/messages/count_tokens`."""

    def read(self, body: Json, provider: str) -> Asked:
        """Return the request; raises `Refused` for one that cannot be carried."""
        rest = dict(body)
        stream = bool(rest.pop("stream", False))
        system = rest.pop("system", None)
        messages = [] if not system else [Message.system(_text(system, "system"))]
        messages += [made for one in objects(rest.pop("messages", None), "messages") for made in _messages(one)]
        tools = [_tool(one) for one in objects(rest.pop("tools", None), "tools")]
        stop = rest.pop("stop_sequences", None)
        more: Json = {"stop_sequences": stop} if stop else {}
        thinking = rest.pop("thinking", None)
        schema, effort = _output(rest)
        more |= _thinking(thinking, provider, effort) | _choice(rest.pop("tool_choice", None))
        request = request_of(messages, tools, schema, a_length(rest), settings_of(rest, _LABELS, more))
        return Asked(request, stream, shows_thoughts=_thinks(thinking))

    def write(self, asked: Asked, response: ModelResponse) -> Json:
        """Return the reply as a message."""
        return _head(response.model) | {
            "content": _blocks(asked, response),
            "stop_reason": _reason(response),
            "usage": _usage(response),
        }

    def stream(self, asked: Asked, model: str) -> Stream:
        """Begin the reply as the events of a stream."""
        return _Events(asked, model)

    def error(self, refused: Refused) -> Json:
        """Return an error of Anthropic's interface."""
        return {"type": "error", "error": {"type": refused.kind, "message": refused.sentence}}


class _Events:
    """A reply as the events of a stream: one block for the reasoning, one for the text, one for each call."""

    def __init__(self, asked: Asked, model: str) -> None:
        self._asked = asked
        self._model = model
        self._begun = False
        self._blocks = 0
        self._open: Piece | None = None
        self._sent: set[Piece] = set()

    def _begin(self, model: str, usage: Json) -> str:
        self._begun = True
        head: Json = _head(model) | {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 0}}
        return _event("message_start", message=head)

    def piece(self, kind: Piece, text: str) -> str:
        """Return the events of a piece. Reasoning is left out if it was not asked for, or comes after the text."""
        # Blocks come in order in this format: a thought cannot follow the text.
        if kind == "thinking" and (not self._asked.shows_thoughts or "text" in self._sent):
            return ""
        # The usage is unknown until the reply ends; `message_delta` corrects it.
        sent = "" if self._begun else self._begin(self._model, {"input_tokens": 0})
        if self._open != kind:
            sent += self._close()
            empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": "", "citations": None}
            sent += _event("content_block_start", index=self._blocks, content_block={"type": kind, **empty})
            self._open = kind
            self._sent.add(kind)
        return sent + _event("content_block_delta", index=self._blocks, delta={"type": f"{kind}_delta", kind: text})

    def _close(self) -> str:
        if self._open is None:
            return ""
        signed = {"type": "signature_delta", "signature": _SIGNATURE}
        thought = self._open == "thinking"
        sent = _event("content_block_delta", index=self._blocks, delta=signed) if thought else ""
        sent += _event("content_block_stop", index=self._blocks)
        self._open, self._blocks = None, self._blocks + 1
        return sent

    def broken(self, refused: Refused) -> str:
        """Return the event of an error that ends the reply."""
        return event(Messages().error(refused), "error")

    def end(self, response: ModelResponse) -> str:
        """Return the events that complete the reply."""
        usage = _usage(response)
        sent = "" if self._begun else self._begin(response.model, usage)
        sent += self._close()
        for block in _blocks(self._asked, response):
            # These were sent as pieces.
            if block["type"] in self._sent or (block["type"] == "thinking" and self._sent):
                continue
            empty, deltas = _pieces(block)
            sent += _event("content_block_start", index=self._blocks, content_block=empty)
            sent += "".join(_event("content_block_delta", index=self._blocks, delta=delta) for delta in deltas)
            sent += _event("content_block_stop", index=self._blocks)
            self._blocks += 1
        end = {"stop_reason": _reason(response), "stop_sequence": None}
        return sent + _event("message_delta", delta=end, usage=usage) + _event("message_stop")


def _event(kind: str, **fields: Any) -> str:
    return event({"type": kind, **fields}, kind)


def _output(rest: Json) -> tuple[Any, Any]:
    """Take the schema of the reply and the effort out of a body."""
    output = an_object(rest.pop("output_config", None) or {}, "output_config")
    form = output.pop("format", None) or rest.pop("output_format", None)
    effort = output.pop("effort", None)
    if output:
        rest["output_config"] = output
    if form is None:
        return None, effort
    check_kind(an_object(form, "the format of the reply").get("type"), ["json_schema"], "a format of the reply")
    return form.get("schema"), effort


def _thinks(thinking: Any) -> bool:
    return isinstance(thinking, dict) and thinking != {"type": "disabled"}


def _thinking(thinking: Any, provider: str, effort: Any) -> Json:
    """Return the settings of how much the model thinks: Anthropic's own for its models, else the common one."""
    if thinking is None:
        return effort_setting(effort, "output_config.effort")
    given = an_object(thinking, "thinking")
    if provider == "anthropic":
        return {"anthropic_thinking": given} | ({} if effort is None else {"anthropic_effort": effort})
    if not _thinks(given):
        return {"thinking": False}
    return effort_setting(effort, "output_config.effort") or {"thinking": True}


def _choice(choice: Any) -> Json:
    if choice is None:
        return {}
    given = an_object(choice, "tool_choice")
    settings: Json = {"parallel_tool_calls": False} if given.get("disable_parallel_tool_use") else {}
    match given:
        case {"type": "auto"}:
            return settings
        case {"type": "any"}:
            return settings | {"tool_choice": "required"}
        case {"type": "none"}:
            return settings | {"tool_choice": "none"}
        case {"type": "tool", "name": str(name)}:
            return settings | {"tool_choice": [name]}
        case _:
            raise Refused(f"tool_choice is of the type auto, any, none or tool with a name, not {given!r:.80}")


def _tool(tool: Json) -> ToolSpec:
    # Tools of other types run at the provider.
    check_kind(tool.get("type") or "custom", ["custom"], "a tool")
    return tool_spec(tool.get("name"), tool.get("description"), tool.get("input_schema"))


def _messages(one: Json) -> list[Message]:
    role, content = one.get("role"), one.get("content")
    match role:
        case "system":
            return [Message.system(_text(content, "content"))]
        case "user":
            return [Message.user(content)] if isinstance(content, str) else _user(content)
        case "assistant":
            return [Message.assistant(content)] if isinstance(content, str) else [_assistant(content)]
        case _:
            raise Refused(f"a message's role is user, assistant or system, not {role!r:.80}")


def _text(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    blocks = objects(content, where)
    for block in blocks:
        check_kind(block.get("type"), ["text"], f"a block of {where}")
    return "\n\n".join(a_text(block.get("text"), where) for block in blocks)


def _user(content: Any) -> list[Message]:
    """Return results of tools, and the other blocks after them, as messages."""
    results: list[Message] = []
    others: list[Json] = []
    for block in objects(content, "content"):
        if block.get("type") != "tool_result":
            others.append(block)
            continue
        said = block.get("content") or ""
        parts = [said] if isinstance(said, str) else [_part(one) for one in objects(said, "a tool's result")]
        text = "\n\n".join(part for part in parts if isinstance(part, str))
        files = [part for part in parts if isinstance(part, File)]
        results.append(Message.tool(a_text(block.get("tool_use_id"), "tool_use_id"), text, files))
    return [*results, *(user_messages(map(_part, others)) if others or not results else [])]


def _assistant(content: Any) -> Message:
    texts: list[str] = []
    calls: list[ToolCall] = []
    for block in objects(content, "content"):
        kind = block.get("type")
        if kind in _THOUGHTS:
            continue  # `Natives` puts them back as the provider wrote them
        check_kind(kind, ("text", "tool_use", *_THOUGHTS), "a block of the assistant")
        if kind == "text":
            texts.append(a_text(block.get("text"), "text"))
        else:
            arguments = an_object(block.get("input") or {}, "the input of a tool_use")
            calls.append(made_call(a_text(block.get("id"), "id"), a_text(block.get("name"), "name"), arguments))
    return Message.assistant("\n\n".join(texts), calls)


def _part(block: Json) -> str | File:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "document", "source": {"type": "base64", "media_type": str(kind), "data": data}}:
            return file_from_base64(data, kind, block.get("title"))
        case {"type": "image" | "document" as kind, "source": {"type": "url", "url": url}}:
            return file_from_url(url, "application/pdf" if kind == "document" else None)
        case {"type": "document", "source": {"type": "text", "data": str(data)}}:
            return File(data=data.encode(), media_type="text/plain", name=block.get("title"))
        case _:
            check_kind(block.get("type"), ("text", "image", "document", "tool_result"), "a block")
            raise Refused(f"a block is malformed, or its file is kept by the provider: {block!r:.80}")


def _head(model: str) -> Json:
    made = f"msg_{secrets.token_hex(12)}"
    return {"id": made, "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


def _blocks(asked: Asked, response: ModelResponse) -> list[Json]:
    blocks: list[Json] = []
    if asked.shows_thoughts and (thoughts := thoughts_of(response)):
        blocks.append({"type": "thinking", "thinking": thoughts, "signature": _SIGNATURE})
    if response.text:
        blocks.append({"type": "text", "text": response.text, "citations": None})
    for call in response.tool_calls:
        given = call.arguments
        if isinstance(given, str):  # not a JSON object: the caller's own check of its arguments refuses it
            given = {"malformed_arguments": given}
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": thaw(given)})
    return blocks


def _pieces(block: Json) -> tuple[Json, list[Json]]:
    """Return a block as a stream begins it, and the deltas that fill it."""
    match block["type"]:
        case "thinking":
            said = {"type": "thinking_delta", "thinking": block["thinking"]}
            signed = {"type": "signature_delta", "signature": block["signature"]}
            return block | {"thinking": "", "signature": ""}, [said, signed]
        case "text":
            return block | {"text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case _:
            return block | {"input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]


def _reason(response: ModelResponse) -> str:
    if response.finish_reason == "stop" and response.tool_calls:
        return "tool_use"
    return _REASONS[response.finish_reason]


def _usage(response: ModelResponse) -> Json:
    """Return the usage; the format has no word for an unknown one, which is 0."""
    used, billing = response.usage, response.billing
    if used is None:
        return {"input_tokens": 0, "output_tokens": 0}
    written = billing.cache_write_tokens + billing.cache_write_1h_tokens
    return {
        # Anthropic counts cached tokens apart; here they are part of the prompt's tokens.
        "input_tokens": max(0, used.prompt_tokens - billing.cached_tokens - written),
        "cache_read_input_tokens": min(billing.cached_tokens, used.prompt_tokens),
        "cache_creation_input_tokens": written,
        "output_tokens": used.completion_tokens,
    }
