"""What members did, as something to review: messages as one text, tool calls, and who handed over to whom."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from typing import Final

from kairo_team.artifacts import Artifact
from kairo_team.messages import Message, ToolCall
from kairo_team.models.tool_calls import arguments_text

_ATTEMPT: Final = re.compile(r"Task \S+, attempt \d+: member ([\w.-]+)(?:, who hands over to ([\w.-]+))?")


def as_artifact(transcript: Sequence[Message]) -> Artifact:
    """Return a conversation as a text: each message, tool call and tool result under a line with its author.

    Files are named, and not shown.
    """
    names = {call.id: call.name for call in calls_of(transcript)}
    parts: list[str] = []
    for message in transcript:
        who = f"result of {names.get(message.tool_call_id or '', 'a tool')}" if message.role == "tool" else message.role
        if message.text or not message.tool_calls:  # a message of calls alone needs no empty line
            parts.append("\n".join([f"[{who}]", message.text, *(f"[file] {file}" for file in message.files)]))
        parts += [f"[{who} calls {call.name}]\n{arguments_text(call)}" for call in message.tool_calls]
    return Artifact("\n\n".join(parts))


def calls_of(transcript: Iterable[Message]) -> list[ToolCall]:
    """Return the tool calls that a member requested, in order."""
    return [call for message in transcript for call in message.tool_calls]


def named(transcript: Iterable[Message], pattern: str) -> list[ToolCall]:
    """Return the calls of tools whose name matches a pattern such as `delete_*`."""
    return [call for call in calls_of(transcript) if fnmatch.fnmatchcase(call.name, pattern)]


def attempt_line(task: str, number: int, member: str, handed_to: str | None) -> Message:
    """Return the line before an attempt in the record of a run; `handed_to` is who got the work from its member."""
    taker = "" if handed_to is None else f", who hands over to {handed_to}"
    return Message.system(f"Task {task}, attempt {number}: member {member}{taker}")


def hand_overs(transcript: Iterable[Message]) -> list[tuple[str, str]] | None:
    """Return who handed over to whom, in order; None where the messages are not the record of a whole run."""
    lines = [_ATTEMPT.fullmatch(message.text) for message in transcript if message.role == "system"]
    attempts = [line.groups() for line in lines if line is not None]
    if not attempts:
        return None
    return [(giver, taker) for giver, taker in attempts if taker is not None]


def is_kept(transcript: Iterable[Message]) -> bool:
    """Return whether a transcript has more than the lines before attempts."""
    return any(message.role != "system" for message in transcript)
