"""`Toolbox`: the governed tools of one agent, and the calls of one turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import anyio

from kairo_team.errors import innermost, known
from kairo_team.tools.passing import passing
from kairo_team.tools.result import ToolResult

if TYPE_CHECKING:
    from kairo_team.messages import ToolCall, ToolSpec
    from kairo_team.tools.pipeline import ToolPipeline
    from kairo_team.tools.tool import Tool


class GovernedTool:
    """A tool with all its calls going through a pipeline."""

    __slots__ = ("pipeline", "tool")

    def __init__(self, pipeline: ToolPipeline, tool: Tool) -> None:
        self.pipeline = pipeline
        self.tool = tool

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    @property
    def spec(self) -> ToolSpec:
        """The tool's specification for a model."""
        return self.tool.spec

    async def call(self, arguments: Mapping[str, Any] | str, *, call_id: str | None = None) -> ToolResult:
        """Call the tool with arguments by name, or with a model's JSON text; see `ToolPipeline.call`."""
        return await self.pipeline.call(self.tool, arguments, call_id=call_id)

    async def call_of_reply(self, arguments: Mapping[str, Any] | str, *, call_id: str | None = None) -> ToolResult:
        """Call it as one of several calls of a reply; see `ToolPipeline.call_of_reply`."""
        return await self.pipeline.call_of_reply(self.tool, arguments, call_id=call_id)

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        """Call the tool like a function, with arguments by name."""
        return await self.pipeline.call(self.tool, arguments)

    def __repr__(self) -> str:
        return f"GovernedTool({self.name!r})"


class Toolbox:
    """Tools with different names, governed by one pipeline. Two tools with the same name raise `ValueError`.

    Tools that the pipeline would refuse with any arguments are not offered: `specs` and `names` do not list them.
    """

    __slots__ = ("_offered", "_pipeline", "_tools", "last_specs", "specs")

    specs: tuple[ToolSpec, ...]
    """The specifications of the offered tools, in order."""
    last_specs: tuple[ToolSpec, ...]
    """The specifications of the offered tools that end an attempt: these are offered on its last turn too."""

    def __init__(self, pipeline: ToolPipeline, tools: Iterable[Tool], offered: Iterable[Tool] = ()) -> None:
        """Take the member's own tools, and those that the coordinator offers (`offered`)."""
        self._pipeline = pipeline
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            other = self._tools.setdefault(tool.name, tool)
            if other is not tool:
                raise ValueError(
                    f"two tools are named {tool.name!r}: give one of them another name, as_tool(..., name=...)"
                )
        for tool in offered:
            if self._tools.setdefault(tool.name, tool) is not tool:
                raise ValueError(
                    f"the coordinator offers a tool {tool.name!r}, and the member has one of this name: give the "
                    "member's another name, as_tool(..., name=...)"
                )
        self._offered = {name: tool for name, tool in self._tools.items() if pipeline.refusal(tool) is None}
        self.specs = tuple(tool.spec for tool in self._offered.values())
        self.last_specs = tuple(tool.spec for tool in self._offered.values() if tool.ends is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the offered tools, in order."""
        return tuple(self._offered)

    def __getitem__(self, name: str) -> GovernedTool:
        """Return the tool with that name, offered or not; `KeyError` lists the offered names."""
        if name not in self._tools:
            raise KeyError(f"there is no tool {name!r}; there are {known(self._offered)}")
        return GovernedTool(self._pipeline, self._tools[name])

    def __iter__(self) -> Iterator[GovernedTool]:
        """Iterate over the offered tools, in order."""
        return (GovernedTool(self._pipeline, tool) for tool in self._offered.values())

    def __len__(self) -> int:
        return len(self._offered)

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make the calls of one turn; return their results in the same order.

        Consecutive calls of `read` tools run concurrently. Any other call, and a call of a tool that ends the attempt,
        runs alone, after all before it and before all after it. Raises what `ToolPipeline.call` raises, after
        cancelling the calls that run concurrently. Where calls wait for a person, the attempt ends once all are asked
        about.
        """
        results: list[ToolResult] = []
        for reads, group in groupby(calls, self._reads):
            together = list(group)
            if reads and len(together) > 1:
                results += await self._side_by_side(together)
            else:
                results += [await self._call(call) for call in together]
        await self._pipeline.put_off()
        return results

    def _reads(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is None or (tool.side_effect == "read" and tool.ends is None)

    async def _call(self, call: ToolCall) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            reason = f"there is no tool {call.name!r:.200}; there are {known(self._offered)}"
            return self._pipeline.refuse(call.name, "unknown-tool", reason)
        return await self._pipeline.call_of_reply(tool, call.arguments, call_id=call.id)

    async def _side_by_side(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        lost = ToolResult("cancelled from inside a tool of this turn: there is no result", is_error=True)
        results = [lost] * len(calls)

        async def fill(place: int) -> None:
            results[place] = await self._call(calls[place])

        try:
            async with anyio.create_task_group() as group:
                for place in range(len(calls)):
                    group.start_soon(fill, place)
        except ExceptionGroup as error:
            raise passing(error) or innermost(error) from None
        return results
