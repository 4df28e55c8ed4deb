"""The address itself: its key, its limits, clients that leave, and its end."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpx2
import pytest

import kairo_team as kt
from kairo_team.addresses import ModelAddress
from kairo_team.events import ModelCalled
from kairo_team.models.address import http
from kairo_team.testing import EventRecorder, FunctionModel
from tests.address.stage import says, work

pytestmark = pytest.mark.real_time

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def bearer(address: ModelAddress) -> dict[str, str]:
    return {"authorization": f"Bearer {address.key}"}


async def post(address: ModelAddress, path: str = "/v1/chat/completions", **options: Any) -> httpx2.Response:
    given: dict[str, Any] = {"json": BODY, "headers": bearer(address), **options}
    async with httpx2.AsyncClient() as client:
        return await client.post(f"{address.url}{path}", **given)


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"x-api-key": ""}, {"x-api-key": "é"}])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/anything"])
async def test_a_wrong_key_gets_401_in_the_format_of_its_path(headers: dict[str, str], path: str) -> None:
    replies: list[httpx2.Response] = []

    async def use(address: ModelAddress) -> None:
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        replies.append(await post(address, path, headers=encoded))

    model = says("never")
    await work(use, model)
    (reply,) = replies
    assert (reply.status_code, model.calls) == (401, [])
    assert "address.key" in reply.json()["error"]["message"]
    assert ("type" in reply.json()) == (path == "/v1/messages")


@pytest.mark.parametrize(
    ("path", "options", "status", "sentence"),
    [
        ("/v2/x", {}, 404, "/v1/responses"),
        ("/v1/chat/completions", {"json": [1]}, 400, "must be a JSON object"),
        ("/v1/chat/completions", {"json": None, "content": b"{"}, 400, "not valid JSON"),
        ("/v1/chat/completions", {"json": None, "content": b"[" * 100_000}, 400, "not valid JSON"),
        ("/v1/chat/completions", {"json": None, "content": b'{"n": NaN}'}, 400, "not valid JSON"),
    ],
    ids=["path", "list", "cut", "deep", "nan"],
)
async def test_a_request_that_is_wrong_gets_a_sentence(
    path: str, options: dict[str, Any], status: int, sentence: str
) -> None:
    replies: list[httpx2.Response] = []

    async def use(address: ModelAddress) -> None:
        replies.append(await post(address, path, **options))
        replies.append(await post(address))

    await work(use, says("fine"))
    assert (replies[0].status_code, replies[0].headers["x-should-retry"]) == (status, "false")
    assert sentence in replies[0].json()["error"]["message"]
    assert replies[1].status_code == 200


async def test_a_body_that_is_too_large_gets_413(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_BODY", 1000)
    replies: list[httpx2.Response] = []

    async def use(address: ModelAddress) -> None:
        replies.append(await post(address, json={**BODY, "user": "x" * 2000}))

    await work(use, says("never"))
    assert replies[0].status_code == 413


async def test_calls_at_once_do_not_mix() -> None:
    said: dict[int, str] = {}

    async def use(address: ModelAddress) -> None:
        async def one(number: int) -> None:
            body = {"model": "m", "messages": [{"role": "user", "content": f"number {number}"}]}
            reply = await post(address, json=body)
            said[number] = reply.json()["choices"][0]["message"]["content"]

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(one, number)

    model = FunctionModel(lambda request: request.messages[0].text)
    result, raised = await work(use, model)
    assert raised == []
    assert said == {number: f"number {number}" for number in range(12)}
    assert result.usage.tokens == sum(2 * 2 for _ in range(12))
    assert result.usage.loops == 13


async def test_a_client_that_leaves_ends_its_call_which_is_charged_its_hold() -> None:
    began, recorder = anyio.Event(), EventRecorder()

    async def never(_: kt.ModelRequest) -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    async def use(address: ModelAddress) -> None:
        host, _, port = address.url.removeprefix("http://").partition(":")
        body = json.dumps(BODY).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-api-key: {address.key}\r\n"
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            await began.wait()
        while not recorder.of(ModelCalled):
            await anyio.sleep(0.01)

    runtime = kt.Runtime(subscribers=[recorder])
    result, raised = await work(use, FunctionModel(never), kt.Budget(tokens=100), runtime=runtime)
    assert raised == []
    assert [event.outcome for event in recorder.of(ModelCalled)] == ["unknown"]
    assert result.usage.tokens == 100


async def test_a_connection_that_does_not_speak_http_harms_nobody() -> None:
    replies: list[int] = []

    async def use(address: ModelAddress) -> None:
        host, _, port = address.url.removeprefix("http://").partition(":")
        for words in (b"\x16\x03\x01\x00", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000, b"", b"POST /v1/messages HT"):
            async with await anyio.connect_tcp(host, int(port)) as stream:
                await stream.send(words)
        replies.append((await post(address)).status_code)

    _, raised = await work(use, says("fine"))
    assert (raised, replies) == ([], [200])


async def test_the_address_ends_with_its_block_and_its_key_is_not_shown() -> None:
    kept: list[ModelAddress] = []

    async def use(address: ModelAddress) -> None:
        kept.append(address)

    await work(use, says("never"))
    await work(use, says("never"))
    first, second = kept
    assert first.key != second.key
    assert first.key not in repr(first)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", first.url)
    with pytest.raises(httpx2.ConnectError):
        await post(first)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["block", "cancelled"])
async def test_a_client_that_connects_in_the_moment_of_the_end_is_not_an_error(is_cancelled: bool) -> None:
    clients: list[socket.socket] = []

    async def use(address: ModelAddress) -> None:
        await post(address)  # its server waits for the next client now
        host, _, port = address.url.removeprefix("http://").partition(":")
        clients.append(socket.create_connection((host, int(port))))
        await anyio.lowlevel.checkpoint()  # the loop has seen the client, and its server has not
        if is_cancelled:
            scope.cancel()

    with anyio.CancelScope() as scope:
        await work(use, says("fine"))
    (client,) = clients
    with client:
        client.settimeout(5)
        assert await anyio.to_thread.run_sync(_end_of, client) == b""


def _end_of(client: socket.socket) -> bytes:
    try:
        return client.recv(1)
    except ConnectionResetError:
        return b""
