"""The key that each try hands to its provider: the same when nobody saw the answer, and another one after an error."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import Agent, OpenAIChatCompletionsModel
from openai import AsyncOpenAI
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import kairo_team as kt
from kairo_team.agents.openai_agents import OpenAIAgent
from kairo_team.agents.pydantic_ai import PydanticAIAgent
from kairo_team.errors import ModelCallError
from kairo_team.models import OpenAICompatible
from kairo_team.models.call_keys import idempotency_key
from kairo_team.models.retries import ModelRetry
from kairo_team.testing import FunctionModel
from tests.durable.desk import Images
from tests.durable.payers import RUN, TWO, ask

pytestmark = [pytest.mark.real_time, pytest.mark.anyio]
KEY = "idempotency-key"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Server:
    """Answers chats over HTTP on loopback; `fails` are the numbers of requests that it answers with an error."""

    def __init__(self, *fails: int) -> None:
        self.keys: list[str | None] = []
        """What was in the header of each request."""
        self.bodies: list[Any] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                server.keys.append(self.headers.get(KEY))
                self.answer(503 if len(server.keys) in fails else 200)

            def answer(self, status: int) -> None:
                message = {
                    "role": "assistant",
                    "content": f"answer {len(server.bodies[-1]['messages'][-1]['content'])}",
                }
                usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
                choices = [{"index": 0, "finish_reason": "stop", "message": message}]
                chat = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "usage": usage}
                body = json.dumps({**chat, "choices": choices} if status == 200 else {"error": {"message": "busy"}})
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Generator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def busy() -> Generator[Server]:
    """A server that is busy when it is asked for the first time."""
    one = Server(1)
    yield one
    one.close()


def chat(server: Server) -> Any:
    return OpenAICompatible("m", server.url)


async def work(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    return (await context.model("m:x").complete(ask(assignment.task.id))).text


async def run(model: Any, path: Path | None, agent: Any = work, *, go_on: bool = False) -> kt.TeamResult:
    """Run two tasks, one after the other, or go on with them; the journal is at `path`, if there is one."""
    journal = None if path is None else kt.SqliteJournal(path, sync="normal")
    try:
        return await _run(model, journal, agent, go_on=go_on)
    finally:
        if journal is not None:
            journal.close()


async def _run(model: Any, journal: kt.SqliteJournal | None, agent: Any, *, go_on: bool) -> kt.TeamResult:
    models = {} if model is None else {"m:x": model}
    team = kt.Team("team", [kt.Member("writer", agent)])
    retry = ModelRetry(retries=1, backoff=0.0)
    async with kt.Runtime(models=models, journal=journal, model_retry=retry) as runtime:
        if go_on:
            return await runtime.resume(RUN, team)
        return await kt.run(team, kt.TeamExecutionRequest("Do it.", plan=TWO, run_id=RUN), runtime=runtime)


def in_doubt(images: Images, *, failed: int = 0) -> Path:
    """Return the image in which one call is in doubt, after so many failed tries."""

    def states(path: Path) -> list[str]:
        with closing(sqlite3.connect(path)) as connection:
            return [state for (state,) in connection.execute("SELECT state FROM call ORDER BY id")]

    return next(path for path in images.paths if states(path) == ["failed"] * failed + ["sent"])


async def test_a_call_that_is_asked_again_after_a_crash_has_the_same_key(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(tmp_path, monkeypatch)
    await run(chat(server), tmp_path / "runs.db")
    monkeypatch.undo()
    first, second = server.keys
    assert first is not None
    assert len({first, second}) == 2
    assert len(first) == 32
    result = await run(chat(server), in_doubt(images), go_on=True)
    assert result.status is kt.TeamStatus.COMPLETED
    assert server.keys == [first, second, first, second]
    assert server.bodies[0] == server.bodies[2]


async def test_a_retry_after_an_error_of_the_provider_has_another_key(
    busy: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(tmp_path, monkeypatch)
    await run(chat(busy), tmp_path / "runs.db")
    monkeypatch.undo()
    failed, retried, other = busy.keys
    assert len({failed, retried, other}) == 3
    await run(chat(busy), in_doubt(images, failed=1), go_on=True)
    assert busy.keys[3:] == [retried, other], "it goes on after the tries that failed"
    await run(chat(busy), in_doubt(images), go_on=True)
    assert busy.keys[5] == failed


async def test_a_try_whose_connection_broke_is_made_again_with_the_same_key(tmp_path: Path) -> None:
    keys: list[str | None] = []

    def reply(request: kt.ModelRequest) -> str:
        keys.append(idempotency_key())
        if len(keys) == 1:
            raise ModelCallError("connection", "test:m", "it broke")
        return "done"

    path = tmp_path / "runs.db"
    await run(FunctionModel(reply, name="test:m"), path)
    assert keys[0] == keys[1] != keys[2]
    assert [one.state for one in kt.SqliteJournal(path).calls(RUN)] == ["unknown", "answered", "answered"]
    assert idempotency_key() is None


async def test_without_a_journal_there_is_no_key(server: Server) -> None:
    await run(chat(server), None)
    assert server.keys == [None, None]


async def test_a_header_of_the_users_own_stays(server: Server, tmp_path: Path) -> None:
    async def own(assignment: kt.Assignment, context: kt.MemberContext) -> str:
        settings = {"extra_headers": {"Idempotency-key": "mine", "X-Other": "1"}}
        asked = kt.ModelRequest([kt.Message.user(assignment.task.id)], settings=settings)
        return (await context.model("m:x").complete(asked)).text

    await run(chat(server), tmp_path / "runs.db", own)
    assert server.keys == ["mine", "mine"]


def pydantic_agent(server: Server) -> Any:
    provider = OpenAIProvider(base_url=server.url, api_key="no-key")
    return PydanticAIAgent(PydanticAgent(OpenAIChatModel("m", provider=provider)))


def openai_agent(server: Server) -> Any:
    client = AsyncOpenAI(base_url=server.url, api_key="no-key")
    return OpenAIAgent(Agent("writer", model=OpenAIChatCompletionsModel("m", client)))


@pytest.mark.parametrize("make", [pydantic_agent, openai_agent])
async def test_agents_of_other_libraries_hand_it_on(
    make: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = Images(tmp_path, monkeypatch)
    await run(None, tmp_path / "runs.db", make(server))
    monkeypatch.undo()
    first, second = server.keys
    assert first is not None
    assert first != second
    await run(None, in_doubt(images), make(server), go_on=True)
    assert server.keys[2:] == [first, second]
