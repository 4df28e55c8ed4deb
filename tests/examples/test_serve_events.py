"""A run's events over HTTP, on a real server: watchers are cut off, come back, and get every event exactly once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the example needs starlette and uvicorn")
pytest.importorskip("starlette", reason="the example needs starlette and uvicorn")
serve_events = pytest.importorskip("kairo_team.examples.serve_events", reason="this example is no part of the wheel")

import uvicorn  # noqa: E402 - skipped where it is not installed

import kairo_team as kt  # noqa: E402
from kairo_team.events import Event, event_from_json  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/serve_events.py"

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


class Client:
    """Talks to the server; every call has a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._open: dict[HTTPResponse, HTTPConnection] = {}

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = body if isinstance(body, str) or body is None else json.dumps(body)
        known = {"Authorization": f"Bearer {serve_events.TOKEN}"}
        connection.request(method, path, given, known | {key.replace("_", "-"): text for key, text in headers.items()})
        response = connection.getresponse()
        self._open[response] = connection
        return response

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        response = self.send(method, path, body, **headers)
        text = response.read().decode()
        return response.status, json.loads(text) if text.startswith("{") else text

    def begin(self) -> str:
        status, told = self.ask("POST", "/runs", {"goal": "Tell what the sea is like."})
        assert status == 201
        return str(told["run_id"])

    def watch(self, run_id: str, after: int | None = None, most: int | None = None) -> list[Event]:
        """Read events to their end, or until so many have come: then the connection is dropped."""
        headers = {} if after is None else {"Last_Event_ID": str(after)}
        response = self.send("GET", f"/runs/{run_id}/events", **headers)
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        seen = list(islice(messages(response), most))
        self._open[response].close()
        return seen

    def close(self) -> None:
        for response, connection in self._open.items():
            response.close()
            connection.close()


def messages(response: HTTPResponse) -> Iterator[Event]:
    """Read server-sent events the way a browser does."""
    fields: dict[str, str] = {}
    for line in response:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            event = event_from_json(fields["data"])
            assert (fields["id"], fields["event"]) == (str(event.seq), event.type)
            yield event
            fields = {}
        else:
            fields = {}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A server on a port of its own, in a thread."""
    monkeypatch.setattr(serve_events, "SECONDS", 0.1)
    server = uvicorn.Server(uvicorn.Config(serve_events.app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    talking = Client(server.servers[0].sockets[0].getsockname()[1])
    yield talking
    talking.close()
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


def until(ready: Any) -> None:
    for _ in range(3_000):
        if ready():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def test_a_watcher_that_is_cut_off_gets_every_event_exactly_once(client: Client) -> None:
    run_id = client.begin()
    seen: list[Event] = []
    for most in (1, 3, 4, 2, None):
        seen += client.watch(run_id, seen[-1].seq if seen else None, most)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert (seen[0].type, seen[-1].type) == ("team.started", "team.completed")
    assert seen == client.watch(run_id), "whoever comes late gets the same from the first"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer guess"}, 401),
        ({"Authorization": "Bearer gu\u00e9ss"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:{port}"}, 421),
        ({"Host": "localhost.evil.example:{port}"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://127.0.0.1:{port}"}, 201),
        ({"Host": "LOCALHOST:{port}"}, 201),
    ],
)
def test_audit_g35_only_its_own_pages_that_know_the_token_are_answered(
    client: Client, headers: dict[str, str], status: int
) -> None:
    given = {name: value.replace("{port}", str(client.port)) for name, value in headers.items()}
    told, said = client.ask("POST", "/runs", {"goal": "Tell what the sea is like."}, **given)
    assert told == status, said
    assert client.ask("GET", "/runs/none/result", **given)[0] == (404 if status == 201 else status)


def test_audit_g35_the_token_may_stand_in_the_address(client: Client) -> None:
    result = f"/runs/{client.begin()}/result"
    assert client.ask("GET", f"{result}?token={serve_events.TOKEN}", Authorization="")[0] == 200
    assert client.ask("GET", f"{result}?token=guess", Authorization="")[0] == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (json.dumps({"goal": "x" * 70_000}), 413),
        ("[" * 60_000, 400),
        ('{"goal": ' * 6_000, 400),
        (json.dumps({"goal": ["x"]}), 400),
        (json.dumps({"goal": "x", "more": {"deep": []}}), 400),
        (json.dumps({"goal": "x"}), 201),
    ],
    ids=lambda part: str(part)[:12],
)
def test_audit_g35_bodies_are_bounded_in_size_and_depth(client: Client, body: str, status: int) -> None:
    assert client.ask("POST", "/runs", body)[0] == status


def test_watchers_at_once_get_the_same_and_slow_ones_too(client: Client) -> None:
    run_id = client.begin()
    seen: list[list[Event]] = []
    threads = [threading.Thread(target=lambda: seen.append(client.watch(run_id))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [seen[0]] * 5
    assert seen[0][-1].type == "team.completed"


def test_whoever_has_seen_all_is_told_not_to_come_back(client: Client) -> None:
    run_id = client.begin()
    last = client.watch(run_id)[-1].seq
    until(lambda: client.ask("GET", f"/runs/{run_id}/result")[0] == 200)
    assert client.ask("GET", f"/runs/{run_id}/events", Last_Event_ID=str(last)) == (204, "")
    assert [event.seq for event in client.watch(run_id, last - 1)] == [last]


def test_a_run_is_steered_over_http(client: Client) -> None:
    run_id = client.begin()
    client.watch(run_id, most=5)
    assert client.ask("POST", f"/runs/{run_id}/steer", {"directive": "in verse"}) == (204, "")
    assert client.ask("POST", f"/runs/{run_id}/steer", {"directive": "rhymed", "task_id": "write"}) == (204, "")
    status, told = client.ask("GET", f"/runs/{run_id}/result")
    assert (status, told["status"]) == (200, "completed")
    assert told["output"].endswith("(in verse) (rhymed)")


@pytest.mark.parametrize(("task_id", "ends"), [(None, "team.cancelled"), ("watch", "team.failed")])
def test_a_run_or_a_task_is_cancelled_over_http(client: Client, task_id: str | None, ends: str) -> None:
    run_id = client.begin()
    client.watch(run_id, most=7)
    body = None if task_id is None else {"task_id": task_id}
    assert client.ask("POST", f"/runs/{run_id}/cancel", body) == (204, "")
    assert client.watch(run_id)[-1].type == ends
    told = client.ask("GET", f"/runs/{run_id}/result")[1]
    assert told["tasks"] == {"watch": "cancelled", "write": "skipped"}
    assert told["status"] == ends.removeprefix("team.")


def test_what_cannot_be_done_says_why(client: Client) -> None:
    run_id = client.begin()
    steer = f"/runs/{run_id}/steer"
    asked: list[tuple[int, str, str, Any, dict[str, str]]] = [
        (404, "POST", "/runs/nope/cancel", None, {}),
        (404, "GET", "/runs/nope/events", None, {}),
        (404, "GET", "/runs/nope/result", None, {}),
        (404, "GET", "/nope", None, {}),
        (405, "GET", steer, None, {}),
        (400, "POST", "/runs", None, {}),
        (400, "POST", "/runs", "{", {}),
        (400, "POST", "/runs", [], {}),
        (400, "POST", "/runs", {"goal": "  "}, {}),
        (400, "POST", steer, {}, {}),
        (400, "POST", steer, {"directive": 5}, {}),
        (400, "POST", steer, {"directive": "x", "task_id": "nope"}, {}),
        (400, "POST", f"/runs/{run_id}/cancel", {"task_id": 5}, {}),
        (400, "GET", f"/runs/{run_id}/events", None, {"Last_Event_ID": "-1"}),
    ]
    for status, method, path, body, headers in asked:
        assert client.ask(method, path, body, **headers)[0] == status, (method, path, body)
    client.watch(run_id)
    client.ask("GET", f"/runs/{run_id}/result")
    assert client.ask("POST", steer, {"directive": "x"}) == (409, {"error": f"run {run_id!r} has ended already"})


def test_a_silent_stream_is_kept_open_by_comments(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_events, "PING", 0.02)
    run_id = client.begin()
    response = client.send("GET", f"/runs/{run_id}/events")
    lines = response.read().decode().split("\n")
    assert lines.count(": nothing new") > 3
    assert sum(line.startswith("id: ") for line in lines) == len(client.watch(run_id))


def test_only_the_last_runs_that_ended_are_kept(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_events, "KEPT", 2)
    monkeypatch.setattr(serve_events, "SECONDS", 0.0)
    ids: list[str] = []
    for _ in range(4):
        ids.append(client.begin())
        assert client.ask("GET", f"/runs/{ids[-1]}/result")[0] == 200
    client.begin()
    assert [client.ask("GET", f"/runs/{run_id}/result")[0] for run_id in ids] == [409, 409, 200, 200]


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_it_runs_as_a_program_and_ends_at_ctrl_c_with_its_runs() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "TOKEN": serve_events.TOKEN, "PORT": str(port), "SECONDS": "600"}
    process = subprocess.Popen([sys.executable, str(FILE)], env=env, stderr=subprocess.PIPE, text=True)
    client = Client(port)
    try:
        until(lambda: process.poll() is not None or listens(port))
        run_id = client.begin()
        assert client.watch(run_id, most=3)[0].type == "team.started"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        client.close()
        process.kill()
        process.wait()
    assert "Traceback" not in errors
    assert process.returncode in {0, -signal.SIGINT, 128 + signal.SIGINT}


def test_the_page_shows_what_the_example_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_events, "SECONDS", 0.0)
    page = (ROOT / "docs/live-runs.md").read_text(encoding="utf-8")
    output = kt.run_sync(*serve_events.build("Tell what the sea is like.")).output
    assert output is not None
    assert output.strip() in page
