"""What an MCP server may not do: leave a process behind, fill the prompt, offer what cannot be called."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from kairo_team._util.child_processes import supervised
from kairo_team._util.child_watch import is_alive
from kairo_team.tools.mcp import MAX_SCHEMA, McpServer
from kairo_team.tools.tool import MAX_DESCRIPTION, Tool, as_tool
from tests.tools.mcp_rig import MCP_MARKS, PATIENCE, SERVERS, by_tool, listed, raw

pytestmark = MCP_MARKS

LEAVER = """
import pathlib, subprocess, sys
first = "import os, time; os.setsid(); below = os.fork(); below and print(below, flush=True); time.sleep(600)"
lost = subprocess.Popen([sys.executable, "-c", first], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
second = lost.stdout.readline().split()[0].decode()
below = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"],
    start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
)
lost.kill()
pathlib.Path(sys.argv[1]).write_text(f"{below.pid} {second}")
sys.argv = sys.argv[2:]
exec(compile(pathlib.Path(sys.argv[0]).read_text(), sys.argv[0], "exec"))
"""


async def until_gone(pids: list[int]) -> None:
    with anyio.fail_after(PATIENCE):
        while any(map(is_alive, pids)):
            await anyio.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_third_o24_what_a_server_started_in_a_session_of_its_own_ends_with_it(
    tmp_path: Path, stubborn: bool
) -> None:
    noted = tmp_path / "pids"
    plan = json.dumps({"tools": [listed("x")], "stubborn": stubborn})
    words = (sys.executable, "-c", LEAVER, str(noted), str(SERVERS / "raw.py"), plan)
    async with McpServer.stdio("leaver", *words, request_timeout=PATIENCE).connect():
        pids = [int(word) for word in noted.read_text().split()]
        assert all(map(is_alive, pids))
    await until_gone(pids)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
async def test_third_o24_only_what_the_command_started_is_ended(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid)"
    other = await anyio.open_process([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        done = await anyio.run_process(supervised([sys.executable, "-c", code]), stderr=None)
        await until_gone([int(done.stdout)])
        assert is_alive(other.pid)
    finally:
        other.kill()
        await other.wait()


async def test_third_o24_a_tool_that_is_only_called_as_a_task_is_left_out_with_a_note(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ways = {way: {**listed(way), "execution": {"taskSupport": way}} for way in ("required", "optional", "forbidden")}
    with caplog.at_level(logging.WARNING, "kairo_team"):
        async with raw(tools=[*ways.values(), listed("plain")]).connect() as tools:
            offered = by_tool(tools).keys()
    assert offered == {"optional", "forbidden", "plain"}
    why = "it can only be called as a task (taskSupport is 'required'), and tasks are not supported"
    assert caplog.messages == ["MCP server 'raw': the tool 'required' is left out: " + why]


async def test_third_o24_a_long_description_does_not_fill_the_prompt(caplog: pytest.LogCaptureFixture) -> None:
    long = {**listed("long"), "description": "x" * 20_000}
    wide = listed("wide", description="x" * MAX_SCHEMA)
    with caplog.at_level(logging.WARNING, "kairo_team"):
        async with raw(tools=[long, wide, listed("plain")]).connect() as tools:
            (told,) = [tool.spec.description for tool in tools if tool.server_tool == "long"]
            assert by_tool(tools).keys() == {"long", "plain"}
    assert told == "x" * MAX_DESCRIPTION + "\n[10,000 more characters left out]"
    assert "the tool 'wide' is left out: its schema has 100,0" in caplog.text


async def test_third_o24_so_it_is_with_every_tool() -> None:
    def look() -> str:
        """Placeholder."""
        return "x"

    look.__doc__ = "Look. " * 10_000
    made = as_tool(look)
    by_hand = Tool("hand", made.call, "y" * (MAX_DESCRIPTION + 1))
    assert len(made.spec.description) < MAX_DESCRIPTION + 50
    assert by_hand.description == "y" * MAX_DESCRIPTION + "\n[1 more characters left out]"
    assert Tool("hand", made.call, "y" * MAX_DESCRIPTION).description == "y" * MAX_DESCRIPTION
