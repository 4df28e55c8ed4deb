"""LangChain's tools in the tool pipeline (needs the extra `langgraph`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final, cast, get_args

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp  # pyright: ignore[reportMissingTypeStubs]
from langgraph.prebuilt.tool_node import ToolInvocationError
from langgraph.types import Command  # pyright: ignore[reportMissingTypeStubs]

from kairo_team._util.context_values import set_for
from kairo_team._util.frozen import thaw
from kairo_team._util.narrowing import fields_of
from kairo_team.agents.langgraph_attempt import Followed, GraphAttempt, current
from kairo_team.agents.langgraph_views import text_of
from kairo_team.errors import KairoError
from kairo_team.permissions import SideEffect
from kairo_team.tools.result import ToolResult
from kairo_team.tools.tool import Tool, fitting_name

STEERED: Final = "the tool steers the graph"
"""The result, for the pipeline, of a tool that raises an interrupt or a command for the graph around it."""
_inside: ContextVar[tuple[str, str | None] | None] = ContextVar("kairo_team_governed_tool", default=None)
"""Name and id of the call that `run_governed` is making."""


class ToolRefused(ToolInvocationError):
    """A refused tool call; a `ToolNode` turns it into an error message that the model can read."""

    def __init__(self, tool: str, reason: str) -> None:
        self.message = reason
        self.tool_name = tool
        self.filtered_errors = None
        Exception.__init__(self, reason)  # the base's own constructor needs pydantic's error


class FollowedTool(Followed):
    """A call of a tool that is not wrapped."""

    def __init__(
        self,
        name: str,
        description: str,
        arguments: Mapping[str, Any],
        metadata: Mapping[str, Any],
        call_id: str | None,
    ) -> None:
        super().__init__()
        self._id = call_id
        self._name = name
        self._description = description
        self._arguments = arguments
        self._metadata = metadata
        self._text = ""

    async def walk(self, attempt: GraphAttempt) -> None:
        """Run the call through the pipeline; refuse changes that cannot be applied to a call of the graph."""
        tool = _tool(self._name, self._description, self._metadata, self._call)
        arguments = attempt.not_json.get(self._id or "", self._arguments)
        result = await attempt.context.tool(tool).call(arguments, call_id=self._id)
        attempt.tool_calls += self.open
        if self.raised is None and (not self.open or result.is_error or result.text != self._text):
            raise ToolRefused(self._name, result.text)

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        if thaw(arguments) != thaw(self._arguments):
            raise ValueError("a guardrail would change the arguments: give the ToolNode awrap_tool_call to let it")
        self._text = _output_text(await self.pass_on())
        return _result(self._text)


async def run_governed(request: Any, execute: Callable[[Any], Any]) -> Any:
    """Run a `ToolNode`'s call through the pipeline of its attempt; outside an attempt run it directly."""
    attempt = current.get()
    if attempt is None or request.tool is None:
        return await execute(request)
    return await attempt.come_home(_run, attempt, request, execute)


async def _run(attempt: GraphAttempt, request: Any, execute: Callable[[Any], Any]) -> Any:
    asked = request.tool_call
    outputs: list[Any] = []
    bubbles: list[GraphBubbleUp] = []

    async def call(arguments: Mapping[str, Any]) -> ToolResult | str:
        attempt.tool_calls += 1
        # LangChain's callbacks report this call too; the watch must not take it through the pipeline again.
        with set_for(_inside, (asked["name"], asked["id"])):
            try:
                outputs.append(await execute(request.override(tool_call={**asked, "args": thaw(arguments)})))
            except GraphBubbleUp as bubble:  # an interrupt, or a command for the graph around: not a failure
                bubbles.append(bubble)
                return STEERED
        return _result(_output_text(outputs[-1]))

    tool = _tool(asked["name"], request.tool.description, request.tool.metadata or {}, call)
    try:
        arguments: Mapping[str, Any] | str = attempt.not_json.get(asked["id"]) or asked["args"]
        result = await attempt.context.tool(tool).call_of_reply(arguments, call_id=asked["id"])
    except KairoError as error:
        attempt.end_with(error)
        raise
    if bubbles and not result.is_error:
        raise bubbles[0]  # outside the pipeline, where it would count as the tool's failure
    return _answer(asked, result, outputs[-1] if outputs else None)


def _answer(asked: Mapping[str, Any], result: ToolResult, output: Any) -> Any:
    """Return the tool's result, or a message with the changed text or the reason of the refusal."""
    if output is not None and not result.is_error and result.text == _output_text(output):
        return output
    if isinstance(output, ToolMessage) and not result.is_error:
        return output.model_copy(update={"content": result.text})
    return ToolMessage(
        result.text, name=asked["name"], tool_call_id=asked["id"], status="error" if result.is_error else "success"
    )


def in_pipeline(serialized: Any, details: Mapping[str, Any]) -> bool:
    """Return whether this is the call that `run_governed` is making."""
    return _inside.get() == (serialized["name"], details.get("tool_call_id"))


def _tool(name: str, description: str, metadata: Mapping[str, Any], call: Callable[[Mapping[str, Any]], Any]) -> Tool:
    declared: Any = metadata.get("side_effect")
    side_effect: SideEffect = declared if declared in get_args(SideEffect) else "system"
    return Tool(fitting_name(name), call, description, side_effect=side_effect)


def _result(text: str) -> ToolResult:
    """Return a tool's text as a result; a list or an object has become JSON before the graph shows it."""
    if text.startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            return ToolResult(text, value=json.loads(text))
    return ToolResult(text)


def _output_text(output: Any) -> str:
    """Return a tool's output as text for the pipeline."""
    if isinstance(output, ToolMessage):
        return text_of(output)
    if not isinstance(output, Command):
        return str(output)
    # The text for the model in a command for the graph.
    update: Any = cast("Any", output).update
    messages: Any = fields_of(update).get("messages", [])
    texts = [text_of(message) for message in list[Any](messages) if isinstance(message, ToolMessage)]
    return "\n".join(texts) if texts else repr(update)
