"""A command-line program as a member: its task, its model, its output, and its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

import kairo_team as kt
from kairo_team._util.child_watch import is_alive
from kairo_team.agents import Program
from kairo_team.testing import FunctionModel

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(os.name != "posix", reason="the programs of these tests are a shell's"),
]

ASKS = """
import json, os, sys, urllib.request
task = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": task}]}).encode()
headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
while True:
    asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    reply = json.load(urllib.request.urlopen(asked))
    if "again" not in sys.argv:
        break
print(reply["choices"][0]["message"]["content"])
"""


def echo() -> FunctionModel:
    return FunctionModel(lambda request: f"re: {request.messages[0].text}")


async def run(program: Program, **options: Any) -> kt.TeamResult:
    return await kt.run(kt.Team("t", [kt.Member("m", program)]), "Explain tides.", **options)


def shell(script: str, model: Any = None, **options: Any) -> Program:
    return Program(["sh", "-c", script], model=model or echo(), **options)


async def test_it_reads_its_task_and_prints_its_artifact() -> None:
    model = echo()
    result = await run(Program([sys.executable, "-c", ASKS], model=model))
    assert "Explain tides." in model.calls[0].messages[0].text
    assert result.output == f"re: {model.calls[0].messages[0].text}".strip()
    assert result.usage.tokens > 0


async def test_the_task_may_be_an_argument() -> None:
    program = Program([sys.executable, "-c", ASKS, "{task}"], model=echo(), prompt=lambda task, _: task.goal)
    assert (await run(program)).output == "re: Explain tides."


LOOKS = """
import json, os, sys, urllib.request
(server,) = json.load(open(sys.argv[1]))["mcpServers"].values()
assert (server["type"], server["url"], os.stat(sys.argv[1]).st_mode & 0o077) == ("http", os.environ["KAIRO_MCP_URL"], 0)
body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {"at": "sea"}}}
headers = {**server["headers"], "content-type": "application/json", "accept": "application/json, text/event-stream"}
reply = urllib.request.urlopen(urllib.request.Request(server["url"], json.dumps(body).encode(), headers))
print(sys.argv[1], json.load(reply)["result"]["content"][0]["text"])
"""


async def test_its_tools_are_in_a_configuration_for_mcp_clients() -> None:
    """The key is in a file that only its user reads, not in the command, which all users of the machine can see."""
    pytest.importorskip("mcp", reason="tools over MCP need the extra mcp")

    def look(at: str) -> str:
        """Look at something."""
        return f"a {at}"

    result = await run(Program([sys.executable, "-c", LOOKS, "{mcp}"], model=echo(), tools=[look]))
    assert result.output is not None, result.error
    place, seen = result.output.split(" ", 1)
    assert (seen, result.usage.tool_calls) == ("a sea", 1)
    assert not os.access(place, os.F_OK)


def test_a_place_for_tools_needs_tools() -> None:
    with pytest.raises(ValueError, match=r"Program.argv has \{mcp\}, so it needs tools=, such as tools=\[look\]"):
        Program(["agent", "{mcp}"], model=echo())


async def test_it_ends_at_the_limit_of_its_model() -> None:
    program = Program([sys.executable, "-c", ASKS, "{task}", "again"], model=echo(), prompt=lambda task, _: task.goal)
    result = await run(program, budget=kt.Budget(tokens=50))
    assert 0 < result.usage.tokens <= 50
    assert "halted: token_budget_exceeded" in (result.error or "")


async def test_keys_of_other_models_are_not_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("HOUSE", "kept")
    result = await run(shell('echo "$GEMINI_API_KEY,$HOUSE,$MORE"', env={"MORE": "added"}))
    assert result.output == ",kept,added"


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo no key >&2; exit 3", "ended with status 3: no key"),
        ("true", "printed nothing"),
    ],
)
async def test_a_program_that_fails_says_why(script: str, sentence: str) -> None:
    result = await run(shell(script))
    assert result.status is kt.TeamStatus.FAILED
    assert sentence in (result.error or "")


async def test_it_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = shell(f"sleep 600 & echo $! >> {pids}; echo $$ >> {pids}; sleep 600")
    found: list[str] = []
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, program)
            while len(found) < 2:
                await anyio.sleep(0.05)
                found = pids.read_text().split() if pids.exists() else []
            tasks.cancel_scope.cancel()
        while any(is_alive(int(pid)) for pid in found):
            await anyio.sleep(0.05)


async def test_what_it_printed_before_it_failed_is_kept() -> None:
    assert (await run(shell("echo half; exit 3"))).partial_output == "half"


def test_what_cannot_work_is_said_before_the_run() -> None:
    team = kt.Team("t", [kt.Member("m", Program(["no-such-agent"], model="nobody:x"))])
    found = " ".join(kt.check(team, "Explain tides.").problems)
    assert "no-such-agent" in found
    assert "nobody:x" in found


@pytest.mark.parametrize("argv", [[], "ls -l", [1]])
def test_a_command_is_a_list_of_words(argv: Any) -> None:
    with pytest.raises(ValueError, match="a list of words"):
        Program(argv, model="openai:gpt-5")
