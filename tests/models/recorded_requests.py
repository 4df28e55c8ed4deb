"""Recorded requests as ours: their messages, tools and settings, and what of them our types cannot say."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Recorded JSON has no types.

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from kairo_team.messages import ToolSpec

Body = dict[str, Any]

FILES: Final = "files in prompts and tool results"
PROVIDER_TOOLS: Final = "tools that run at the provider"
ROUTING: Final = "other models that the provider may choose (models, transforms)"
SERVER_STATE: Final = "conversations that the server keeps (background, previous_response_id, cachedContent)"
LATE_TOOLS: Final = "tools that are announced in the middle of a conversation"

_FILE_WORDS: Final = {
    *("image", "document", "input_file", "input_image", "inlineData", "fileData", "image_url", "document_url"),
    *("file", "input_audio", "video_url"),
}
_STATE_WORDS: Final = {"previous_response_id", "conversation", "background", "cachedContent", "cached_content"}
_LATE_WORDS: Final = {"tool_addition", "additional_tools", "compaction"}
_PROVIDER_WORDS: Final = {
    *("server_tool_use", "web_search_options", "tool_search_call", "toolCall", "executableCode", "plugins"),
}
_IDS: Final = {
    *("id", "call_id", "tool_call_id", "tool_use_id", "item_id", "response_id", "status", "type", "role", "phase"),
    *("cache_control", "name"),
}
"""Names of fields that a library may fill otherwise: ids, and the form of the wire."""
_ASKED_TWICE: Final = {"is_error", "prefix"}


_QUOTES: Final = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


def plain(text: str) -> str:
    """Return a text without blanks, and with straight quotes as the recorded requests have them."""
    return "".join(text.translate(_QUOTES).split())


class Turn(NamedTuple):
    """One message of a recorded request: its role, and a text, a result with the name of its tool, or a reply."""

    role: str
    text: str = ""
    call: str = ""
    """Of a tool's message, the id of the call, or the tool's name where calls have no ids."""
    reply: Any = None
    """Of the assistant's messages, their JSON as it was sent."""


def feature_of(wire: str, request: Body) -> str | None:
    """Return the feature that a request uses and our types do not have, by name; None if there is none."""
    tools = _tools(request)
    if wire == "google-generate":
        functions = ("functionDeclarations", "function_declarations")
        beyond = [name for tool in tools for name in tool if name not in functions]
    else:
        beyond = [str(tool.get("type")) for tool in tools if tool.get("type") not in (None, "function", "custom")]
    words = set(_words(request))
    for feature, given in (
        (FILES, words & _FILE_WORDS),
        (SERVER_STATE, {name for name in _STATE_WORDS if request.get(name)}),
        (ROUTING, request.get("models")),
        (LATE_TOOLS, words & _LATE_WORDS),
        (PROVIDER_TOOLS, beyond or words & _PROVIDER_WORDS),
    ):
        if given:
            return feature
    return None


def _tools(request: Body) -> list[Body]:
    tools: Any = request.get("tools") or []
    return tools if isinstance(tools, list) else [tools]


def _words(value: Any) -> Iterator[str]:
    """Yield the types of parts in a request, and the names of Google's parts."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name == "type" and isinstance(one, str):
                yield one
            elif name in _FILE_WORDS | _PROVIDER_WORDS and isinstance(one, dict):
                yield name
            yield from (
                ()
                if name in ("tools", "parameters", "input_schema", "args", "input") and not isinstance(one, list)
                else _words(one)
            )
    elif isinstance(value, list):
        for one in value:
            yield from _words(one)


def turns(wire: str, request: Body) -> list[Turn]:
    """Return the messages of a recorded request; items of one reply are one message."""
    found: list[Turn] = []
    for turn in _TURNS[wire](request):
        if wire == "openai-responses" and turn.role == "assistant" and found and found[-1].role == "assistant":
            found[-1] = found[-1]._replace(reply=[*found[-1].reply, *turn.reply])
        else:
            found.append(turn)
    return found


def specs(wire: str, request: Body) -> list[ToolSpec]:
    """Return the functions that a request offers."""
    made: list[ToolSpec] = []
    for tool in _tools(request):
        declared = tool.get("functionDeclarations") or tool.get("function_declarations") or tool.get("function") or tool
        for one in declared if isinstance(declared, list) else [declared]:
            if "name" not in one:
                continue
            schema = one.get("parameters") or one.get("parametersJsonSchema") or one.get("input_schema") or {}
            made.append(ToolSpec(one["name"], one.get("description") or "", _lower(schema)))
    return made


def schema_in(request: Body) -> Body | None:
    """Return the schema that a reply must match; None if it may be any text."""
    places: list[tuple[str, ...]] = [
        ("output_config", "format", "schema"),
        ("text", "format", "schema"),
        ("response_format", "json_schema", "schema"),
        ("generationConfig", "responseJsonSchema"),
    ]
    for place in places:
        found: Any = request
        for name in place:
            found = found.get(name) if isinstance(found, dict) else None
        if found:
            return dict(found)
    return None


def _lower(schema: Any) -> Any:
    """Return a schema with types as JSON Schema writes them; Google's requests have them in capitals."""
    if isinstance(schema, list):
        return [_lower(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: one.lower() if name == "type" and isinstance(one, str) else _lower(one) for name, one in schema.items()
    }


def leaves(value: Any) -> Iterator[str]:
    """Yield the texts in a part of a request, ids aside; JSON in a text counts as what it says."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name not in _IDS | _ASKED_TWICE:
                yield from leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, str) and value.strip():
        try:
            inner = json.loads(value)
        except ValueError:
            inner = None
        if isinstance(inner, dict | list) and inner:
            yield from leaves(inner)
        else:
            yield value.strip()


def kinds(wire: str, reply: list[Body]) -> list[str]:
    """Return what kinds of parts a reply is made of, in order."""
    if wire == "google-generate":
        names = ("functionCall", "toolCall", "toolResponse", "inlineData", "text")
        return [name for part in reply for name in names if name in part]
    if wire in ("anthropic-messages", "openai-responses"):
        return [part.get("type", "message") for part in reply]
    fields = ("content", "tool_calls", "reasoning", "reasoning_details")
    return [name for part in reply for name in fields if part.get(name)]


def said_before(wire: str, reply: list[Body]) -> tuple[str, list[tuple[str, str, Any]]]:
    """Return the text and the calls (id, name, arguments) of a reply as a later request carries it."""
    texts: list[str] = []
    calls: list[tuple[str, str, Any]] = []
    for part in reply:
        if "functionCall" in part:
            calls.append(("", part["functionCall"]["name"], part["functionCall"].get("args") or {}))
        elif part.get("type") == "tool_use":
            calls.append((part["id"], part["name"], part["input"]))
        elif part.get("type") == "function_call":
            calls.append((part["call_id"], part["name"], json.loads(part["arguments"] or "{}")))
        elif wire == "google-generate" or part.get("type") == "text":
            texts.append("" if part.get("thought") else part.get("text", ""))
        elif part.get("role") == "assistant":
            texts.append(_texts(part.get("content")))
            given = [(call["id"], call["function"]) for call in part.get("tool_calls") or ()]
            calls += [(which, one["name"], json.loads(one["arguments"] or "{}")) for which, one in given]
    return "\n".join(texts), calls


def _texts(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(part["text"] for part in content if "text" in part)


def _anthropic(request: Body) -> Iterator[Turn]:
    if request.get("system"):
        yield Turn("system", _texts(request["system"]))
    for message in request["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "assistant":
            yield Turn("assistant", reply=blocks)
            continue
        for block in blocks:
            if block["type"] == "tool_result":
                yield Turn("tool", _texts(block.get("content")), block["tool_use_id"])
            elif block["type"] == "text":
                yield Turn(message["role"], block["text"])


def _google(request: Body) -> Iterator[Turn]:
    if request.get("systemInstruction"):
        yield Turn("system", _texts(request["systemInstruction"]["parts"]))
    for message in request["contents"]:
        if message["role"] == "model":
            yield Turn("assistant", reply=message["parts"])
            continue
        for part in message["parts"]:
            if "functionResponse" in part:
                answer = part["functionResponse"]
                given = answer["response"].get("return_value", answer["response"].get("output"))
                text = given if isinstance(given, str) else json.dumps(answer["response"] if given is None else given)
                yield Turn("tool", text, answer["name"])
            elif "text" in part:
                yield Turn("user", part["text"])


def _chat(request: Body) -> Iterator[Turn]:
    for message in request["messages"]:
        match message["role"]:
            case "assistant":
                yield Turn("assistant", reply=[message])
            case "tool":
                yield Turn("tool", _texts(message["content"]), message["tool_call_id"])
            case role:
                yield Turn("user" if role == "user" else "system", _texts(message["content"]))


def _responses(request: Body) -> Iterator[Turn]:
    if request.get("instructions"):
        yield Turn("system", request["instructions"])
    given = request["input"]
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
        kind, role = item.get("type", "message"), item.get("role")
        if kind == "function_call_output":
            yield Turn("tool", _texts(item["output"]), item["call_id"])
        elif kind == "message" and role != "assistant":
            yield Turn("user" if role == "user" else "system", _texts(item["content"]))
        else:
            yield Turn("assistant", reply=[item])


_TURNS: Final[dict[str, Any]] = {
    "anthropic-messages": _anthropic,
    "google-generate": _google,
    "openai-chat": _chat,
    "openai-compatible": _chat,
    "openai-responses": _responses,
}
