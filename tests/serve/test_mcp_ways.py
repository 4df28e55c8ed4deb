"""The MCP server over stdio, as a program, and over HTTP, asked by the SDK's own client."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")

from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client

import kairo_team as kt
from kairo_team.cli.app import run_command
from kairo_team.cli.serve_command import McpClient
from tests.serve.stage import KEYS, LETTER, Waiting, asking, echo
from tests.serve.web import http_client, running

pytestmark = pytest.mark.real_time

TEAM = """
import kairo_team as kt

print("a team file may print")


def work(assignment: kt.Assignment) -> str:
    print("and so may a member")
    return f"About {assignment.goal}"


team = kt.Team("school", [kt.Member("m", work)])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "school.py"
    path.write_text(TEAM, encoding="utf-8")
    return path


def configured(config: str, servers: str = "mcpServers") -> StdioServerParameters:
    """What a client makes of an entry in its configuration."""
    entry = json.loads(config)[servers]["school"]
    return StdioServerParameters(command=entry["command"], args=entry["args"])


@pytest.fixture
def printed(file: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Returns what `kairo serve --print-config` prints."""

    def call(client: str, *more: object) -> str:
        words = ["serve", str(file), "--mcp", "stdio", "--budget", "tokens=1000", "--print-config", client]
        assert run_command([*words, *map(str, more)]) == 0
        return capfd.readouterr().out

    return call


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.exhaustive)])
def test_a_clients_configuration_starts_the_team(printed: Callable[..., str], mode: str) -> None:
    config = printed("claude-code")

    async def ask() -> types.CallToolResult:
        async with Client(configured(config), mode=mode) as client:
            [tool] = (await client.list_tools()).tools
            return await client.call_tool(tool.name, {"goal": "tides"})

    result = anyio.run(ask)
    assert result.structured_content is not None
    assert result.structured_content["output"] == "About tides"


def test_each_client_has_the_same_command_in_its_own_form(
    printed: Callable[..., str], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = ("--journal", "runs.db")
    command = sys.executable
    arguments = ["-m", "kairo_team", "serve", str(file), "--mcp", "stdio", "--budget", "tokens=1000"]
    arguments += ["--journal", str(tmp_path / "runs.db")]
    for client in McpClient:
        text = printed(client, *journal)
        if client is McpClient.CODEX:
            assert tomllib.loads(text)["mcp_servers"]["school"] == {"command": command, "args": arguments}
        else:
            found = configured(text, "servers" if client is McpClient.VS_CODE else "mcpServers")
            assert (found.command, found.args) == (command, arguments)


@asynccontextmanager
async def over_http(
    team: kt.Team, key: str = "ada", mode: str = "auto", elicit: Any = None, **options: Any
) -> AsyncGenerator[Client]:
    async with running(team, **options) as url, http_client(KEYS[key]) as web:
        transport = streamable_http_client(f"{url}/mcp", http_client=web)
        async with Client(transport, mode=mode, elicitation_callback=elicit) as client:
            yield client


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_over_http_it_is_the_same_tool(mode: str) -> None:
    told: list[str | None] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append(message)

    async with over_http(echo(), mode=mode) as client:
        result = await client.call_tool("echo_team", {"goal": "tides"}, progress_callback=tell)
    assert result.structured_content is not None
    assert result.structured_content["output"] == "About tides"
    assert told


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_over_http_a_person_is_asked(mode: str) -> None:
    async def answer(_: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async with over_http(asking(), mode=mode, elicit=answer, plan=LETTER) as client:
        result = await client.call_tool("office", {"goal": "Write a letter."})
    assert not result.is_error


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_over_http_a_cancelled_call_ends_its_run(mode: str) -> None:
    waiting = Waiting()
    async with over_http(waiting.team(), mode=mode) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "waiting", {"goal": "x"})
            await waiting.until_begun()
            tasks.cancel_scope.cancel()
        while not waiting.ends:
            await anyio.sleep(0.01)
    assert waiting.ends == ["cancelled"]


async def test_a_question_is_answered_by_the_key_that_was_asked() -> None:
    async def unused(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        raise AssertionError("the driver is not used")

    async with running(asking(), plan=LETTER) as url, http_client(KEYS["ada"]) as web:
        transport = streamable_http_client(f"{url}/mcp", http_client=web)
        async with Client(transport, elicitation_callback=unused) as ada:
            asked: Any = await ada.session.call_tool("office", {"goal": "Write."}, allow_input_required=True)
            assert isinstance(asked, types.InputRequiredResult)
            [question] = asked.input_requests or {}
            given: Any = {
                "input_responses": {question: types.ElicitResult(action="accept", content={"decision": "approve"})},
                "request_state": asked.request_state,
                "allow_input_required": True,
            }
            async with http_client(KEYS["bob"]) as other:
                stranger = streamable_http_client(f"{url}/mcp", http_client=other)
                async with Client(stranger, elicitation_callback=unused) as bob:
                    of_bob: Any = bob.session
                    refused = await of_bob.call_tool("office", {"goal": "Write."}, **given)
            of_ada: Any = ada.session
            done = await of_ada.call_tool("office", {"goal": "Write."}, **given)
    assert isinstance(refused, types.CallToolResult)
    assert refused.is_error
    assert isinstance(done, types.CallToolResult)
    assert not done.is_error


async def test_a_session_belongs_to_the_key_that_began_it() -> None:
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "raw", "version": "1"},
        },
    }
    accept = {"accept": "application/json, text/event-stream"}
    async with running(echo()) as url, http_client(KEYS["ada"]) as ada, http_client(KEYS["bob"]) as bob:
        begun = await ada.post(f"{url}/mcp", json=begin, headers=accept)
        session = {**accept, "mcp-session-id": begun.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await bob.post(f"{url}/mcp", json=listing, headers=session)).status_code == 404
        assert (await bob.delete(f"{url}/mcp", headers=session)).status_code == 404
        assert (await ada.post(f"{url}/mcp", json=listing, headers=session)).status_code == 200


async def test_without_a_key_no_tool_is_listed() -> None:
    async with running(echo()) as url, http_client("not-a-key-of-anyone-here") as web:
        with pytest.raises((MCPError, BaseExceptionGroup)):
            async with Client(streamable_http_client(f"{url}/mcp", http_client=web)) as client:
                await client.list_tools()
