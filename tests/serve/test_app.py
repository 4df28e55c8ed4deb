"""The app itself: its keys, its limits, other people's runs, and runs that go on."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")
httpx2 = pytest.importorskip("httpx2", reason="what the tests ask with")

import kairo_team as kt  # noqa: E402 - skipped where the extra is not installed
from kairo_team.errors import MissingExtra, Misuse  # noqa: E402
from kairo_team.serve.asgi import ServedTeam  # noqa: E402
from kairo_team.serve.asked import OtherRequest  # noqa: E402
from kairo_team.serve.guard import Guard, Keys, read_keys  # noqa: E402
from kairo_team.web_console.access import FAILURES, WINDOW, Failures  # noqa: E402
from tests.cluster.server import die  # noqa: E402
from tests.serve.stage import BUDGET, KEYS, LETTER, Waiting, asking, echo, served, talking  # noqa: E402
from tests.serve.web import app_of, serving  # noqa: E402

pytestmark = pytest.mark.real_time

CHAT = "/v1/chat/completions"
PATHS = [
    CHAT,
    "/v1/responses",
    "/v1/models",
    "/v1/models/echo team",
    "/mcp",
    "/a2a",
    "/.well-known/agent-card.json",
    "/ag-ui",
    "/",
    "/v1/runs",
    "/docs",
    "/openapi.json",
]


HALF = "half \ud800"
BY_ADA: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/",
    "query_string": b"",
    "headers": [(b"authorization", f"Bearer {KEYS['ada']}".encode())],
}
"""A request with a key, as a server hands it on."""


def body_of(team: str, goal: str = "tides") -> dict[str, Any]:
    return {"model": team, "messages": [{"role": "user", "content": goal}]}


def noting(goals: list[str]) -> Callable[[kt.Assignment], str]:
    """A member that notes what it was asked for."""

    def note(assignment: kt.Assignment) -> str:
        goals.append(assignment.goal)
        return "said"

    return note


@asynccontextmanager
async def visit(app: Any, key: str | None = "ada", **headers: str) -> AsyncGenerator[Any]:
    """Ask an app without a server, in this event loop."""
    given = {"authorization": f"Bearer {KEYS.get(key, key)}"} if key is not None else {}
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://team", headers={**given, **headers}) as client:
        yield client


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_nothing_answers_without_a_key(path: str, method: str) -> None:
    app = app_of(echo())
    async with app.lifespan(), visit(app, None) as stranger:
        reply = await stranger.request(method, path)
    assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")
    assert "echo" not in reply.text


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {KEYS['ada']}",
        f"Bearer {KEYS['ada']}x",
        f"Bearer {KEYS['ada'][:-1]}",
        "Bearer é",
    ],
)
async def test_a_wrong_key_lets_no_one_in(given: str) -> None:
    app = app_of(echo())
    async with app.lifespan(), visit(app, None) as stranger:
        headers = [(b"authorization", given.encode())]
        reply = await stranger.post(CHAT, json=body_of("echo team"), headers=headers)
        assert reply.status_code == 401
        both = [(b"authorization", f"Bearer {KEYS['ada']}".encode()), *headers]
        assert (await stranger.post(CHAT, json=body_of("echo team"), headers=both)).status_code == 401


async def test_after_wrong_keys_an_address_is_refused_for_a_minute() -> None:
    now = [0.0]

    async def never(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    guard = Guard(never, Keys(KEYS), failures=Failures(lambda: now[0]))
    async with visit(guard, "guess") as guesser, visit(guard) as ada:
        for _ in range(FAILURES):
            assert (await guesser.get("/")).status_code == 401
        refused = await ada.get("/")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
        now[0] = WINDOW
        assert (await ada.get("/")).status_code == 204


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({}, "needs a key"),
        ({"ada": "short"}, "at least 16 characters"),
        ({"ada": "with a space in the key"}, "printable ASCII"),
        ({"a/b": "long-enough-key-01"}, "characters of A-Z"),
        ({"a": "long-enough-key-01", "b": "long-enough-key-01"}, "the same key"),
    ],
)
def test_keys_that_are_not_safe_are_refused(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(Misuse, match=sentence) as raised:
        kt.asgi(echo(), keys=keys, budget=BUDGET)
    assert "long-enough" not in str(raised.value)


def test_a_file_of_keys_is_read_line_by_line() -> None:
    assert read_keys("# people\nada  one\n\nbob two\n", "keys.txt") == {"ada": "one", "bob": "two"}
    for text, sentence in [("ada", "line 1"), ("ada one\nada two", "line 2: 'ada' has"), ("# no", "has no key")]:
        with pytest.raises(Misuse, match=sentence) as raised:
            read_keys(text, "keys.txt")
        assert "two" not in str(raised.value)


def test_a_served_team_needs_limits_that_hold() -> None:
    with pytest.raises(Misuse, match="limit for each run"):
        kt.asgi(echo(), keys=KEYS)
    with pytest.raises(Misuse, match="limits of single runs"):
        kt.asgi(echo(), keys=KEYS, budget=BUDGET, key_budget=kt.Budget(seconds=10))
    with pytest.raises(Misuse, match="at least one"):
        kt.asgi(echo(), keys=KEYS, budget=BUDGET, mcp=False, openai=False, a2a=False, ag_ui=False)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kairo_team.serve.asgi.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'kairo-team\[serve\]'"):
        kt.asgi(echo(), keys=KEYS, budget=BUDGET)


# ---------------------------------------------------------------- requests


async def test_a_request_under_another_name_or_from_another_site_is_refused() -> None:
    app = app_of(echo(), names=["team"])
    async with app.lifespan(), visit(app) as ada:
        assert (await ada.get("/v1/models")).status_code == 200
        assert (await ada.get("/v1/models", headers={"host": "evil.example"})).status_code == 421
        assert (await ada.get("/v1/models", headers={"origin": "http://evil.example"})).status_code == 403
        assert (await ada.get("/v1/models", headers={"origin": "http://team"})).status_code == 200


async def test_what_is_not_there_is_refused_with_what_there_is() -> None:
    app = app_of(echo(), mcp=False)
    async with app.lifespan(), visit(app) as ada:
        for method, path, status in [("GET", "/mcp", 404), ("GET", "/v1/runs", 404), ("GET", CHAT, 405)]:
            reply = await ada.request(method, path)
            assert reply.status_code == status
            assert reply.json()["error"]["message"]
        assert "/v1/responses" in (await ada.get("/nothing")).json()["error"]["message"]


async def test_bodies_that_are_huge_or_broken_start_no_run() -> None:
    seen: list[str] = []
    app = app_of(kt.Team("t", [kt.Member("m", noting(seen))]))
    async with app.lifespan(), visit(app) as ada:
        assert (await ada.post(CHAT, content=b"x" * 33_600_000)).status_code == 413
        told = await ada.post(CHAT, content=b"{}", headers={"content-length": "99999999999"})
        assert told.status_code == 413
        for broken in (b"", b"{", b"[1]", b"[" * 100_000, b'{"n": NaN}', b"\xff"):
            assert (await ada.post(CHAT, content=broken)).status_code in (400, 404), broken
    assert seen == []


async def test_text_that_utf_8_cannot_have_comes_back_by_every_interface() -> None:
    """Half a surrogate pair is valid in JSON, and no reason to fail."""
    message = {"messageId": "m", "parts": [{"text": HALF}]}
    asked: list[tuple[str, dict[str, Any]]] = [
        (CHAT, body_of("echo team", HALF)),
        ("/v1/responses", {"model": "echo team", "input": HALF}),
        ("/a2a", {"jsonrpc": "2.0", "id": HALF, "method": "SendMessage", "params": {"message": message}}),
        ("/ag-ui", {"threadId": HALF, "runId": "r", "messages": [{"id": "1", "role": "user", "content": HALF}]}),
    ]
    app = app_of(echo())
    async with app.lifespan(), visit(app) as ada:
        for path, body in asked:
            reply = await ada.post(path, content=json.dumps(body))
            assert (reply.status_code, r"About half \ud800" in reply.text) == (200, True), path


async def test_a_body_without_an_end_is_left_at_the_limit() -> None:
    """It declares no length, so that only what has come is counted."""
    replies: list[Any] = []
    pieces = iter(range(1_000))

    async def endless() -> Any:
        next(pieces)
        return {"type": "http.request", "body": b"x" * 1_000, "more_body": True}

    async def keep(message: Any) -> None:
        replies.append(message)

    async def never(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it was passed on")

    await Guard(never, Keys(KEYS), most_bytes=10_000)(BY_ADA, endless, keep)
    assert replies[0]["status"] == 413
    assert next(pieces) == 11


async def test_a_body_that_does_not_come_and_a_reader_that_does_not_read_are_left() -> None:
    replies: list[Any] = []

    async def big(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        raise AssertionError("it went on")

    guard = Guard(big, Keys(KEYS), body_seconds=0.05, send_seconds=0.05)

    async def no_body() -> Any:
        await anyio.sleep_forever()

    async def keep(message: Any) -> None:
        replies.append(message)

    await guard(BY_ADA, no_body, keep)
    assert replies[0]["status"] == 408

    async def whole() -> Any:
        return {"type": "http.request", "body": b""}

    async def stuck(message: Any) -> None:
        await anyio.sleep_forever()

    await guard(BY_ADA, whole, stuck)


async def test_a_large_reply_goes_out_in_pieces_each_of_which_waits_for_its_reader() -> None:
    """A server keeps the last piece in memory without waiting, so it has to be a small one."""
    large = bytes(range(256)) * 1_000
    sent: list[Any] = []

    async def whole(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": large})

    async def given() -> Any:
        return {"type": "http.request", "body": b""}

    async def keep(message: Any) -> None:
        sent.append(message)

    await Guard(whole, Keys(KEYS))(BY_ADA, given, keep)
    pieces = sent[1:]
    assert b"".join(piece["body"] for piece in pieces) == large
    assert max(len(piece["body"]) for piece in pieces) <= 65_536
    assert [piece["more_body"] for piece in pieces] == [True] * (len(pieces) - 1) + [False]


async def test_a_server_closes_a_connection_that_begins_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from kairo_team.serve import serving as real

    monkeypatch.setattr(real, "HEAD_SECONDS", 0.2)
    async with serving(app_of(echo()), http=real._Prompt) as url:
        port = int(url.rpartition(":")[2])

        def wait(said: bytes) -> bytes:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
                slow.sendall(said)
                return slow.recv(100)

        for said in (b"", b"POST /v1/chat/comp", b"POST / HTTP/1.1\r\nhost: x\r\n"):
            assert await anyio.to_thread.run_sync(wait, said) == b"", "closed without a word"
        monkeypatch.setattr(real, "HEAD_SECONDS", 60.0)
        async with visit_url(url) as ada:
            assert (await ada.get("/v1/models")).status_code == 200


@asynccontextmanager
async def visit_url(url: str, key: str = "ada") -> AsyncGenerator[Any]:
    headers = {"authorization": f"Bearer {KEYS[key]}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
        yield client


async def test_a_key_has_only_so_many_runs_at_once_and_others_have_their_own() -> None:
    waiting = Waiting()
    app = app_of(waiting.team(), most_runs=2)
    statuses: list[int] = []

    async def ask(client: Any) -> None:
        statuses.append((await client.post(CHAT, json=body_of("waiting"))).status_code)

    async with app.lifespan(), visit(app) as ada, visit(app, "bob") as bob, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, ada)
        tasks.start_soon(ask, ada)
        await waiting.until_begun(2)
        refused = await ada.post(CHAT, json=body_of("waiting"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        tasks.start_soon(ask, bob)
        await waiting.until_begun(3)
        waiting.go.set()
    assert statuses == [200, 200, 200]


async def test_an_app_whose_lifespan_has_not_run_says_so() -> None:
    app = app_of(echo())
    async with visit(app) as ada:
        reply = await ada.post(CHAT, json=body_of("echo team"))
        assert "lifespan" in reply.json()["error"]["message"]


# ---------------------------------------------------------------- runs that go on


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[kt.SqliteJournal]:
    made = kt.SqliteJournal(tmp_path / "runs.db")
    yield made
    made.close()


async def test_asked_again_a_run_costs_nothing_more(journal: kt.SqliteJournal) -> None:
    calls: list[str] = []
    team = kt.Team("t", [kt.Member("m", noting(calls))])
    runtime = kt.Runtime(journal=journal)
    app = app_of(team, runtime=runtime)
    headers = {"idempotency-key": "monday"}
    async with app.lifespan(), visit(app) as ada, visit(app, "bob") as bob:
        first = await ada.post(CHAT, json=body_of("t"), headers=headers)
        again = await ada.post(CHAT, json=body_of("t"), headers=headers)
        assert (first.status_code, again.status_code) == (200, 200)
        assert first.headers["x-kairo-run"] == again.headers["x-kairo-run"]
        assert again.json()["choices"] == first.json()["choices"]
        assert calls == ["tides"]
        other = await ada.post(CHAT, json=body_of("t", "rain"), headers=headers)
        assert (other.status_code, other.json()["error"]["type"]) == (422, "idempotency_error")
        theirs = await bob.post(CHAT, json=body_of("t", "rain"), headers=headers)
        assert theirs.status_code == 200
        assert theirs.headers["x-kairo-run"] != first.headers["x-kairo-run"]
    assert calls == ["tides", "rain"]
    async with app.lifespan(), visit(app) as ada:  # as after a restart
        assert (await ada.post(CHAT, json=body_of("t"), headers=headers)).status_code == 200
    assert calls == ["tides", "rain"]


async def test_who_leaves_and_asks_again_gets_the_same_run_that_went_on(journal: kt.SqliteJournal) -> None:
    waiting = Waiting()
    app = app_of(waiting.team(), runtime=kt.Runtime(journal=journal))
    headers = {"idempotency-key": "monday"}
    async with app.lifespan(), visit(app) as ada:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ada.post(CHAT, json=body_of("waiting"), headers=headers))
            await waiting.until_begun()
            tasks.cancel_scope.cancel()
        replies: list[Any] = []
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                replies.append(await ada.post(CHAT, json=body_of("waiting"), headers=headers))

            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.sleep(0.05)
            waiting.go.set()
    assert [reply.status_code for reply in replies] == [200, 200]
    assert (waiting.began, waiting.ends) == (1, ["done"])


async def test_of_two_requests_at_once_with_one_key_the_one_with_another_goal_is_refused(
    journal: kt.SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both look for a recorded run before one of them begins it."""
    both, looks, show = threading.Barrier(2, timeout=60), count(1), journal.show

    def look(run_id: str) -> Any:
        if next(looks) <= 2:
            both.wait()
        return show(run_id)

    monkeypatch.setattr(journal, "show", look)
    waiting, goals = Waiting(), list[str]()
    school = served(waiting.team(runtime=kt.Runtime(journal=journal)))
    async with school.open():

        async def ask(goal: str) -> None:
            try:
                goals.append((await school.caller("ada").ask(goal, key="monday")).request.goal)
            except OtherRequest:
                goals.append("refused")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "tides")
            tasks.start_soon(ask, "rain")
    assert sorted(goals) in (["rain", "refused"], ["refused", "tides"])


async def test_a_run_that_its_server_left_goes_on_in_the_next_one(journal: kt.SqliteJournal) -> None:
    waiting = Waiting()
    first_done: list[str] = []
    plan = kt.TaskGraph([kt.Task("a", "A.", role="quick"), kt.Task("b", "B.", role="slow", depends_on=["a"])])
    members = [
        kt.Member("quick", noting(first_done)),
        kt.Member("slow", waiting),
    ]
    app = app_of(kt.Team("t", members), plan=plan, runtime=kt.Runtime(journal=journal))
    headers = {"idempotency-key": "monday"}
    async with visit(app) as ada:
        async with app.lifespan(), anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ada.post(CHAT, json=body_of("t"), headers=headers))
            await waiting.until_begun()
            tasks.cancel_scope.cancel()
        assert [run.state for run in journal.runs()] == ["interrupted"]
        waiting.go.set()
        async with app.lifespan():
            reply = await ada.post(CHAT, json=body_of("t"), headers=headers)
    assert reply.status_code == 200
    assert first_done == ["tides"], "what was finished is not done again"
    assert waiting.began == 2


async def test_a_run_that_waits_for_a_person_goes_on_once_it_is_answered(journal: kt.SqliteJournal) -> None:
    app = app_of(asking(), plan=LETTER, runtime=kt.Runtime(journal=journal))
    headers = {"idempotency-key": "monday"}
    async with app.lifespan(), visit(app) as ada:
        waits = await ada.post(CHAT, json=body_of("office"), headers=headers)
        assert (waits.status_code, waits.json()["error"]["type"]) == (409, "waits_for_person")
        [question] = journal.pending()
        journal.answer(question.id, kt.HumanDecision.approve())
        done = await ada.post(CHAT, json=body_of("office"), headers=headers)
    assert done.json()["choices"][0]["message"]["content"] == "Dear all"


@pytest.mark.parametrize("key", ["", " ", "x" * 300])
async def test_an_idempotency_key_that_cannot_be_one_is_refused(journal: kt.SqliteJournal, key: str) -> None:
    app = app_of(talking(), runtime=kt.Runtime(journal=journal))
    async with app.lifespan(), visit(app) as ada:
        reply = await ada.post(CHAT, json=body_of("school"), headers={"idempotency-key": key})
    assert reply.status_code == 400
    assert not journal.runs()


async def test_without_a_journal_an_idempotency_key_is_refused() -> None:
    app = app_of(talking())
    async with app.lifespan(), visit(app) as ada:
        reply = await ada.post(CHAT, json=body_of("school"), headers={"idempotency-key": "monday"})
    assert (reply.status_code, "needs a journal" in reply.text) == (400, True)


# ---------------------------------------------------------------- the account of a key


async def test_a_key_keeps_what_it_has_used_and_gets_back_what_a_dead_server_held(tmp_path: Path) -> None:
    """The run with a name can be asked for again, so its amount is kept; nobody can ask for the other."""

    def opened() -> kt.SqliteJournal:
        return kt.SqliteJournal(tmp_path / "runs.db")

    def app(journal: kt.SqliteJournal) -> ServedTeam:
        runtime = kt.Runtime(journal=journal)
        return app_of(talking(), runtime=runtime, budget=kt.Budget(tokens=400), key_budget=kt.Budget(tokens=1_000))

    first = opened()
    served = app(first)
    async with served.lifespan(), visit(served) as ada:
        assert (await ada.post(CHAT, json=body_of("school"))).status_code == 200
    dead = opened().charging("serve/ada")
    for run_id in ("nobody", "ada-named"):
        dead.begin(kt.TeamExecutionRequest("x", config=kt.TeamConfig(budget=kt.Budget(tokens=400)), run_id=run_id),
                   talking(), {}, None)  # fmt: skip
    die(dead)
    second = opened()
    served = app(second)
    async with served.lifespan(), visit(served) as ada:
        ((used, aside),) = [
            (one.used.tokens, one.set_aside.tokens) for one in second.accounts() if one.name == "serve/ada"
        ]
        assert (used, aside) == (30, 400)
        assert {run.run_id: run.state for run in second.runs()}["ada-named"] == "interrupted"
        assert (await ada.post(CHAT, json=body_of("school"))).status_code == 200
        second.set_account("serve/ada", kt.Budget(tokens=799))
        refused = await ada.post(CHAT, json=body_of("school"))
        assert refused.status_code == 402
    for journal in (first, dead, second):
        journal.close()


def test_ag_ui_is_served_where_its_extra_is_and_missed_only_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = "kairo_team.serve.asgi.find_spec"
    monkeypatch.setattr(place, lambda name: None if name == "ag_ui" else find_spec(name))
    assert not any("AG-UI" in place for place in kt.asgi(echo(), keys=KEYS, budget=BUDGET).places)
    with pytest.raises(MissingExtra, match=r"kairo-team\[ag-ui\]"):
        kt.asgi(echo(), keys=KEYS, budget=BUDGET, ag_ui=True)
