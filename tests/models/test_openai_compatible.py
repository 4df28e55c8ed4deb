"""Any OpenAI-compatible address, over HTTP on loopback: a server that answers as told, and the embedded model."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import MissingExtra, ModelCallError
from kairo_team.governance import Governor
from kairo_team.messages import ToolSpec
from kairo_team.models import OpenAICompatible
from kairo_team.models.governed_model import CallRules, GovernedModel
from tests.models.reports import at_end, ignore

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
SEARCH = ToolSpec("search", "Search the web.", SCHEMA)
ASK = kt.ModelRequest([kt.Message.user("Hello")], max_tokens=40)


def completion(**changes: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Fine."}}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def message(**fields: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": None, **fields}
    return completion(choices=[{"index": 0, "finish_reason": "stop", "message": said}])


def sse(*events: Any) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events)


def delta(content: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish, "delta": {"content": content}}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""OpenAI's library leaves the generators of a stream to the garbage collector, of which trio warns."""

Answer = tuple[int, dict[str, str], bytes]


class Server:
    """Answers one request after another as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.asked.append(json.loads(body))
                server.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, headers, answer = server.answers.pop(0)
                self.send_response(status)
                headers = {"Content-Type": "application/json", "Content-Length": str(len(answer)), **headers}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def will(self, answer: Any, status: int = 200, **headers: str) -> Server:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.answers.append((status, {name.replace("_", "-"): value for name, value in headers.items()}, body))
        return self

    def will_refuse(self, status: int, code: str | None = None, **headers: str) -> Server:
        return self.will({"error": {"message": "no", "type": "e", "code": code}}, status, **headers)

    @property
    def model(self) -> OpenAICompatible:
        return OpenAICompatible("m", self.url, "a-key")

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


async def error_of(model: ChatModel) -> ModelCallError:
    with pytest.raises(ModelCallError) as caught:
        await model.complete(ASK)
    return caught.value


# ---------------------------------------------------------------- what is asked


def test_its_name_is_openai_compatible_or_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OpenAICompatible("qwen", "http://localhost:1/v1").name == "openai-compatible:qwen"
    assert OpenAICompatible("qwen", "http://localhost:1/v1", name="house:qwen").name == "house:qwen"
    with pytest.raises(ValueError, match="base_url must be an address such as 'http://localhost:8000/v1', not 'local"):
        OpenAICompatible("qwen", "localhost:8000")
    monkeypatch.setattr("kairo_team.models.openai_compatible.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match="'openai-compatible:qwen' needs the extra 'models'"):
        OpenAICompatible("qwen", "http://localhost:1/v1")


async def test_the_request_is_one_that_any_such_server_understands(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit by its old name: servers that do not know the new one ignore it. Nothing of OpenAI's account."""
    monkeypatch.setenv("OPENAI_API_KEY", "openais-key")
    monkeypatch.setenv("OPENAI_ORG_ID", "openais-organization")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "openais-project")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    server.will(completion())
    request = kt.ModelRequest(ASK.messages, [SEARCH], SCHEMA, 40, {"temperature": 0.5})
    await OpenAICompatible("m", server.url).complete(request)
    asked = server.asked[0]
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("m", 40, 0.5)
    assert "max_completion_tokens" not in asked
    assert asked["tools"][0]["function"] == {"name": "search", "description": "Search the web.", "parameters": SCHEMA}
    assert asked["response_format"]["json_schema"]["schema"]["properties"] == SCHEMA["properties"]
    assert "openais" not in str(server.headers)


async def test_a_server_without_schemas_is_told_in_the_prompt(server: Server) -> None:
    server.will(completion())
    model = OpenAICompatible("m", server.url, json_schema=False)
    await model.complete(kt.ModelRequest(ASK.messages, (), SCHEMA))
    assert "response_format" not in server.asked[0]
    assert json.dumps(SCHEMA["properties"]) in str(server.asked[0]["messages"][0]["content"])


async def test_tool_calls_go_there_and_come_back(server: Server) -> None:
    function = {"name": "search", "arguments": '{"city": "Oslo"}'}
    broken = {"name": "search", "arguments": '{"city": '}
    calls = [
        {"id": "c1", "type": "function", "function": function},
        {"id": "c2", "type": "function", "function": broken},
    ]
    server.will(message(tool_calls=calls)).will(completion())
    reply = await server.model.complete(kt.ModelRequest(ASK.messages, [SEARCH]))
    assert [call.arguments for call in reply.tool_calls] == [{"city": "Oslo"}, '{"city": ']
    talk = [*ASK.messages, kt.Message.assistant(reply.text, reply.tool_calls)]
    talk += [kt.Message.tool(call.id, "Sunny.") for call in reply.tool_calls]
    await server.model.complete(kt.ModelRequest(talk, [SEARCH]))
    said = server.asked[1]["messages"][1:]
    assert [(call["id"], call["function"]["name"]) for call in said[0]["tool_calls"]] == [
        ("c1", "search"),
        ("c2", "search"),
    ]
    assert [(one["role"], one["tool_call_id"], one["content"]) for one in said[1:]] == [
        ("tool", "c1", "Sunny."),
        ("tool", "c2", "Sunny."),
    ]


# ---------------------------------------------------------------- what comes back


async def test_a_reply_and_its_usage(server: Server) -> None:
    reply = await server.will(completion()).model.complete(ASK)
    assert (reply.text, reply.usage, reply.model) == ("Fine.", kt.Usage(7, 3), "m")


@on_asyncio
async def test_kf_b17_a_server_that_tells_no_usage_is_charged_the_hold(server: Server) -> None:
    """B17: usage missing in a reply: the cap silently inactive."""
    chunks = delta("Fi"), delta("ne.", "stop"), b"[DONE]"
    server.will(completion(usage=None)).will(sse(*chunks), Content_Type="text/event-stream")
    governor, told = Governor(kt.Budget(tokens=1000)), list[str]()
    governed = GovernedModel(server.model, governor, ignore)
    assert (await governed.complete(ASK)).usage is None
    held = governor.usage.tokens
    assert held > 40
    assert (await governed.stream(ASK, told.append)).usage is None
    assert (told, governor.usage.tokens) == (["Fi", "ne."], 2 * held)


@pytest.mark.parametrize(
    "answer",
    [
        *(completion(choices=[]), b"not json", b"", {}, [], {"choices": None}, {"choices": [{}]}, {"error": "no"}),
        *(completion(choices=True), completion(choices=7), completion(created={}), message(tool_calls=7)),
    ],
    ids=str,
)
async def test_a_reply_that_is_none_is_an_error_that_is_charged(server: Server, answer: Any) -> None:
    """Bad input: empty choices are an error, and no index error."""
    error = await error_of(server.will(answer).model)
    assert (error.kind, error.unspent, error.model) == ("unknown", False, "openai-compatible:m")


@on_asyncio
@pytest.mark.parametrize(
    "answer", [sse(b"[DONE]"), sse({"choices": []}, b"[DONE]"), sse(b"{broken"), b"", sse({"error": {"message": "no"}})]
)
async def test_a_stream_that_is_none_is_an_error(server: Server, answer: bytes) -> None:
    server.will(answer, Content_Type="text/event-stream")
    with pytest.raises(ModelCallError) as caught:
        await server.model.stream(ASK, lambda _: None)
    assert (caught.value.kind, caught.value.unspent) == ("unknown", False)


@on_asyncio
async def test_a_stream_that_is_cut_off_is_a_connection_error(server: Server) -> None:
    told: list[str] = []
    server.will(sse(delta("Fi")), Content_Type="text/event-stream", Content_Length="5000")
    with pytest.raises(ModelCallError) as caught:
        await server.model.stream(ASK, told.append)
    assert (told, caught.value.kind, caught.value.unspent) == (["Fi"], "connection", False)


async def test_invalid_json_for_ever_is_a_reply_each_time(server: Server) -> None:
    """Bad input: nothing here asks again by itself, so whoever wants JSON bounds how often it asks."""
    for _ in range(3):
        server.will(message(content='{"city": '))
    for _ in range(3):
        reply = await server.model.complete(kt.ModelRequest(ASK.messages, (), SCHEMA))
        assert reply.text == '{"city": '
    assert len(server.asked) == 3


# ---------------------------------------------------------------- errors, by kind


@pytest.mark.parametrize(
    ("status", "code", "kind", "unspent"),
    [
        (400, None, "bad_request", True),
        (400, "context_length_exceeded", "context_length", True),
        (401, None, "auth", True),
        (402, None, "auth", True),
        (403, None, "auth", True),
        (404, "model_not_found", "bad_request", True),
        (408, None, "timeout", False),
        (409, None, "bad_request", False),
        (413, None, "bad_request", True),
        (422, None, "bad_request", True),
        (429, "rate_limit_exceeded", "rate_limited", True),
        (429, "insufficient_quota", "auth", True),
        (500, None, "overloaded", False),
        (502, None, "overloaded", False),
        (503, None, "overloaded", False),
        (504, None, "timeout", False),
        (529, None, "overloaded", False),
        (418, None, "bad_request", False),
        (599, None, "unknown", False),
    ],
)
async def test_what_a_status_means_and_whether_it_is_charged(
    server: Server, status: int, code: str | None, kind: str, unspent: bool
) -> None:
    error = await error_of(server.will_refuse(status, code).model)
    assert (error.kind, error.unspent) == (kind, unspent)
    assert len(server.asked) == 1, "nothing is tried twice behind our back"


async def test_how_long_to_wait_is_told(server: Server) -> None:
    server.will_refuse(429, Retry_After="17").will_refuse(429, retry_after_ms="1500").will_refuse(429)
    assert [(await error_of(server.model)).retry_after for _ in range(3)] == [17.0, 1.5, None]


async def test_a_server_that_is_not_there_is_a_connection_error_that_costs_nothing() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = await error_of(OpenAICompatible("m", f"http://127.0.0.1:{port}/v1"))
    assert (error.kind, error.unspent) == ("connection", True)


async def test_a_server_that_does_not_answer_in_time_is_a_timeout_that_is_charged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        model = OpenAICompatible("m", f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        with pytest.raises(ModelCallError) as caught:
            await model.complete(kt.ModelRequest(ASK.messages, settings={"timeout": 0.2}))
    assert (caught.value.kind, caught.value.unspent) == ("timeout", False)


async def test_kf_b13_each_try_over_http_is_charged_as_its_answer_says(server: Server) -> None:
    """B13: retries not counted."""
    server.will_refuse(429, Retry_After="0").will_refuse(503).will(completion())
    governor, tries = Governor(), list[tuple[str, int]]()
    rules = CallRules(kt.ModelRetry(backoff=0.01))

    def report(_: str, outcome: str, held: int, usage: kt.Usage) -> None:
        tries.append((outcome, usage.tokens))

    reply = await GovernedModel(server.model, governor, at_end(report), rules=rules).complete(ASK)
    held = tries[1][1]
    assert (reply.text, tries) == ("Fine.", [("error", 0), ("error", held), ("ok", 10)])
    assert governor.usage.tokens == held + 10 > 50


async def test_an_address_falls_back_to_another(server: Server) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = OpenAICompatible("m", f"http://127.0.0.1:{free.getsockname()[1]}/v1", name="gone:m")
    runtime = kt.Runtime(model_retry=kt.ModelRetry(retries=1, backoff=0.01))
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent(kt.Fallback(gone, server.will(completion()).model)))])
    result = await kt.run(team, "Write.", budget=kt.Budget(tokens=20_000), runtime=runtime)
    assert (result.check().output, result.usage.tokens) == ("Fine.", 10)


# ---------------------------------------------------------------- the embedded model's own server


@pytest.fixture
def embedded(loopback_server: tuple[str, str]) -> OpenAICompatible:
    return OpenAICompatible("smollm2", *loopback_server)


@pytest.mark.local_model
async def test_a_real_reply_with_real_usage(embedded: OpenAICompatible) -> None:
    request = kt.ModelRequest([kt.Message.user("Say hello.")], max_tokens=8, settings={"temperature": 0})
    reply = await embedded.complete(request)
    assert reply.text.strip()
    assert reply.usage is not None
    assert reply.usage.prompt_tokens > 0
    assert 0 < reply.usage.completion_tokens <= 8
    assert reply.finish_reason == "length"


@pytest.mark.local_model
async def test_a_real_reply_is_held_to_its_schema_and_takes_tools(embedded: OpenAICompatible) -> None:
    asked = [kt.Message.user("Which city is the capital of Norway?")]
    for tools in ((), (SEARCH,)):
        reply = await embedded.complete(kt.ModelRequest(asked, tools, SCHEMA, 40, {"temperature": 0}))
        assert reply.finish_reason == "stop"
        assert set(json.loads(reply.text)) == {"city"}


@on_asyncio
@pytest.mark.local_model
async def test_a_real_stream_with_real_usage(embedded: OpenAICompatible) -> None:
    told: list[str] = []
    request = kt.ModelRequest([kt.Message.user("Say hello.")], max_tokens=8, settings={"temperature": 0})
    reply = await embedded.stream(request, told.append)
    assert len(told) > 1
    assert "".join(told) == reply.text
    assert reply.usage is not None
    assert 0 < reply.usage.completion_tokens <= 8


@pytest.mark.local_model
async def test_a_real_refusal_says_its_kind_and_costs_nothing(embedded: OpenAICompatible) -> None:
    with pytest.raises(ModelCallError) as caught:
        await embedded.complete(kt.ModelRequest([kt.Message.user("word " * 9000)]))
    assert (caught.value.kind, caught.value.unspent) == ("context_length", True)
    wrong = OpenAICompatible("smollm2", str(embedded._model.base_url), "wrong-key")
    with pytest.raises(ModelCallError) as caught:
        await wrong.complete(ASK)
    assert (caught.value.kind, caught.value.unspent) == ("auth", True)


@pytest.mark.local_model
def test_it_serves_one_event_loop_after_another(embedded: OpenAICompatible) -> None:
    request = kt.ModelRequest([kt.Message.user("Say hello.")], max_tokens=2)
    for _ in range(2):
        assert anyio.run(partial(embedded.complete, request)).usage is not None


@pytest.mark.local_model
async def test_a_team_works_on_it_under_a_budget(embedded: OpenAICompatible) -> None:
    team = kt.Team("desk", [kt.Member("writer", kt.MiniAgent("house:model", max_turns=1, settings={"max_tokens": 12}))])
    runtime = kt.Runtime(models={"house:*": embedded})
    result = await kt.run(team, "Say hello.", budget=kt.Budget(tokens=5000), runtime=runtime)
    assert result.output
    assert 0 < result.usage.completion_tokens <= 12
    assert result.usage.prompt_tokens > 12
