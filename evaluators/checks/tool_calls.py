"""Checks on a member's tool calls; without a transcript their criteria are unknown."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.frozen import thaw
from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.transcripts import calls_of, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kairo_team.artifacts import Artifact
    from kairo_team.messages import Message
    from kairo_team.verdicts import EvaluationContext

OF_CALLS: Final = ("avoids_tool", "calls_in_order", "calls_tool", "calls_with", "max_tool_calls")
"""The checks that read a transcript, whatever their criterion is about."""
_LEAST_ORDERED: Final = 2


@by_name
def calls_tool(tool: str, least: int = 1) -> NamedCheck:
    """Make a check that the member called a tool at least `least` times; the name may be a pattern, `search_*`."""
    _check(tool, "least", least, 1)

    def check(transcript: Sequence[Message]) -> CheckAnswer:
        found = len(named(transcript, tool))
        return found >= least or f"{tool} was called {found} times, at least {least} are needed"

    return _on_transcript(f"calls_tool({tool!r}, {least})", check)


@by_name
def avoids_tool(tool: str) -> NamedCheck:
    """Make a check that the member never called a tool; the name may be a pattern, `delete_*`."""
    _check(tool, "least", 1, 1)

    def check(transcript: Sequence[Message]) -> CheckAnswer:
        found = named(transcript, tool)
        return not found or f"{found[0].name} was called"

    return _on_transcript(f"avoids_tool({tool!r})", check)


@by_name
def max_tool_calls(limit: int, tool: str = "*") -> NamedCheck:
    """Make a check that the member made at most `limit` calls of a tool; by default of all tools together.

    The name may be a pattern, `search_*`.
    """
    _check(tool, "limit", limit, 0)
    of = "" if tool == "*" else f" of {tool}"

    def check(transcript: Sequence[Message]) -> CheckAnswer:
        found = len(named(transcript, tool))
        return found <= limit or f"{found} tool calls{of} were made, at most {limit} are allowed"

    return _on_transcript(f"max_tool_calls({limit}{f', {tool!r}' if of else ''})", check)


@by_name
def calls_in_order(*tools: str) -> NamedCheck:
    """Make a check that the member called these tools in this order, with any other calls between them.

    Each name may be a pattern, `search_*`, and a name given twice needs two calls.
    """
    if len(tools) < _LEAST_ORDERED:
        raise ValueError(f"calls_in_order takes at least two tools, not {tools!r:.80}: calls_tool takes one")
    for tool in tools:
        _check(tool, "least", 1, 1)

    def check(transcript: Sequence[Message]) -> CheckAnswer:
        calls = iter(calls_of(transcript))
        for place, tool in enumerate(tools):
            if not any(fnmatch.fnmatchcase(call.name, tool) for call in calls):
                return f"{tool} was not called{f' after {tools[place - 1]}' if place else ''}"
        return True

    return _on_transcript(f"calls_in_order({', '.join(map(repr, tools))})", check)


@by_name
def calls_with(tool: str, arguments: Mapping[str, Any]) -> NamedCheck:
    """Make a check that a call of a tool had these arguments, perhaps among others; the values are equal JSON.

    The name may be a pattern, `search_*`.
    """
    _check(tool, "least", 1, 1)
    if not isinstance(arguments, Mapping):
        raise ValueError(f"calls_with takes arguments by name, such as {{'query': 'tides'}}, not {arguments!r:.80}")
    try:
        wanted = {name: _as_json(value) for name, value in arguments.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"calls_with takes arguments by name that are JSON values: {error}") from None

    def check(transcript: Sequence[Message]) -> CheckAnswer:
        found = named(transcript, tool)
        for call in found:
            given: Mapping[str, Any] = {} if isinstance(call.arguments, str) else call.arguments
            if all(name in given and _as_json(given[name]) == value for name, value in wanted.items()):
                return True
        if not found:
            return f"{tool} was not called"
        shown, last = _as_json(arguments), found[-1].arguments
        return (
            f"{tool} was called {len(found)} times, never with {shown}; "
            f"last with {last if isinstance(last, str) else _as_json(last)}"
        )

    return _on_transcript(f"calls_with({tool!r}, {_as_json(arguments)})", check)


def _as_json(value: Any) -> str:
    """Return a value as JSON with sorted keys, so that equal values are equal texts: 1, 1.0 and True differ."""
    return json.dumps(thaw(value), ensure_ascii=False, sort_keys=True)


def _on_transcript(shown: str, check: Callable[[Sequence[Message]], CheckAnswer]) -> NamedCheck:
    def call(_artifact: Artifact, context: EvaluationContext) -> CheckAnswer:
        if not context.transcript:
            raise ValueError("the member kept no transcript")
        return check(context.transcript)

    return NamedCheck(shown, call, wants_context=True)


def _check(tool: str, name: str, number: int, least: int) -> None:
    if not isinstance(tool, str) or not tool.strip():
        raise ValueError(f"a check of tool calls takes a tool's name, not {tool!r}")
    if type(number) is not int or number < least:
        raise ValueError(f"{name} must be a whole number >= {least}, not {number!r}")
