"""What a recorded exchange says, whatever its wire: the whole reply, its parts and usage, and the reply as events.

Everything here is read from the recorded JSON itself, so that it can judge what the client libraries make of it.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Recorded JSON has no types.

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.models.provider_wires import events

Body = dict[str, Any]

_THOUGHT: Final = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)


@dataclass
class Said:
    """What a reply says."""

    texts: list[str] = field(default_factory=list[str])
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    finish: str | None = None
    usage: tuple[int, int] | None = None
    """Tokens of the prompt and of the reply."""

    @property
    def text(self) -> str:
        """The text without its blanks: libraries join its parts in their own ways."""
        return "".join("".join(self.texts).split())


def data_of(stream: str) -> Iterator[Body]:
    """Yield the JSON of a stream of server-sent events."""
    for block in stream.replace("\r\n", "\n").split("\n\n"):
        lines = [line[5:].strip() for line in block.split("\n") if line.startswith("data:")]
        if lines and lines != ["[DONE]"]:
            yield json.loads("\n".join(lines))


def whole(wire: str, reply: Any) -> Body:
    """Return the reply as it is without a stream."""
    body: Body = _WHOLE[wire](list(data_of(reply))) if isinstance(reply, str) else reply
    return body


def streamed(wire: str, reply: Any) -> str:
    """Return the reply as a stream."""
    return reply if isinstance(reply, str) else _STREAMED[wire](reply)


def said(wire: str, body: Body) -> Said:
    """Read a whole reply."""
    found: Said = _SAID[wire](body)
    return found


# ---------------------------------------------------------------- Anthropic Messages


def _anthropic_whole(events: list[Body]) -> Body:
    message: Body = {}
    for event in events:
        match event["type"]:
            case "message_start":
                message = {**event["message"], "content": []}
            case "content_block_start":
                message["content"].append({**event["content_block"]})
            case "content_block_delta":
                _add_delta(message["content"][event["index"]], event["delta"])
            case "message_delta":
                message |= event["delta"]
                message["usage"] = {**message["usage"], **event["usage"]}
            case _:
                pass
    for block in message["content"]:
        if "partial" in block:
            block["input"] = json.loads(block.pop("partial") or "{}")
    return message


def _add_delta(block: Body, delta: Body) -> None:
    for name, piece in delta.items():
        if name == "partial_json":
            block["partial"] = block.get("partial", "") + piece
        elif name == "citation":
            block["citations"] = [*(block.get("citations") or ()), piece]
        elif name != "type":
            block[name] = block.get(name, "") + piece


def _anthropic_streamed(body: Body) -> str:
    start = {**body, "content": [], "stop_reason": None}
    sent: list[Body] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(body["content"]):
        empty, deltas = dict(block), list[Body]()
        if block["type"] in ("text", "thinking"):
            empty[block["type"]] = ""
            deltas = [{"type": f"{block['type']}_delta", block["type"]: block[block["type"]]}]
        if "signature" in block:
            empty["signature"] = ""
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        if block["type"] in ("tool_use", "server_tool_use"):
            empty["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        if block.get("citations"):
            empty["citations"] = []
            deltas += [{"type": "citations_delta", "citation": one} for one in block["citations"]]
        sent.append({"type": "content_block_start", "index": index, "content_block": empty})
        sent += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        sent.append({"type": "content_block_stop", "index": index})
    end = {name: body.get(name) for name in ("stop_reason", "stop_sequence", "container") if body.get(name)}
    sent += [{"type": "message_delta", "delta": end, "usage": body["usage"]}, {"type": "message_stop"}]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in sent)


def _anthropic_said(body: Body) -> Said:
    usage, blocks = body["usage"], body["content"]
    cached = (usage.get("cache_creation_input_tokens") or 0) + (usage.get("cache_read_input_tokens") or 0)
    return Said(
        [block["text"] for block in blocks if block["type"] == "text"],
        [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        {"max_tokens": "length", "refusal": "content_filter"}.get(body["stop_reason"], "stop"),
        (usage["input_tokens"] + cached, usage["output_tokens"]),
    )


# ---------------------------------------------------------------- Google generateContent


def _google_whole(events: list[Body]) -> Body:
    body: Body = {}
    parts: list[Body] = []
    for event in events:
        candidates = event.get("candidates") or [{}]
        parts += (candidates[0].get("content") or {}).get("parts") or []
        before = (body.get("candidates") or [{}])[0]
        body = {**body, **event, "candidates": [{**before, **candidates[0]}]}
    body["candidates"][0]["content"] = {"role": "model", "parts": parts}
    return body


def _google_said(body: Body) -> Said:
    candidate = (body.get("candidates") or [{}])[0]
    parts, usage = (candidate.get("content") or {}).get("parts") or [], body["usageMetadata"]
    prompt = usage.get("promptTokenCount", 0) + usage.get("toolUsePromptTokenCount", 0)
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    return Said(
        [part["text"] for part in parts if "text" in part and not part.get("thought")],
        [(call["name"], call.get("args") or {}) for call in calls],
        {"MAX_TOKENS": "length", "STOP": "stop"}.get(candidate.get("finishReason", ""), "content_filter"),
        (prompt, usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)),
    )


# ---------------------------------------------------------------- OpenAI chat, and what is like it


def _chat_whole(events: list[Body]) -> Body:
    message: Body = {"role": "assistant", "content": None}
    body: Body = {}
    finish: str | None = None
    for event in events:
        body = {**body, **{name: value for name, value in event.items() if value is not None}}
        for choice in event.get("choices") or ():
            finish = choice.get("finish_reason") or finish
            for name, piece in (choice.get("delta") or {}).items():
                if name == "tool_calls":
                    _add_calls(message.setdefault("tool_calls", []), piece or ())
                elif isinstance(piece, str) and name != "role":
                    message[name] = (message.get(name) or "") + piece
    return {**body, "object": "chat.completion", "choices": [{"index": 0, "finish_reason": finish, "message": message}]}


def _add_calls(calls: list[Body], pieces: Any) -> None:
    for piece in pieces:
        if piece.get("id") and all(piece["id"] != call["id"] for call in calls):
            calls.append({"id": piece["id"], "type": "function", "function": {"name": "", "arguments": ""}})
        told = piece.get("function") or {}
        for name in ("name", "arguments"):
            calls[-1]["function"][name] += told.get(name) or ""


def _chat_streamed(body: Body) -> str:
    about: Body = {name: body[name] for name in ("id", "created", "model", "service_tier", "provider") if name in body}
    about["object"] = "chat.completion.chunk"
    choice = body["choices"][0]
    delta = {name: value for name, value in choice["message"].items() if value is not None}
    if "tool_calls" in delta:
        delta["tool_calls"] = [{**call, "index": at} for at, call in enumerate(delta["tool_calls"])]
    # Real servers send these marks apart from what they enclose.
    content = delta.pop("content", None) or ""
    pieces = re.split("(<think>|</think>)", content) if isinstance(content, str) else [content]
    deltas: list[Body] = [{"content": piece} for piece in pieces if piece]
    told = [{**about, "choices": [{"index": 0, "delta": one, "finish_reason": None}]} for one in (delta, *deltas)]
    ended = {**about, "choices": [{**choice, "delta": {}, "message": None}]}
    return events(*told, ended, {**about, "choices": [], "usage": body.get("usage")})


def _chat_said(body: Body) -> Said:
    choice, usage = body["choices"][0], body.get("usage")
    message = choice["message"]
    content = message.get("content") or message.get("refusal") or ""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return Said(
        [_THOUGHT.sub("", content)] if isinstance(content, str) else [part.get("text", "") for part in content],
        [(call["name"], json.loads(call["arguments"] or "{}")) for call in calls],
        {"length": "length", "content_filter": "content_filter"}.get(choice["finish_reason"], "stop"),
        usage and (usage["prompt_tokens"], usage["completion_tokens"]),
    )


# ---------------------------------------------------------------- OpenAI Responses


def _responses_whole(events: list[Body]) -> Body:
    ends = ("response.completed", "response.incomplete", "response.failed")
    (body,) = [event["response"] for event in events if event["type"] in ends] or [events[-1].get("response") or {}]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    return {**body, "output": done or body.get("output") or []}


def _responses_streamed(body: Body) -> str:
    sent: list[Body] = [{"type": "response.created", "response": {**body, "status": "in_progress", "output": []}}]
    for at, item in enumerate(body["output"]):
        about = {"output_index": at, "item_id": item.get("id")}
        empty = {**item, **{name: [] for name in ("content", "summary") if name in item}}
        if item["type"] == "function_call":
            empty["arguments"] = ""
        if item.get("encrypted_content"):
            empty["encrypted_content"] = None
        sent.append({"type": "response.output_item.added", "output_index": at, "item": empty})
        sent += [event | about for event in _item_events(item)]
        sent.append({"type": "response.output_item.done", "output_index": at, "item": item})
    end = "completed" if body.get("status") == "completed" else "incomplete"
    sent.append({"type": f"response.{end}", "response": body})
    numbered = [{**one, "sequence_number": number} for number, one in enumerate(sent)]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in numbered)


def _item_events(item: Body) -> Iterator[Body]:
    if item["type"] == "function_call":
        yield {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"]}
    for at, part in enumerate(item.get("content") or ()):
        if part["type"] == "output_text":
            told: Body = {"content_index": at, "logprobs": []}
            empty = {**part, "text": ""}
            yield {"type": "response.content_part.added", "content_index": at, "part": empty}
            yield {"type": "response.output_text.delta", "delta": part["text"], **told}
            for number, note in enumerate(part.get("annotations") or ()):
                added = {"type": "response.output_text.annotation.added", "annotation_index": number}
                yield {**added, "annotation": note, **told}
            yield {"type": "response.output_text.done", "text": part["text"], **told}
            yield {"type": "response.content_part.done", "content_index": at, "part": part}
    for at, part in enumerate(item.get("summary") or ()):
        told = {"summary_index": at}
        yield {"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}, **told}
        yield {"type": "response.reasoning_summary_text.delta", "delta": part["text"], **told}
        yield {"type": "response.reasoning_summary_text.done", "text": part["text"], **told}
        yield {"type": "response.reasoning_summary_part.done", "part": part, **told}


def _responses_said(body: Body) -> Said:
    items, usage = body["output"], body.get("usage")
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    cut: str = (body.get("incomplete_details") or {}).get("reason") or ""
    calls = [item for item in items if item["type"] == "function_call"]
    return Said(
        [part.get("text") or part.get("refusal") or "" for part in parts],
        [(call["name"], json.loads(call["arguments"] or "{}")) for call in calls],
        {"max_output_tokens": "length", "content_filter": "content_filter"}.get(cut, "stop"),
        usage and (usage["input_tokens"], usage["output_tokens"]),
    )


_CHAT: Final = ("openai-chat", "openai-compatible")
_WHOLE: Final[dict[str, Any]] = {
    "anthropic-messages": _anthropic_whole,
    "google-generate": _google_whole,
    "openai-responses": _responses_whole,
    **dict.fromkeys(_CHAT, _chat_whole),
}
_STREAMED: Final[dict[str, Any]] = {
    "anthropic-messages": _anthropic_streamed,
    "google-generate": lambda body: events(body, done=False),
    "openai-responses": _responses_streamed,
    **dict.fromkeys(_CHAT, _chat_streamed),
}
_SAID: Final[dict[str, Any]] = {
    "anthropic-messages": _anthropic_said,
    "google-generate": _google_said,
    "openai-responses": _responses_said,
    **dict.fromkeys(_CHAT, _chat_said),
}
