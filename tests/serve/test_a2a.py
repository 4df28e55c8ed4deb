"""A team as an agent of A2A, asked by the SDK's own client over a real server, in 1.0 and 0.3."""

from __future__ import annotations

import base64
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import pytest

pytest.importorskip("mcp", reason="a served team needs the extra serve")
pytest.importorskip("a2a", reason="the client that the tests ask with")

import httpx
from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]  # mypy finds no types

import kairo_team as kt
from kairo_team.serve import asked as asked_module
from kairo_team.serve.people import decision_in_words
from tests.agents.loops import asyncio_alone
from tests.serve.stage import KEYS, LETTER, Waiting, asking, echo, served, talking
from tests.serve.web import running

pytestmark = pytest.mark.real_time
anyio_backend = asyncio_alone  # the SDK's client runs there alone

DONE, WAITS, FAILED = "TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_FAILED"
REFUSALS = (A2AError, A2AClientError)


def as_json(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(message)
    return found


class Asker:
    """The SDK's client with a key, and its answers as JSON."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def events(self, text: str = "tides", message: str = "m1", **more: Any) -> list[dict[str, Any]]:
        """Send a message, and return what comes of it."""
        parts = more.pop("parts", [pb.Part(text=text)])
        sent = pb.Message(message_id=message, role=pb.ROLE_USER, parts=parts, **more)
        return [as_json(one) async for one in self._client.send_message(pb.SendMessageRequest(message=sent))]

    async def send(self, text: str = "tides", message: str = "m1", **more: Any) -> dict[str, Any]:
        """Send a message, and return the task that comes of it at last."""
        events = await self.events(text, message, **more)
        first = events[0]["task"]
        return await self.get(first["id"]) if len(events) > 1 else cast("dict[str, Any]", first)

    async def get(self, task: str) -> dict[str, Any]:
        return as_json(await self._client.get_task(pb.GetTaskRequest(id=task)))

    async def listed(self, **given: Any) -> dict[str, Any]:
        return as_json(await self._client.list_tasks(pb.ListTasksRequest(**given)))

    async def cancel(self, task: str) -> dict[str, Any]:
        return as_json(await self._client.cancel_task(pb.CancelTaskRequest(id=task)))

    async def subscribe(self, task: str) -> list[dict[str, Any]]:
        return [as_json(one) async for one in self._client.subscribe(pb.SubscribeToTaskRequest(id=task))]


def state(task: dict[str, Any]) -> str:
    return str(task["status"]["state"])


def words(task: dict[str, Any]) -> str:
    return str(task["status"]["message"]["parts"][0]["text"])


def output(task: dict[str, Any]) -> str:
    [artifact] = task["artifacts"]
    return str(artifact["parts"][0]["text"])


@asynccontextmanager
async def client_of(url: str, key: str = "ada", spoken: str = "1.0", **config: Any) -> AsyncGenerator[Asker]:
    """Find the agent by its card, and yield a client of it."""
    headers = {"authorization": f"Bearer {KEYS.get(key, key)}"}
    async with httpx.AsyncClient(headers=headers, timeout=60) as web:
        card = await A2ACardResolver(web, url).get_agent_card()
        chosen = [one for one in card.supported_interfaces if one.protocol_version == spoken]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        yield Asker(ClientFactory(ClientConfig(httpx_client=web, **config)).create(card))


@asynccontextmanager
async def agent(team: kt.Team, key: str = "ada", spoken: str = "1.0", **options: Any) -> AsyncGenerator[Asker]:
    streaming = options.pop("streaming", True)
    polling = options.pop("polling", False)
    async with (
        running(team, mcp=False, openai=False, ag_ui=False, **options) as url,
        client_of(url, key, spoken, streaming=streaming, polling=polling) as client,
    ):
        yield client


async def rpc(web: httpx.AsyncClient, url: str, body: Any = None, **options: Any) -> dict[str, Any]:
    """Send a body as it is, and return the response."""
    given = {"json": body} if body is not None else options
    return cast("dict[str, Any]", (await web.post(f"{url}/a2a", **given)).json())


# ---------------------------------------------------------------- the ordinary way


@pytest.mark.parametrize("spoken", ["1.0", "0.3"])
async def test_a_message_is_a_task_with_its_output_and_its_usage(spoken: str) -> None:
    async with agent(talking(tokens=30), spoken=spoken, streaming=False) as ada:
        task = await ada.send("Explain tides.")
        again = await ada.get(task["id"])
    assert (state(task), output(task)) == (DONE, "Twice a day.")
    assert task["metadata"]["kairo"]["tokens"] == 30
    assert task["contextId"]
    assert again == task


@pytest.mark.parametrize("spoken", ["1.0", "0.3"])
async def test_a_stream_is_the_task_what_happens_its_artifact_and_its_end(spoken: str) -> None:
    async with agent(talking(tokens=30), spoken=spoken) as ada:
        first, *lines, artifact, last = await ada.events("Explain tides.")
    assert state(first["task"]) == "TASK_STATE_WORKING"
    said = [words(line["statusUpdate"]) for line in lines]
    assert "school: completed, 30 tokens" in said[-1]
    assert artifact["artifactUpdate"]["artifact"]["parts"][0]["text"] == "Twice a day."
    assert (state(last["statusUpdate"]), last["statusUpdate"]["taskId"]) == (DONE, first["task"]["id"])


@pytest.mark.parametrize("spoken", ["1.0", "0.3"])
async def test_texts_data_and_files_go_in_and_come_out(spoken: str) -> None:
    seen: list[kt.Assignment] = []

    def make(assignment: kt.Assignment) -> kt.AgentOutput:
        seen.append(assignment)
        files = [kt.File(data=b"\x89PNG made", name="tide.png"), kt.File(url="https://example.org/a.pdf")]
        return kt.AgentOutput(kt.Artifact("Done.", data={"height": 3}, files=files))

    parts = [
        pb.Part(text="Draw"),
        pb.Part(text="the tide."),
        pb.Part(raw=b"\x89PNG given", filename="sea.png", media_type="image/png"),
        pb.Part(url="https://example.org/sea.pdf", media_type="application/pdf"),
    ]
    parts.append(pb.Part())
    parts[-1].data.struct_value.update({"where": "Oslo"})
    async with agent(kt.Team("t", [kt.Member("m", make)]), spoken=spoken, streaming=False) as ada:
        task = await ada.send(parts=parts)
    [assignment] = seen
    assert assignment.goal == 'Draw\n\nthe tide.\n\n{"where": "Oslo"}'
    assert [file.name for file in assignment.files] == ["sea.png", "sea.pdf"]
    text, data, picture, page = task["artifacts"][0]["parts"]
    assert (text["text"], data["data"]) == ("Done.", {"height": 3})
    assert (picture["filename"], base64.b64decode(picture["raw"])) == ("tide.png", b"\x89PNG made")
    assert page["url"] == "https://example.org/a.pdf"


async def test_the_tasks_of_a_context_know_what_was_said_before() -> None:
    seen: list[str] = []

    def look(assignment: kt.Assignment) -> str:
        seen.append(str(assignment.context.get("conversation")))
        return f"About {assignment.goal}"

    async with agent(kt.Team("t", [kt.Member("m", look)]), streaming=False) as ada:
        first = await ada.send("tides")
        second = await ada.send("why", "m2", context_id=first["contextId"])
        third = await ada.send("rain", "m3", context_id="own.context-1")
        with pytest.raises(InvalidParamsError, match="not the context of"):
            await ada.send("x", "m4", context_id="own.context-1", task_id=first["id"])
        with pytest.raises(InvalidParamsError, match="contextId has characters"):
            await ada.send("x", "m4", context_id="a/b")
        listed = await ada.listed(context_id=first["contextId"])
    assert seen == ["None", "user: tides\n\nassistant: About tides", "None"]
    assert second["contextId"] == first["contextId"]
    assert third["contextId"] == "own.context-1"
    assert {task["id"] for task in listed["tasks"]} == {first["id"], second["id"]}


async def test_the_tasks_of_a_key_are_listed_page_by_page() -> None:
    async with running(echo()) as url, client_of(url, streaming=False) as ada, client_of(url, "bob") as bob:
        made = [(await ada.send(f"goal {one}", f"m{one}"))["id"] for one in range(3)]
        first = await ada.listed(page_size=2)
        rest = await ada.listed(page_size=2, page_token=first["nextPageToken"], include_artifacts=True)
        done = await ada.listed(status=pb.TASK_STATE_COMPLETED)
        failed = await ada.listed(status=pb.TASK_STATE_FAILED)
        with pytest.raises(InvalidParamsError, match="pageToken"):
            await ada.listed(page_token="gone")
        assert "tasks" not in await bob.listed()
    assert [task["id"] for task in [*first["tasks"], *rest["tasks"]]] == made[::-1]
    assert "artifacts" not in first["tasks"][0]
    assert output(rest["tasks"][0]) == "About goal 0"
    assert (len(done["tasks"]), done["totalSize"], failed.get("totalSize", 0)) == (3, 3, 0)


async def test_tasks_are_listed_from_a_time_on_however_the_time_is_written() -> None:
    headers = {"authorization": f"Bearer {KEYS['ada']}"}
    async with running(echo()) as url, client_of(url, streaming=False) as ada:
        at = datetime.fromisoformat((await ada.send())["status"]["timestamp"])
        second, there = at.replace(microsecond=0), timezone(timedelta(hours=2))
        written = {
            at.isoformat(): 1,
            f"{second:%Y-%m-%dT%H:%M:%SZ}": 1,
            second.astimezone(there).isoformat(): 1,
            f"{second + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}": 0,
        }
        async with httpx.AsyncClient(headers=headers, timeout=60) as web:
            for text, number in written.items():
                asked = {**SEND, "method": "ListTasks", "params": {"statusTimestampAfter": text}}
                assert (await rpc(web, url, asked))["result"]["totalSize"] == number, text


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("answer", "end", "text"),
    [
        ("approve", DONE, "Dear all"),
        ("Make it warmer.", WAITS, None),
        ("reject: it is too late", FAILED, None),
    ],
)
async def test_a_question_waits_for_the_next_message_of_the_task(answer: str, end: str, text: str | None) -> None:
    async with agent(asking(), plan=LETTER) as ada:
        events = await ada.events("Write.")
        task = events[0]["task"]["id"]
        assert state(events[-1]["statusUpdate"]) == WAITS
        assert "a person must see it" in words(events[-1]["statusUpdate"])
        assert "Dear all" in words(await ada.get(task))
        with pytest.raises(InvalidParamsError, match="the answer is blank"):
            await ada.send(" ", "m2", task_id=task)
        done = await ada.send(answer, "m3", task_id=task)
        assert state(done) == end
        if end == WAITS:
            assert "Dear friends" in words(done)
            approval = pb.Part()
            approval.data.struct_value.update({"decision": "approve"})
            done = await ada.send(message="m4", task_id=task, parts=[approval])
        elif end == FAILED:
            assert "it is too late" in words(done)
            return
        assert output(done) == (text or "Dear friends")


def test_nothing_but_the_word_approves() -> None:
    approved = [text for text in ("approve", " Approve. ", "APPROVE!") if decision_in_words(text)]
    assert all(decision_in_words(text) == kt.HumanDecision.approve() for text in approved)
    for text in ("approve nothing", "approved?", "yes", "ok", "do not approve", "I approve"):
        assert decision_in_words(text) == kt.HumanDecision.revise(text)
    assert decision_in_words("Reject - no money") == kt.HumanDecision.reject("no money")
    assert decision_in_words("reject") == kt.HumanDecision.reject()
    assert decision_in_words("revise: say why") == kt.HumanDecision.revise("say why")
    assert decision_in_words("rejection is final") == kt.HumanDecision.revise("rejection is final")
    assert decision_in_words(" \n") is decision_in_words("revise:") is None


async def test_a_gate_of_the_team_is_asked_and_the_client_is_not() -> None:
    async with agent(asking(runtime=kt.Runtime(gate=kt.DeferGate())), plan=LETTER, streaming=False) as ada:
        task = await ada.send("Write.")
        assert (state(task), "waits for a person" in words(task)) == (WAITS, True)
        with pytest.raises(UnsupportedOperationError, match="asks you nothing"):
            await ada.send("approve", "m2", task_id=task["id"])


async def test_a_question_that_is_not_answered_in_time_stays_open_in_the_journal(
    tmp_path: Path,
) -> None:
    """The session ends, the question does not: the answer is the next message, in another server too."""
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    rules = served(asking(runtime=kt.Runtime(journal=journal)), plan=LETTER, question_seconds=0.05)
    async with rules.open():
        ada = rules.caller("ada")
        run = await ada.begin_staying(ada.run_id("x"), "Write.", [], dict)
        while not run.ended:
            await run.news()
        assert run.waits
        bob = rules.caller("bob")
        assert await bob.find_run(run.request.run_id) is None
    again = served(asking(runtime=kt.Runtime(journal=journal)), plan=LETTER)
    async with again.open():
        ada = again.caller("ada")
        found = await ada.find_run(run.request.run_id)
        assert found is not None
        assert found.question is not None
        run = await ada.answer(found, kt.HumanDecision.approve())
        while not run.ended:
            await run.news()
        assert run.result is not None
        assert run.result.output == "Dear all"
    journal.close()


# ---------------------------------------------------------------- ends that are not completed


async def test_a_task_says_why_it_failed_or_was_refused() -> None:
    def fail(assignment: kt.Assignment) -> str:
        raise ValueError("the sea is closed")

    async with agent(kt.Team("t", [kt.Member("m", fail)]), streaming=False) as ada:
        failed = await ada.send()
    assert (state(failed), "the sea is closed" in words(failed)) == (FAILED, True)
    plan = kt.TaskGraph([kt.Task("a", "A."), kt.Task("b", "B.", depends_on=["a"])])
    async with agent(talking(), plan=plan, budget=kt.Budget(tokens=1_000, loops=1), streaming=False) as ada:
        halted = await ada.send()
    assert (state(halted), "loop_budget_exceeded" in words(halted)) == (FAILED, True)
    assert (halted["artifacts"][0]["name"], output(halted)) == ("partial result", "Twice a day.")
    limits: dict[str, Any] = {"budget": kt.Budget(tokens=500), "key_budget": kt.Budget(tokens=900)}
    async with agent(talking(tokens=400), streaming=False, **limits) as ada:
        assert state(await ada.send()) == DONE
        assert state(await ada.send(message="m2")) == DONE
        refused = await ada.send(message="m3")
        assert (state(refused), "key 'ada'" in words(refused)) == ("TASK_STATE_REJECTED", True)
        assert await ada.send(message="m3") == refused


@pytest.mark.parametrize("spoken", ["1.0", "0.3"])
async def test_a_task_is_cancelled_in_the_middle_and_never_twice(spoken: str) -> None:
    waiting = Waiting()
    async with (
        running(waiting.team()) as url,
        client_of(url, spoken=spoken, streaming=False, polling=True) as ada,
        client_of(url, spoken=spoken) as reader,
    ):
        task = await ada.send()
        assert state(task) == "TASK_STATE_WORKING"
        await waiting.until_begun()
        cancelled = await ada.cancel(task["id"])
        assert (state(cancelled), waiting.ends) == ("TASK_STATE_CANCELED", ["cancelled"])
        with pytest.raises(TaskNotCancelableError, match="canceled"):
            await ada.cancel(task["id"])
        with pytest.raises(UnsupportedOperationError):
            await reader.subscribe(task["id"])


# ---------------------------------------------------------------- clients that leave, ask twice and come back


async def test_a_task_goes_on_when_its_client_leaves_and_can_be_followed_again() -> None:
    waiting = Waiting()
    async with running(waiting.team()) as url, client_of(url) as ada:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ada.events)
            await waiting.until_begun()
            tasks.cancel_scope.cancel()
        [task] = (await ada.listed())["tasks"]
        events: list[list[dict[str, Any]]] = []

        async def follow() -> None:
            events.append(await ada.subscribe(task["id"]))

        async def ask_again() -> None:
            events.append(await ada.events())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            tasks.start_soon(ask_again)
            await anyio.sleep(0.1)
            waiting.go.set()
    assert (waiting.began, waiting.ends) == (1, ["done"])
    for first, *_, artifact, last in events:
        assert first["task"]["id"] == task["id"]
        assert artifact["artifactUpdate"]["artifact"]["parts"][0]["text"] == "waited for tides"
        assert state(last["statusUpdate"]) == DONE


async def test_a_message_that_is_sent_twice_is_one_task_in_the_next_server_too(tmp_path: Path) -> None:
    calls: list[str] = []

    def note(assignment: kt.Assignment) -> str:
        calls.append(assignment.goal)
        return "said"

    journal = kt.SqliteJournal(tmp_path / "runs.db")
    team = kt.Team("t", [kt.Member("m", note)], runtime=kt.Runtime(journal=journal))
    tasks: list[str] = []
    for _ in range(2):
        async with running(team) as url, client_of(url, streaming=False) as ada, client_of(url, "bob") as bob:
            tasks += [(await ada.send())["id"], (await ada.send())["id"]]
            assert output(await ada.get(tasks[0])) == "said"
            with pytest.raises(TaskNotFoundError):
                await bob.get(tasks[0])
            with pytest.raises(InvalidParamsError, match="messageId was used before"):
                await ada.send("rain")
    assert (len(set(tasks)), calls) == (1, ["tides"])
    journal.close()


async def test_a_task_whose_server_was_stopped_goes_on_when_it_is_asked_for(tmp_path: Path) -> None:
    waiting = Waiting()
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    team = waiting.team(runtime=kt.Runtime(journal=journal))
    async with running(team) as url, client_of(url, streaming=False, polling=True) as ada:
        task = (await ada.send(context_id="own"))["id"]
        await waiting.until_begun()
    waiting.go.set()
    async with running(team) as url, client_of(url, streaming=False) as ada:
        while state(found := await ada.get(task)) != DONE:
            await anyio.sleep(0.01)
    assert (output(found), found["contextId"]) == ("waited for tides", "own")
    journal.close()


async def test_a_question_is_answered_in_the_next_server(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    team = asking(runtime=kt.Runtime(journal=journal))
    async with running(team, plan=LETTER) as url, client_of(url) as ada:
        task = (await ada.send("Write."))["id"]
    async with running(team, plan=LETTER) as url, client_of(url) as ada:
        assert output(await ada.send("approve", "m2", task_id=task)) == "Dear all"
    journal.close()


async def test_only_so_many_ended_tasks_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_module, "MOST_KEPT", 2)
    async with agent(echo(), streaming=False) as ada:
        made = [(await ada.send(message=f"m{one}"))["id"] for one in range(3)]
        assert [task["id"] for task in (await ada.listed())["tasks"]] == made[:0:-1]
        with pytest.raises(TaskNotFoundError):
            await ada.get(made[0])
        monkeypatch.setattr(asked_module, "MOST_KEPT_BYTES", 10)
        file = pb.Part(raw=b"x" * 20, filename="a.txt", media_type="text/plain")
        last = (await ada.send(message="m4", parts=[pb.Part(text="go"), file]))["id"]
        assert [task["id"] for task in (await ada.listed())["tasks"]] == [last]


# ---------------------------------------------------------------- attacks


async def test_other_peoples_tasks_are_not_found() -> None:
    async with (
        running(asking(), plan=LETTER) as url,
        client_of(url, streaming=False) as ada,
        client_of(url, "bob") as bob,
    ):
        task = (await ada.send("Write."))["id"]
        for attempt in (bob.get(task), bob.cancel(task), bob.subscribe(task), bob.send("approve", "m2", task_id=task)):
            with pytest.raises(TaskNotFoundError, match="of yours"):
                await attempt
        theirs = await bob.send("Write.")
        assert theirs["id"] != task
        assert state(await ada.get(task)) == WAITS


async def test_a_wrong_key_gets_neither_the_card_nor_a_task() -> None:
    async with running(echo()) as url, httpx.AsyncClient(headers={"authorization": "Bearer wrong"}) as web:
        assert (await web.get(f"{url}/.well-known/agent-card.json")).status_code == 401
        assert (await web.post(f"{url}/a2a", json={})).status_code == 401


SEND = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage"}


def message(**more: Any) -> dict[str, Any]:
    given = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "tides"}], **more}
    return {**SEND, "params": {"message": given}}


ATTACKS: list[tuple[Any, int, str]] = [
    (b"", -32700, "JSON"),
    (b"{", -32700, "JSON"),
    (b"[" * 100_000, -32700, "JSON"),
    (b'{"id": NaN}', -32700, "JSON"),
    (b"\xff", -32700, "JSON"),
    ([message()], -32700, "JSON object"),
    ({**SEND, "jsonrpc": "1.0"}, -32600, "jsonrpc"),
    ({**message(), "id": None}, -32600, "an id"),
    ({**message(), "id": True}, -32600, "an id"),
    ({**message(), "id": {}}, -32600, "an id"),
    ({**SEND, "method": "DropTables"}, -32601, "no method 'DropTables'"),
    ({**SEND, "method": ["SendMessage"]}, -32601, "no method"),
    ({**SEND, "params": []}, -32602, "params"),
    ({**SEND, "params": {}}, -32602, "message"),
    (message(messageId=""), -32602, "messageId"),
    (message(messageId=7), -32602, "messageId"),
    (message(messageId="x" * 300), -32602, "messageId"),
    (message(parts="tides"), -32602, "parts"),
    (message(parts=[]), -32602, "no text"),
    (message(parts=[{"text": " "}]), -32602, "no text"),
    (message(parts=[{"text": 7}]), -32602, "text"),
    (message(parts=[{"video": "x"}]), -32602, "none of text, raw, url and data"),
    (message(parts=[{"text": "x"}, {"raw": "%%%"}]), -32602, "base64"),
    (message(parts=[{"text": "x"}, {"url": "file:///etc/passwd"}]), -32602, "http"),
    (message(contextId=["x"]), -32602, "contextId"),
    (message(taskId="../../etc/passwd"), -32001, "no task"),
    (message(taskId={"$ne": ""}), -32602, "taskId"),
    ({**SEND, "method": "GetTask", "params": {"id": ""}}, -32001, "no task"),
    ({**SEND, "method": "ListTasks", "params": {"pageSize": 10**9}}, -32602, "pageSize"),
    ({**SEND, "method": "ListTasks", "params": {"pageSize": "all"}}, -32602, "pageSize"),
    ({**SEND, "method": "ListTasks", "params": {"statusTimestampAfter": "yesterday"}}, -32602, "statusTimestampAfter"),
    ({**SEND, "method": "ListTasks", "params": {"statusTimestampAfter": "2026-12-01T12:00:00"}}, -32602, "offset"),
    ({**SEND, "method": "CreateTaskPushNotificationConfig"}, -32003, "push"),
    ({**SEND, "method": "tasks/pushNotificationConfig/set"}, -32003, "push"),
    ({**SEND, "method": "GetExtendedAgentCard"}, -32004, "card"),
    ({**SEND, "method": "message/send", "params": {"message": {"parts": [{"kind": "file"}]}}}, -32602, "file"),
]


async def test_what_is_malformed_is_an_error_of_json_rpc_and_begins_nothing() -> None:
    waiting = Waiting()
    headers = {"authorization": f"Bearer {KEYS['ada']}"}
    async with running(waiting.team()) as url, httpx.AsyncClient(headers=headers, timeout=60) as web:
        for body, code, sentence in ATTACKS:
            given = {"content": body} if isinstance(body, bytes) else {"json": body}
            reply = await rpc(web, url, **given)
            error = reply["error"]
            assert (error["code"], sentence in error["message"]) == (code, True), (body, reply)
            if code > -32600 and isinstance(body, dict):
                assert reply["id"] == 7
        versions = [(await web.post(f"{url}/a2a", json=SEND, headers={"a2a-version": "2.0"})).json()]
        assert versions[0]["error"]["code"] == -32009
        assert (await web.get(f"{url}/a2a")).status_code == 405
        assert (await rpc(web, url, {**SEND, "method": "ListTasks", "params": {}}))["result"]["tasks"] == []
    assert waiting.began == 0


async def test_a_key_has_only_so_many_tasks_at_work() -> None:
    waiting = Waiting()
    async with agent(waiting.team(), most_runs=1, streaming=False, polling=True) as ada:
        await ada.send()
        with pytest.raises(REFUSALS, match="too many of your runs"):
            await ada.send(message="m2")
        waiting.go.set()


async def test_a_reader_that_stops_reading_is_left_and_its_task_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is larger than all buffers on the way, so that the server waits for its reader."""
    big = "x" * 6_000_000
    team = kt.Team("t", [kt.Member("m", lambda assignment: big)])
    body = httpx.Request("POST", "http://x", json={**message(), "method": "SendStreamingMessage"}).content
    monkeypatch.setitem(limits_of_the_guard(), "send_seconds", 0.2)
    async with running(team, budget=kt.Budget(tokens=1_000)) as url, client_of(url, streaming=False) as ada:
        port = int(urlsplit(url).port or 0)
        head = (
            f"POST /a2a HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEYS['ada']}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.settimeout(30)
            stuck.connect(("127.0.0.1", port))
            stuck.sendall(head.encode() + body)
            while not (tasks := (await ada.listed()).get("tasks")) or state(tasks[0]) != DONE:
                await anyio.sleep(0.02)
            await anyio.sleep(0.5)
            received = await anyio.to_thread.run_sync(read_all, stuck)
        assert len(received) < len(big), "the connection was closed before the end"
        assert len(output(await ada.get(tasks[0]["id"]))) == len(big)


def limits_of_the_guard() -> dict[str, Any]:
    from kairo_team.serve.guard import Guard

    return cast("dict[str, Any]", Guard.__init__.__kwdefaults__)


def read_all(connection: socket.socket) -> bytes:
    parts: list[bytes] = []
    try:
        while part := connection.recv(1_000_000):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)
