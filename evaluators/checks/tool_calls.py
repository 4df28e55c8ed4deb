"""Checks on what members did: tool calls, hand-overs and usage; what nothing recorded leaves criteria unknown."""

from __future__ import annotations

import fnmatch
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kairo_team._util.counts import count, counted
from kairo_team._util.frozen import thaw
from kairo_team.budget import check_count
from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.criterion import Answer
from kairo_team.evaluators.transcripts import calls_of, hand_overs, is_kept, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kairo_team.artifacts import Artifact
    from kairo_team.messages import Message
    from kairo_team.verdicts import EvaluationContext

OF_CALLS: Final = ("avoids_tool", "calls_in_order", "calls_tool", "calls_with", "hands_over", "max_tool_calls")
"""The checks that read a transcript, whatever their criterion is about."""
_LEAST_ORDERED: Final = 2


@by_name
def calls_tool(tool: str, least: int = 1) -> NamedCheck:
    """Make a check that the member called a tool at least `least` times; the name may be a pattern, `search_*`."""
    _check(tool, "least", least, 1)

    def check(transcript: Sequence[Message]) -> CheckAnswer:
        found = len(named(transcript, tool))
        return found >= least or f"{tool} was called {count(found, 'time')}, at least {counted(least)} needed"

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
        made = f"{count(found, 'tool call')}{of} {'was' if found == 1 else 'were'} made"
        return found <= limit or f"{made}, at most {counted(limit)} allowed"

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
        calls = iter(calls_of(transcript))  # one iterator: `any` stops behind the call that it found
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
            f"{tool} was called {count(len(found), 'time')}, never with {shown}; "
            f"last with {last if isinstance(last, str) else _as_json(last)}"
        )

    return _on_transcript(f"calls_with({tool!r}, {_as_json(arguments)})", check)


@by_name
def hands_over(*members: str) -> NamedCheck:
    """Make a check that each of these members handed over to the next, in this order, with any others between them.

    A hand-over is one of `HandoffCoordinator`. The names are ids of members, and each may be a pattern, `tier_*`. Only
    the record of a whole run shows hand-overs, as in an eval with a journal: elsewhere the criterion is unknown.
    """
    if len(members) < _LEAST_ORDERED:
        raise ValueError(f"hands_over takes at least two members, not {members!r:.80}: one hands over to the next")
    for member in members:
        if not isinstance(member, str) or not member.strip():
            raise ValueError(f"hands_over takes ids of members, not {member!r:.80}")

    def check(_artifact: Artifact, context: EvaluationContext) -> CheckAnswer | Answer:
        found = hand_overs(context.transcript)
        if found is None:
            return Answer(None, "only the record of a whole run shows who handed over: run kairo eval with --journal")
        left = iter(found)
        for giver, taker in pairwise(members):
            if not any(fnmatch.fnmatchcase(a, giver) and fnmatch.fnmatchcase(b, taker) for a, b in left):
                there = ", ".join(f"{a} to {b}" for a, b in found) or "none"
                return f"{giver} did not hand over to {taker} in this order; hand-overs: {there}"
        return True

    return NamedCheck(f"hands_over({', '.join(map(repr, members))})", check, wants_context=True)


@by_name
def max_tokens_used(limit: int) -> NamedCheck:
    """Make a check that the work used at most so many tokens: in a run the task, in an eval the team's whole run.

    All attempts count, and the reviews by this rubric do not.
    """
    if type(limit) is not int or limit < 0:
        raise ValueError(f"max_tokens_used takes a whole number >= 0, not {limit!r:.80}")
    return _on_usage("tokens", limit)


@by_name
def max_dollars_used(limit: float) -> NamedCheck:
    """Make a check that the work used at most so many dollars, counted as by `max_tokens_used`."""
    return _on_usage("dollars", limit)


@by_name
def max_seconds_used(limit: float) -> NamedCheck:
    """Make a check that the work took at most so many seconds, counted as by `max_tokens_used`."""
    return _on_usage("seconds", limit)


def _on_usage(amount: str, limit: float) -> NamedCheck:
    if type(limit) not in (int, float) or not 0 <= limit < math.inf:
        raise ValueError(f"max_{amount}_used takes a number >= 0, not {limit!r:.80}: write a float such as 0.05")
    exact = Decimal(str(limit)) if amount == "dollars" else limit

    def check(_artifact: Artifact, context: EvaluationContext) -> CheckAnswer | Answer:
        if context.usage is None:
            return Answer(None, "nothing says what the work has used: a run does, and so does an eval")
        used = getattr(context.usage, amount)
        return used <= exact or f"{used:,.12g} {amount} were used, at most {limit:,.12g} are allowed"

    return NamedCheck(f"max_{amount}_used({limit})", check, wants_context=True)


def _as_json(value: Any) -> str:
    """Return a value as JSON with sorted keys, so that equal values are equal texts: 1, 1.0 and True differ."""
    return json.dumps(thaw(value), ensure_ascii=False, sort_keys=True)


def _on_transcript(shown: str, check: Callable[[Sequence[Message]], CheckAnswer]) -> NamedCheck:
    def call(_artifact: Artifact, context: EvaluationContext) -> CheckAnswer | Answer:
        if not is_kept(context.transcript):
            return Answer(None, "the member kept no transcript")
        return check(context.transcript)

    return NamedCheck(shown, call, wants_context=True)


def _check(tool: str, name: str, number: int, least: int) -> None:
    if not isinstance(tool, str) or not tool.strip():
        raise ValueError(f"a check of tool calls takes a tool's name, not {tool!r}")
    check_count(name, number, least)
