"""A small HTTP server for one attempt: h11 for the protocol, anyio for everything else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
import h11
from anyio.abc import SocketStream

MAX_BODY: Final = 64 * 1024 * 1024
"""Most bytes of a request's body: two of the largest files, in base64."""
EVENTS: Final = "text/event-stream; charset=utf-8"
_MAX_HEAD: Final = 64 * 1024
_PATIENCE: Final = 60.0
"""Seconds that a client may take for each piece of a request that it has begun, or has a connection for."""
_IDLE: Final = 600.0
"""Seconds that a connection may be silent between two requests."""

_logger = logging.getLogger("kairo_team")


@dataclass(frozen=True, slots=True)
class Head:
    """The first part of a request."""

    method: str
    path: str
    """Without its query."""
    headers: Sequence[tuple[str, str]]
    """Names in lower case."""

    def header(self, name: str) -> str:
        """Return the value of a header; "" unless it is there exactly once."""
        found = [value for one, value in self.headers if one == name]
        return found[0] if len(found) == 1 else ""  # two keys are as good as none: which one counts would be a guess


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response."""

    status: int
    body: bytes
    media_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()


class BodyTooLarge(Exception):
    """A request's body has more than `MAX_BODY` bytes."""


Body = Callable[[], Awaitable[bytes]]
"""Reads the body; raises `BodyTooLarge`."""
Send = Callable[[str], Awaitable[None]]
"""Sends server-sent events, the first ones with status 200. Does not return if the client has left."""
Answer = Callable[[Head, Body, Send], Awaitable[Reply]]
"""Answers a request; raises nothing but cancellation. After something was sent, the reply's body is the end of that."""


AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI 3 application."""


async def reply_of(app: AsgiApp, head: Head, body: bytes) -> Reply:
    """Return the whole response of an ASGI application to a request."""
    given = [{"type": "http.request", "body": body, "more_body": False}]
    # 500 for an application that returns without a response.
    status, headers, parts = 500, list[tuple[str, str]](), list[bytes]()

    async def receive() -> Any:
        if given:
            return given.pop()
        return await anyio.sleep_forever()  # a client that leaves cancels the call

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.extend((name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"])
        else:
            parts.append(message.get("body", b""))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": head.method,
        "path": head.path,
        "raw_path": head.path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers],
    }
    await app(scope, receive, send)
    own = {"content-type", "content-length", "cache-control"}  # `_send` writes these itself
    kind = next((value for name, value in headers if name == "content-type"), "application/json")
    return Reply(status, b"".join(parts), kind, [one for one in headers if one[0] not in own])


class _Gone(Exception):
    """The client has left, is too slow, or does not speak HTTP."""


class Connection:
    """One client's connection: its requests, one after another."""

    def __init__(self, stream: SocketStream, answer: Answer) -> None:
        self._stream = stream
        self._answer = answer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)

    async def serve(self) -> None:
        """Answer requests until the client leaves; an error of one connection is not one of the attempt."""
        async with self._stream:
            # A client may leave at any moment, and then no reply can reach it.
            with suppress(_Gone, anyio.BrokenResourceError, anyio.ClosedResourceError, h11.LocalProtocolError):
                try:
                    patience = _PATIENCE
                    while await self._serve_one(patience):
                        patience = _IDLE
                except h11.RemoteProtocolError as error:
                    _logger.info("a client of the governed address does not speak HTTP: %s", error)

    async def _serve_one(self, patience: float) -> bool:
        """Answer one request; return whether another may follow."""
        event = await self._next_event(patience)
        if not isinstance(event, h11.Request):
            return False
        target = event.target.decode("ascii", "replace")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers]
        head = Head(event.method.decode("ascii"), target.partition("?")[0], headers)
        reply: Reply | None = None
        async with anyio.create_task_group() as tasks:

            async def body() -> bytes:
                read = await self._read_body()
                # Only now: before, the body and the watch would both read from the stream.
                tasks.start_soon(self._watch, tasks.cancel_scope)
                return read

            reply = await self._answer(head, body, self._send_events)
            tasks.cancel_scope.cancel()
        if reply is None:  # the client left, which cancelled the call
            return False
        await self._send(reply)
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False  # such as after a body that was refused unread
        self._http.start_next_cycle()
        return True

    async def _watch(self, scope: anyio.CancelScope) -> None:
        """Cancel a call whose client has left, or sends more than it may before it has its reply."""
        early = 0
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while early <= _MAX_HEAD:
                data = await self._stream.receive()
                self._http.receive_data(data)
                early += len(data)  # a client may send its next request early, but not without limit
        scope.cancel()

    async def _read_body(self) -> bytes:
        if self._http.they_are_waiting_for_100_continue:  # without this word such a client would never send its body
            go_on = h11.InformationalResponse(status_code=100, headers=[])
            await self._stream.send(self._http.send(go_on) or b"")
        parts: list[bytes] = []
        size = 0
        while isinstance(event := await self._next_event(_PATIENCE), h11.Data):
            parts.append(bytes(event.data))
            size += len(event.data)
            if size > MAX_BODY:
                raise BodyTooLarge
        if not isinstance(event, h11.EndOfMessage):
            raise _Gone
        return b"".join(parts)

    async def _next_event(self, patience: float) -> h11.Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            try:
                with anyio.fail_after(patience):
                    data = await self._stream.receive()
            except (anyio.EndOfStream, TimeoutError):
                raise _Gone from None
            self._http.receive_data(data)
        if not isinstance(event, h11.Event):
            raise _Gone
        return event

    async def _send_events(self, events: str) -> None:
        """Send a part of a response, and begin the response with the first one."""
        sent: list[h11.Event] = [h11.Data(data=events.encode())]
        if self._http.our_state is h11.SEND_RESPONSE:
            headers = [("content-type", EVENTS), ("cache-control", "no-store")]
            sent.insert(0, h11.Response(status_code=200, headers=headers))
        try:
            with anyio.fail_after(_PATIENCE):
                for event in sent:
                    await self._stream.send(self._http.send(event) or b"")
        except (TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._stream.aclose()  # `_watch` finds it closed, and cancels the call
            await anyio.sleep_forever()

    async def _send(self, reply: Reply) -> None:
        if self._http.our_state is h11.SEND_BODY:
            if reply.body:
                await self._stream.send(self._http.send(h11.Data(data=reply.body)) or b"")
            await self._stream.send(self._http.send(h11.EndOfMessage()) or b"")
            return
        headers = [
            ("content-type", reply.media_type),
            ("content-length", str(len(reply.body))),
            ("cache-control", "no-store"),
            *reply.headers,
        ]
        if self._http.their_state is not h11.DONE:  # the rest of a refused body may be on its way
            headers.append(("connection", "close"))
        sent: list[h11.Event] = [h11.Response(status_code=reply.status, headers=headers)]
        sent += [h11.Data(data=reply.body), h11.EndOfMessage()]
        for event in sent:
            with anyio.fail_after(_PATIENCE):
                await self._stream.send(self._http.send(event) or b"")
