"""A team behind AG-UI: its events are read with the protocol's own types, and checked as its client checks them."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")
pytest.importorskip("ag_ui", reason="a served team needs the extra serve")

import httpx2
from ag_ui import core
from pydantic import TypeAdapter

import kairo_team as kt
from kairo_team.serve.asgi import ServedTeam
from kairo_team.testing import FunctionModel
from tests.serve.stage import KEYS, LETTER, Waiting, asking, talking
from tests.serve.web import app_of, http_client, running

pytestmark = pytest.mark.real_time

EVENT: TypeAdapter[Any] = TypeAdapter(core.Event)
OPENS = {
    "STEP_STARTED": ("STEP_FINISHED", "step_name"),
    "TEXT_MESSAGE_START": ("TEXT_MESSAGE_END", "message_id"),
    "REASONING_START": ("REASONING_END", "message_id"),
    "REASONING_MESSAGE_START": ("REASONING_MESSAGE_END", "message_id"),
    "TOOL_CALL_START": ("TOOL_CALL_END", "tool_call_id"),
}


def goal(text: Any = "Explain tides.", **more: Any) -> dict[str, Any]:
    messages = [{"id": "1", "role": "user", "content": text}]
    return {"threadId": "t1", "runId": "r1", "messages": messages, **more}


def kind(event: Any) -> str:
    return str(event.type.value)


def read(text: str) -> list[Any]:
    """Read a stream, and check the rules of the protocol: what is opened is closed once, and the run ends last."""
    found = [
        EVENT.validate_json(line.removeprefix("data: ")) for line in text.split("\n\n") if line.startswith("data:")
    ]
    opened: dict[tuple[str, str], None] = {}
    for event in found:
        if kind(event) in OPENS:
            end, name = OPENS[kind(event)]
            assert (end, getattr(event, name)) not in opened
            opened[end, getattr(event, name)] = None
        for end, name in OPENS.values():
            if kind(event) == end:
                del opened[end, getattr(event, name)]
    assert kind(found[0]) == "RUN_STARTED"
    assert kind(found[-1]) in ("RUN_FINISHED", "RUN_ERROR")
    assert not opened
    return found


def output(events: list[Any]) -> str:
    return "".join(event.delta for event in events if kind(event) == "TEXT_MESSAGE_CONTENT")


def state_of(events: list[Any]) -> Any:
    """Apply the patches, which add members of objects alone."""
    state: Any = None
    for event in events:
        if kind(event) == "STATE_SNAPSHOT":
            state = event.snapshot
        elif kind(event) == "STATE_DELTA":
            for patch in event.delta:
                _, *path, last = patch.path.split("/")
                place = state
                for name in path:
                    place = place[name]
                place[last] = patch.value
    return state


class Post:
    """Posts inputs, and reads the events."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def __call__(self, given: Any, **headers: str) -> list[Any]:
        reply = await self.client.post("/ag-ui", json=given, headers=headers)
        assert reply.status_code == 200, reply.text
        assert reply.headers["content-type"].startswith("text/event-stream")
        return read(reply.text)


@asynccontextmanager
async def front_of(app: ServedTeam) -> AsyncGenerator[Post]:
    """Ask an app that is open, without a server, in this event loop."""
    headers = {"authorization": f"Bearer {KEYS['ada']}"}
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://team", headers=headers) as client:
        yield Post(client)


@asynccontextmanager
async def front(team: kt.Team, **options: Any) -> AsyncGenerator[Post]:
    app = app_of(team, **options)
    async with app.lifespan(), front_of(app) as post:
        yield post


# ---------------------------------------------------------------- the ordinary way


async def test_a_run_is_steps_state_and_one_message_with_its_usage() -> None:
    async with front(talking(tokens=30)) as post:
        events = await post(goal(state={"mine": 1}))
    kinds = [kind(event) for event in events]
    assert kinds[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"]
    assert kinds.index("STEP_STARTED") < kinds.index("STEP_FINISHED") < kinds.index("TEXT_MESSAGE_START")
    assert output(events) == "Twice a day."
    state = state_of(events)
    assert state["mine"] == 1
    assert [task["state"] for task in state["kairo"]["tasks"].values()] == ["done"]
    last = events[-1]
    assert (last.thread_id, last.run_id, last.outcome.type) == ("t1", "r1", "success")
    assert (last.result["output"], last.result["tokens"]) == ("Twice a day.", 30)
    assert [(one.input_tokens, one.output_tokens, one.total_tokens) for one in last.usage] == [(20, 10, 30)]


async def test_what_a_member_writes_is_shown_as_reasoning_and_its_tools_are_calls() -> None:
    def replies(request: kt.ModelRequest) -> kt.ModelResponse:
        if any(message.role == "tool" for message in request.messages):
            return kt.ModelResponse("It is high.", usage=kt.Usage(5, 5))
        call = kt.ToolCall("c1", "look", {})
        return kt.ModelResponse("I look.", tool_calls=[call], usage=kt.Usage(5, 5))

    def look() -> str:
        """Look at the sea."""
        return "high"

    agent = kt.MiniAgent(FunctionModel(replies), stream=True, tools=[look])
    async with front(kt.Team("t", [kt.Member("m", agent)])) as post:
        events = await post(goal())
    thought = "".join(event.delta for event in events if kind(event) == "REASONING_MESSAGE_CONTENT")
    assert thought == "m: I look.m: It is high."
    [start] = [event for event in events if kind(event) == "TOOL_CALL_START"]
    [result] = [event for event in events if kind(event) == "TOOL_CALL_RESULT"]
    assert (start.tool_call_name, result.tool_call_id, result.content) == ("look", start.tool_call_id, "ok")
    assert output(events) == "It is high."


async def test_the_conversation_its_files_and_context_reach_the_members() -> None:
    seen: list[kt.Assignment] = []

    def look(assignment: kt.Assignment) -> kt.AgentOutput:
        seen.append(assignment)
        files = [kt.File(data=b"\x89PNG made", name="tide.png"), kt.File(url="https://example.org/a.pdf")]
        return kt.AgentOutput(kt.Artifact("seen", files=files))

    picture = {"type": "image", "source": {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}}
    drawn = {"type": "image", "source": {"type": "url", "value": "data:image/gif;base64,R0lGODlh"}}
    page = {"type": "document", "source": {"type": "url", "value": "https://example.org/b.pdf"}}
    messages: list[Any] = [
        {"id": "1", "role": "developer", "content": "Be brief."},
        {"id": "2", "role": "user", "content": "What is a tide?"},
        {"id": "3", "role": "reasoning", "content": "draft"},
        {"id": "4", "role": "assistant", "content": "Water."},
        {"id": "5", "role": "assistant", "toolCalls": []},
        {"id": "6", "role": "user", "content": [{"type": "text", "text": "Why?"}, picture, drawn, page]},
    ]
    async with front(kt.Team("t", [kt.Member("m", look)])) as post:
        tools: list[Any] = [{"name": "confetti", "description": "Of the page.", "parameters": {}}]
        context = [{"description": "place", "value": "Oslo"}]
        events = await post(goal(messages=messages, context=context, tools=tools, forwardedProps={"a": 1}))
    [assignment] = seen
    assert assignment.goal == "Why?"
    assert dict(assignment.context) == {
        "conversation": "system: Be brief.\n\nuser: What is a tide?\n\nassistant: Water.",
        "place": "Oslo",
    }
    assert [file.media_type for file in assignment.files] == ["image/png", "image/gif", "application/pdf"]
    assert assignment.files[1].data == b"GIF89a"
    made, linked = events[-1].result["files"]
    assert (made["name"], base64.b64decode(made["data"])) == ("tide.png", b"\x89PNG made")
    assert linked == {"name": "a.pdf", "mimeType": "application/pdf", "url": "https://example.org/a.pdf"}


# ---------------------------------------------------------------- questions


async def test_a_question_interrupts_the_run_and_the_next_one_answers_it() -> None:
    async with front(asking(), plan=LETTER) as post:
        first = await post(goal())
        [asked] = first[-1].outcome.interrupts
        assert (asked.reason, "Dear all" in asked.message) == ("kairo:review", True)
        assert asked.response_schema["properties"]["decision"]["enum"] == ["approve", "revise", "reject"]
        wrong = await post.client.post("/ag-ui", json=resumed(asked.id, {"decision": "perhaps"}))
        assert (wrong.status_code, "revise with feedback" in wrong.text) == (400, True)
        second = await post(resumed(asked.id, {"decision": "revise", "feedback": "warmer"}))
        assert {"letter"} == set(state_of(second)["kairo"]["tasks"])
        [again] = second[-1].outcome.interrupts
        stale = await post.client.post("/ag-ui", json=resumed(asked.id, {"decision": "approve"}))
        assert (stale.status_code, "no longer open" in stale.text) == (409, True)
        last = await post(resumed(again.id, {"decision": "approve"}))
    assert output(last) == "Dear friends"


def resumed(interrupt: str, payload: Any, status: str = "resolved") -> dict[str, Any]:
    return goal(runId="r2", resume=[{"interruptId": interrupt, "status": status, "payload": payload}])


async def test_a_question_that_is_abandoned_is_left_to_the_risk() -> None:
    async with front(asking(), plan=LETTER) as post:
        [asked] = (await post(goal()))[-1].outcome.interrupts
        events = await post(resumed(asked.id, None, "cancelled"))
    assert kind(events[-1]) == "RUN_ERROR" or events[-1].result["status"] == "degraded"


async def test_a_question_is_answered_by_the_key_that_was_asked() -> None:
    async with running(asking(), plan=LETTER) as url, http_client(KEYS["ada"]) as ada, http_client(KEYS["bob"]) as bob:
        [asked] = read((await ada.post(f"{url}/ag-ui", json=goal())).text)[-1].outcome.interrupts
        answer = resumed(asked.id, {"decision": "approve"})
        assert (await bob.post(f"{url}/ag-ui", json=answer)).status_code == 409
        assert output(read((await ada.post(f"{url}/ag-ui", json=answer)).text)) == "Dear all"


# ---------------------------------------------------------------- other ends


async def test_a_run_that_fails_or_halts_is_an_error_with_its_reason() -> None:
    def fail(assignment: kt.Assignment) -> str:
        raise ValueError("the sea is closed")

    async with front(kt.Team("t", [kt.Member("m", fail)])) as post:
        failed = (await post(goal()))[-1]
    assert (failed.code, "the sea is closed" in failed.message) == ("team_failed", True)
    plan = kt.TaskGraph([kt.Task("a", "A."), kt.Task("b", "B.", depends_on=["a"])])
    async with front(talking(), plan=plan, budget=kt.Budget(tokens=1_000, loops=1)) as post:
        halted = (await post(goal()))[-1]
    assert (halted.code, "loop_budget_exceeded" in halted.message) == ("billing_error", True)
    assert halted.metadata["kairo"]["partial_output"] == "Twice a day."
    assert sum(one.total_tokens for one in halted.usage) == 30


async def test_a_run_that_was_cancelled_says_so() -> None:
    waiting = Waiting()
    app = app_of(waiting.team())
    events: list[Any] = []
    async with app.lifespan(), front_of(app) as post, anyio.create_task_group() as tasks:

        async def cancel() -> None:
            await waiting.until_begun()
            [run] = app._served.caller("ada")._runs.values()
            run.cancel("it is enough")

        tasks.start_soon(cancel)
        events += await post(goal())
    assert (events[-1].outcome.type, events[-1].result["status"]) == ("cancelled", "cancelled")


# ---------------------------------------------------------------- clients that leave and come back, and attacks


async def test_a_client_that_leaves_ends_its_run() -> None:
    waiting = Waiting()
    async with running(waiting.team()) as url, http_client(KEYS["ada"]) as ada:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: ada.post(f"{url}/ag-ui", json=goal()))
            await waiting.until_begun()
            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        while not waiting.ends:
            await anyio.sleep(0.01)
    assert waiting.ends == ["cancelled"]


async def test_with_an_idempotency_key_two_requests_follow_one_run(tmp_path: Path) -> None:
    waiting = Waiting()
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    key = {"idempotency-key": "monday"}
    async with front(waiting.team(runtime=kt.Runtime(journal=journal))) as post:
        followed: list[list[Any]] = []

        async def follow() -> None:
            followed.append(await post(goal(), **key))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await waiting.until_begun()
            tasks.start_soon(follow)
            await anyio.sleep(0.05)
            waiting.go.set()
        await follow()
    assert [output(events) for events in followed] == ["waited for Explain tides."] * 3
    assert waiting.began == 1
    journal.close()


ATTACKS: list[tuple[Any, str]] = [
    (b"", "JSON"),
    (b"[" * 100_000, "JSON"),
    (b"\xff", "JSON"),
    ([goal()], "JSON object"),
    ({}, "threadId"),
    (goal(messages="tides"), "messages"),
    (goal(messages=[]), "no message"),
    (goal(messages=[{"id": "1", "role": "king", "content": "x"}]), "messages"),
    (goal(messages=[{"id": "1", "role": "assistant", "content": "x"}]), "the user's"),
    (goal(" "), "the user's"),
    (goal([{"type": "image", "source": {"type": "data", "value": "%", "mimeType": "image/png"}}]), "base64"),
    (goal([{"type": "image", "source": {"type": "url", "value": "file:///etc/passwd"}}]), "http"),
    (goal([{"type": "image", "source": {"type": "file", "value": "file-1"}}]), "provider"),
    (goal(resume="yes"), "resume"),
    (goal(resume=[{"interruptId": "", "status": "resolved"}]), "no longer open"),
    (goal(resume=[{"interruptId": "../x y", "status": "resolved"}]), "no longer open"),
]


async def test_what_is_malformed_is_refused_before_a_run_begins() -> None:
    waiting = Waiting()
    async with front(waiting.team()) as post:
        for body, sentence in ATTACKS:
            given = {"content": body} if isinstance(body, bytes) else {"json": body}
            reply = await post.client.post("/ag-ui", **given)
            assert (reply.status_code in (400, 409), sentence in reply.text) == (True, True), (body, reply.text)
        assert (await post.client.get("/ag-ui")).status_code == 405
        assert (await post.client.post("/ag-ui", content=b"x" * 33_600_000)).status_code == 413
        strange = {"authorization": "Bearer wrong"}
        assert (await post.client.post("/ag-ui", json=goal(), headers=strange)).status_code == 401
    assert waiting.began == 0
