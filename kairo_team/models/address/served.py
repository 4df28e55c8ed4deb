"""Serve a governed model at a loopback address: requests of three formats become governed calls."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
from anyio.abc import SocketListener

from kairo_team._util.threads import poster
from kairo_team.addresses import MCP, ModelAddress
from kairo_team.errors import HaltError, InsufficientBudget, KairoError, ModelCallError, TurnEnded, known
from kairo_team.models.address.chat import Chat
from kairo_team.models.address.http import EVENTS, MAX_BODY, BodyTooLarge, Connection, Reply, reply_of
from kairo_team.models.address.messages import Messages
from kairo_team.models.address.parts import Conversations, Natives, Refused, parsed
from kairo_team.models.address.responses import Responses

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import SocketStream, TaskStatus

    from kairo_team.contracts import GovernedChatModel
    from kairo_team.messages import ModelRequest, ModelResponse
    from kairo_team.models.address.http import AsgiApp, Body, Head, Send
    from kairo_team.models.address.parts import Format, Json, Piece, Stream

_logger = logging.getLogger("kairo_team")

_COUNT: Final = "/v1/messages/count_tokens"
_CHAT: Final = Chat()
_MESSAGES: Final = Messages()
_FORMATS: Final[Mapping[str, Format]] = {
    "/v1/chat/completions": _CHAT,
    "/v1/responses": Responses(),
    "/v1/messages": _MESSAGES,
    _COUNT: _MESSAGES,
}
_STATUS: Final = {
    "rate_limited": 429,
    "overloaded": 503,
    "timeout": 504,
    "connection": 502,
    "auth": 401,
    "context_length": 400,
    "content_filter": 400,
    "bad_request": 400,
}
"""Status by the kind of a model's error; 500 for others."""
_NO_RETRY: Final = (("x-should-retry", "false"),)
"""Clients of OpenAI and Anthropic obey it: a call that failed was retried here already."""
_PAYMENT_REQUIRED: Final = 402
_FORBIDDEN: Final = 403
_LAST_REFUSALS: Final = 20
"""Refusals after the end of the budget that a library may take to wind up; after them its block is cancelled."""


class Served:
    """A model behind an address, and the error that ended its calls."""

    def __init__(self, model: GovernedChatModel, begin: Callable[[], Awaitable[object]]) -> None:
        self.error: KairoError | None = None
        """The first error that ends the attempt: no call begins after it."""
        self.key = secrets.token_urlsafe(32)  # any program on this machine can reach the port
        self.scope = anyio.CancelScope()
        self._model = model
        self._begin = begin
        self._natives = Natives()
        self._conversations = Conversations()
        self._refusals = 0
        self.tools: AsgiApp | None = None
        """Answers at `/mcp`."""

    async def connect(self, stream: SocketStream) -> None:
        """Serve one client."""
        try:
            await Connection(stream, self.answer).serve()
        except Exception:
            _logger.exception("a connection of the governed address failed")

    async def answer(self, head: Head, body: Body, send: Send) -> Reply:
        """Answer a request; every failure is an error in the format of its path."""
        form = _FORMATS.get(head.path, _CHAT)  # an unknown path is refused in the most common format
        sender = _Sender(send)
        try:
            self._check_key(head)  # first: without the key, not even the paths are shown
            if head.path == "/v1/models" and head.method == "GET":
                return _json(200, self._models())
            self._check_path(head)
            if head.path == MCP and self.tools is not None:
                return await reply_of(self.tools, head, await body())
            return await self._call(head.path, form, parsed(await body()), sender)
        except Refused as refused:
            error = refused
        except BodyTooLarge:
            error = Refused(f"a request has at most {MAX_BODY} bytes", 413, "request_too_large")
        except ModelCallError as raised:
            kind = "context_length_exceeded" if raised.kind == "context_length" else raised.kind
            error = Refused(str(raised), _STATUS.get(raised.kind, 500), kind)
        except KairoError as raised:
            error = self._end(raised)
        except ValueError as raised:  # such as a setting that the provider does not have
            error = Refused(str(raised))
        except Exception as raised:
            _logger.exception("a call at the governed address failed")
            error = Refused(f"{type(raised).__name__}: {raised}", 500, "api_error")
        # The status is sent already, so the error goes into the stream.
        if sender.begun is not None:
            return Reply(200, sender.begun.broken(error).encode(), EVENTS)
        return _json(error.status, form.error(error), _NO_RETRY)

    def _check_key(self, head: Head) -> None:
        given = head.header("x-api-key")
        word, _, token = head.header("authorization").partition(" ")
        if word.lower() == "bearer":
            given = token.strip()
        # Constant time: `==` would show how many characters are right.
        if not hmac.compare_digest(given.encode(), self.key.encode()):
            why = "the key is not the one of this address: it is address.key, and in address.env()"
            raise Refused(why, 401, "authentication_error")

    def _check_path(self, head: Head) -> None:
        paths = _FORMATS if self.tools is None else [*_FORMATS, MCP]
        if head.path not in paths:
            raise Refused(f"there is no {head.path!r} here, only {known(paths)}", 404, "not_found_error")
        if head.method != "POST":
            raise Refused(f"{head.path} takes POST, not {head.method}", 405)

    async def _call(self, path: str, form: Format, body: Json, sender: _Sender) -> Reply:
        asked = form.read(body, self._model.name.partition(":")[0])
        request = self._natives.put_back(self._conversations.whole(asked))
        if path == _COUNT:
            count: Any = getattr(self._model, "count_tokens", None)
            found = None if count is None else await count(request)
            if found is None:
                raise Refused(f"the model {self._model.name!r} does not count tokens")
            return _json(200, {"input_tokens": found})
        if self.error is not None:
            raise self.error
        await self._begin()  # may end the attempt, so before anything is held
        stream = form.stream(asked, bare_name(self._model.name)) if asked.stream else None
        complete = self._model.complete(request) if stream is None else sender.forward(stream, self._model, request)
        response = await complete
        self._natives.keep(response)
        self._conversations.keep(asked, response)
        if stream is None:
            return _json(200, form.write(asked, response))
        return Reply(200, stream.end(response).encode(), EVENTS)

    def refuse_tool(self, error: KairoError | None) -> str | None:
        """Return why a tool is not called, or how its call ended the attempt; None if neither happened."""
        error = error or self.error
        if error is None:
            return None
        refused = self._end(error)
        # The attempt is over, so the program is not waited for.
        if isinstance(error, TurnEnded):
            self.scope.cancel()
        return refused.sentence

    def _end(self, error: KairoError) -> Refused:
        """Keep the first error that ends the attempt; cancel the block after too many further calls."""
        if self.error is not None:
            self._refusals += 1  # only calls after the first refusal count
        self.error = self.error or error
        if self._refusals >= _LAST_REFUSALS:
            self.scope.cancel()
        if isinstance(error, HaltError | InsufficientBudget):
            return Refused(f"the budget refuses this call: {error}", _PAYMENT_REQUIRED, "billing_error")
        return Refused(f"this call is refused: {error}", _FORBIDDEN, "permission_error")

    def _models(self) -> Json:
        one = {"id": bare_name(self._model.name), "object": "model", "created": 0, "owned_by": "kairo-team"}
        return {"object": "list", "data": [one], "has_more": False}


class _Sender:
    """Sends the pieces of a reply as the model writes them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun: Stream | None = None
        """The reply of which something was sent."""
        self._pieces: deque[tuple[Piece, str]] = deque()
        self._news = anyio.Event()
        self._ended = False

    async def forward(self, stream: Stream, model: Any, request: ModelRequest) -> ModelResponse:
        """Ask a member's model, which may give pieces in any thread; return its reply once all of them are sent."""
        post = poster()

        def take(kind: Piece, text: str) -> None:
            self._pieces.append((kind, text))
            post(self._wake)

        response: ModelResponse | None = None
        error: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send_pieces, stream)
            try:
                response = await model.stream(request, partial(take, "text"), partial(take, "thinking"))
            except Exception as raised:  # noqa: BLE001 - outside the task group, which would wrap it
                error = raised
            self._ended = True
            self._wake()
        if response is None:
            raise error or RuntimeError("the call was cancelled")
        return response

    def _wake(self) -> None:
        self._news.set()

    async def _send_pieces(self, stream: Stream) -> None:
        while True:
            self._news = anyio.Event()
            # The new event comes first: a piece that arrives during the loop sets it, and the wait returns at once.
            while self._pieces:
                if events := stream.piece(*self._pieces.popleft()):
                    self.begun = stream
                    await self._send(events)
            if self._ended:
                return
            await self._news.wait()


def bare_name(model: str) -> str:
    """Return a model's name without its provider."""
    return model.partition(":")[2] or model


def _json(status: int, body: Any, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    return Reply(status, json.dumps(body, separators=(",", ":")).encode(), headers=headers)


Refuse = Callable[["KairoError | None"], "str | None"]
"""`Served.refuse_tool`."""


class Application(Protocol):
    """An ASGI application that answers while `serve` runs."""

    app: AsgiApp

    async def serve(self, *, task_status: TaskStatus[None] = ...) -> None:
        """Serve until cancelled."""
        ...


class ServedModel:
    """Serves a model at a free port of 127.0.0.1 for the length of an `async with` block.

    `begin` is called before each call, and may raise as the call may. `tools` makes the application that serves tools.
    The end of the block raises the first error that ended the calls, even if a library hid it.
    """

    # An async generator could not be closed from outside while a stubborn member waits inside.

    def __init__(
        self,
        model: GovernedChatModel,
        begin: Callable[[], Awaitable[object]],
        tools: Callable[[Refuse], Awaitable[Application]] | None = None,
    ) -> None:
        self._served = Served(model, begin)
        self._name = bare_name(model.name)
        self._tools = tools

    async def __aenter__(self) -> ModelAddress:
        # Before anything is opened: it may fail, and `__aexit__` would not run.
        tools = None if self._tools is None else await self._tools(self._served.refuse_tool)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._listener = await SocketListener.from_socket(self._socket)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._served.scope = self._tasks.cancel_scope  # its end cancels the block that uses the address
        if tools is not None:
            self._served.tools = tools.app
            try:
                await self._tasks.start(tools.serve)
            except BaseException as error:  # the block does not begin, so its end would close nothing
                await self.__aexit__(type(error), error, error.__traceback__)
                raise
        self._tasks.start_soon(self._accept)
        port: int = self._socket.getsockname()[1]
        return ModelAddress(f"http://127.0.0.1:{port}", self._served.key, self._name, has_tools=tools is not None)

    async def _accept(self) -> None:
        while True:
            # `accept` is begun only when it need not wait: asyncio's logs an error, and drops the client, if a client
            # connects in the moment in which it is cancelled.
            await anyio.wait_readable(self._socket)
            self._tasks.start_soon(self._served.connect, await self._listener.accept())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = isinstance(error, Exception)
        self._tasks.cancel_scope.cancel()
        try:  # the group would wrap an error; cancellations, of its own or from outside, are left to it
            await (self._tasks.__aexit__(None, None, None) if failed else self._tasks.__aexit__(kind, error, trace))
        finally:
            with anyio.CancelScope(shield=True):
                await self._listener.aclose()  # also after a cancellation: the port must not stay open
        # A library may have hidden it, or made an error of its own.
        if self._served.error is not None and not isinstance(error, KairoError):
            raise self._served.error from (error if failed else None)
