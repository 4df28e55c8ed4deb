"""What an MCP server can get wrong: it dies, hangs, ends too soon or lists nonsense, and is named for it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from kairo_team.governance.policies.mcp_policy import McpPolicy, McpSecurityPolicy
from kairo_team.tools.mcp import McpServer
from kairo_team.tools.tool import Tool
from tests.tools.mcp_rig import MCP_MARKS, PATIENCE, by_tool, called, governed, listed, raw, served

pytestmark = MCP_MARKS


async def test_a_server_that_dies_fails_its_calls_and_the_next_who_asks_gets_a_new_one(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = raw(tools=[listed("sleep"), listed("die"), listed("t")], die_at="die", pid_file=str(pid))
    failures: list[str] = []

    async def fail(tool: Tool) -> None:
        result = await governed(McpPolicy(McpSecurityPolicy.ALLOW_ALL)).call(tool, {})
        assert result.is_error
        failures.append(result.text)

    async with served() as connections:
        tools = by_tool(await connections.tools(server))
        first = pid.read_text(encoding="utf-8")
        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for name in ("sleep", "sleep", "die"):
                    tasks.start_soon(fail, tools[name])
        await fail(tools["t"])
        assert (
            failures
            == ["ConnectionError: MCP server 'raw' is no longer connected: none of its tools can be called"] * 4
        )
        again = by_tool(await connections.tools(server))
        assert await called(again["t"], n=1) == 't did {"n": 1}'
        assert pid.read_text(encoding="utf-8") != first


async def test_a_call_that_hangs_ends_at_the_timeout_and_others_go_on() -> None:
    async with raw(tools=[listed("sleep"), listed("t")], timeout=3).connect() as tools:
        began = anyio.current_time()
        with pytest.raises(TimeoutError, match=r"MCP server 'raw' did not answer 'sleep' within 3 s"):
            await called(by_tool(tools)["sleep"])
        assert 3 <= anyio.current_time() - began < 60
        assert await called(by_tool(tools)["t"]) == "t did {}"


async def test_a_hanging_call_can_be_left_at_once_though_the_server_reads_nothing(tmp_path: Path) -> None:
    """Far more than a pipe holds is sent to a server that has stopped: nobody waits for it to be taken."""
    async with raw(tools=[listed("t")], pid_file=str(tmp_path / "pid")).connect() as tools:
        process = int((tmp_path / "pid").read_text(encoding="utf-8"))
        os.kill(process, signal.SIGSTOP)
        try:
            with anyio.move_on_after(0.2) as scope:
                await called(tools[0], text="x" * 1_000_000)
            assert scope.cancelled_caught
            assert anyio.current_time() < scope.deadline + 60
        finally:
            os.kill(process, signal.SIGCONT)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ({"silent": True}, "it was not ready within 1 s; give it a longer request_timeout if it needs one"),
        ({"deaf": True}, "it was not ready within 1 s"),
        ({"never_ends": True}, "it was not ready within 1 s"),
        (
            {"die_at": "initialize", "error_output": "no such\nmodule\n"},
            "the server ended, its last output was 'module'",
        ),
        ({"die_at": "tools/list"}, "the server ended$"),
        ({"tools": [{"name": "t"}]}, "its answer is not valid in the Model Context Protocol"),
        ({"tools": [{"name": "t", "inputSchema": "nonsense"}]}, "not valid in the Model Context Protocol"),
        ({"tools": [listed(f"t{n}") for n in range(200)]}, "it has more than 128 tools; give a higher max_tools"),
    ],
)
async def test_a_server_that_cannot_be_connected_is_named_with_the_cause(plan: dict[str, Any], why: str) -> None:
    server = raw(timeout=1 if "within" in why else PATIENCE, **plan)
    with anyio.fail_after(PATIENCE):
        with pytest.raises(ConnectionError, match=why) as caught:
            async with server.connect():
                raise AssertionError("it is not to be connected")
    assert str(caught.value).startswith(f"MCP server 'raw' (the command {sys.executable!r}) cannot be connected: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer.stdio("x", "no-such-command"), "the command 'no-such-command'.*: command not found; install it"),
        (McpServer.stdio("x", __file__), "the file may not be executed"),
        (McpServer.stdio("x", sys.executable, cwd="/no/such/folder"), "there is no folder '/no/such/folder'"),
        (McpServer.stdio("x", "cat"), "cannot be connected"),
        (McpServer.stdio("x", "true"), "the server ended"),
    ],
)
async def test_a_command_that_is_no_server_is_named_with_the_cause(server: McpServer, why: str) -> None:
    with pytest.raises(ConnectionError, match=why):
        async with server.connect():
            raise AssertionError("it is not to be connected")


async def test_a_tool_whose_schema_is_none_is_left_out_by_name(caplog: pytest.LogCaptureFixture) -> None:
    tools = [
        listed("good"),
        listed("bad", properties={"a": {"type": "no-such-type"}}),
        listed("worse") | {"outputSchema": {"type": "object", "properties": {"a": {"minimum": "low"}}}},
        listed("good", properties={"second": {}}),
        listed("", properties={}),
    ]
    async with raw(tools=tools).connect() as offered:
        assert [tool.server_tool for tool in offered] == ["good", ""]
        assert "properties" not in offered[0].parameters, "the first of two of one name"
    faults = "'bad' is left out: it is not a valid JSON Schema", "'worse' is left out: in its outputSchema: it is not"
    for told in faults:
        assert told in caplog.text
    assert "'good' is left out: the server has another tool of that name" in caplog.text


async def test_a_schema_elsewhere_is_never_fetched(http_url: str, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = {"$ref": f"{http_url}/schema.json"}
    tools = [listed("t", properties={"a": elsewhere}), listed("u") | {"outputSchema": {"type": "object", **elsewhere}}]
    async with raw(tools=[*tools, listed("v")]).connect() as offered:
        assert set(by_tool(offered)) == {"v"}
    assert caplog.text.count("nothing outside the schema is fetched") == 2


async def test_an_endless_schema_harms_nobody() -> None:
    async with raw(tools=[listed("t", **{"$ref": "#"}), listed("u", pattern="(")]).connect() as offered:
        assert set(by_tool(offered)) == {"t"}
        assert await called(by_tool(offered)["t"]) == "t did {}"


EVIL = "a" * 40_000 + "!"
HOSTILE: list[dict[str, Any]] = [
    {"pattern": "^(a+)+$"},
    {"pattern": "^(a|a)*$"},
    {"pattern": r"^(?=(a+)+$)a*!$"},
    {"pattern": r"^(a+)+\1$"},
    {"allOf": [{"anyOf": [{"pattern": "^(a+)+$"}, {"pattern": "(a+)+b"}]}]},
]


@pytest.mark.parametrize("part", HOSTILE, ids=str)
async def test_audit_g21_no_pattern_of_a_server_hangs_a_call(part: dict[str, Any]) -> None:
    tools = [
        listed("in", properties={"a": part}),
        listed("keys", patternProperties={part.get("pattern", "^(a+)+$"): False}, additionalProperties=False),
        listed("out") | {"outputSchema": {"type": "object", "properties": {"a": part}}},
    ]
    result: dict[str, Any] = {"content": [], "structuredContent": {"a": EVIL}}
    async with raw(tools=tools, results={"out": result}).connect() as offered:
        with pytest.raises(ValueError, match=r"\$\.a: "):
            await called(by_tool(offered)["in"], a=EVIL)
        with pytest.raises(ValueError, match=r"^\$"):
            await called(by_tool(offered)["keys"], **{EVIL: 1})
        with pytest.raises(RuntimeError, match="breaks its own schema"):
            await called(by_tool(offered)["out"])
