"""AG-UI's own client, `@ag-ui/client` in Node, which checks the order of all events: `make frontends` runs this."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")
pytest.importorskip("ag_ui", reason="a served team needs the extra serve")

import kairo_team as kt
from kairo_team.testing import FunctionModel
from tests.agents.loops import asyncio_alone
from tests.serve.stage import KEYS, LETTER, Waiting, asking
from tests.serve.web import running

FOLDER = os.environ.get("KAIRO_FRONTENDS")
"""The folder with the client's `node_modules`."""
pytestmark = [pytest.mark.real_time, pytest.mark.skipif(not FOLDER, reason="make frontends runs it, with node and npm")]
anyio_backend = asyncio_alone  # the server runs in a thread, and the client in a process: one loop is enough


async def play(
    url: str, scenario: str, key: str = KEYS["ada"], until: Callable[[], Awaitable[None]] | None = None
) -> Any:
    """Play a scenario of ag_ui_client.mjs, whose stdin closes after `until`; return what the client made of it."""
    node = shutil.which("node")
    assert node, "there is no node here"
    program = Path(__file__).with_name("ag_ui_client.mjs")
    words = [node, str(program), str(Path.cwd() / str(FOLDER)), url, key, scenario]
    async with await anyio.open_process(words, stderr=None) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if until is not None:
            await until()
        await process.stdin.aclose()
        printed = b"".join([part async for part in process.stdout])
        assert await process.wait() == 0
    return json.loads(printed)


def working() -> kt.Team:
    """Two tasks at once, of members that stream and call a tool."""

    def replies(request: kt.ModelRequest) -> kt.ModelResponse:
        if any(message.role == "tool" for message in request.messages):
            return kt.ModelResponse("It is high.", usage=kt.Usage(5, 5))
        return kt.ModelResponse("I look.", tool_calls=[kt.ToolCall("c1", "look", {})], usage=kt.Usage(5, 5))

    def look() -> str:
        """Look at the sea."""
        return "high"

    members = [kt.Member(name, kt.MiniAgent(FunctionModel(replies), stream=True, tools=[look])) for name in "ab"]
    return kt.Team("t", members)


BOTH = kt.TaskGraph([kt.Task("left", "Left.", member="a"), kt.Task("right", "Right.", member="b")])


async def test_it_takes_steps_tools_thoughts_state_and_the_output() -> None:
    async with running(working(), plan=BOTH) as url:
        seen = await play(url, "again")
    assert seen["errors"] == []
    for kind in ("STEP_STARTED", "REASONING_MESSAGE_CONTENT", "TOOL_CALL_RESULT", "STATE_DELTA", "TEXT_MESSAGE_END"):
        assert kind in seen["events"]
    said = [
        message["content"] for message in seen["messages"] if message["role"] == "assistant" and "content" in message
    ]
    assert len([text for text in said if "It is high." in text]) == 2, "one output of each run"
    assert seen["state"]["mine"] == 1
    assert {task["state"] for task in seen["state"]["kairo"]["tasks"].values()} == {"done"}
    assert seen["result"]["status"] == "completed"


async def test_it_shows_a_question_and_sends_the_answer() -> None:
    async with running(asking(), plan=LETTER) as url:
        seen = await play(url, "answer")
    [question] = seen["asked"]
    assert "a person must see it" in question
    assert (seen["errors"], seen["result"]["output"]) == ([], "Dear all")


async def test_it_hears_why_a_run_failed_and_that_a_key_is_wrong() -> None:
    def fail(assignment: kt.Assignment) -> str:
        raise ValueError("the sea is closed")

    async with running(kt.Team("t", [kt.Member("m", fail)])) as url:
        failed = await play(url, "once")
        strange = await play(url, "once", "a-key-of-no-one-here")
    assert "the sea is closed" in failed["errors"][0]
    assert "401" in strange["errors"][0]
    assert strange["events"] == []


async def test_a_run_that_it_aborts_ends() -> None:
    waiting = Waiting()
    async with running(waiting.team()) as url:
        await play(url, "leave", until=waiting.until_begun)
        while not waiting.ends:
            await anyio.sleep(0.01)
    assert waiting.ends == ["cancelled"]
