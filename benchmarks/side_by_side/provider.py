"""A scripted model behind OpenAI's API on the loopback, with a ledger of every call and every token it bills.

It knows from the instructions in a request who asks, and answers always the same. It can refuse the call of one asker
as a content filter does, and it can hold calls back until the program that made them has been killed.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

DOCUMENTS: Final = tuple(f"doc-{number}" for number in range(1, 7))
TALK: Final = " It is the way it is, and it was looked into with care." * 5
"""What makes a reply as long as a reply is."""
CODE: Final = (
    "def slug(title):\n    return title.lower()\n",
    "def slug(title):\n    return title.lower().replace(' ', '-')\n",
    "def slug(title):\n    return '-'.join(title.lower().split())\n",
)
"""What the writer writes: at first, when the first test failed, and when the second one did."""
HAND_OVERS: Final = {"front desk": "billing", "billing desk": "refunds"}
JOINING: Final = {"joiner": r"Summary of (doc-[0-9]+)", "answerer": r"The (\w+) specialist found"}
"""How a text is known that one of these joins."""
WHO: Final = re.compile(
    r"You are the (lister|reader|joiner|sorter|\w+ specialist|answerer|writer|documenter|\w+ desk)\b"
)

Json = dict[str, Any]


@dataclass(slots=True)
class Call:
    """A line of the ledger."""

    key: str
    """Who asked, and for what: the same for the same question."""
    tokens: int
    answered: bool = False
    refused: bool = False


@dataclass(slots=True)
class Provider:
    """The model's side of a run."""

    refuse: Collection[str] = ()
    """The keys of calls that are refused; these cost nothing."""
    hold: Collection[str] = ()
    """The keys of calls that are never answered."""
    ledger: list[Call] = field(default_factory=list[Call])
    touched: float = 0.0
    """When a call last came or was answered."""
    closed: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def held(self) -> bool:
        """Whether a call is held back."""
        return any(call.key in self.hold and not call.answered for call in self.ledger)

    def take(self, request: Json) -> tuple[int, Json]:
        """Write down a request, and answer it: the status, and the reply's body."""
        key = key_of(request)
        reply = reply_to(request)
        asked, told = len(json.dumps([request["messages"], request.get("tools", [])])), len(json.dumps(reply))
        usage = {"prompt_tokens": asked // 4, "completion_tokens": told // 4, "total_tokens": asked // 4 + told // 4}
        call = Call(key, usage["total_tokens"], refused=key in self.refuse)
        with self.lock:
            if call.refused:
                call.tokens = 0
            self.ledger.append(call)
            self.touched = time.monotonic()
        if call.refused:
            # The branches beside it have been answered by then.
            time.sleep(0.3)
            error = {"message": "The prompt was refused.", "type": "invalid_request_error", "code": "content_filter"}
            return 400, {"error": {**error, "param": None}}
        if key in self.hold:
            self.closed.wait()
        time.sleep(0.02)
        with self.lock:
            call.answered = not self.closed.is_set()
            self.touched = time.monotonic()
        return 200, {"reply": reply, "usage": usage}


@contextmanager
def serving(provider: Provider) -> Iterator[str]:
    """Serve a provider on the loopback; yields the address of its API."""

    class Handler(_Handler):
        pass

    Handler.provider = provider
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        provider.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _text(request: Json) -> str:
    """Return all that was said, in its order."""
    return "\n".join(_said(message) for message in request["messages"])


def _said(message: Json) -> str:
    content: str | list[dict[str, str]] = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def who_asks(request: Json) -> str:
    """Return who is told to answer, such as `reader`."""
    found = WHO.search(_text(request))
    if found is None:
        raise ValueError(f"nobody of the jobs asks this: {_text(request)!r}")
    return found[1]


def key_of(request: Json) -> str:
    """Return who asks, and for what."""
    who, text = who_asks(request), _text(request)
    if who == "reader":
        return f"reader {_document(text)}"
    if who == "writer":
        return f"writer {_version(text) + 1}"
    if who in JOINING:
        return f"{who} {', '.join(_given(who, text))}"
    return f"{who}, handed over" if _handed_over(request) else who


def reply_to(request: Json) -> Json:
    """Return the message that answers a request."""
    who, text = who_asks(request), _text(request)
    if who in HAND_OVERS:
        if _handed_over(request):
            return {"role": "assistant", "content": "I have handed it over."}
        return _hand_over(request, HAND_OVERS[who])
    values = {"lister": lambda: list(DOCUMENTS), "sorter": lambda: ["bug", "billing"]}
    if who in values:
        return _valued(request, values[who]())
    return _valued(request, _prose(who, text))


def _prose(who: str, text: str) -> str:
    if who == "reader":
        return f"Summary of {_document(text)}.{TALK}"
    if who == "joiner":
        return f"Joined: {', '.join(_given(who, text))}.{TALK}"
    if who == "answerer":
        return f"Answered from: {', '.join(_given(who, text))}.{TALK}"
    if who == "writer":
        return CODE[_version(text)]
    if who == "refunds desk":
        return f"Paid back.{TALK}"
    if who == "documenter":
        version = max(
            (place for place, code in enumerate(CODE) if code.split("return ")[1].strip() in text), default=-1
        )
        return f"Documented version {version + 1}.{TALK}"
    return f"The {who} found the cause.{TALK}"


def _given(who: str, text: str) -> list[str]:
    """Return what is joined: the documents or specialists whose texts are there."""
    return sorted(set(re.findall(JOINING[who], text)))


def _document(text: str) -> str:
    """Return the document that a reader is given: the last one that is named outside of a list."""
    named: list[str] = re.findall(r"doc-[0-9]+", re.sub(r"\[[^\]]*\]", "", text))
    return named[-1]


def _version(text: str) -> int:
    """Return the place of the code that the writer writes when it is told what failed last."""
    last = text.rfind("FAILED")
    if last < 0:
        return 0
    return 1 if "Hello World" in text[last : last + 40] else 2


def _handed_over(request: Json) -> bool:
    """Return whether the last message is the result of the asker's own handing over: it asks what now."""
    messages, to = request["messages"], HAND_OVERS.get(who_asks(request))
    if to is None or messages[-1].get("role") != "tool":
        return False
    called = [call["function"] for message in messages for call in message.get("tool_calls") or ()]
    return bool(called) and to in json.dumps(called[-1])


def _hand_over(request: Json, to: str) -> Json:
    """Hand over with the tool that is offered for it; without tools, in the form that is asked for."""
    tools = [tool["function"] for tool in request.get("tools", [])]
    for tool in tools:
        if to in tool["name"]:
            return _calling(tool["name"], _filled(tool.get("parameters", {}), {}))
    for tool in tools:
        properties: Json = tool.get("parameters", {}).get("properties", {})
        named = [name for name in properties if name in {"agent_name", "to", "member", "next", "desk"}]
        if named:
            return _calling(tool["name"], _filled(tool["parameters"], {named[0]: to}))
    schema = _schema(request)
    if schema is None:
        raise ValueError(f"there is no tool to hand over to {to}: {[tool['name'] for tool in tools]}")
    return {"role": "assistant", "content": json.dumps(_filled(schema, {"to": to}))}


def _filled(schema: Json, known: Mapping[str, str]) -> Json:
    """Return arguments: what is known, and a text for whatever else is required."""
    wanted = {*schema.get("required", ()), *known}
    return {
        name: known.get(name, "The customer was charged twice.")
        for name in schema.get("properties", {})
        if name in wanted
    }


def _calling(name: str, arguments: Json) -> Json:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{time.monotonic_ns()}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _schema(request: Json) -> Json | None:
    form = request.get("response_format") or {}
    schema: Json | None = form.get("json_schema", {}).get("schema")
    return schema


def _valued(request: Json, value: object) -> Json:
    """Say a value: as the argument of the one tool for output, in the form asked for, or as text."""
    for tool in request.get("tools", []):
        if tool["function"]["name"].startswith(("final_result", "set_model_response")):
            properties = tool["function"]["parameters"].get("properties", {})
            return _calling(tool["function"]["name"], {next(iter(properties)): value})
    schema = _schema(request)
    if schema is not None and schema.get("type") == "object":
        names = list(schema.get("properties", {}))
        name = next((name for name in names if name in {"answer", "text"}), names[0])
        rest = {other: None for other in names if other != name}
        return {"role": "assistant", "content": json.dumps({name: value, **rest})}
    return {"role": "assistant", "content": value if isinstance(value, str) else json.dumps(value)}


class _Handler(BaseHTTPRequestHandler):
    """Speaks as much of OpenAI's API as the libraries use: chat completions, whole or streamed."""

    provider: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a chat completion."""
        request: Json = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self._send(404, "application/json", json.dumps({"error": {"message": f"no such path: {self.path}"}}))
            return
        try:
            status, said = self.provider.take(request)
        except Exception as error:  # noqa: BLE001 - a request that the script does not know must be seen
            self._send(422, "application/json", json.dumps({"error": {"message": f"{type(error).__name__}: {error}"}}))
            return
        if self.provider.closed.is_set():
            self.close_connection = True
        elif status != 200:  # noqa: PLR2004 - the status of success
            self._send(status, "application/json", json.dumps(said))
        elif request.get("stream"):
            self._send(200, "text/event-stream", "".join(_events(said)))
        else:
            finish = "tool_calls" if said["reply"].get("tool_calls") else "stop"
            choice = {"index": 0, "message": said["reply"], "finish_reason": finish}
            self._send(
                200,
                "application/json",
                json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": said["usage"]}),
            )

    def _send(self, status: int, kind: str, body: str) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr for each request."""


_HEAD: Final = {"id": "chatcmpl-1", "created": 1, "model": "scripted"}


def _events(said: Json) -> Iterator[str]:
    reply = dict(said["reply"])
    calls = reply.get("tool_calls")
    if calls:
        reply["tool_calls"] = [{"index": place, **call} for place, call in enumerate(calls)]
    finish = "tool_calls" if calls else "stop"
    for choices, usage in (
        ([{"index": 0, "delta": reply, "finish_reason": None}], None),
        ([{"index": 0, "delta": {}, "finish_reason": finish}], None),
        ([], said["usage"]),
    ):
        chunk = {**_HEAD, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
