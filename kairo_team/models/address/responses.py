"""OpenAI's Responses: read requests and write replies."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from kairo_team.files import File
from kairo_team.messages import Message, ToolCall, ToolSpec
from kairo_team.models.address.chat import LABELS, Chat, choice_of
from kairo_team.models.address.parts import (
    Asked,
    Json,
    Refused,
    a_length,
    a_list,
    a_text,
    an_object,
    cannot,
    check_kind,
    effort_setting,
    event,
    file_from_url,
    objects,
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

_MESSAGE: Final = (None, "message")
"""Types of an item with a role that is a message; Codex has items with a role that carry tools."""
_CUT: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Responses:
    """`POST /v1/responses`."""

    def read(self, body: Json, provider: str) -> Asked:
        """Return the request; raises `Refused` for one that cannot be carried."""
        rest = dict(body)
        # OpenAI stores a reply unless it is asked not to, and a later request may name it.
        name = "" if rest.get("store") is False else f"resp_{secrets.token_hex(12)}"
        after = rest.pop("previous_response_id", None)
        if rest.pop("truncation", None) not in (None, "disabled"):
            raise cannot("truncation", "a conversation is sent whole")
        if rest.pop("context_management", None):
            raise cannot("context_management", "a conversation is sent whole")
        # Clients ask for encrypted reasoning as a matter of course; reasoning goes back without it (`Natives`).
        if any(one != "reasoning.encrypted_content" for one in a_list(rest.pop("include", None), "include")):
            raise cannot("include", "the reply has nothing of that")
        stream = bool(rest.pop("stream", False))
        instructions, items = rest.pop("instructions", None), rest.pop("input", None)
        messages = [Message.system(a_text(instructions, "instructions"))] if instructions else []
        messages += [Message.user(items)] if isinstance(items, str) else _messages(objects(items, "input"))
        tools = [_tool(one) for one in objects(rest.pop("tools", None), "tools")]
        reasoning = an_object(rest.pop("reasoning", None) or {}, "reasoning")
        schema = _schema(rest)
        more = effort_setting(reasoning.get("effort"), "reasoning.effort") | choice_of(rest)
        most = a_length(rest)
        request = request_of(messages, tools, schema, most, settings_of(rest, LABELS, more))
        shows = bool(reasoning.get("summary"))
        after = None if after is None else a_text(after, "previous_response_id")
        return Asked(
            request, stream, shows_thoughts=shows, name=name, after=after, instructions=1 if instructions else 0
        )

    def write(self, asked: Asked, response: ModelResponse) -> Json:
        """Return the reply as a response."""
        return _ended(_head(asked, response.model), response, _items(asked, response))

    def stream(self, asked: Asked, model: str) -> Stream:
        """Begin the reply as the events of a stream."""
        return _Events(asked, model)

    def error(self, refused: Refused) -> Json:
        """Return an error of OpenAI's interface."""
        return Chat().error(refused)


_KINDS: Final[Mapping[Piece, str]] = {"text": "message", "thinking": "reasoning"}
"""The type of an item by the kind of its pieces."""


class _Events:
    """A reply as the events of a stream: one item for the reasoning, one for the text, one for each call."""

    def __init__(self, asked: Asked, model: str) -> None:
        self._asked = asked
        self._numbers = count()
        self._head = _head(asked, model)
        self._items: list[Json] = []
        """The items whose pieces were sent; the last one is open."""

    def _send(self, kind: str, **fields: Any) -> str:
        return event({"type": kind, "sequence_number": next(self._numbers), **fields}, kind)

    def _begin(self) -> str:
        return self._send("response.created", response=self._head) + self._send(
            "response.in_progress", response=self._head
        )

    def _add(self, at: int, item: Json) -> str:
        # An item is announced empty, and its deltas fill it: clients add both up.
        bare = {name: "" if name == "arguments" else value for name, value in item.items()}
        bare |= {name: list[Any]() for name in ("content", "summary") if name in item}
        return self._send("response.output_item.added", output_index=at, item=bare | {"status": "in_progress"})

    def piece(self, kind: Piece, text: str) -> str:
        """Return the events of a piece. Reasoning is left out if it was not asked for, or comes after the text."""
        if kind == "thinking" and (not self._asked.shows_thoughts or any(map(_is_message, self._items))):
            return ""
        sent = "" if self._items else self._begin()
        if not self._items or self._items[-1]["type"] != _KINDS[kind]:
            sent += self._close()
            item = _message_item("", "in_progress") if kind == "text" else _reasoning_item("")
            self._items.append(item)
            sent += self._add(len(self._items) - 1, item)
            sent += self._filled(len(self._items) - 1, item, ("added",))
        item = self._items[-1]
        part = _part(item)
        part["text"] += text
        return sent + self._filled(len(self._items) - 1, _with_text(item, text), ("delta",))

    def _filled(self, at: int, item: Json, ends: tuple[str, ...]) -> str:
        """Return the events that fill an item whose names end so."""
        found = [(kind, fields) for kind, fields in _pieces(item) if kind.endswith(ends)]
        return "".join(self._send(kind, output_index=at, item_id=item["id"], **fields) for kind, fields in found)

    def _close(self) -> str:
        if not self._items:
            return ""
        at, item = len(self._items) - 1, self._items[-1]
        if item["status"] == "in_progress":
            item["status"] = "completed"
        return self._filled(at, item, ("done",)) + self._send("response.output_item.done", output_index=at, item=item)

    def broken(self, refused: Refused) -> str:
        """Return the events of an error that ends the reply: the error, and the response that failed, as OpenAI does.

        Clients differ in which of the two they read.
        """
        about = {"code": refused.kind, "message": refused.sentence}
        for item in self._items:
            if item["status"] == "in_progress":
                item["status"] = "incomplete"
        failed = self._head | {"status": "failed", "error": about, "output": self._items}
        sent = "" if self._items else self._begin()
        return sent + self._send("error", **about, param=None) + self._send("response.failed", response=failed)

    def end(self, response: ModelResponse) -> str:
        """Return the events that complete the reply."""
        self._head["model"] = response.model
        items = _items(self._asked, response)
        sent = "" if self._items else self._begin()
        if self._items:
            status = next((one["status"] for one in items if _is_message(one)), "completed")
            if _is_message(self._items[-1]):
                self._items[-1]["status"] = status
            sent += self._close()
            known = {one["type"] for one in self._items} | {"reasoning"}
            # The items that were streamed keep their ids, which clients have seen.
            items = [*self._items, *(one for one in items if one["type"] not in known)]
        for at, item in list(enumerate(items))[len(self._items) :]:
            sent += self._add(at, item) + self._filled(at, item, ("added", "delta", "done"))
            sent += self._send("response.output_item.done", output_index=at, item=item)
        ended = _ended(self._head, response, items)
        return sent + self._send(f"response.{ended['status']}", response=ended)


def _is_message(item: Json) -> bool:
    return bool(item["type"] == "message")


def _part(item: Json) -> Json:
    part: Json = item["content" if _is_message(item) else "summary"][0]
    return part


def _with_text(item: Json, text: str) -> Json:
    """Return an item with one part of this text."""
    return item | {"content" if _is_message(item) else "summary": [_part(item) | {"text": text}]}


def _message_item(text: str, status: str) -> Json:
    part: Json = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    about = {"type": "message", "id": f"msg_{secrets.token_hex(12)}", "role": "assistant", "status": status}
    return {**about, "content": [part]}


def _reasoning_item(text: str) -> Json:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{secrets.token_hex(12)}", "summary": summary, "status": "completed"}


def _schema(rest: Json) -> Any:
    text = an_object(rest.pop("text", None) or {}, "text")
    form = text.get("format")
    kept = {name: value for name, value in text.items() if name != "format"}
    match form:
        case {"type": "json_schema", "schema": schema}:
            found: Any = schema
        case None | {"type": "text"}:
            found = None
        case _:
            raise Refused(f"text.format is of the type text or json_schema, not {form!r:.80}")
    if kept := {name: value for name, value in kept.items() if value is not None}:
        rest["text"] = kept
    return found


def _messages(items: list[Json]) -> list[Message]:
    """Return items as messages: a reply's text and calls, which are items of their own, become one message."""
    made: list[Message] = []
    texts: list[str] = []
    calls: list[ToolCall] = []

    def close() -> None:
        if texts or calls:
            made.append(Message.assistant("\n\n".join(texts), tuple(calls)))
        texts.clear()
        calls.clear()

    for item in items:
        match item:
            case {"type": "reasoning"}:  # it goes back to the model with the reply it came from
                close()
            case {"type": "function_call", "call_id": str(call_id), "name": str(name)}:
                calls.append(made_call(call_id, name, a_text(item.get("arguments") or "", "arguments")))
            case {"type": "function_call_output", "call_id": str(call_id)}:
                close()
                parts = list(_parts(item.get("output")))
                text = "\n\n".join(part for part in parts if isinstance(part, str))
                made.append(Message.tool(call_id, text, [part for part in parts if isinstance(part, File)]))
            case {"role": "assistant"} if item.get("type") in _MESSAGE:
                if calls:
                    close()  # a text after calls belongs to another reply
                texts += [part for part in _parts(item.get("content")) if isinstance(part, str)]
            case {"role": "system" | "developer" | "user"} if item.get("type") in _MESSAGE:
                close()
                made += _message_of_item(item)
            case _:
                kinds = ("message", "reasoning", "function_call", "function_call_output")
                check_kind(item.get("type"), kinds, "an item of input")
                raise Refused(f"an item of input is malformed: {item!r:.80}")
    close()
    return made


def _message_of_item(item: Json) -> list[Message]:
    """Return a message that is not the model's."""
    parts = _parts(item.get("content"))
    return user_messages(parts) if item["role"] == "user" else [Message.system("\n\n".join(map(str, parts)))]


def _parts(content: Any) -> Iterator[str | File]:
    if isinstance(content, str):
        yield content
        return
    for part in objects(content, "content"):
        match part:
            case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
                yield text
            case {"type": "refusal", "refusal": str(text)}:
                yield text
            case {"type": "input_image", "image_url": str(url)}:
                yield file_from_url(url)
            case {"type": "input_file", "file_data": str(data)}:
                yield file_from_url(data, name=part.get("filename"))
            case {"type": "input_file", "file_url": str(url)}:
                yield file_from_url(url, "application/pdf")
            case _:
                kinds = ("input_text", "input_image", "input_file", "output_text", "refusal")
                check_kind(part.get("type"), kinds, "a part of content")
                raise Refused(f"a part of content is malformed, or its file is kept by the provider: {part!r:.80}")


def _tool(tool: Json) -> ToolSpec:
    check_kind(tool.get("type"), ["function"], "a tool")
    return tool_spec(tool.get("name"), tool.get("description"), tool.get("parameters"))


def _head(asked: Asked, model: str) -> Json:
    return {
        "id": asked.name or f"resp_{secrets.token_hex(12)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "model": model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _items(asked: Asked, response: ModelResponse) -> list[Json]:
    status = "completed" if response.finish_reason == "stop" else "incomplete"
    items: list[Json] = []
    if asked.shows_thoughts and (thoughts := thoughts_of(response)):
        items.append(_reasoning_item(thoughts))
    if response.text or not response.tool_calls:
        items.append(_message_item(response.text, status))
    for call in response.tool_calls:
        about = {"type": "function_call", "id": f"fc_{secrets.token_hex(12)}", "status": status}
        items.append({**about, "call_id": call.id, "name": call.name, "arguments": arguments_text(call)})
    return items


def _pieces(item: Json) -> Iterator[tuple[str, Json]]:
    """Yield the events that fill an item."""
    match item["type"]:
        case "message":
            part, place = item["content"][0], {"content_index": 0}
            yield "response.content_part.added", {**place, "part": part | {"text": ""}}
            if part["text"]:
                yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**place, "part": part}
        case "function_call":
            yield "response.function_call_arguments.delta", {"delta": item["arguments"]}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", done
        case _:
            part, place = item["summary"][0], {"summary_index": 0}
            yield "response.reasoning_summary_part.added", {**place, "part": part | {"text": ""}}
            yield "response.reasoning_summary_text.delta", {**place, "delta": part["text"]}
            yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
            yield "response.reasoning_summary_part.done", {**place, "part": part}


def _ended(head: Json, response: ModelResponse, items: list[Json]) -> Json:
    cut = _CUT.get(response.finish_reason)
    used, billing = response.usage, response.billing
    usage: Json | None = None
    if used is not None:
        usage = {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": billing.cached_tokens,
                "cache_write_tokens": billing.cache_write_tokens + billing.cache_write_1h_tokens,
            },
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": billing.reasoning_tokens},
            "total_tokens": used.tokens,
        }
    return head | {
        "status": "completed" if cut is None else "incomplete",
        "incomplete_details": None if cut is None else {"reason": cut},
        "output": items,
        "usage": usage,
    }
