"""A chat model over httpx: OpenAI's chat interface, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx

import kairo_team as kt
from kairo_team.errors import ModelCallError, ModelErrorKind
from kairo_team.messages import ToolCall, ToolSpec

__all__ = ["HttpxModel"]

KINDS: Final[Mapping[int, ModelErrorKind]] = {
    400: "bad_request",
    401: "auth",
    403: "auth",
    404: "bad_request",
    408: "timeout",
    413: "context_length",
    422: "bad_request",
    429: "rate_limited",
}
FINISH: Final[Mapping[str, Any]] = {"length": "length", "content_filter": "content_filter"}


class HttpxModel:
    """A model of a server that has OpenAI's chat interface. It may be used by many runs at once, on one event loop."""

    def __init__(
        self,
        model: str,
        base_url: str = "http://127.0.0.1:8080/v1",
        api_key: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = f"httpx:{model}"
        self._model = model
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=600, transport=transport)

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        """Answer one request."""
        async with self._post(self._body(request)) as response:
            body = self._read(await response.aread())
        choice = self._first(body)
        message: Any = choice.get("message") or {}
        calls = [_call(call) for call in message.get("tool_calls") or ()]
        finish = FINISH.get(choice.get("finish_reason") or "", "stop")
        return kt.ModelResponse(message.get("content") or "", calls, _usage(body), finish_reason=finish)

    async def stream(self, request: kt.ModelRequest, on_text: Callable[[str], object]) -> kt.ModelResponse:
        """Answer one request, and pass on each piece of the text."""
        texts: list[str] = []
        calls: dict[int, dict[str, Any]] = {}
        usage: kt.Usage | None = None
        finish: str | None = None
        body = self._body(request) | {"stream": True, "stream_options": {"include_usage": True}}
        async with self._post(body) as response:
            async for line in response.aiter_lines():
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                chunk = self._read(line.removeprefix("data:"))
                usage = _usage(chunk) or usage
                for choice in chunk.get("choices") or ():
                    finish = choice.get("finish_reason") or finish
                    delta: Any = choice.get("delta") or {}
                    for part in delta.get("tool_calls") or ():
                        _join(calls.setdefault(part["index"], {"function": {"name": "", "arguments": ""}}), part)
                    if text := delta.get("content"):
                        texts.append(text)
                        on_text(text)
        if finish is None:
            raise ModelCallError("connection", self.name, "the stream broke off without a finish reason")
        made = [_call(calls[index]) for index in sorted(calls)]
        return kt.ModelResponse("".join(texts), made, usage, finish_reason=FINISH.get(finish, "stop"))

    def _body(self, request: kt.ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "messages": [_message(one) for one in request.messages]}
        if request.tools:
            body["tools"] = [{"type": "function", "function": _tool(tool)} for tool in request.tools]
        if request.output_schema is not None:
            schema = {"name": "reply", "schema": request.output_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        if request.max_tokens is not None:
            body["max_tokens"] = request.max_tokens
        return body | dict(request.settings)

    @asynccontextmanager
    async def _post(self, body: Mapping[str, Any]) -> AsyncGenerator[httpx.Response]:
        """Send one request; every failure of the server or the way to it is a `ModelCallError`."""
        try:
            async with self._client.stream("POST", "/chat/completions", content=_json(body), headers=JSON) as response:
                if response.is_error:
                    raise await self._refusal(response)
                yield response
        except httpx.TimeoutException as error:
            sent = not isinstance(error, httpx.ConnectTimeout | httpx.PoolTimeout)
            raise ModelCallError("timeout", self.name, repr(error), unspent=not sent) from error
        except httpx.TransportError as error:
            sent = not isinstance(error, httpx.ConnectError)
            raise ModelCallError("connection", self.name, repr(error), unspent=not sent) from error

    async def _refusal(self, response: httpx.Response) -> ModelCallError:
        said = (await response.aread()).decode(errors="replace")[:500]
        kind: ModelErrorKind = KINDS.get(response.status_code, "overloaded")
        if "context_length" in said:
            kind = "context_length"
        elif "content_filter" in said:
            kind = "content_filter"
        wait = response.headers.get("retry-after", "")
        seconds = float(wait) if wait.replace(".", "", 1).isdigit() else None
        unspent = response.status_code < 500  # a server that failed may have worked before
        why = f"status {response.status_code}: {said}"
        return ModelCallError(kind, self.name, why, retry_after=seconds, unspent=unspent)

    def _read(self, text: str | bytes) -> dict[str, Any]:
        try:
            body: Any = json.loads(text)
        except ValueError as error:
            raise ModelCallError("unknown", self.name, f"the answer is not JSON: {text!r:.200}") from error
        if not isinstance(body, dict) or "error" in body:
            raise ModelCallError("unknown", self.name, f"the answer is {body!r:.200}")
        return cast("dict[str, Any]", body)

    def _first(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if not body.get("choices"):
            raise ModelCallError("unknown", self.name, f"the answer has no choice: {body!r:.200}")
        first: Mapping[str, Any] = body["choices"][0]
        return first


JSON: Final = {"Content-Type": "application/json"}


def _json(body: Mapping[str, Any]) -> bytes:
    # requests hold read-only mappings and tuples
    return json.dumps(body, default=lambda one: dict(one) if isinstance(one, Mapping) else list(one)).encode()


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _message(message: kt.Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        said["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": _arguments(one)}}
            for one in message.tool_calls
        ]
    if message.tool_call_id is not None:
        said["tool_call_id"] = message.tool_call_id
    return said


def _arguments(call: ToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else _json(call.arguments).decode()


def _call(call: Mapping[str, Any]) -> ToolCall:
    text = call["function"].get("arguments") or "{}"
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = text  # the member is told that they are not JSON
    return ToolCall(call["id"], call["function"]["name"], arguments if isinstance(arguments, dict) else text)


def _join(call: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a piece of a streamed call to what came of it before."""
    call["id"] = part.get("id") or call.get("id")
    function: Any = part.get("function") or {}
    for name in ("name", "arguments"):
        call["function"][name] += function.get(name) or ""


def _usage(body: Mapping[str, Any]) -> kt.Usage | None:
    told = body.get("usage")
    return kt.Usage(told["prompt_tokens"], told["completion_tokens"]) if told else None
