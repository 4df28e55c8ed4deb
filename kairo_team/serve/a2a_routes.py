"""A2A (Agent2Agent) 1.0 and 0.3 over JSON-RPC: a task is a run, and its output is an artifact.

The SDK's own server is not used: it would bring tasks, queues and stores of its own, for asyncio alone, and 40 MB
of dependencies. Its client asks in the tests.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kairo_team._util.narrowing import is_list
from kairo_team._util.version import version_of_library
from kairo_team.errors import HaltError, InsufficientBudget, KairoError
from kairo_team.models.address.parts import Refused, a_text, an_object, event, file_from_base64, objects, parsed
from kairo_team.results import TeamStatus
from kairo_team.serve.asked import CANCELLED, OtherRequest, TooMany
from kairo_team.serve.ends import STOPPED, described, why
from kairo_team.serve.guard import CALLER
from kairo_team.serve.people import decision_in_words, decision_of, question_text
from kairo_team.serve.posts import EventStream, Post, conversation, json_reply
from kairo_team.tasks import is_id

if TYPE_CHECKING:
    from starlette.types import Send

    from kairo_team.files import File
    from kairo_team.human import HumanDecision
    from kairo_team.models.address.parts import Json
    from kairo_team.serve.asked import AskedRun, Caller, Served
    from kairo_team.serve.posts import Reply

    Answer: TypeAlias = "Json | TaskStream"

CARD: Final = "/.well-known/agent-card.json"
PATH: Final = "/a2a"
_LONGEST_ID: Final = 255
_RESUME_SECONDS: Final = 10.0
"""Seconds in which a run that was resumed has to ask its question again."""
_MOST_LISTED: Final = 100
_USUALLY_LISTED: Final = 50
_MODES: Final = ("text/plain", "application/json", "application/octet-stream")
_ENDED: Final = {
    TeamStatus.COMPLETED: "COMPLETED",
    TeamStatus.DEGRADED: "COMPLETED",
    TeamStatus.SUSPENDED: "INPUT_REQUIRED",
    TeamStatus.CANCELLED: "CANCELED",
}
"""States by a run's end; FAILED for others."""
_OPEN: Final = ("WORKING", "INPUT_REQUIRED")
_ERROR_INFO: Final = "type.googleapis.com/google.rpc.ErrorInfo"
_VERSION: Final = re.compile(r"(1\.\d+|0\.3)(\.\d+)?")

_logger = logging.getLogger("kairo_team")


class _Fault(Exception):
    """An error of JSON-RPC."""

    def __init__(self, code: int, reason: str, sentence: str) -> None:
        self.code = code
        self.reason = reason
        self.sentence = sentence
        super().__init__(sentence)


def _invalid(sentence: str) -> _Fault:
    return _Fault(-32602, "INVALID_PARAMS", sentence)


def _unsupported(sentence: str) -> _Fault:
    return _Fault(-32004, "UNSUPPORTED_OPERATION", sentence)


def a2a_routes(served: Served, description: str) -> list[Route]:
    """Return the routes of the agent's card and of its methods."""
    agent = A2a(served)

    async def card(request: Request) -> Response:
        url = f"{str(request.base_url).rstrip('/')}{PATH}"
        return json_reply(card_of(served.rules.team.name, description, url))

    return [Route(CARD, card), Route(PATH, Post(agent.begin))]


def card_of(team: str, description: str, url: str) -> Json:
    """Return the agent's card, with the fields of 1.0 and of 0.3."""
    skill = {"id": "work", "name": team, "description": description, "tags": ["team"]}
    interface = {"url": url, "protocolBinding": "JSONRPC"}
    return {
        "name": team,
        "description": description,
        "version": version_of_library(),
        "supportedInterfaces": [{**interface, "protocolVersion": one} for one in ("1.0", "0.3")],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": _MODES,
        "defaultOutputModes": _MODES,
        "skills": [skill],
        # Both forms in one: clients of each version ignore the fields of the other.
        "securitySchemes": {
            "key": {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "type": "http", "scheme": "bearer"},
        },
        "securityRequirements": [{"schemes": {"key": {"list": []}}}],
        "url": url,
        "preferredTransport": "JSONRPC",  # from here on, the fields of 0.3
        "protocolVersion": "0.3.0",
        "security": [{"key": []}],
    }


# ---------------------------------------------------------------- requests


class A2a:
    """The methods of the agent. A task continues without its client, and ends by itself or when it is cancelled."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._methods: dict[str, Callable[[Call], Awaitable[Answer]]] = {
            "SendMessage": self._send,
            "SendStreamingMessage": self._stream,
            "GetTask": self._get,
            "ListTasks": self._list,
            "CancelTask": self._cancel,
            "SubscribeToTask": self._subscribe,
        }

    async def begin(self, request: Request, body: bytes) -> Reply:
        """Read a request of JSON-RPC, and return what sends its result."""
        call_id: str | int | None = None  # an error before the id is read answers with null, as JSON-RPC says
        try:
            given = _json(body)
            named = given.get("id")
            if isinstance(named, str | int) and not isinstance(named, bool):  # `bool` is a subclass of `int`
                call_id = named
            call = self._read(request, given, call_id)
            answer = await self._methods[call.method](call)
            return answer.send if isinstance(answer, TaskStream) else _response_sender(call.envelope(answer))
        except _Fault as error:
            fault = error
        except TooMany:
            fault = _Fault(-32000, "TOO_MANY_RUNS", "too many of your runs are under way: wait until one ends")
        except OtherRequest:
            fault = _invalid("this messageId was used before, for another message: take a new one")
        except KairoError as error:
            fault = _unsupported(str(error))
        except (Refused, ValueError) as error:
            fault = _invalid(str(error))
        except Exception as error:
            _logger.exception("a request to the served team failed")
            fault = _Fault(-32603, "INTERNAL_ERROR", f"{type(error).__name__}: {error}")
        about = {"@type": _ERROR_INFO, "reason": fault.reason, "domain": "a2a-protocol.org"}
        told = {"code": fault.code, "message": fault.sentence, "data": [about]}
        return _response_sender({"jsonrpc": "2.0", "id": call_id, "error": told})

    def _read(self, request: Request, given: Json, call_id: str | int | None) -> Call:
        if given.get("jsonrpc") != "2.0" or call_id is None:
            raise _Fault(-32600, "INVALID_REQUEST", 'a request has "jsonrpc": "2.0", and an id, a text or whole number')
        wanted = request.headers.get("a2a-version", "").strip()
        if wanted and not _VERSION.fullmatch(wanted):
            raise _Fault(-32009, "VERSION_NOT_SUPPORTED", f"A2A 1.0 and 0.3 are spoken here, not {wanted!r:.80}")
        named = given.get("method")
        name = _OLD_METHODS.get(named, named) if isinstance(named, str) else None
        if name in _PUSH:  # known methods get the error that the protocol names for them
            sentence = "this agent sends no push notifications: stream the task, or ask for it"
            raise _Fault(-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", sentence)
        if name == "GetExtendedAgentCard":
            raise _unsupported("this agent has one card, which is the public one")
        if name not in self._methods:
            raise _Fault(-32601, "METHOD_NOT_FOUND", f"there is no method {named!r:.80} here, only {_SPOKEN}")
        params = an_object(given.get("params", {}), "params")
        return Call(call_id, str(name), params, self._served.caller(request.scope[CALLER]), old=named in _OLD_METHODS)

    # ------------------------------------------------------------------ methods

    async def _send(self, call: Call) -> Json:
        run = await self._message(call)
        settings = an_object(call.params.get("configuration") or {}, "configuration")
        if not settings.get("returnImmediately") and settings.get("blocking") is not False:
            while state_of(run) == "WORKING":
                await run.news()
        return {"task": task_of(run)}

    async def _stream(self, call: Call) -> TaskStream:
        return TaskStream(call, await self._message(call))

    async def _get(self, call: Call) -> Json:
        return task_of(await self._task(call))

    async def _cancel(self, call: Call) -> Json:
        run = await self._task(call)
        if state_of(run) not in _OPEN:
            sentence = f"the task has ended already: {state_of(run).lower()}"
            raise _Fault(-32002, "TASK_NOT_CANCELABLE", sentence)
        await call.caller.cancel(run, CANCELLED)
        return task_of(run)

    async def _subscribe(self, call: Call) -> TaskStream:
        run = await self._task(call)
        if state_of(run) not in _OPEN:
            raise _unsupported(f"the task has ended, {state_of(run).lower()}: GetTask returns it")
        return TaskStream(call, run)

    async def _list(self, call: Call) -> Json:
        given = call.params
        size = given.get("pageSize") or _USUALLY_LISTED
        if not isinstance(size, int) or not 1 <= size <= _MOST_LISTED:
            raise _invalid(f"pageSize is from 1 to {_MOST_LISTED}, not {size!r:.80}")
        runs = call.caller.staying()
        if after := given.get("statusTimestampAfter"):
            since = _moment(a_text(after, "statusTimestampAfter"))
            runs = [run for run in runs if run.changed >= since]
        tasks = [task_of(run) for run in runs]
        if context := given.get("contextId"):
            tasks = [task for task in tasks if task["contextId"] == context]
        if (state := given.get("status")) not in (None, "TASK_STATE_UNSPECIFIED"):
            tasks = [task for task in tasks if task["status"]["state"] == state]
        total = len(tasks)
        if token := given.get("pageToken"):
            # The token is the last task of the page before: a number would shift when new tasks come in front.
            places = [at for at, task in enumerate(tasks) if task["id"] == token]
            if not places:
                raise _invalid("this pageToken is not of this list any more: begin with its first page")
            tasks = tasks[places[0] + 1 :]
        page = tasks[:size]
        if not given.get("includeArtifacts"):
            page = [{name: value for name, value in task.items() if name != "artifacts"} for task in page]
        more = page[-1]["id"] if len(tasks) > size else ""
        return {"tasks": page, "nextPageToken": more, "pageSize": len(page), "totalSize": total}

    # ------------------------------------------------------------------ tasks

    async def _task(self, call: Call) -> AskedRun:
        """Return the task that is named; one of another key is not found."""
        return await self._named(call, call.params.get("id"), "id")

    async def _named(self, call: Call, given: Any, where: str) -> AskedRun:
        run = await call.caller.find_run(a_text(given, where))
        if run is None:
            sentence = f"there is no task {given!r:.80} of yours here"
            raise _Fault(-32001, "TASK_NOT_FOUND", sentence)
        return run

    async def _message(self, call: Call) -> AskedRun:
        """Begin a task with a message, or answer the question of a task."""
        given = an_object(call.params.get("message"), "message")
        if call.old:
            given = {**given, "parts": [_new_part(part) for part in objects(given.get("parts"), "message.parts")]}
        message = a_text(given.get("messageId"), "message.messageId")
        if not message.strip() or len(message) > _LONGEST_ID:
            raise _invalid(f"message.messageId has 1 to {_LONGEST_ID} characters")
        text, data, files = _parts(given)
        context = a_text(given.get("contextId") or "", "message.contextId")
        if given.get("taskId"):
            run = await self._named(call, given["taskId"], "message.taskId")
            if context and context != context_of(run):
                raise _invalid("message.contextId is not the context of message.taskId")
            return await self._answered(call.caller, run, text, data)
        if context and (len(context) > _LONGEST_ID or not is_id(context)):
            raise _invalid(f"a contextId has characters of A-Z, a-z, 0-9, _, . and -, not {context!r:.80}")
        goal = "\n\n".join([text, *(json.dumps(one) for one in data)]).strip()
        if not goal:
            raise _invalid("the message has no text: its text is the goal of the team's run")
        # The context is part of the id, so it survives a restart without a store of its own.
        run_id = call.caller.run_id(f"a2a\0{context}\0{message}") + (f".{context}" if context else "")
        before = call.caller.staying
        return await call.caller.begin_staying(run_id, goal, files, lambda: _said_in(context, before()))

    async def _answered(self, caller: Caller, run: AskedRun, text: str, data: list[Any]) -> AskedRun:
        if run.resumed:  # its question was open when its server was stopped, and is asked again
            with anyio.move_on_after(_RESUME_SECONDS):
                while state_of(run) == "WORKING":
                    await run.news()
        if run.question is None:
            about = why(run.result) if run.waits and run.result is not None else f"it is {state_of(run).lower()}"
            raise _unsupported(f"the task asks you nothing: {about}. A message without taskId begins a new task")
        decision: HumanDecision | None = None
        for one in data:
            decision = decision or decision_of(an_object(one, "the data of an answer"))
        decision = decision or decision_in_words(text)
        if decision is None:
            raise _invalid("the answer is blank: write approve, reject, or what to change")
        return await caller.answer(run, decision)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of JSON-RPC."""

    id: str | int
    method: str
    params: Json
    caller: Caller
    old: bool
    """Whether it is a request of A2A 0.3."""

    def envelope(self, result: Json) -> Json:
        """Return the response with a result."""
        return {"jsonrpc": "2.0", "id": self.id, "result": _old_result(result) if self.old else result}


class TaskStream:
    """The events of a task: the task first, then what happens, until it ends or asks its client."""

    def __init__(self, call: Call, run: AskedRun) -> None:
        self._call = call
        self._run = run

    async def send(self, send: Send) -> None:
        """Send them as they come."""
        stream, run = EventStream(send), self._run
        await stream.begin()
        # Read before the first await: lines that come while the task is sent must follow as updates.
        told, ended = len(run.lines), run.ended
        await stream.give(self._event({"task": task_of(run)}))
        while state_of(run) == "WORKING" or told < len(run.lines):
            if told < len(run.lines):
                told += 1
                line = _agent_message(run, f"line-{told}", run.lines[told - 1])
                status = {"state": "TASK_STATE_WORKING", "timestamp": _changed_at(run), "message": line}
                await stream.give(self._event({"statusUpdate": {**self._names(), "status": status}}))
            else:
                await stream.news(run)
        names = self._names()
        artifacts = [] if ended else artifacts_of(run)
        last = [{"artifactUpdate": {**names, "artifact": one, "lastChunk": True}} for one in artifacts]
        last.append({"statusUpdate": {**names, "status": status_of(run)}})
        await stream.give("".join(map(self._event, last)), more=False)

    def _event(self, result: Json) -> str:
        return event(self._call.envelope(result))

    def _names(self) -> Json:
        return {"taskId": self._run.request.run_id, "contextId": context_of(self._run)}


def _json(body: bytes) -> Json:
    try:
        return parsed(body)
    except Refused as refused:
        raise _Fault(-32700, "PARSE_ERROR", refused.sentence) from None


def _response_sender(envelope: Json) -> Reply:
    """Return what sends a response."""
    response = json_reply(envelope)

    async def send_it(send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body})

    return send_it


def _parts(message: Json) -> tuple[str, list[Any], list[File]]:
    """Return the texts of a message joined, its data, and its files."""
    texts: list[str] = []
    data: list[Any] = []
    files: list[File] = []
    for at, part in enumerate(objects(message.get("parts"), "message.parts")):
        where = f"message.parts[{at}]"
        kind, name = part.get("mediaType") or None, part.get("filename") or None
        if "text" in part:
            texts.append(a_text(part["text"], f"{where}.text"))
        elif "raw" in part:
            files.append(file_from_base64(part["raw"], kind, name))
        elif "url" in part:
            files.append(_file_at(a_text(part["url"], f"{where}.url"), kind, name))
        elif "data" in part:
            data.append(part["data"])
        else:
            raise _invalid(f"{where} has none of text, raw, url and data")
    return "\n\n".join(texts), data, files


def _file_at(url: str, kind: str | None, name: str | None) -> File:
    from kairo_team.files import File

    try:
        return File(url=url, media_type=kind, name=name)
    except ValueError as error:
        raise _invalid(f"a file cannot be taken: {error}") from None


# ---------------------------------------------------------------- tasks


def context_of(run: AskedRun) -> str:
    """Return the context of a task: the client's, which is in the task's id, else one of its own."""
    return run.request.run_id.partition(".")[2] or run.request.run_id


def _said_in(context: str, runs: Iterable[AskedRun]) -> dict[str, Any]:
    """Return what was said before in a context, as far as its tasks are known."""
    if not context:
        return {}
    ended = [run for run in runs if run.result is not None and context in (context_of(run), run.request.run_id)]
    return conversation(
        line
        for run in reversed(ended)
        for line in (f"user: {run.request.goal}", f"assistant: {run.result.output if run.result else None}")
    )


def state_of(run: AskedRun) -> str:
    """Return the state of a task, without `TASK_STATE_`."""
    if run.question is not None:
        return "INPUT_REQUIRED"
    if not run.ended:
        return "WORKING"
    result = run.result
    # A run that completed before it could be cancelled has completed.
    if run.cancelled is not None and (result is None or run.waits):
        return "CANCELED"
    if run.is_short or isinstance(run.error, InsufficientBudget | HaltError) or (result is not None and result.refused):
        return "REJECTED"
    return "FAILED" if result is None else _ENDED.get(result.status, "FAILED")


def status_of(run: AskedRun) -> Json:
    """Return the status of a task, with a sentence about it."""
    status: Json = {"state": f"TASK_STATE_{state_of(run)}", "timestamp": _changed_at(run)}
    if words := _words(run):
        status["message"] = _agent_message(run, "status", words)
    return status


def _words(run: AskedRun) -> str:
    """Return a question, the latest line, or why the run did not complete."""
    if run.question is not None:
        return f"{question_text(run.question)}\n\nAnswer with approve, reject, or what to change."
    if not run.ended:
        return run.lines[-1] if run.lines else ""
    if run.result is None:
        return str(run.error or run.cancelled or STOPPED)
    return "" if run.result.status is TeamStatus.COMPLETED else why(run.result)


def task_of(run: AskedRun) -> Json:
    """Return a task."""
    about = {} if run.result is None else described(run.result)
    spent = {name: about[name] for name in ("status", "tokens", "dollars") if name in about}
    return {
        "id": run.request.run_id,
        "contextId": context_of(run),
        "status": status_of(run),
        "artifacts": artifacts_of(run),
        **({"metadata": {"kairo": spent}} if spent else {}),
    }


def artifacts_of(run: AskedRun) -> list[Json]:
    """Return the output of an ended run as an artifact, or else its partial output."""
    result = run.result
    made = None if result is None else result.artifact or result.partial_artifact
    if result is None or made is None:
        return []
    data = described(result).get("data")
    parts: list[Json] = [{"text": made.text, "mediaType": made.media_type}] if made.text else []
    parts += [] if data is None else [{"data": data, "mediaType": "application/json"}]
    for file in made.files:
        about = {"filename": file.name, "mediaType": file.media_type}
        if file.url is not None:
            parts.append({"url": file.url, **about})
        elif file.data is not None:
            parts.append({"raw": base64.b64encode(file.data).decode(), **about})
    name = "partial result" if result.artifact is None else "result"
    return [{"artifactId": "result", "name": name, "parts": parts}] if parts else []


def _moment(text: str) -> datetime:
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment
    raise _invalid(f"statusTimestampAfter is a time with its offset, as in 2026-12-01T12:00:00Z, not {text!r:.80}")


def _changed_at(run: AskedRun) -> str:
    return run.changed.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _agent_message(run: AskedRun, name: str, text: str) -> Json:
    task = run.request.run_id
    return {
        "messageId": f"{task}-{name}",
        "taskId": task,
        "contextId": context_of(run),
        "role": "ROLE_AGENT",
        "parts": [{"text": text}],
    }


# ---------------------------------------------------------------- A2A 0.3

_OLD_METHODS: Final[Mapping[Any, str]] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
    **{f"tasks/pushNotificationConfig/{one}": "Push" for one in ("set", "get", "list", "delete")},
}
_PUSH: Final = frozenset({"Push"}) | {
    f"{one}TaskPushNotificationConfig{many}" for one in ("Create", "Get", "List", "Delete") for many in ("", "s")
}
_SPOKEN: Final = "SendMessage, SendStreamingMessage, GetTask, ListTasks, CancelTask and SubscribeToTask"
_OLD_KINDS: Final = {"artifactUpdate": "artifact-update", "statusUpdate": "status-update"}


def _new_part(part: Json) -> Json:
    if part.get("kind") != "file":
        return {name: part[name] for name in ("text", "data") if name in part}
    file = an_object(part.get("file"), "the file of a part")
    content = {"raw": file["bytes"]} if "bytes" in file else {"url": file.get("uri")}
    return {**content, "filename": file.get("name"), "mediaType": file.get("mimeType")}


def _old_result(result: Json) -> Json:
    """Return a result of 1.0 as one of 0.3: a task, or the event of one."""
    for name, kind in _OLD_KINDS.items():
        if name in result:
            old = _as_in_0_3(result[name])
            last = {} if name == "artifactUpdate" else {"final": old["status"]["state"] != "working"}
            return {"kind": kind, **old, **last}
    return {"kind": "task", **_as_in_0_3(result.get("task", result))}


def _as_in_0_3(value: Any) -> Any:
    """Return a value of 1.0 as it was in 0.3."""
    if is_list(value):
        return [_as_in_0_3(one) for one in value]
    if not isinstance(value, dict):
        return value
    given = an_object(value, "a value")
    # Parts first: their data is the client's and stays as it is.
    if "parts" in given:
        parts = {"parts": [_old_part(part) for part in given["parts"]]}
        role = {"kind": "message", "role": "agent"} if "role" in given else {}
        return {**given, **parts, **role}
    old = {name: one if name == "metadata" else _as_in_0_3(one) for name, one in given.items()}
    if "state" in old:
        old["state"] = old["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    return old


def _old_part(part: Json) -> Json:
    for kind in ("text", "data"):
        if kind in part:
            # 0.3 takes objects alone.
            held = part[kind] if kind == "text" or isinstance(part[kind], dict) else {"value": part[kind]}
            return {"kind": kind, kind: held}
    content = {"bytes": part["raw"]} if "raw" in part else {"uri": part["url"]}
    return {"kind": "file", "file": {**content, "name": part["filename"], "mimeType": part["mediaType"]}}
