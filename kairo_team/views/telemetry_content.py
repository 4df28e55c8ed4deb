"""The texts of the work as the conventions for generative AI write them, and whether they are wanted."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kairo_team._util.frozen import thaw
from kairo_team.errors import known
from kairo_team.views import telemetry_names as names

VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The variable of the conventions that asks instrumentations for texts."""
_OFF: Final = ("", "false", "no_content")
_ON: Final = ("true", "span_only", "span_and_event")
"""Values that ask for texts in spans. `event_only` asks for events of calls, which are not made."""

_logger: Final = logging.getLogger("kairo_team")


def is_wanted(argument: bool | None) -> bool:
    """Return whether texts are wanted: by the argument, or if it is None by the variable."""
    if argument is not None:
        return argument
    value = os.environ.get(VARIABLE, "").strip().lower()
    if value not in (*_OFF, *_ON):
        allowed = known([one.upper() for one in ("true", "false", "no_content", "span_only", "span_and_event")])
        _logger.warning("%s is %r, so no texts are written into spans: it may be %s", VARIABLE, value, allowed)
    return value in _ON


def of_prompt(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes of a request: system instructions, messages, and the tools it offers."""
    messages: Sequence[Mapping[str, Any]] = body.get("messages", ())
    system = [_text(one["text"]) for one in messages if one["role"] == "system"]
    given = {
        names.SYSTEM_INSTRUCTIONS: system,
        names.INPUT_MESSAGES: [_message(one) for one in messages if one["role"] != "system"],
        names.TOOL_DEFINITIONS: [{"type": "function", **thaw(one)} for one in body.get("tools", ())],
    }
    return {name: written(value) for name, value in given.items() if value}


def of_reply(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes of a reply."""
    calls = body.get("tool_calls", ())
    finish = "tool_call" if calls and body["finish_reason"] == "stop" else body["finish_reason"]
    return {names.OUTPUT_MESSAGES: written([{**_message({"role": "assistant", **body}), "finish_reason": finish}])}


def said_to(text: str) -> dict[str, str]:
    """Return what an agent, or the team, is asked to do, as its only message."""
    return {names.INPUT_MESSAGES: written([{"role": "user", "parts": [_text(text)]}]), names.INPUT_VALUE: text}


def said_by(text: str) -> dict[str, str]:
    """Return what an agent, or the team, has made, as its only message."""
    said = {"role": "assistant", "parts": [_text(text)], "finish_reason": "stop"}
    return {names.OUTPUT_MESSAGES: written([said]), names.OUTPUT_VALUE: text}


def written(value: object) -> str:
    """Write a value as JSON, for an attribute that cannot have a structure."""
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        answer = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": message["text"]}
        return {"role": "tool", "parts": [answer]}
    parts = [_text(message["text"])] if message["text"] else []
    files: Sequence[Mapping[str, Any]] = message.get("files", ())
    parts += [_text(f"[file {one.get('name') or ''}]") for one in files]
    parts += [
        {"type": "tool_call", "id": one["id"], "name": one["name"], "arguments": thaw(one["arguments"])}
        for one in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "parts": parts}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}
