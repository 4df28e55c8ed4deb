"""Convert tool calls, whose arguments are text that should be a JSON object, and make texts safe to send."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, Final, TypeVar, cast

from kairo_team._util.frozen import thaw
from kairo_team._util.reply_json import read_json
from kairo_team.messages import ModelRequest, ToolCall

T = TypeVar("T")

_LONGEST_ID: Final = 48
"""Characters kept of an id that gets a number appended: providers take at most 64."""


def made_call(call_id: str, name: str, arguments: str | Mapping[str, Any] | None) -> ToolCall:
    """Make a tool call from a model's text; arguments that are not a JSON object stay text."""
    call_id, name = sound(call_id), sound(name)
    if not arguments:
        return ToolCall(call_id, name)
    text = arguments if isinstance(arguments, str) else json.dumps(thaw(arguments), default=repr)
    try:
        return ToolCall(call_id, name, _parsed(text))
    except (ValueError, RecursionError):
        return ToolCall(call_id, name, sound(text))


def sound(text: str) -> str:
    """Return text that can be encoded: lone surrogates, which JSON can contain, become question marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def sound_request(request: ModelRequest) -> ModelRequest:
    """Apply `sound` to the texts of a request's messages and tools; return the request itself if nothing changed."""
    messages = [_in_sound_words(message, "text") for message in request.messages]
    tools = [_in_sound_words(tool, "description") for tool in request.tools]
    if all(map(is_, messages, request.messages)) and all(map(is_, tools, request.tools)):
        return request
    return replace(request, messages=messages, tools=tools)


def _in_sound_words(one: T, field: str) -> T:
    words: str = getattr(one, field)
    return one if (made := sound(words)) is words else replace(cast("Any", one), **{field: made})


def _parsed(text: str) -> dict[str, Any]:
    """Parse a JSON object; raise `ValueError` or `RecursionError` for anything else, also for lone surrogates."""
    parsed: Any = read_json(text)
    if not isinstance(parsed, dict):
        raise ValueError("no object")
    json.dumps(parsed, ensure_ascii=False, allow_nan=False).encode()  # raises for what could not be sent back
    return cast("dict[str, Any]", parsed)


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as JSON text."""
    arguments = call.arguments
    return arguments if isinstance(arguments, str) else json.dumps(thaw(arguments), ensure_ascii=False)


def with_own_ids(calls: Sequence[ToolCall], taken: set[str]) -> Sequence[ToolCall]:
    """Give each call an id that is not in `taken`, and add the ids to `taken`; a call with a new id is unchanged.

    Some providers number the calls of each reply from the start; others refuse a conversation with repeated ids.
    """
    own: list[ToolCall] = []
    for call in calls:
        name, number = call.id, 1
        while not name or name in taken:
            number += 1
            name = f"{call.id[:_LONGEST_ID] or 'call'}_{number}"
        taken.add(name)
        own.append(call if name == call.id else replace(call, id=name))
    return own
