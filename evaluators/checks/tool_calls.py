"""Checks on a member's tool calls; without a transcript their criteria are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kairo_team.evaluators.checks.named_check import CheckAnswer, NamedCheck, by_name
from kairo_team.evaluators.transcripts import calls_of, named

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kairo_team.artifacts import Artifact
    from kairo_team.messages import Message
    from kairo_team.verdicts import EvaluationContext


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
def max_tool_calls(limit: int) -> NamedCheck:
    """Make a check that the member made at most `limit` tool calls, of all tools together."""
    _check("*", "limit", limit, 0)

    def check(transcript: Sequence[Message]) -> CheckAnswer:
        found = len(calls_of(transcript))
        return found <= limit or f"{found} tool calls were made, at most {limit} are allowed"

    return _on_transcript(f"max_tool_calls({limit})", check)


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
