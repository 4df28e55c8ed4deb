"""MCP servers as tool sources: real servers, over stdio and streamable HTTP, in real time."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

import kairo_team as kt
from kairo_team.governance.policies.mcp_policy import McpPolicy, McpSecurityPolicy
from kairo_team.testing import ScriptedModel
from kairo_team.tools.mcp import McpServer
from kairo_team.tools.tool import Tool
from tests.tools.mcp_rig import MCP_MARKS, PATIENCE, SERVERS, by_tool, called, governed, listed, raw, served

pytestmark = MCP_MARKS


@pytest.fixture(params=["stdio", "http"])
def reference(request: pytest.FixtureRequest, http_url: str) -> McpServer:
    """The same server, made with the official SDK, over both transports."""
    if request.param == "http":
        return McpServer.http("reference", http_url)
    return McpServer.stdio("reference", sys.executable, SERVERS / "sdk.py", "stdio")


# -- a server as it should be -----------------------------------------------------------------------


async def test_the_tools_of_a_real_server_are_offered_called_and_checked(reference: McpServer) -> None:
    async with served() as connections:
        tools = by_tool(await connections.tools(reference))
        add = tools["add"]
        assert (add.name, add.server, add.description) == ("reference_add", "reference", "Add two numbers.")
        assert add.parameters["required"] == ("a", "b")
        assert json.loads(await called(add, a=2, b=3)) == {"total": 5}
        assert await called(tools["files.read"], path="a.txt") == "content of a.txt"
        assert await called(tools["picture"]) == "Look:\n[image image/png, 12 kB]"
        with pytest.raises(RuntimeError, match="Error executing tool fail"):
            await called(tools["fail"])
        with pytest.raises(ValueError, match=r'\$\.a: "x" is not of type "integer"'):
            await called(add, a="x", b=3)
        assert len(await called(tools["big"], characters=3_000_000)) == 3_000_000
        assert json.loads(await called(add, a=1, b=1)) == {"total": 2}, "and all goes on after an error"


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_kf_g09_no_more_calls_are_under_way_than_allowed(transport: str, http_url: str) -> None:
    if transport == "http":
        server = McpServer.http("reference", http_url, max_concurrent_calls=3)
    else:
        server = McpServer.stdio("reference", sys.executable, SERVERS / "sdk.py", "stdio", max_concurrent_calls=3)
    most: list[int] = []

    async def work(tool: Tool) -> None:
        most.append(int(await called(tool, together=3)))

    async with server.connect() as tools, anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(work, by_tool(tools)["busy"])
    assert max(most) == 3, "as the server itself measured"
    assert len(most) == 12


async def test_kf_g09_arguments_are_checked_before_the_call_and_results_after_it(tmp_path: Path) -> None:
    record = tmp_path / "record"
    schema = {"properties": {"path": {"type": "string", "minLength": 1}}, "required": ["path"]}
    output = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
    lies = {"content": [{"type": "text", "text": "big"}], "structuredContent": {"size": "big"}}
    tools = [listed("stat", **schema) | {"outputSchema": output}]
    async with raw(tools=tools, results={"stat": lies}, record=str(record)).connect() as offered:
        pipeline = governed(McpPolicy(McpSecurityPolicy.ALLOW_ALL))
        refused = await pipeline.call(offered[0], {"path": 3})
        assert refused.is_error
        assert '$.path: 3 is not of type "string"' in refused.text
        assert "tools/call" not in record.read_text(encoding="utf-8"), "the server never saw it"
        lied = await pipeline.call(offered[0], {"path": "a"})
        assert lied.is_error
        assert "breaks its own schema" in lied.text
        assert '$.size: "big" is not of type "integer"' in lied.text


async def test_kf_g08_lists_name_tools_as_the_server_does() -> None:
    async def outcomes(policy: McpPolicy | None) -> list[bool]:
        pipeline = governed(policy)
        results = [await pipeline.call(tools[name], {}) for name in ("files.read", "wipe")]
        offered = [pipeline.refusal(tools[name]) is None for name in ("files.read", "wipe")]
        assert offered == [not result.is_error for result in results], "what is refused is not offered either"
        return offered

    async with raw(name="my files", tools=[listed("files.read"), listed("wipe")]).connect() as listed_tools:
        tools = by_tool(listed_tools)
        assert tools["files.read"].name == "my_files_files_read"
        everything = McpSecurityPolicy.ALLOW_ALL
        assert await outcomes(None) == [False, False], "only what is listed"
        assert await outcomes(McpPolicy(allowed=["files.read"])) == [True, False]
        assert await outcomes(McpPolicy(allowed=["my files/files.read"])) == [True, False]
        assert await outcomes(McpPolicy(allowed=["my_files_files_read"])) == [False, False], "no name of ours"
        assert await outcomes(McpPolicy(everything, denied=["wipe"])) == [True, False]
        assert await outcomes(McpPolicy(everything, denied=["my files/wipe"])) == [True, False]
        assert await outcomes(McpPolicy(everything, servers=["others"])) == [False, False]
        assert await outcomes(McpPolicy(McpSecurityPolicy.DENY_ALL, allowed=["wipe"])) == [False, False]


async def test_every_page_of_the_list_is_read() -> None:
    pages = [[listed(f"t{page}{n}") for n in range(3)] for page in range(4)]
    async with raw(tools=pages).connect() as tools:
        assert [tool.server_tool for tool in tools] == [f"t{page}{n}" for page in range(4) for n in range(3)]


async def test_side_effects_are_declared_here_and_the_server_is_believed_only_when_trusted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = [listed(name) | {"annotations": {"readOnlyHint": True}} for name in ("look", "edit")] + [listed("run")]
    declared: Mapping[str, Any] = {"edit": "write", "nope": "read"}
    async with raw(tools=tools, side_effects=declared).connect() as offered:
        assert [tool.side_effect for tool in offered] == ["system", "write", "system"]
    assert "has no tools named 'nope'" in caplog.text
    async with raw(tools=tools, side_effects=declared, trust_annotations=True).connect() as offered:
        assert [tool.side_effect for tool in offered] == ["read", "write", "system"]


async def test_members_of_a_run_share_one_connection_and_see_only_what_the_policy_allows(tmp_path: Path) -> None:
    record = tmp_path / "record"
    tools = [listed("look"), listed("wipe")]

    def member(name: str) -> tuple[kt.Member, ScriptedModel]:
        calls = [kt.ToolCall("1", "raw_look", {"by": name}), kt.ToolCall("2", "raw_wipe")]
        model = ScriptedModel([kt.ModelResponse("", tool_calls=calls), f"{name} is done"])
        return kt.Member(name, kt.MiniAgent(model, tools=[raw(tools=tools, record=str(record))])), model

    (anna, model), (ben, _) = member("anna"), member("ben")
    permissions = kt.ToolPermissions(mcp=McpPolicy(allowed=["look"]))
    team = kt.Team("pair", [anna, ben], permissions=permissions)
    plan = kt.TaskGraph([kt.Task(name, "Look.", member=name) for name in ("anna", "ben")])
    result = await kt.run(team, kt.TeamExecutionRequest("Look.", plan=plan))
    assert [outcome.artifact and outcome.artifact.text for outcome in result.outcomes] == [
        "anna is done",
        "ben is done",
    ]
    assert [tool.name for tool in model.calls[0].tools] == ["raw_look"]
    told = [message.text for message in model.calls[1].messages if message.role == "tool"]
    assert told == ['look did {"by": "anna"}', "the tool 'wipe' of the MCP server 'raw' is not on the allowed list"]
    sent = [json.loads(line)["method"] for line in record.read_text(encoding="utf-8").splitlines()]
    assert (sent.count("initialize"), sent.count("tools/call")) == (1, 2)


# -- what a result can hold ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": []}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [], "structuredContent": {"n": 1, "ä": [True]}}, '{"n": 1, "ä": [true]}'),
        ({"content": [{"type": "text", "text": "one"}], "structuredContent": {"n": 1}}, "one"),
        ({"content": [{"type": "audio", "data": "QUI=", "mimeType": "audio/wav"}]}, "[audio audio/wav, 2 B]"),
        (
            {"content": [{"type": "image", "data": "QUJD" * 10_000, "mimeType": "image/png"}]},
            "[image image/png, 30 kB]",
        ),
        (
            {"content": [{"type": "resource_link", "name": "a", "uri": "file:///a", "size": 2048}]},
            "[resource file:///a, 2 kB]",
        ),
        ({"content": [{"type": "resource_link", "name": "a", "uri": "file:///a"}]}, "[resource file:///a]"),
        (
            {"content": [{"type": "resource", "resource": {"uri": "x://a", "mimeType": "text/plain", "text": "hé"}}]},
            "[resource x://a text/plain, 3 B]\nhé",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "x://a", "blob": "QUJD"}}]},
            "[resource x://a, 3 B]",
        ),
    ],
)
async def test_a_result_becomes_one_text(result: Any, expected: str) -> None:
    async with raw(tools=[listed("t")], results={"t": result}).connect() as tools:
        assert await called(tools[0]) == expected


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"content": [{"type": "text", "text": "disk full"}], "isError": True}, "^disk full$"),
        ({"content": [], "isError": True}, "the tool 't' failed without a message"),
        ({"content": "nonsense"}, "answered 't' with something that is not a tool's result"),
        ({"content": [{"type": "hologram"}]}, "answered 't' with something that is not a tool's result"),
        ("nonsense", "did not answer 't' within 3 s; it sent a message that is not valid in .*: .*'nonsense'"),
    ],
)
async def test_a_result_that_is_none_raises_what_the_member_is_to_read(result: Any, why: str) -> None:
    server = raw(tools=[listed("t")], results={"t": result}, timeout=3 if result == "nonsense" else PATIENCE)
    async with server.connect() as tools:
        with pytest.raises((RuntimeError, TimeoutError), match=why):
            await called(tools[0])


async def test_ten_megabytes_survive_and_the_pipeline_caps_them() -> None:
    async with raw(tools=[listed("big")]).connect() as tools:
        result = await governed(McpPolicy(allowed=["big"])).call(tools[0], {"characters": 10_000_000})
        assert not result.is_error
        assert 1000 < len(result.text) < 10_000_000
