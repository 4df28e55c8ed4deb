"""The tools of a governed address: an MCP client's calls are the member's calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("mcp", reason="tools over MCP need the extra mcp")
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import kairo_team as kt
from kairo_team.addresses import ModelAddress
from kairo_team.errors import Misuse
from tests.address.stage import says

pytestmark = pytest.mark.real_time

USED = kt.Usage(10, 5)
PIXEL = kt.File(data=b"\x89PNG\r\n\x1a\n", media_type="image/png", name="sea.png")


@kt.tool(side_effect="read")
def look(at: str) -> str:
    """Look at something."""
    return f"a {at}"


@kt.tool(side_effect="read")
def draw(what: str) -> list[Any]:
    """Draw something."""
    return [f"drawn: {what}", PIXEL]


@kt.tool(side_effect="write")
def wipe() -> str:
    """Delete everything."""
    raise AssertionError("it was called")


@kt.tool(side_effect="read", ends="answer")
def finish(text: str) -> str:
    """Give the answer."""
    return text


@asynccontextmanager
async def client_of(address: ModelAddress) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=address.headers) as http,
        Client(streamable_http_client(address.mcp, http_client=http)) as client,
    ):
        yield client


async def work(use: Any, *tools: Any, budget: kt.Budget | None = None, role: kt.Role | str = "m") -> Any:
    """Let a member use an address with tools; return the result, what it returned and the events of its tool calls."""
    found: list[Any] = []
    calls: list[Any] = []

    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async with context.address(says(kt.ModelResponse("Fine.", usage=USED, model="m")), tools=tools) as address:
            found.append(await use(address))
        return "done"

    async with kt.Runtime() as runtime:
        request = kt.TeamExecutionRequest("Look.", config=kt.TeamConfig(budget=budget or kt.Budget()))
        run = await runtime.start(kt.Team("t", [kt.Member(role, member)]), request)
        calls += [event async for event in run.events() if event.type == "tool.called"]
        result = await run.result()
    return result, found, calls


async def test_an_mcp_client_lists_and_calls_the_tools_of_the_member() -> None:
    async def use(address: ModelAddress) -> Any:
        async with client_of(address) as client:
            listed = (await client.list_tools()).tools
            return (
                listed,
                await client.call_tool("look", {"at": "sea"}),
                await client.call_tool("draw", {"what": "sea"}),
            )

    result, ((listed, seen, drawn),), calls = await work(use, look, draw)
    assert result.output == "done"
    assert [(one.name, one.description, one.annotations.read_only_hint) for one in listed] == [
        ("look", "Look at something.", True),
        ("draw", "Draw something.", True),
    ]
    assert listed[0].input_schema["required"] == ["at"]
    assert (seen.content[0].text, seen.is_error) == ("a sea", False)
    assert drawn.content[0].text.startswith("drawn: sea")
    assert (drawn.content[1].mime_type, drawn.content[1].data) == ("image/png", "iVBORw0KGgo=")
    assert [(one.tool, one.task_id) for one in calls] == [("look", "m"), ("draw", "m")]


async def test_a_call_that_is_not_permitted_is_neither_offered_nor_made() -> None:
    async def use(address: ModelAddress) -> Any:
        async with client_of(address) as client:
            wrong = await client.call_tool("look", {"at": 3})
            return (await client.list_tools()).tools, await client.call_tool("wipe", {}), wrong

    role = kt.Role("m", allowed_tools=["look"])
    result, ((listed, denied, wrong),), _ = await work(use, look, wipe, role=role)
    assert result.output == "done"
    assert [one.name for one in listed] == ["look"]
    assert denied.is_error
    assert wrong.is_error


async def test_a_budget_that_is_used_up_refuses_tools_too_and_halts_the_attempt() -> None:
    async def use(address: ModelAddress) -> Any:
        async with httpx2.AsyncClient(base_url=address.openai, headers=address.headers) as http:
            while (await http.post("/responses", json={"input": "go"})).status_code == 200:
                pass
        async with client_of(address) as client:
            return await client.call_tool("look", {"at": "sea"})

    result, (refused,), calls = await work(use, look, budget=kt.Budget(tokens=60))
    assert refused.is_error
    assert "the budget refuses this call" in refused.content[0].text
    assert calls == []
    assert "halted: token_budget_exceeded" in (result.error or "")


async def test_a_tool_that_ends_the_attempt_ends_it_at_once() -> None:
    async def use(address: ModelAddress) -> None:
        async with client_of(address) as client:
            await client.call_tool("finish", {"text": "The answer."})
            pytest.fail("it goes on")

    result, found, _ = await work(use, finish)
    assert result.output == "The answer."
    assert found == []


async def test_the_tools_need_the_key_and_end_with_the_block() -> None:
    async def use(address: ModelAddress) -> Any:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        accept = {"accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient() as http:
            without = await http.post(address.mcp, json=ask, headers=accept)
            reading = await http.get(address.mcp, headers=address.headers)
            right = await http.post(address.mcp, json=ask, headers=accept | address.headers)
        assert (without.status_code, reading.status_code, right.status_code) == (401, 405, 200)
        assert address.env()["KAIRO_MCP_URL"] == address.mcp
        assert address.mcp_servers() == {
            "mcpServers": {"kairo": {"type": "http", "url": address.mcp, "headers": address.headers}}
        }
        return address

    result, (address,), _ = await work(use, look)
    assert result.output == "done"
    async with httpx2.AsyncClient() as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get(address.mcp)


async def test_an_address_without_tools_has_none() -> None:
    async def member(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        async with context.address(says("Fine.")) as address, httpx2.AsyncClient(headers=address.headers) as http:
            assert (await http.post(f"{address.url}/mcp", json={})).status_code == 404
            assert "KAIRO_MCP_URL" not in address.env()
            with pytest.raises(Misuse, match=r"context\.address\(model, tools=\[\.\.\.\]\)"):
                _ = address.mcp
        return "done"

    assert (await kt.run(kt.Team("t", [kt.Member("m", member)]), "Look.")).output == "done"
