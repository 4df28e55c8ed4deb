"""The team as a tool of an MCP server, asked by the official SDK's own client."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")

from mcp import Client, MCPError, types

import kairo_team as kt
from kairo_team.errors import Misuse
from kairo_team.serve.asked import LEFT, Served
from kairo_team.serve.mcp_server import KEY, STDIO, make_server, tool_name
from kairo_team.testing import EventRecorder
from tests.serve.stage import LETTER, Waiting, asking, echo, served, talking

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])
"""Clients of the protocol before and after it lost its handshake."""
Elicit = Callable[[Any, Any], Awaitable[types.ElicitResult]]


@asynccontextmanager
async def client_of(made: Served, mode: str = "auto", elicit: Elicit | None = None) -> AsyncGenerator[Client]:
    server = make_server(made, lambda _: STDIO, "Ask the team.")
    given: Any = elicit
    async with made.open(), Client(server, mode=mode, elicitation_callback=given) as client:
        yield client


def texts(result: types.CallToolResult) -> list[str]:
    return [block.text for block in result.content if isinstance(block, types.TextContent)]


@ERAS
async def test_the_team_is_one_tool_that_takes_a_goal(mode: str) -> None:
    async with client_of(served(talking()), mode) as client:
        [tool] = (await client.list_tools()).tools
        assert (tool.name, tool.title, tool.description) == ("school", "school", "Ask the team.")
        assert tool.input_schema["required"] == ["goal"]
        result = await client.call_tool("school", {"goal": "Explain tides."})
    assert not result.is_error
    assert texts(result) == ["Twice a day."]
    assert result.structured_content is not None
    assert result.structured_content["status"] == "completed"
    assert result.structured_content["tokens"] == 30


@pytest.mark.parametrize(("team", "name"), [("school", "school"), ("echo team", "echo_team"), ("é", "team")])
def test_a_tool_has_a_name_that_every_client_takes(team: str, name: str) -> None:
    assert tool_name(team) == name


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("other", {"goal": "x"}, "no tool 'other' here, only 'school'"),
        ("school", {}, "one argument: goal"),
        ("school", {"goal": " "}, "one argument: goal"),
        ("school", {"goal": "x", "budget": 9}, "one argument: goal"),
    ],
)
async def test_a_wrong_call_is_refused_with_a_sentence(tool: str, arguments: dict[str, Any], sentence: str) -> None:
    async with client_of(served(talking())) as client:
        with pytest.raises(MCPError, match=sentence):
            await client.call_tool(tool, arguments)


@ERAS
async def test_progress_tells_what_happens_in_the_run(mode: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with client_of(served(talking()), mode) as client:
        await client.call_tool("school", {"goal": "Explain tides."}, progress_callback=tell)
    lines = [message for _, message in told if message]
    assert any("started with 1 member" in line for line in lines)
    assert "school: completed, 30 tokens" in lines[-1]
    assert [number for number, _ in told] == sorted({number for number, _ in told}), "it only grows"


@ERAS
async def test_a_client_that_cancels_ends_the_run(mode: str) -> None:
    waiting, recorder = Waiting(), EventRecorder()
    made = served(waiting.team(runtime=kt.Runtime(subscribers=[recorder])))
    async with client_of(made, mode) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "waiting", {"goal": "x"})
            await waiting.until_begun()
            tasks.cancel_scope.cancel()
        while not waiting.ends:
            await anyio.sleep(0.005)
        while not recorder.of(kt.events.TeamEnded):
            await anyio.sleep(0.005)
    assert waiting.ends == ["cancelled"]
    [end] = recorder.of(kt.events.TeamEnded)
    assert end.state == "cancelled"
    assert LEFT in (end.error or "")


@ERAS
@pytest.mark.parametrize(
    ("action", "content", "output"),
    [
        ("accept", {"decision": "approve"}, "Dear all"),
        ("decline", None, None),
        ("accept", {"decision": "reject", "feedback": "too cold"}, None),
        ("cancel", None, None),
    ],
)
async def test_a_question_is_asked_of_a_client_that_offers_it(
    mode: str, action: Any, content: dict[str, Any] | None, output: str | None
) -> None:
    asked: list[str] = []

    async def answer(_: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.append(params.message)
        assert params.requested_schema["required"] == ["decision"]
        return types.ElicitResult(action=action, content=content)

    async with client_of(served(asking(), plan=LETTER), mode, answer) as client:
        result = await client.call_tool("office", {"goal": "Write a letter."})
    assert len(asked) == 1
    assert "Dear all" in asked[0]
    assert result.structured_content is not None
    assert result.structured_content["output"] == output
    assert result.is_error == (output is None)


@ERAS
async def test_a_revision_is_asked_for_again_and_needs_words(mode: str) -> None:
    replies: list[dict[str, Any]] = [
        {"decision": "revise"},
        {"decision": "revise", "feedback": "warmer"},
        {"decision": "approve"},
    ]
    asked: list[str] = []

    async def answer(_: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content=replies.pop(0))

    async with client_of(served(asking(), plan=LETTER), mode, answer) as client:
        result = await client.call_tool("office", {"goal": "Write a letter."})
    assert texts(result) == ["Dear friends"]
    assert ["Dear all" in one for one in asked] == [True, True, False]


@ERAS
async def test_without_a_person_behind_the_client_no_one_is_asked(mode: str) -> None:
    async with client_of(served(asking(), plan=LETTER), mode) as client:
        result = await client.call_tool("office", {"goal": "Write a letter."})
    assert result.is_error


async def test_the_gate_of_the_team_decides_and_not_its_caller() -> None:
    """Who asks for a run may be the one that a person is to watch."""
    gate = kt.CallbackGate(lambda question: False)

    async def never(_: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        raise AssertionError("the caller was asked")

    async with client_of(served(asking(runtime=kt.Runtime(gate=gate)), plan=LETTER), "auto", never) as client:
        result = await client.call_tool("office", {"goal": "Write a letter."})
    assert result.is_error


async def test_a_question_that_nobody_answers_ends_the_run() -> None:
    """In the newest protocol a question ends the call, and the client comes back with another one, or never."""
    recorder = EventRecorder()
    made = served(asking(runtime=kt.Runtime(subscribers=[recorder])), plan=LETTER, question_seconds=0.05)

    async def unused(_: Any, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        raise AssertionError("the driver is not used")

    async with client_of(made, "auto", unused) as client:
        first = await client.session.call_tool("office", {"goal": "Write."}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult)
        assert first.request_state is not None
        while not recorder.of(kt.events.TeamEnded):
            await anyio.sleep(0.01)
        late = await client.session.call_tool(
            "office", {"goal": "Write."}, request_state=first.request_state, allow_input_required=True
        )
    assert isinstance(late, types.CallToolResult)
    assert late.is_error
    assert "no longer open" in texts(late)[0]


async def test_files_of_the_result_come_along() -> None:
    picture, sound = b"\x89PNG picture", b"ID3 sound"
    files = [
        kt.File(data=picture, name="tide.png"),
        kt.File(data=sound, name="tide.mp3"),
        kt.File(data=b"a,b\n1,2\n", media_type="text/csv", name="tide table.csv"),
        kt.File(url="https://example.org/tide.pdf", media_type="application/pdf"),
    ]
    artifact = kt.Artifact("See the files.", data={"level": 2}, files=files)
    team = kt.Team("harbour", [kt.Member("m", lambda assignment: kt.AgentOutput(artifact))])
    async with client_of(served(team)) as client:
        result = await client.call_tool("harbour", {"goal": "Draw the tide."})
    text, image, audio, table, link = result.content
    assert isinstance(text, types.TextContent)
    assert isinstance(image, types.ImageContent)
    assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", picture)
    assert isinstance(audio, types.AudioContent)
    assert isinstance(table, types.EmbeddedResource)
    assert isinstance(table.resource, types.BlobResourceContents)
    assert base64.b64decode(table.resource.blob) == b"a,b\n1,2\n"
    assert table.resource.uri.endswith("/tide%20table.csv")
    assert isinstance(link, types.ResourceLink)
    assert link.uri == "https://example.org/tide.pdf"
    assert result.structured_content is not None
    assert result.structured_content["data"] == {"level": 2}


async def test_a_run_that_its_budget_ends_is_an_error_with_the_reason() -> None:
    async with client_of(served(talking(), budget=kt.Budget(tokens=1))) as client:
        result = await client.call_tool("school", {"goal": "Explain tides."})
    assert result.is_error
    assert "budget" in texts(result)[-1]


@pytest.mark.real_time
async def test_an_idempotency_key_in_the_meta_of_a_call_names_the_run(tmp_path: Any) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    made = served(talking(runtime=kt.Runtime(journal=journal)))
    meta: Any = {KEY: "monday"}
    async with client_of(made) as client:
        first = await client.call_tool("school", {"goal": "Explain tides."}, meta=meta)
        second = await client.call_tool("school", {"goal": "Explain tides."}, meta=meta)
        other = await client.call_tool("school", {"goal": "Explain rain."}, meta=meta)
    runs = journal.runs()
    journal.close()
    assert first.structured_content == second.structured_content
    assert other.is_error
    assert "for another goal" in texts(other)[0]
    assert len(runs) == 1


async def test_a_team_without_a_limit_is_not_served() -> None:
    with pytest.raises(Misuse, match="limit for each run"):
        served(echo(), budget=kt.Budget(seconds=10))
