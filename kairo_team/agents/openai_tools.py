"""Governed tools of the agents library: each call of a function tool goes through the tool pipeline."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    WebSearchTool,
)
from agents.tool import (
    default_tool_timeout_error_message,
    get_function_tool_origin,
    invoke_function_tool,
    maybe_invoke_function_tool_failure_error_function,
    resolve_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
)

from kairo_team._util.frozen import thaw
from kairo_team.agents.openai_views import read_arguments, to_text
from kairo_team.tools.pipeline import PASSING
from kairo_team.tools.result import ToolResult, text_of
from kairo_team.tools.tool import Tool, fitting_name

if TYPE_CHECKING:
    from agents import Tool as TheirTool
    from agents.tool_context import ToolContext
    from anyio import Lock

    from kairo_team.agents.wrapped import GovernedCalls
    from kairo_team.permissions import SideEffect

HOSTED: Final = (CodeInterpreterTool, FileSearchTool, HostedMCPTool, ImageGenerationTool, WebSearchTool)
"""Tools that run at the provider."""


def tool_problem(tool: TheirTool, *, allow_hosted: bool) -> str | None:
    """Return why a tool cannot be governed; None when it can, or need not be."""
    if isinstance(tool, FunctionTool) or (allow_hosted and isinstance(tool, HOSTED)):
        return None
    name = getattr(tool, "name", None) or type(tool).__name__
    if isinstance(tool, HOSTED):
        return (
            f"the tool {name!r} ({type(tool).__name__}) runs at the provider, where its calls cannot be seen, counted "
            "or refused: take a function tool, or allow it, OpenAIAgent(..., allow_hosted=True)"
        )
    return (
        f"the tool {name!r} ({type(tool).__name__}) is run by the agents library without permissions, guardrails and "
        "budget: write it as a function tool"
    )


def tool_problems(agent: Agent[Any], *, allow_hosted: bool) -> Iterator[str]:
    """Yield a sentence for each tool of an agent, or of the agents it can reach, that cannot be governed."""
    for one in _reachable(agent):
        for tool in one.tools:
            problem = tool_problem(tool, allow_hosted=allow_hosted)
            if problem is not None:
                yield f"agent {one.name!r}: {problem}"


def _reachable(agent: Agent[Any]) -> Iterable[Agent[Any]]:
    """Return the agents that an agent can reach, each once, as far as they are known before it runs."""
    found: dict[int, Agent[Any]] = {}
    left: list[Any] = [agent]
    while left:
        one = left.pop()
        if not is_agent(one) or id(one) in found:
            continue
        found[id(one)] = one
        targets: list[Any] = one.handoffs
        left += [_agent_behind(target) if isinstance(target, Handoff) else target for target in targets]
        left += [getattr(tool, "_agent_instance", None) for tool in one.tools]
    return found.values()


def is_agent(value: object) -> bool:
    """Return whether a value is an agent of the library."""
    return isinstance(value, Agent)


def _agent_behind(handoff: Any) -> Any:
    reference = getattr(handoff, "_agent_ref", None)
    return None if reference is None else reference()


class ToolBinder:
    """Makes governed copies of tools, and runs their calls."""

    def __init__(
        self,
        calls: GovernedCalls,
        one_by_one: Callable[[], Lock],
        side_effects: Mapping[str, SideEffect],
        *,
        allow_hosted: bool,
    ) -> None:
        self.calls = calls
        self._one_by_one = one_by_one
        """Returns the lock of the current run, which may be a run inside the attempt's own."""
        self._side_effects = side_effects
        self._allow_hosted = allow_hosted
        self._bound: dict[int, tuple[FunctionTool, FunctionTool]] = {}

    def bind(self, tools: Iterable[TheirTool]) -> list[TheirTool]:
        """Return governed tools, without those always refused; `ValueError` for one that cannot be governed."""
        bound: list[TheirTool] = []
        for tool in tools:
            problem = tool_problem(tool, allow_hosted=self._allow_hosted)
            if problem is not None:
                raise ValueError(problem)
            if not isinstance(tool, FunctionTool):
                bound.append(tool)
            elif self._offered(tool):
                bound.append(self._governed(tool))
        return bound

    def offered(self, own: Iterable[str]) -> list[TheirTool]:
        """Return the coordinator's tools; `ValueError` where the agent has a tool with the same name."""
        own, context = set(own), self.calls.context
        made: list[TheirTool] = []
        for tool in context.offered:
            if tool.name in own:
                raise ValueError(
                    f"the coordinator offers a tool {tool.name!r}, and the agent has one of this name: give the "
                    "agent's another name"
                )
            if context.tool(tool).pipeline.refusal(tool) is None:
                use, schema = partial(self._use, tool.name), thaw(tool.parameters)
                made.append(FunctionTool(tool.name, tool.description, schema, use, strict_json_schema=False))
        return made

    async def _use(self, name: str, context: ToolContext[Any], arguments: str) -> str:
        """Call a tool of the coordinator."""
        async with self._one_by_one():
            return (await self.calls.use_offered(name, arguments, context.tool_call_id)).text

    def _offered(self, tool: FunctionTool) -> bool:
        governed = self.calls.context.tool(self._describe_tool(tool, _refuse_call))
        return governed.pipeline.refusal(governed.tool) is None

    def _governed(self, tool: FunctionTool) -> FunctionTool:
        """Return a copy of a tool that is called through the pipeline; the same copy each time."""
        found = self._bound.get(id(tool))
        if found is None:
            bound = copy.copy(tool)
            bound.on_invoke_tool = partial(self.invoke, tool)
            bound.timeout_seconds = None  # applied inside the pipeline, where the time for a permission does not count
            found = self._bound[id(tool)] = (tool, bound)  # keeps the tool alive, so that its id stays its own
        return found[1]

    async def invoke(self, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
        """Make one call; return the tool's result if nothing changed it, else the text for the model."""
        call = _Call(self.calls, tool, context, arguments)
        described = self._describe_tool(tool, call.make)
        # An agent used as a tool is a run: its tools take the lock of that run.
        alone = described.side_effect != "read" and getattr(tool, "_agent_instance", None) is None
        async with self._one_by_one() if alone else nullcontext():
            with self.calls.ending:
                governed = self.calls.context.tool(described)
                result = await governed.call_of_reply(arguments, call_id=context.tool_call_id)
        # The tool's error function may have turned a governing error into text.
        self.calls.ending.check()
        if call.error is not None:
            raise call.error
        return result.text if result.value is None or isinstance(result.value, bytes | bytearray) else result.value

    def _describe_tool(self, tool: FunctionTool, make: Any) -> Tool:
        name = fitting_name(tool.qualified_name)
        side_effect = self._side_effects.get(tool.name) or self._side_effects.get(name) or "system"
        origin, server, server_tool = get_function_tool_origin(tool), None, None
        if origin is not None and origin.mcp_server_name is not None:
            binding = getattr(tool, "_mcp_tool_binding", None)
            server, server_tool = origin.mcp_server_name, binding[1] if binding else tool.name
        schema = tool.params_json_schema
        described = schema if schema.get("type", "object") == "object" else {"type": "object"}
        return Tool(name, make, tool.description or "", described, side_effect, server=server, server_tool=server_tool)


class _Call:
    """One call of a native tool inside the pipeline."""

    def __init__(self, calls: GovernedCalls, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> None:
        self._calls = calls
        self._tool = tool
        self._context = context
        self._arguments = arguments
        self._failed = False
        self.error: Exception | None = None
        """The tool's exception, which the library must receive."""

    async def make(self, arguments: Mapping[str, Any]) -> Any:
        """Run the tool with the arguments that passed; a failure that it returns as text counts as an error."""
        self._calls.tool_calls += 1
        plain, written = thaw(arguments), self._arguments
        if read_arguments(written) != plain:
            written = to_text(plain)
        try:
            value = await invoke_function_tool(function_tool=self._watched(), context=self._context, arguments=written)
        except Exception as error:
            self.error = error
            raise
        return ToolResult(text_of(value), is_error=True) if self._failed else value

    def _watched(self) -> FunctionTool:
        """Return a copy of the tool that notes its failures, and returns the tool's own error text."""
        watched = copy.copy(self._tool)
        if resolve_function_tool_failure_error_function(self._tool, self._context) is not None:
            set_function_tool_failure_error_function(watched, self._on_error)
        if watched.timeout_seconds is not None:
            watched.timeout_error_function = self._on_timeout
        return watched

    async def _on_error(self, context: Any, error: Exception) -> str:
        self._failed = True
        if isinstance(error, PASSING):  # the tool's own error function is about to turn it into text
            self._calls.ending.note(error)
        text = await maybe_invoke_function_tool_failure_error_function(
            function_tool=self._tool, context=context, error=error
        )
        return text or ""

    async def _on_timeout(self, context: Any, error: Any) -> str:
        self._failed = True
        own: Any = self._tool.timeout_error_function
        if own is None:
            return default_tool_timeout_error_message(tool_name=error.tool_name, timeout_seconds=error.timeout_seconds)
        text = own(context, error)
        return str(await text if hasattr(text, "__await__") else text)


async def _refuse_call(_arguments: Mapping[str, Any]) -> Any:
    raise RuntimeError("the tool is only described here")
