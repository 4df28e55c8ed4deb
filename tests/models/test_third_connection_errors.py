"""What never reached a provider: the address and the cause are said, and nothing is charged."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")

import kairo_team as kt
from kairo_team.errors import ModelCallError, ModelUnavailable
from kairo_team.governance import Governor
from kairo_team.messages import ToolSpec
from kairo_team.models import OpenAICompatible
from kairo_team.models.governed_model import CallRules, GovernedModel
from kairo_team.models.provider_errors import client_error, connection_words
from kairo_team.models.providers import provider_model
from tests.models.reports import ignore
from tests.models.wires import MODELS, Wires

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

ASK = kt.ModelRequest([kt.Message.user("Hello")], max_tokens=40)
HALF = "the tide \ud83d turns"
BASES = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL")


@pytest.fixture
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wires]:
    wires = Wires()
    for name, value in wires.environment.items():
        monkeypatch.setenv(name, value)
    yield wires
    wires.stop()


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


async def error_of(model: Any, request: kt.ModelRequest = ASK) -> ModelCallError:
    with pytest.raises(ModelCallError) as caught:
        await model.complete(request)
    return caught.value


# ---------------------------------------------------------------- the address and the cause


@pytest.mark.parametrize("model", MODELS)
async def test_third_o56_where_nothing_listens_is_said_for_every_provider(
    wires: Wires, nowhere: str, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    for name in BASES:
        monkeypatch.setenv(name, nowhere)
    error = await error_of(provider_model(model))
    assert (error.kind, error.unspent) == ("connection", True)
    assert f"{nowhere}: nothing listens there (" in str(error)


async def test_third_o56_a_server_without_tls_is_said(wires: Wires) -> None:
    error = await error_of(OpenAICompatible("m", wires.url.replace("http:", "https:")))
    assert (error.kind, error.unspent) == ("connection", True)
    assert f"{wires.url.replace('http:', 'https:')}: no TLS connection can be made" in str(error)


@contextmanager
def server_with_tls() -> Generator[str]:
    """Yield a plain address of a server that expects TLS."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            with suppress(ssl.SSLError, OSError):
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_socket(self.connection, server_side=True)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


async def test_third_o56_a_plain_address_of_a_server_with_tls_gets_a_hint() -> None:
    with server_with_tls() as address:
        error = await error_of(OpenAICompatible("m", address))
    assert error.kind == "connection"
    assert f"{address.removesuffix('/v1')}: " in str(error)
    assert str(error).endswith("; an address with TLS begins with https://")


async def test_third_o56_a_dead_proxy_is_named_without_its_password(
    nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", nowhere.replace("//", "//me:word@"))
    monkeypatch.setenv("http_proxy", nowhere.replace("//", "//me:word@"))
    error = await error_of(OpenAICompatible("m", "http://models.invalid/v1"))
    assert (error.kind, error.unspent) == ("connection", True)
    assert f"http://models.invalid through the proxy {nowhere} (a variable such as HTTP_PROXY sets it)" in str(error)
    assert "word" not in str(error)


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (socket.gaierror(-2, "Name or service not known"), "the host is unknown ([Errno -2] Name or service"),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "its certificate is not trusted ("),
        (OSError("No route to host"), "No route to host"),
        (ExceptionGroup("both", [ConnectionRefusedError(111, "refused")]), "nothing listens there ("),
    ],
)
def test_third_o56_the_innermost_cause_is_said(cause: Exception, said: str) -> None:
    outer = ConnectionError("Connection error.")
    outer.__cause__ = cause
    assert connection_words(outer).startswith(said)
    assert "Connection error." not in connection_words(outer)


def test_third_o56_errors_of_other_libraries_clients_are_said_the_same_way() -> None:
    """OpenAI's own error, as LangChain and the Agents SDK raise it."""
    httpx2, openai = pytest.importorskip("httpx2"), pytest.importorskip("openai")
    raised = openai.APIConnectionError(request=httpx2.Request("POST", "http://me:word@127.0.0.1:9/v1/chat"))
    raised.__cause__ = httpx2.ConnectError("All connection attempts failed")
    raised.__cause__.__cause__ = ConnectionRefusedError(111, "refused")
    newer = type("OpenAIConnectionError", (openai.APIConnectionError,), {})(request=raised.request)
    newer.__cause__ = raised
    for one in (raised, newer):
        error = client_error("openai:m", one)
        assert error is not None
        assert (error.kind, error.unspent) == ("connection", True)
        assert error.why == "http://127.0.0.1:9: nothing listens there ([Errno 111] refused)"


@contextmanager
def answering(head: str, body: str = "") -> Generator[str]:
    """Answer every request at an address with these lines, and a body."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                continue
            length = f"Content-Length: {len(body)}\r\nConnection: close"
            self.wfile.write(f"{head}\r\n{length}\r\n\r\n{body}".encode())

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.mark.sampled("model")
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("HTTP/1.1 404 Not Found", "HTTP 404, without a word"),
        ("HTTP/1.1 405 Method Not Allowed", "HTTP 405, without a word"),
        (
            "HTTP/1.1 301 Moved\r\nLocation: https://there/v1",
            "it redirects to https://there/v1: HTTP 301, without a word",
        ),
    ],
)
async def test_third_o56_a_wrong_path_is_said_with_the_address_and_is_free(
    wires: Wires, monkeypatch: pytest.MonkeyPatch, model: str, head: str, said: str
) -> None:
    with answering(head) as address:
        for name in BASES:
            monkeypatch.setenv(name, address)
        error = await error_of(provider_model(model))
    assert (error.kind, error.unspent) == ("bad_request", True)
    assert error.why.startswith(f"{address}/")
    assert error.why.endswith(f": {said}")


async def test_third_o56_a_proxy_that_opens_no_way_is_named_and_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering("HTTP/1.1 407 Proxy Authentication Required") as proxy:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy)
        error = await error_of(OpenAICompatible("m", "https://models.invalid/v1"))
    assert (error.kind, error.unspent) == ("connection", True)
    assert f"through the proxy {proxy} (a variable such as HTTPS_PROXY sets it): 407" in str(error)


@pytest.mark.parametrize("model", MODELS)
async def test_third_o56_a_page_in_place_of_a_reply_is_said_with_the_address(
    wires: Wires, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    with answering("HTTP/1.1 200 OK\r\nContent-Type: text/html", "<p>Welcome</p>") as address:
        for name in BASES:
            monkeypatch.setenv(name, address)
        error = await error_of(provider_model(model))
    assert error.why.startswith(address)
    assert "JSON" in error.why


# ---------------------------------------------------------------- when a model is built


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (" http://localhost:8000/v1", "it has a blank in it"),
        ("http://localhost:8000/v1\n", "it has a blank in it"),
        ("http://my host/v1", "it has a blank in it"),
        ("localhost:8000", "it does not begin with http:// or https://"),
        ("ftp://localhost/v1", "it does not begin with http:// or https://"),
        ("http://", "it has no host"),
        ("http:///v1", "it has no host"),
        ("http://localhost:99999/v1", "it is not valid: Port out of range"),
        ("http://[::1/v1", "it is not valid: Invalid IPv6 URL"),
    ],
)
def test_third_o56_an_address_is_checked_when_a_model_is_built(address: str, why: str) -> None:
    with pytest.raises(ValueError, match="base_url must be an address such as") as caught:
        OpenAICompatible("m", address)
    assert repr(address) in str(caught.value)
    assert why in str(caught.value)


@pytest.mark.parametrize("model", MODELS)
def test_third_o56_so_is_one_that_a_variable_sets(wires: Wires, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    for name in BASES:
        monkeypatch.setenv(name, f" {wires.url}/v1")
    with pytest.raises(ModelUnavailable, match=rf"the address of its provider, ' {wires.url}.*', has a blank in it"):
        provider_model(model)


async def test_third_o56_a_key_that_no_header_can_hold_is_free_and_is_not_shown(wires: Wires) -> None:
    error = await error_of(OpenAICompatible("m", f"{wires.url}/v1", "secret-key\n"))
    assert (error.kind, error.unspent, wires.asked) == ("bad_request", True, [])
    assert "is there a line break or a blank in the key?" in str(error)
    assert "secret" not in str(error)


# ---------------------------------------------------------------- before a byte was sent


@pytest.mark.sampled("model")
@pytest.mark.parametrize("model", [*MODELS, "house:m"])
@pytest.mark.parametrize("place", ["goal", "role", "input", "upstream"])
async def test_third_o37_half_a_character_is_asked_as_a_question_mark(wires: Wires, model: str, place: str) -> None:
    runtime = kt.Runtime(models={"house:*": OpenAICompatible("m", f"{wires.url}/v1")})
    role = kt.Role("writer", HALF if place == "role" else "Write.")
    team = kt.Team("desk", [kt.Member(role, kt.MiniAgent(model, max_turns=1)), kt.Member("up", lambda _: HALF)])
    inputs = {"text": HALF} if place == "input" else {}
    upstream = [kt.Task("up", "Say it.", member="up")] if place == "upstream" else []
    task = kt.Task("t", "Say it.", member="writer", inputs=inputs, depends_on=[one.id for one in upstream])
    goal = HALF if place == "goal" else "Tides."
    plan = kt.TaskGraph([*upstream, task])
    result = await kt.run(team, goal, plan=plan, budget=kt.Budget(tokens=90_000), runtime=runtime)
    assert (result.status, result.output, result.usage.tokens) == (kt.TeamStatus.COMPLETED, "Fine.", 10)
    assert len(wires.asked) == 1
    assert "the tide ? turns" in wires.bodies[0]


@pytest.mark.parametrize("model", [name for name in MODELS if not name.startswith("google:")])
async def test_third_o37_what_cannot_be_sent_is_free_and_final(wires: Wires, model: str) -> None:
    """A request that nobody made sound is not tried again, and charged nothing; Google's client can send it."""
    governor = Governor(kt.Budget(tokens=10_000))
    tool = ToolSpec("search", "Search.", {"type": "object", "properties": {HALF: {"type": "string"}}})
    governed = GovernedModel(provider_model(model), governor, ignore, rules=CallRules(kt.ModelRetry(backoff=0.01)))
    with pytest.raises(ModelCallError, match="cannot be sent") as caught:
        await governed.complete(kt.ModelRequest([kt.Message.user(HALF)], [tool], max_tokens=40))
    assert (caught.value.kind, caught.value.unspent) == ("bad_request", True)
    assert (wires.asked, governor.usage.tokens) == ([], 0)


@pytest.mark.parametrize(
    "request_",
    [
        kt.ModelRequest(ASK.messages, settings={"temprature": 0}),
        kt.ModelRequest([kt.Message.tool("c1", "the answer to nothing")]),
    ],
    ids=["setting", "answer"],
)
async def test_third_o37_a_request_that_cannot_be_prepared_is_free(wires: Wires, request_: kt.ModelRequest) -> None:
    governor = Governor(kt.Budget(tokens=10_000))
    with pytest.raises(ValueError, match=r"unknown settings 'temprature'|answers the call 'c1'"):
        await GovernedModel(provider_model(MODELS[0]), governor, ignore).complete(request_)
    assert (wires.asked, governor.usage.tokens) == ([], 0)
