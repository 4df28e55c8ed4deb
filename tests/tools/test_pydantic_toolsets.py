"""A pydantic-ai toolset as a tool source: `MiniAgent(tools=[toolset])`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

from pydantic import BaseModel
from pydantic_ai import ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import BinaryContent
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, FunctionToolset

import kairo_team as kt
from kairo_team.governance.policies.mcp_policy import McpPolicy
from kairo_team.testing import ScriptedModel
from kairo_team.tools.circuit import CircuitBreaker
from kairo_team.tools.pydantic_toolsets import ToolsetSource, described
from kairo_team.tools.sources import as_source

pytestmark = pytest.mark.anyio


class Town(BaseModel):
    name: str
    people: int = 0


class Doors(FunctionToolset[Any]):
    """Counts how often it is entered and left."""

    def __init__(self) -> None:
        super().__init__(id="towns")
        self.steps: list[str] = []

    async def __aenter__(self) -> Any:
        self.steps.append("in")
        return await super().__aenter__()

    async def __aexit__(self, *args: object) -> bool | None:
        self.steps.append("out")
        return await super().__aexit__(*args)


def towns() -> Doors:
    toolset = Doors()

    async def grow(town: Town) -> Town:
        """Make a town larger."""
        return Town(name=town.name, people=town.people + 1)

    toolset.add_function(grow, metadata={"side_effect": "write"})
    return toolset


async def asked(toolset: Any, calls: Sequence[tuple[str, Any]], **team: Any) -> tuple[list[str], list[str]]:
    """Let a MiniAgent make the calls in one turn; return the tools it was offered and the results it read."""
    wanted = [kt.ToolCall(f"c{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]
    model = ScriptedModel([kt.ModelResponse("", wanted, usage=kt.Usage(5, 5)), "done"])
    member = kt.Member("worker", kt.MiniAgent(model, tools=[toolset]))
    result = await kt.run(kt.Team("team", [member], **team), "Do it.")
    assert result.output == "done"
    offered = [tool.name for tool in model.calls[0].tools]
    return offered, [message.text for message in model.calls[1].messages if message.role == "tool"]


async def test_its_tools_are_offered_and_called() -> None:
    toolset = towns()
    offered, read = await asked(toolset, [("grow", {"name": "Bonn", "people": 2})])
    assert offered == ["grow"]
    assert read == ['{"name":"Bonn","people":3}']
    assert toolset.steps == ["in", "out"]


async def test_it_is_entered_once_in_a_run_however_many_use_it() -> None:
    toolset = towns()
    models = [
        ScriptedModel([kt.ModelResponse("", [kt.ToolCall("c", "grow", {"name": "A"})], usage=kt.Usage(1, 1)), "done"])
        for _ in range(2)
    ]
    members = [kt.Member(f"m{n}", kt.MiniAgent(model, tools=[toolset])) for n, model in enumerate(models)]
    plan = kt.TaskGraph([kt.Task("a", "do", member="m0"), kt.Task("b", "do", member="m1")])
    result = await kt.run(kt.Team("team", members), kt.TeamExecutionRequest("goal", plan=plan))
    assert result.status is kt.TeamStatus.COMPLETED
    assert toolset.steps == ["in", "out"]


async def test_arguments_that_do_not_fit_are_told_in_a_sentence() -> None:
    _, read = await asked(towns(), [("grow", {"people": "many"})])
    (text,) = read
    assert "name: Field required" in text
    assert "people: Input should be a valid integer" in text


async def test_what_a_tool_raises_is_told() -> None:
    toolset = FunctionToolset[Any]()

    async def fail(how: str) -> str:
        match how:
            case "retry":
                raise ModelRetry("look closer")
            case "failed":
                raise ToolFailed("no such file")
            case "approval":
                raise ApprovalRequired
            case "deferred":
                raise CallDeferred
            case _:
                raise ZeroDivisionError("by zero")

    toolset.add_function(fail)
    calls = [("fail", {"how": how}) for how in ("retry", "failed", "approval", "deferred", "")]
    _, read = await asked(toolset, calls, permissions=kt.ToolPermissions(breaker=CircuitBreaker(failures=9)))
    assert read[:2] == ["look closer", "no such file"]
    assert all("waits for an approval" in text for text in read[2:4])
    assert read[4] == "ZeroDivisionError: by zero"


async def test_deps_and_the_tools_own_validator_are_there() -> None:
    toolset = FunctionToolset[str]()

    async def no_shouting(ctx: RunContext[str], text: str) -> None:
        if text.isupper():
            raise ModelRetry("lower case, please")

    async def look(ctx: RunContext[str], text: str) -> str:
        return f"{ctx.deps} {ctx.tool_name} {text}"

    toolset.add_tool(Tool(look, args_validator=no_shouting))
    calls = [("look", {"text": "x"}), ("look", {"text": "X"})]
    _, read = await asked(ToolsetSource(toolset, deps="the desk"), calls)
    assert read == ["the desk look x", "lower case, please"]


async def test_files_are_told_of() -> None:
    toolset = FunctionToolset[Any]()

    async def draw() -> ToolReturn[str]:
        return ToolReturn("drawn", content=[BinaryContent(b"12345", media_type="image/png")])

    toolset.add_function(draw)
    _, read = await asked(toolset, [("draw", {})])
    assert read == ['["drawn",["[image/png, 5 bytes]"]]']


async def test_tools_that_others_approve_or_execute_are_left_out() -> None:
    toolset = towns()

    async def pay() -> str:
        raise AssertionError("nobody approved")

    toolset.add_tool(Tool(pay, requires_approval=True))
    offered, _ = await asked(toolset, [("grow", {"name": "A"})])
    assert offered == ["grow"]
    async with ToolsetSource(ExternalToolset([ToolDefinition(name="far")])).connect() as tools:
        assert list(tools) == []


class Server(FunctionToolset[Any]):
    """What pydantic-ai's MCP toolset looks like from outside, without a server."""

    __module__ = "pydantic_ai.mcp"


async def test_tools_of_an_mcp_toolset_meet_the_mcp_policy() -> None:
    server = Server(id="files")

    async def read(text: str) -> str:
        return f"read {text}"

    server.add_function(read)
    async with ToolsetSource(server.prefixed("f")).connect() as tools:
        (tool,) = tools
    assert (tool.name, tool.server, tool.server_tool) == ("f_read", "files", "read")
    assert await asked(server, [("read", {"text": "x"})]) == ([], [])
    permissions = kt.ToolPermissions(mcp=McpPolicy(allowed=["files/read"]))
    assert await asked(server, [("read", {"text": "x"})], permissions=permissions) == (["read"], ["read x"])


async def test_what_a_tool_may_do_is_said_in_its_metadata() -> None:
    async with ToolsetSource(towns()).connect() as (tool,):
        assert tool.side_effect == "write"
    assert described(ToolDefinition(name="x")).side_effect == "system"
    with pytest.raises(ValueError, match="tool 'x': side_effect must be one of read, write, system, not 'all'"):
        described(ToolDefinition(name="x", metadata={"side_effect": "all"}))


def test_a_toolset_is_a_source_and_nothing_else_is() -> None:
    source = as_source(towns())
    assert isinstance(source, ToolsetSource)
    assert source.name == "towns"
    assert repr(source) == "ToolsetSource(Doors 'towns')"
    assert source == ToolsetSource(source.toolset) != ToolsetSource(towns())
    assert hash(source) == hash(ToolsetSource(source.toolset))
    assert source != ToolsetSource(source.toolset, deps="others")
    nameless = FunctionToolset[Any]()
    assert ToolsetSource(nameless).name == ToolsetSource(nameless).name
    assert ToolsetSource(nameless).name != ToolsetSource(FunctionToolset[Any]()).name
    given: Any = FunctionToolset
    with pytest.raises(ValueError, match="takes a pydantic-ai toolset, such as FunctionToolset, not <class"):
        ToolsetSource(given)
    assert isinstance(towns(), AbstractToolset)
