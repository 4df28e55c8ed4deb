"""A member's conversation as something to review: its messages as one text, and its tool calls."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kairo_team._util.frozen import thaw
from kairo_team.artifacts import Artifact

if TYPE_CHECKING:
    from kairo_team.messages import Message, ToolCall


def as_artifact(transcript: Sequence[Message]) -> Artifact:
    """Return a conversation as a text: each message, tool call and tool result under a line with its author.

    Files are named, and not shown.
    """
    names = {call.id: call.name for call in calls_of(transcript)}
    parts: list[str] = []
    for message in transcript:
        who = f"result of {names.get(message.tool_call_id or '', 'a tool')}" if message.role == "tool" else message.role
        if message.text or not message.tool_calls:
            parts.append("\n".join([f"[{who}]", message.text, *(f"[file] {file}" for file in message.files)]))
        parts += [f"[{who} calls {call.name}]\n{_written(call)}" for call in message.tool_calls]
    return Artifact("\n\n".join(parts))


def calls_of(transcript: Iterable[Message]) -> list[ToolCall]:
    """Return the tool calls that a member requested, in order."""
    return [call for message in transcript for call in message.tool_calls]


def named(transcript: Iterable[Message], pattern: str) -> list[ToolCall]:
    """Return the calls of tools whose name matches a pattern such as `delete_*`."""
    return [call for call in calls_of(transcript) if fnmatch.fnmatchcase(call.name, pattern)]


def _written(call: ToolCall) -> str:
    arguments = call.arguments
    return arguments if isinstance(arguments, str) else json.dumps(thaw(arguments), ensure_ascii=False)
