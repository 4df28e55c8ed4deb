"""What the paths of the served interfaces share: how a request is read and begins a run, and how its reply is sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import Response

from kairo_team._util.frozen import EMPTY
from kairo_team.errors import HaltError, InsufficientBudget, KairoError, Misuse
from kairo_team.models.address.parts import Refused
from kairo_team.serve.asked import OtherRequest, TooMany
from kairo_team.serve.ends import refusal_of
from kairo_team.serve.guard import CALLER, refusal

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from kairo_team.files import File
    from kairo_team.messages import Message
    from kairo_team.models.address.parts import Json
    from kairo_team.serve.asked import AskedRun, Caller, Served

    Reply = Callable[[Send], Awaitable[None]]
    """Sends a reply; it begins with the status."""

PING_SECONDS: Final = 15.0
"""Seconds of silence after which a stream gets a comment, so that no proxy ends it."""
_LONGEST_KEY: Final = 255

_logger = logging.getLogger("kairo_team")


class Post:
    """A path that takes POST: `begin` reads a request and returns what sends its reply, or raises `Refused`.

    A client that leaves ends the work on its request.
    """

    def __init__(self, begin: Callable[[Request, bytes], Awaitable[Reply]]) -> None:
        self._begin = begin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        if request.method != "POST":
            refused = Refused(f"{request.url.path} takes POST, not {request.method}", 405)
            await refusal(refused)(scope, receive, send)
            return
        body = await request.body()  # the guard has it already
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    continue
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await self._answer(request, body, send)
            tasks.cancel_scope.cancel()

    async def _answer(self, request: Request, body: bytes, send: Send) -> None:
        try:
            reply = await self._begin(request, body)
        except Refused as error:
            refused = error
        except Exception as error:
            _logger.exception("a request to the served team failed")
            refused = Refused(f"{type(error).__name__}: {error}", 500, "api_error")
        else:
            await reply(send)
            return
        await refusal(refused)(request.scope, request.receive, send)


def json_reply(content: Json, headers: Mapping[str, str] = EMPTY) -> Response:
    """Return a reply of JSON in ASCII: members may write text that UTF-8 cannot have, such as half a surrogate pair."""
    body = json.dumps(content, separators=(",", ":"))
    return Response(body, headers={"cache-control": "no-store", **headers}, media_type="application/json")


class EventStream:
    """A reply as server-sent events."""

    def __init__(self, send: Send, headers: Mapping[str, str] = EMPTY) -> None:
        self._send = send
        self._headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",  # nginx would hold events back
            **headers,
        }

    async def begin(self) -> None:
        """Send the status."""
        raw = [(name.encode(), value.encode("latin-1")) for name, value in self._headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    async def give(self, events: str, *, more: bool = True) -> None:
        """Send events; without `more` they are the last ones."""
        await self._send({"type": "http.response.body", "body": events.encode(), "more_body": more})

    async def news(self, run: AskedRun) -> None:
        """Wait for news of a run; a comment goes out after a long silence."""
        with anyio.move_on_after(PING_SECONDS) as silence:
            await run.news()
        if silence.cancelled_caught:
            await self.give(": still at work\n\n")


def caller_of(served: Served, request: Request) -> Caller:
    """Return who makes a request; raises `Refused` for an app that is not open."""
    try:
        return served.caller(request.scope[CALLER])
    except Misuse as error:
        raise Refused(str(error), 503, "not_open") from None


async def begun(asking: Awaitable[AskedRun]) -> AskedRun:
    """Return the run that is asked for; raises `Refused` in place of what keeps it from beginning."""
    try:
        return await asking
    except TooMany:
        raise Refused("too many of your runs are under way: wait until one ends", 429, "too_many_runs") from None
    except OtherRequest:
        sentence = "the Idempotency-Key was used before, for another request: take a new one"
        raise Refused(sentence, 422, "idempotency_error") from None
    except (InsufficientBudget, HaltError) as error:
        raise refusal_of(error) from None
    except (KairoError, ValueError) as error:
        raise Refused(str(error)) from None


def key_of(request: Request) -> str | None:
    """Return the idempotency key of a request; raises `Refused` for one that cannot be a key."""
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    key = given[0].strip()
    if len(given) > 1 or not key or len(key) > _LONGEST_KEY:
        raise Refused(f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
    return key


def goal_of(messages: Iterable[Message]) -> tuple[str, list[File], Json]:
    """Return the last message as the goal, the files of all, and what was said before as context."""
    *before, last = messages
    if last.role != "user" or not last.text.strip():
        raise Refused("the last message has to be the user's, with text: it is the goal of the team's run")
    files = [file for message in (*before, last) for file in message.files]
    return last.text, files, conversation(f"{message.role}: {message.text}" for message in before if message.text)


def conversation(said: Iterable[str]) -> dict[str, Any]:
    """Return what was said before as context."""
    text = "\n\n".join(said)
    return {"conversation": text} if text else {}
