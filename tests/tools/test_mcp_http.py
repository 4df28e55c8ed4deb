"""MCP over streamable HTTP: what only a server elsewhere can do to its client."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Generator
from inspect import signature
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

from mcp.client.streamable_http import streamable_http_client

from kairo_team.tools.mcp import McpServer
from tests.tools.mcp_rig import MCP_MARKS, SERVERS, by_tool, called, served, started_http, stopped

pytestmark = MCP_MARKS


@pytest.fixture
def web() -> Generator[Any]:
    """A server in a thread of ours, of mcp_servers/raw_http.py."""
    spec = importlib.util.spec_from_file_location("raw_http", SERVERS / "raw_http.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.serving() as server:
        yield server


async def test_an_http_server_that_goes_away_and_comes_back() -> None:
    process, port = started_http()
    server = McpServer.http("reference", f"http://127.0.0.1:{port}/mcp")
    try:
        async with served() as connections:
            tools = by_tool(await connections.tools(server))
            assert await called(tools["add"], a=1, b=1)
            stopped(process)
            with pytest.raises(ConnectionError, match="no longer connected"):
                await called(tools["add"], a=1, b=1)
            with pytest.raises(ConnectionError, match="no longer connected"):
                await called(tools["add"], a=1, b=1)
            with pytest.raises(ConnectionError, match=r"cannot be connected: no connection .*is the server running\?"):
                await connections.tools(server)
            process, _ = started_http(port)
            again = by_tool(await connections.tools(server))
            assert await called(again["add"], a=1, b=1)
    finally:
        stopped(process)


async def test_a_server_that_forgets_the_session_is_connected_anew_by_the_next_who_asks(web: Any) -> None:
    server = McpServer.http("web", web.url)
    async with served() as connections:
        tools = by_tool(await connections.tools(server))
        assert await called(tools["t"]) == "t"
        assert await called(tools["forget"]) == "forget"
        for _ in range(2):
            with pytest.raises(ConnectionError, match="'web' is no longer connected"):
                await called(tools["t"])
        assert await called(by_tool(await connections.tools(server))["t"]) == "t"
        assert web.sessions == 2


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("crash", r"did not do 'crash': it answered with the error .*\(HTTP 500\)"),
        ("html", "did not do 'html': it answered with the error 'Unexpected content type: text/html'"),
        # The SDK before 2.2 follows no redirect either, and looks at what came with it.
        ("moved", r"Redirect to http://127\.0\.0\.1:9/elsewhere not followed|'Unexpected content type: '"),
    ],
)
async def test_what_is_no_answer_is_an_error_and_the_connection_stays(web: Any, tool: str, why: str) -> None:
    async with McpServer.http("web", web.url).connect() as offered:
        with pytest.raises(RuntimeError, match=why) as caught:
            await called(by_tool(offered)[tool])
        assert "sesame" not in str(caught.value)
        assert await called(by_tool(offered)["t"]) == "t"


async def test_a_call_that_hangs_ends_at_the_timeout_and_others_go_on(web: Any) -> None:
    async with McpServer.http("web", web.url, request_timeout=3).connect() as offered:
        tools = by_tool(offered)
        began = anyio.current_time()
        with pytest.raises(TimeoutError, match="'web' did not answer 'hang' within 3 s"):
            await called(tools["hang"])
        assert anyio.current_time() - began < 60
        assert await called(tools["t"]) == "t"


async def test_ten_megabytes_survive_streamed_too(web: Any) -> None:
    if "max_sse_event_size" not in signature(streamable_http_client).parameters:
        pytest.skip("the SDK before 2.3 takes events of one megabyte at most")
    async with McpServer.http("web", web.url).connect() as offered:
        assert len(await called(by_tool(offered)["stream"], characters=10_000_000)) == 10_000_000


async def test_audit_g20_an_sdk_without_a_bound_for_events_connects_too(
    web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before_2_3(url: str, *, http_client: Any = None, terminate_on_close: bool = True) -> Any:
        return streamable_http_client(url, http_client=http_client, terminate_on_close=terminate_on_close)

    monkeypatch.setattr("mcp.client.streamable_http.streamable_http_client", before_2_3)
    async with McpServer.http("web", web.url).connect() as offered:
        assert len(await called(by_tool(offered)["stream"], characters=500_000)) == 500_000
        with pytest.raises(ConnectionError, match="'web' is no longer connected"):
            await called(by_tool(offered)["stream"], characters=2_000_000)


async def test_headers_and_credentials_of_the_url_are_sent_and_never_told(web: Any) -> None:
    url = web.url.replace("http://", "http://me:geheim@") + "?key=sesame-1"
    server = McpServer.http("web", url, {"X-Key": "sesame-2", "Cookie": "id sesame-3"})
    assert not any(secret in f"{server!r} {server.transport!r}" for secret in ("geheim", "sesame"))
    async with server.connect() as offered:
        sent = json.loads(await called(by_tool(offered)["headers"]))
    assert sent["x-key"] == "sesame-2"
    assert sent["authorization"].startswith("Basic ")


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
async def test_a_server_that_refuses_is_named_without_credentials(web: Any, status: int) -> None:
    web.status = status
    url = web.url.replace("http://", "http://me:geheim@") + "?key=sesame-1"
    with pytest.raises(ConnectionError) as caught:
        async with McpServer.http("web", url, {"Authorization": "Bearer sesame-2"}).connect():
            raise AssertionError("it is not to be connected")
    told = str(caught.value)
    assert told.startswith(f"MCP server 'web' ({web.url}) cannot be connected: ")
    assert f"(HTTP {status})" in told
    assert not any(secret in told for secret in ("geheim", "sesame"))


async def test_a_server_that_does_not_answer_to_the_goodbye_is_left_all_the_same(web: Any) -> None:
    web.clinging = True
    async with McpServer.http("web", web.url).connect():
        began = anyio.current_time()
    assert anyio.current_time() - began < 5


async def test_nobody_listens() -> None:
    with pytest.raises(ConnectionError, match=r"cannot be connected: no connection .*is the server running\?"):
        async with McpServer.http("web", "http://127.0.0.1:9/mcp").connect():
            raise AssertionError("it is not to be connected")
