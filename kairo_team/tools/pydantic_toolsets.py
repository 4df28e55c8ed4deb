"""Tools of pydantic-ai: a toolset as a tool source, and its tools for the tool pipeline."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from kairo_team._util.mistakes import faults_of
from kairo_team.permissions import SideEffect
from kairo_team.tools.result import ToolResult
from kairo_team.tools.tool import Tool, fitting_name

SIDE_EFFECT: Final = "side_effect"
"""Key in a tool's metadata for its side effect: "read", "write" or "system"."""
_SERVER: Final = "kairo_team.server"


class ToolsetSource:
    """A `ToolSource` made of a pydantic-ai toolset, as in `MiniAgent(tools=[toolset])`.

    The toolset is entered once in a run. It validates the arguments of its tools, which receive `deps` as `ctx.deps`;
    `ctx.model` and `ctx.messages` have no meaning here. A tool declares its side effect in its metadata,
    `metadata={"side_effect": "read"}`; without it the tool is "system". The MCP policy sees the tools of MCP servers. A
    tool that waits for an approval, or is executed elsewhere, is left out.
    """

    def __init__(self, toolset: AbstractToolset[Any], *, deps: Any = None) -> None:
        if not isinstance(toolset, AbstractToolset):
            raise ValueError(f"ToolsetSource takes a pydantic-ai toolset, such as FunctionToolset, not {toolset!r}")
        self.toolset = toolset
        self._deps = deps

    @property
    def name(self) -> str:
        """The toolset's id; without one, its class's name and its `id()`."""
        return self.toolset.id or f"{type(self.toolset).__name__}-{id(self.toolset):x}"

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Sequence[Tool]]:
        """Enter the toolset and yield its tools."""
        # A context needs a model; this one is never called.
        context = RunContext[Any](deps=self._deps, model=TestModel(), usage=RunUsage())
        toolset = await with_servers(self.toolset).for_run(context)
        async with toolset:
            tools = await toolset.get_tools(context)
            # A deferred tool is executed by the caller of pydantic-ai, which is not there.
            yield [self._tool(toolset, context, tool) for tool in tools.values() if not tool.tool_def.defer]

    @staticmethod
    def _tool(toolset: AbstractToolset[Any], context: RunContext[Any], tool: ToolsetTool[Any]) -> Tool:
        name = tool.tool_def.name

        async def call(arguments: Mapping[str, Any]) -> Any:
            own = replace(context, tool_name=name, max_retries=tool.max_retries)
            try:
                await check_by_function(tool, own, arguments)
                return shown(await toolset.call_tool(name, dict(arguments), own, tool))
            except (ModelRetry, ToolFailed) as error:
                return ToolResult(error.message, is_error=True)
            except (ApprovalRequired, CallDeferred):
                return ToolResult("the call waits for an approval, which cannot be given here", is_error=True)

        return replace(described(tool.tool_def), call=call, check=partial(validated, tool))

    def __eq__(self, other: object) -> bool:
        """Return whether it is the same toolset, with the same deps."""
        return isinstance(other, ToolsetSource) and self.toolset is other.toolset and self._deps is other._deps

    def __hash__(self) -> int:
        return hash((id(self.toolset), id(self._deps)))  # by identity, because deps need not be hashable

    def __repr__(self) -> str:
        return f"ToolsetSource({self.toolset.label})"


def described(definition: ToolDefinition) -> Tool:
    """Return a `Tool` that describes a pydantic-ai tool; calling it does nothing.

    `ValueError` for an unknown `side_effect` in its metadata.
    """
    metadata = definition.metadata or {}
    side_effect: SideEffect = metadata.get(SIDE_EFFECT, "system")
    server, server_tool = metadata.get(_SERVER, (None, None))
    return Tool(
        fitting_name(definition.name),
        _nothing,
        definition.description or "",
        to_jsonable_python(definition.parameters_json_schema),
        side_effect,
        server=server,
        server_tool=server_tool,
    )


async def _nothing(arguments: Mapping[str, Any]) -> None:
    """Do nothing: `described` needs a function, and it is never called."""


def validated(tool: ToolsetTool[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as the tool's function takes them; `ValueError` with all errors."""
    try:
        given: dict[str, Any] = tool.args_validator.validate_python(dict(arguments))
    except ValidationError as error:
        raise ValueError("; ".join(faults_of(error))) from None
    return given


async def check_by_function(tool: ToolsetTool[Any], context: RunContext[Any], arguments: Mapping[str, Any]) -> None:
    """Call the tool's own validator with arguments that the schema admits."""
    if tool.args_validator_func is not None:
        verdict = tool.args_validator_func(context, **arguments)
        if isawaitable(verdict):
            await verdict


def shown(value: Any) -> Any:
    """Return a result for guardrails: its text and data, and descriptions of its files."""
    match value:
        case ToolReturn():
            more = [] if value.content is None else [shown(value.content)]
            return [shown(value.return_value), *more] if more else shown(value.return_value)
        case BinaryContent():
            return f"[{value.media_type}, {len(value.data)} bytes]"
        case list() | tuple():
            return [shown(item) for item in cast("Sequence[Any]", value)]
        case dict():
            named = cast("dict[Any, Any]", value)  # type: ignore[redundant-cast]  # pyright needs it
            return {key: shown(item) for key, item in named.items()}
        case _:
            return value


@dataclass
class _OfServer(WrapperToolset[Any]):
    """Marks each tool of an MCP server in its metadata with the server's names, which may differ from the model's."""

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await super().get_tools(ctx)
        server = self.wrapped.id or self.wrapped.label
        marked: dict[str, ToolsetTool[Any]] = {}
        for name, tool in tools.items():
            told = tool.tool_def
            metadata = {**(told.metadata or {}), _SERVER: (server, told.name)}
            marked[name] = replace(tool, tool_def=replace(told, metadata=metadata))
        return marked


def with_servers(toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
    """Return the toolset with the tools of MCP servers marked."""

    def marked(leaf: AbstractToolset[Any]) -> AbstractToolset[Any]:
        # Recognized by the module's name: importing their classes would need their dependency.
        is_server = any(kind.__module__ == "pydantic_ai.mcp" for kind in type(leaf).__mro__)
        return _OfServer(leaf) if is_server else leaf

    return toolset.visit_and_replace(marked)
