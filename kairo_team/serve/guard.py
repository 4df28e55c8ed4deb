"""What a request passes before it reaches the team: its key, its limits of size and time, and its sender's patience."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from kairo_team._util.frozen import EMPTY
from kairo_team.errors import Misuse
from kairo_team.models.address.chat import Chat
from kairo_team.models.address.parts import Refused
from kairo_team.web_console.access import LEAST_TOKEN, WINDOW, Failures, host_name, same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BYTES: Final = 32 * 1024 * 1024
"""Most bytes of a body: one large file, in base64."""
BODY_SECONDS: Final = 30.0
"""Seconds that a body may take to arrive."""
SEND_SECONDS: Final = 60.0
"""Seconds that a client may take for each piece of a response."""
_PIECE: Final = 64 * 1024
"""Most bytes of a piece of a response."""
CALLER: Final = "kairo_team.caller"
"""The entry of a request's scope with the name of who has its key."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SHAPE: Final = "a line for each key: a name and the key, such as `ada 8f0c...`; lines that begin with # are left out"

_logger = logging.getLogger("kairo_team")


class Keys:
    """Keys by the names of who has them."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        """Take the keys; raises `Misuse` without one, for a bad name, a short key, and one key under two names."""
        if not keys:
            raise Misuse("a served team needs a key: keys={'ada': ...}, a name and the key for each caller")
        for name, key in keys.items():
            if not _NAME.fullmatch(name):
                raise Misuse(f"a key's name has 1 to 40 characters of A-Z, a-z, 0-9, _ and -, not {name!r:.80}")
            if len(key) < LEAST_TOKEN or not key.isascii() or not key.isprintable() or " " in key:
                raise Misuse(f"the key of {name!r} needs at least {LEAST_TOKEN} characters of printable ASCII")
        if len(set(keys.values())) < len(keys):
            raise Misuse("two names have the same key: give each caller a key of its own")
        self._keys = dict(keys)

    def name_of(self, given: str) -> str | None:
        """Return who has a key; None for a wrong one. Takes the same time for every wrong key."""
        found = [name for name, key in self._keys.items() if same(given, key)]  # all are compared, for the same time
        return found[0] if found else None

    def __repr__(self) -> str:
        return f"Keys({', '.join(sorted(self._keys))})"


def read_keys(text: str, where: str) -> dict[str, str]:
    """Read a name and a key from each line; `Misuse` names the line that cannot be read, and never shows it."""
    keys: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:  # noqa: PLR2004 - a name and a key
            raise Misuse(f"{where}, line {number} cannot be read: it takes {_SHAPE}")
        if words[0] in keys:
            raise Misuse(f"{where}, line {number}: {words[0]!r} has a key already")
        keys[words[0]] = words[1]
    if not keys:
        raise Misuse(f"{where} has no key: it takes {_SHAPE}")
    return keys


class _Gone(Exception):
    """The client has left, or is too slow."""


class Guard:
    """Lets requests with a key through, with their whole body, and ends a request whose client is too slow."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        names: Iterable[str] = (),
        *,
        most_bytes: int = MOST_BYTES,
        body_seconds: float = BODY_SECONDS,
        send_seconds: float = SEND_SECONDS,
        failures: Failures | None = None,
    ) -> None:
        """`names` are the host names that clients may use; without any, every name is taken."""
        self._app = app
        self._keys = keys
        self._names = frozenset(name.lower() for name in names)
        self._most_bytes = most_bytes
        self._body_seconds = body_seconds
        self._send_seconds = send_seconds
        self._failures = failures or Failures()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})  # 1008: not allowed by policy
            return

        async def patient(message: Message) -> None:
            for piece in _pieces(message):
                # A limit for each piece: a slow client may take long in all, but must not stop.
                with anyio.move_on_after(self._send_seconds) as time:
                    await send(piece)
                if time.cancelled_caught:
                    raise _Gone

        try:
            try:
                name = self._admit(Request(scope))
                body = await self._body(Headers(scope=scope), receive)
            except Refused as refused:
                await refusal(refused)(scope, receive, patient)
                return
            await self._app({**scope, CALLER: name}, _given_back(body, receive), patient)
        except _Gone:
            _logger.info("a client of the served team has left, or is too slow")
        except BaseExceptionGroup as group:
            _, others = group.split(_Gone)  # it comes in a group where the app sends in a task group
            if others is not None:
                raise

    def _admit(self, request: Request) -> str:
        """Return who makes a request; raises `Refused`."""
        hosts = request.headers.getlist("host")
        if self._names and (len(hosts) != 1 or host_name(hosts[0]) not in self._names):
            names = ", ".join(sorted(self._names))
            raise Refused(f"this server is called {names}: ask for it by one of these names", 421)
        # A page in a browser must not use this server in its user's name, whatever key it has.
        if any(urlsplit(origin).netloc not in hosts for origin in request.headers.getlist("origin")):
            raise Refused("pages of other sites may not ask here", 403, "permission_error")
        address = request.client.host if request.client else ""
        if self._failures.is_limited(address):
            raise Refused("too many wrong keys came from your address: wait a minute", 429, "rate_limit_error")
        given = request.headers.getlist("authorization")
        word, _, key = (given[0] if len(given) == 1 else "").partition(" ")
        name = self._keys.name_of(key.strip()) if word.lower() == "bearer" else None
        if name is None:
            if given:  # no key is a mistake, a wrong key may be a guess
                self._failures.note(address)
            why = "this needs a key that the server knows, in the header `Authorization: Bearer ...`"
            raise Refused(why, 401, "authentication_error")
        return name

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """Return the whole body; raises `Refused` for one that is too large or too slow."""
        too_large = Refused(f"a request has at most {self._most_bytes:,} bytes", 413, "request_too_large")
        length = headers.get("content-length", "")
        # Refused before it arrives. Twenty digits, because `int` refuses very long texts.
        if length.isdecimal() and int(length[:20]) > self._most_bytes:
            raise too_large
        parts: list[bytes] = []
        size = 0
        with anyio.move_on_after(self._body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                parts.append(message.get("body", b""))
                size += len(parts[-1])  # counted too: a chunked body has no length
                if size > self._most_bytes:
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(parts)
        raise Refused(f"the request did not arrive within {self._body_seconds:g} seconds", 408, "timeout_error")


def _pieces(message: Message) -> Iterator[Message]:
    """Yield a message in pieces: a server waits for its reader before it takes one, and never after the last one."""
    body: bytes = message.get("body", b"")
    if len(body) <= _PIECE:
        yield message
        return
    for at in range(0, len(body), _PIECE):
        more = message.get("more_body", False) or at + _PIECE < len(body)
        yield {**message, "body": body[at : at + _PIECE], "more_body": more}


def _given_back(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body, and then what follows it."""
    left: Sequence[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    messages = iter(left)

    async def again() -> Message:
        for message in messages:
            return message
        return await receive()

    return again


def refusal(refused: Refused, about: Mapping[str, Any] = EMPTY, headers: Mapping[str, str] = EMPTY) -> Response:
    """Return the response of a refused request, which clients do not send again by themselves.

    `about` is added to its JSON.
    """
    sent = {"x-should-retry": "false", "cache-control": "no-store", **headers}
    if refused.status == 401:  # noqa: PLR2004 - what HTTP calls it
        sent["www-authenticate"] = "Bearer"
    if refused.kind == "rate_limit_error":
        sent["retry-after"] = str(int(WINDOW))
    if refused.kind == "too_many_runs":
        sent |= {"retry-after": "5", "x-should-retry": "true"}
    if refused.status in (408, 413):  # the rest of the body is not read
        sent["connection"] = "close"
    body = json.dumps(Chat().error(refused) | dict(about), separators=(",", ":"))
    return Response(body, refused.status, sent, "application/json")
