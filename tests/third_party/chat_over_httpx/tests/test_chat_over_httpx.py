"""The contract kit on the model, over a transport that plays the server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

pytest.importorskip("chat_over_httpx", reason="tests/third_party/chat_over_httpx is not installed")

import httpx
from chat_over_httpx import HttpxModel

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelCallError
from kairo_team.messages import ToolCall, ToolSpec
from kairo_team.tck import ChatModelTCK, Provider

STATUS: Final = {"rate_limited": 429, "overloaded": 503, "auth": 401, "bad_request": 400}


class TestHttpxModel(ChatModelTCK):
    has_provider = True

    @classmethod
    def make_model(cls) -> ChatModel:
        return cls.make_model_of(Provider(tell))

    @classmethod
    def make_model_of(cls, provider: Provider) -> ChatModel:
        return HttpxModel("house", transport=httpx.MockTransport(Server(provider)))

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        return HttpxModel("house", "http://127.0.0.1:9/v1", transport=httpx.MockTransport(nobody))


def tell(request: kt.ModelRequest) -> kt.ModelResponse:
    words = ("Once upon a time the sea went out. " * 3).split()[: request.max_tokens]
    return kt.ModelResponse(" ".join(words), usage=kt.Usage(sum(len(one.text) for one in request.messages), len(words)))


async def nobody(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nothing listens there")


class Server:
    """Reads a request's body for the kit's provider, and writes its answer as a server does."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        streams = body.get("stream", False)
        try:
            answer = await self.provider.answer(asked(body))
        except ModelCallError as error:
            return failed(error)
        message = {"content": answer.text, "tool_calls": [call_of(one) for one in answer.tool_calls]}
        usage = {} if answer.usage is None else {"usage": usage_of(answer.usage)}
        if not streams:
            choice = {"message": message, "finish_reason": answer.finish_reason}
            return httpx.Response(200, json={"choices": [choice]} | usage)
        return httpx.Response(200, content=pieces(answer, usage))


async def pieces(answer: kt.ModelResponse, usage: dict[str, Any]) -> AsyncIterator[bytes]:
    deltas: list[dict[str, Any]] = [{"content": letter} for letter in answer.text]
    for index, call in enumerate(answer.tool_calls):
        whole = call_of(call)
        text = whole["function"]["arguments"]
        first = {"name": call.name, "arguments": text[:4]}
        deltas.append({"tool_calls": [{"index": index, "id": call.id, "function": first}]})
        deltas.append({"tool_calls": [{"index": index, "function": {"arguments": text[4:]}}]})
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": answer.finish_reason}]})
    chunks.append({"choices": []} | usage)
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def asked(body: dict[str, Any]) -> kt.ModelRequest:
    known = {"model", "messages", "tools", "response_format", "max_tokens", "stream", "stream_options"}
    tools = [one["function"] for one in body.get("tools", ())]
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    return kt.ModelRequest(
        [said(one) for one in body["messages"]],
        [ToolSpec(one["name"], one["description"], one["parameters"]) for one in tools],
        schema,
        body.get("max_tokens"),
        {name: value for name, value in body.items() if name not in known},
    )


def said(message: dict[str, Any]) -> kt.Message:
    calls = [
        ToolCall(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
        for one in message.get("tool_calls", ())
    ]
    return kt.Message(message["role"], message["content"], calls, message.get("tool_call_id"))


def call_of(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, default=lambda one: dict(one) if hasattr(one, "items") else list(one))
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def usage_of(usage: kt.Usage) -> dict[str, int]:
    return {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}


def failed(error: ModelCallError) -> httpx.Response:
    match error.kind:
        case "timeout":
            raise httpx.ReadTimeout(error.why)
        case "connection":
            raise httpx.ReadError(error.why)
        case kind:
            wait = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
            return httpx.Response(STATUS[kind], json={"error": {"message": error.why}}, headers=wait)


async def test_a_team_works_with_it() -> None:
    provider = Provider()
    model = HttpxModel("house", transport=httpx.MockTransport(Server(provider)))
    team = kt.Team("newsroom", [kt.Member("writer", kt.MiniAgent("httpx:house"))])
    runtime = kt.Runtime(models={"httpx:house": model})
    result = await kt.run(team, "Explain tides.", budget=kt.Budget(tokens=5_000), runtime=runtime)
    assert (result.output, result.usage.tokens) == ("a fine text", 28)


async def test_a_stream_that_breaks_off_is_a_failure() -> None:
    async def broken(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b'data: {"choices": [{"delta": {"content": "Half a"}}]}\n\n')

    model = HttpxModel("house", transport=httpx.MockTransport(broken))
    with pytest.raises(ModelCallError, match="broke off"):
        await model.stream(kt.ModelRequest([kt.Message.user("Go.")]), lambda _: None)
