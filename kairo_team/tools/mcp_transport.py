"""Transports to an MCP server: a child process with its standard input and output, or streamable HTTP.

A transport knows its secrets: the values of its environment and headers, and the credentials in its URL.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Final, TextIO, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import anyio
from pydantic import ValidationError

from kairo_team._util.child_processes import supervised
from kairo_team._util.frozen import EMPTY
from kairo_team._util.masking import Masker

Streams: TypeAlias = tuple[Any, Any]
"""The streams of the SDK's transports: messages from the server, messages to the server."""

MAX_EVENT_BYTES: Final = 64_000_000
"""Largest message over HTTP."""
_SHORTEST: Final = 4
"""Fewest characters of a value that is masked: "1", "on" and "dev" are not secrets."""
MAX_LINE: Final = 500
"""Most characters of the server's last output that an error quotes."""

_logger = logging.getLogger("kairo_team")


class ConnectionLost(Exception):
    """The connection is lost: no more messages will arrive."""


@dataclass(slots=True)
class Notes:
    """A transport's notes on its server's output other than messages."""

    last_words: str = ""
    """The last line of the server's error output."""
    status: int | None = None
    """The last HTTP status that was an error."""
    unread: str = ""
    """The fault of the last message that could not be read; the message may have been an answer."""

    def note_unread(self, error: Exception) -> None:
        """Note what the SDK could not read: it hands the error on in the message's place, and nothing answers it."""
        if not isinstance(error, ValidationError):
            self.unread = f"{type(error).__name__}: {error}"[:MAX_LINE]
            return
        first: Any = error.errors(include_url=False)[0]
        # For valid JSON the error describes one kind of message, and the server may have meant another kind.
        why = f"{first['msg']}: " if first["type"] == "json_invalid" else ""
        self.unread = f"{why}{first['input']!r:.200}"


@dataclass(frozen=True, slots=True, repr=False)
class StdioTransport:
    """A child process: started when connected, ended with the connection."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = EMPTY
    """Variables in addition to the few that every server gets (PATH, HOME and similar); these have priority."""
    cwd: str | None = None

    @property
    def place(self) -> str:
        """The server's command for error messages, without arguments, which may contain credentials."""
        return f"the command {self.command!r}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that messages must not contain."""
        return tuple(self.env.values())

    def reason(self, error: BaseException) -> str | None:
        """Return why the process did not start, when that is known."""
        if self.cwd is not None and not Path(self.cwd).is_dir() and isinstance(error, OSError):
            return f"there is no folder {self.cwd!r} to start it in"
        if isinstance(error, FileNotFoundError):
            return "command not found; install it, or give its full path"
        if isinstance(error, PermissionError):
            return "the file may not be executed"
        return str(error) if isinstance(error, OSError) else None

    @asynccontextmanager
    async def open(self, server: str, notes: Notes, timeout: float) -> AsyncGenerator[Streams]:
        """Start the process; leaving the block or the end of this process ends it and all its children."""
        from mcp import StdioServerParameters, stdio_client

        # The watcher ends the server's children even if this process is killed.
        command, *args = supervised([self.command, *self.args], cwd=self.cwd)
        parameters = StdioServerParameters(
            command=command,
            args=args,
            env=dict(self.env),
            cwd=self.cwd,
            encoding_error_handler="replace",  # one wrong byte must not end the connection
        )
        async with AsyncExitStack() as stack:
            # Outside the client: the process writes until it ends.
            errors = await stack.enter_async_context(_logged_stderr(server, notes))
            yield await stack.enter_async_context(stdio_client(parameters, errors))


@dataclass(frozen=True, slots=True, repr=False)
class HttpTransport:
    """A server that runs elsewhere."""

    url: str
    headers: Mapping[str, str] = EMPTY

    @property
    def place(self) -> str:
        """The server's address for error messages, without user, password, query and fragment."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that messages must not contain."""
        parts = urlsplit(self.url)
        named = [parts.password, *self.headers.values(), *(value for _, value in parse_qsl(parts.query))]
        words = [word for value in self.headers.values() for word in value.split()[1:]]  # what follows "Bearer"
        return tuple(value for value in (*named, *words) if value)

    def reason(self, error: BaseException) -> str | None:
        """Return why the server was not reached, when that is known."""
        import httpx2

        if isinstance(error, httpx2.ConnectError):
            return f"no connection ({error}); is the server running?"
        if isinstance(error, httpx2.HTTPError):
            return f"{type(error).__name__}: {error}"
        return None

    @asynccontextmanager
    async def open(self, server: str, notes: Notes, timeout: float) -> AsyncGenerator[Streams]:
        """Make a client; the first message connects."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async def note(response: httpx2.Response) -> None:
            if response.is_error:
                notes.status = response.status_code

        options: dict[str, Any] = {}
        # The SDK before 2.3 does not have this argument, and takes one megabyte at most.
        if "max_sse_event_size" in signature(streamable_http_client).parameters:
            options["max_sse_event_size"] = MAX_EVENT_BYTES
        async with (
            httpx2.AsyncClient(
                headers=dict(self.headers),
                timeout=httpx2.Timeout(timeout, read=None),  # the session limits each request; streams stay open
                event_hooks={"response": [note]},
            ) as client,
            streamable_http_client(self.url, http_client=client, **options) as streams,
        ):
            yield streams


@asynccontextmanager
async def pumped(
    transport: AbstractAsyncContextManager[Streams], forgotten: anyio.Event, notes: Notes
) -> AsyncGenerator[Streams]:
    """Connect a transport to its session; end the block with `ConnectionLost` when no more messages will arrive.

    This happens when the server's stream ends, or once `forgotten` is set.

    Messages to the server are queued without limit, so that a server that reads nothing cannot block a caller.
    """
    # No buffer towards the session: a server that sends faster than it is read waits.
    into_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, out_of_session = anyio.create_memory_object_stream[Any](math.inf)

    async def inward(source: Any) -> None:
        async for message in source:
            if isinstance(message, Exception):
                notes.note_unread(message)
            await into_session.send(message)
        # The session cannot see this: its own end of the stream stays open until the block ends.
        raise ConnectionLost("the server ended")

    async def outward(sink: Any) -> None:
        async for message in out_of_session:
            await sink.send(message)

    async def watch() -> None:
        await forgotten.wait()
        raise ConnectionLost("the server has forgotten the session")

    with into_session, from_server, to_server, out_of_session:
        async with transport as (source, sink), anyio.create_task_group() as tasks:
            tasks.start_soon(_unless_closed, inward, source)
            tasks.start_soon(_unless_closed, outward, sink)
            tasks.start_soon(watch)
            yield from_server, to_server
            tasks.cancel_scope.cancel()


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text with secrets masked; values shorter than `_SHORTEST` stay."""
    return Masker(secret for secret in secrets if len(secret) >= _SHORTEST).text(text)


async def _unless_closed(pump: Any, stream: Any) -> None:
    """Run a pump; return when the other side has closed its stream."""
    try:
        await pump(stream)
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        return


@asynccontextmanager
async def _logged_stderr(server: str, notes: Notes) -> AsyncGenerator[TextIO]:
    """Yield a stream for the server's error output; log each line, and keep the last one in the notes."""
    if sys.platform == "win32":  # pipes cannot be awaited on Windows
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:  # noqa: ASYNC230 - the null device never blocks
            yield nowhere
        return
    with _pipe() as (source, sink):
        ear = _Ear(source, server, notes)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ear.listen)
            try:
                yield sink
            finally:
                ear.take()  # the last words, which explain why it ended
                tasks.cancel_scope.cancel()


@contextmanager
def _pipe() -> Generator[tuple[int, TextIO]]:
    """Yield a pipe whose reading end never blocks."""
    source, sink = os.pipe()
    # `take` also reads at the end, when there may be nothing left to read.
    os.set_blocking(source, False)
    try:
        with os.fdopen(sink, "w", encoding="utf-8") as writer:
            yield source, writer
    finally:
        os.close(source)


@dataclass(slots=True)
class _Ear:
    """Reads a server's error output."""

    source: int
    server: str
    notes: Notes
    rest: bytes = field(default=b"")
    """The beginning of a line that has not ended."""

    async def listen(self) -> None:
        """Read until the last writer is gone."""
        while True:
            await anyio.wait_readable(self.source)
            if not self.take():
                return

    def take(self) -> bool:
        """Read the available bytes; return False at the end of the output."""
        try:
            read = os.read(self.source, 65536)
        except BlockingIOError:  # woken, but another reader was faster or nothing is there
            return True
        *lines, rest = (self.rest + read).split(b"\n")
        self.rest = rest[-MAX_LINE:]  # a line without an end must not fill the memory
        for line in [*lines, rest] if not read else lines:
            if said := line.decode(errors="replace").strip():
                self.notes.last_words = said[:MAX_LINE]
                _logger.debug("MCP server %r: %s", self.server, said)
        return bool(read)
