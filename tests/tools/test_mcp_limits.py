"""What an MCP server may not do to its client, and what is left of it when the run ends."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from kairo_team.tools.mcp import McpServer
from kairo_team.tools.sources import Connections
from tests.tools.mcp_rig import MCP_MARKS, PATIENCE, SERVERS, by_tool, called, listed, raw

pytestmark = MCP_MARKS


def alive(pid: int) -> bool:
    """Whether there is such a process, be it one that ended and that nobody took notice of."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until_gone(pid: int) -> None:
    """Wait for the end of a process that is being killed."""
    with anyio.fail_after(PATIENCE):
        while alive(pid):
            await anyio.sleep(0.01)


# -- what a server may not do -------------------------------------------------------------------------

SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sampling/createMessage", SAMPLE),
        ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
        ("roots/list", {}),
    ],
)
async def test_what_a_server_asks_of_the_client_is_refused(method: str, params: dict[str, Any]) -> None:
    async with raw(tools=[listed("ask")]).connect() as tools:
        reply = json.loads(await called(tools[0], method=method, params=params))
    assert "result" not in reply
    assert "not supported" in reply["error"]["message"]


async def test_a_call_that_would_need_a_model_to_go_on_is_refused() -> None:
    question = {"q": {"method": "sampling/createMessage", "params": SAMPLE}}
    result = {"resultType": "input_required", "inputRequests": question, "requestState": "s"}
    async with raw(tools=[listed("t")], results={"t": result}, modern=True).connect() as tools:
        with pytest.raises(RuntimeError, match=r"asks for a model's or a user's answer to continue with 't'.*refused"):
            await called(tools[0])


@pytest.mark.parametrize("tool", ["ask_model", "ask_user"])
async def test_the_tools_of_a_real_server_that_ask_back_fail(tool: str, http_url: str) -> None:
    async with McpServer.http("reference", http_url).connect() as tools:
        with pytest.raises(RuntimeError, match=f"did not do '{tool}'|Error executing"):
            await called(by_tool(tools)[tool])


async def test_a_server_gets_a_few_harmless_variables_and_those_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-geheim")
    server = McpServer.stdio(
        "raw",
        sys.executable,
        SERVERS / "raw.py",
        json.dumps({"tools": [listed("environment")]}),
        env={"TOKEN": "t-123"},
    )
    async with server.connect() as tools:
        environment = json.loads(await called(tools[0]))
    assert environment["TOKEN"] == "t-123"
    assert "PATH" in environment
    assert "OPENAI_API_KEY" not in environment
    assert "t-123" not in f"{server!r} {server.transport!r}"


async def test_error_output_goes_to_the_log_and_not_to_the_terminal(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kairo_team"):
        async with raw(tools=[listed("t")], error_output="ready\nsteady").connect() as tools:
            await called(tools[0])
            with anyio.fail_after(PATIENCE):
                while "steady" not in caplog.text:
                    await anyio.sleep(0.01)
    assert "MCP server 'raw': ready" in caplog.text
    assert "MCP server 'raw': steady" in caplog.text
    assert capfd.readouterr() == ("", "")


async def test_a_server_that_greets_on_its_output_is_understood_all_the_same(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with raw(tools=[listed("t")], output="Welcome!\n\n{}\n[1, 2]").connect() as tools:
        assert await called(tools[0]) == "t did {}"
    assert capfd.readouterr() == ("", "")


async def test_credentials_that_a_server_repeats_are_masked_in_errors() -> None:
    plan = {"die_at": "initialize", "error_output": "bad token t-geheim"}
    server = McpServer.stdio("raw", sys.executable, SERVERS / "raw.py", json.dumps(plan), env={"TOKEN": "t-geheim"})
    with pytest.raises(ConnectionError, match=r"its last output was 'bad token \[secret\]'"):
        async with server.connect():
            raise AssertionError("it is not to be connected")


# -- the end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stubborn", [False, True])
async def test_no_process_survives_the_run(stubborn: bool, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    server = raw(tools=[listed("sleep")], pid_file=str(pid), stubborn=stubborn)
    process = 0
    async with anyio.create_task_group() as run:
        connections = await _begin(run, server)
        (tool,) = await connections.tools(server)
        run.start_soon(called, tool)
        await anyio.sleep(0.1)
        process = int(pid.read_text(encoding="utf-8"))
        assert alive(process)
        run.cancel_scope.cancel()
    await until_gone(process)


async def _begin(run: Any, server: McpServer) -> Connections:
    connections = Connections()
    run.start_soon(connections.serve)
    return connections


async def test_a_run_that_ends_while_a_server_is_starting_leaves_no_process(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with anyio.create_task_group() as run:
        connections = await _begin(run, server := raw(silent=True, pid_file=str(pid)))
        run.start_soon(connections.tools, server)
        while not pid.exists() or not pid.read_text(encoding="utf-8"):
            await anyio.sleep(0.01)
        run.cancel_scope.cancel()
    await until_gone(int(pid.read_text(encoding="utf-8")))


@pytest.mark.parametrize("error", [KeyError("mine"), ConnectionError("mine"), TimeoutError("mine"), SystemExit("mine")])
async def test_what_the_block_raises_comes_out_as_it_is(error: BaseException) -> None:
    with pytest.raises(type(error), match=r"^'?mine'?$"):
        async with raw(tools=[listed("t")]).connect():
            raise error


async def test_two_runs_of_one_server_object_do_not_meet(tmp_path: Path) -> None:
    server = raw(tools=[listed("t")])
    async with server.connect() as first:
        async with server.connect() as second:
            assert await called(second[0]) == "t did {}"
        assert await called(first[0]) == "t did {}"
        with pytest.raises(ConnectionError, match="no longer connected"):
            await called(second[0])
