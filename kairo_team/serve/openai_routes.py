"""OpenAI's chat completions and Responses: the model is the team, and its reasoning is what happens in the run."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kairo_team.errors import HaltError, InsufficientBudget, KairoError
from kairo_team.models.address.chat import Chat
from kairo_team.models.address.parts import Refused, parsed
from kairo_team.models.address.responses import Responses
from kairo_team.serve.asked import OtherRequest, TooMany
from kairo_team.serve.ends import described, refusal_of, reply_of
from kairo_team.serve.guard import CALLER, refusal

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from kairo_team.files import File
    from kairo_team.messages import Message, ModelRequest
    from kairo_team.models.address.parts import Asked, Json
    from kairo_team.serve.asked import AskedRun, Served

PING_SECONDS: Final = 15.0
"""Seconds of silence after which a stream gets a comment, so that no proxy ends it."""
_LONGEST_KEY: Final = 255

_logger = logging.getLogger("kairo_team")


def openai_routes(served: Served) -> list[Route]:
    """Return the routes below `/v1`."""
    team = served.rules.team.name
    model = {"id": team, "object": "model", "created": int(time.time()), "owned_by": "kairo-team"}

    async def models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        if request.path_params["name"] != team:
            return refusal(_no_model(request.path_params["name"], team))
        return JSONResponse(model)

    return [
        Route("/v1/chat/completions", Completions(served, Chat())),
        Route("/v1/responses", Completions(served, Responses())),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
    ]


def _no_model(given: object, team: str) -> Refused:
    return Refused(f"there is no model {given!r:.80} here, only the team {team!r}", 404, "model_not_found")


class Completions:
    """One path: a request is a run, and a client that leaves ends it."""

    def __init__(self, served: Served, form: Chat | Responses) -> None:
        self._served = served
        self._form = form
        self._team = served.rules.team.name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        if request.method != "POST":
            refused = Refused(f"{request.url.path} takes POST, not {request.method}", 405)
            await refusal(refused)(scope, receive, send)
            return
        body = await request.body()  # the guard has it already
        await _attended(receive, lambda: self._answer(request, body, send))

    async def _answer(self, request: Request, body: bytes, send: Send) -> None:
        try:
            asked = self._read(body)
            run = await self._ask(request, asked.request)
        except Refused as error:
            refused = error
        except Exception as error:
            _logger.exception("a request to the served team failed")
            refused = Refused(f"{type(error).__name__}: {error}", 500, "api_error")
        else:
            await self._follow(request, asked, run, send)
            return
        await refusal(refused)(request.scope, request.receive, send)

    async def _follow(self, request: Request, asked: Asked, run: AskedRun, send: Send) -> None:
        """Wait for the run, and send its reply: as a stream from its first line on, or as a whole."""
        with run.listening():
            while not run.ended and not (asked.stream and run.lines):
                await run.news()
            if run.ended and not (asked.stream and _has_reply(run)):
                await self._whole(asked, run)(request.scope, request.receive, send)
            else:
                await self._stream(asked, run, send)

    def _read(self, body: bytes) -> Asked:
        """Return the request; raises `Refused` for what a team cannot take."""
        given = parsed(body)
        model = given.get("model")
        if model != self._team:
            raise _no_model(model, self._team)
        try:
            asked = self._form.read(given, "")
        except ValueError as error:
            raise Refused(str(error)) from None
        _check_for_team(asked.request)
        return asked

    async def _ask(self, request: Request, asked: ModelRequest) -> AskedRun:
        goal, files, context = _goal_of(asked.messages)
        try:
            caller = self._served.caller(request.scope[CALLER])
            return await caller.ask(goal, files=files, context=context, key=_key_of(request))
        except TooMany:
            raise Refused("too many of your runs are under way: wait until one ends", 429, "too_many_runs") from None
        except OtherRequest:
            sentence = "the Idempotency-Key was used before, for another request: take a new one"
            raise Refused(sentence, 422, "idempotency_error") from None
        except (InsufficientBudget, HaltError) as error:
            raise refusal_of(error) from None
        except (KairoError, ValueError) as error:
            raise Refused(str(error)) from None

    def _whole(self, asked: Asked, run: AskedRun) -> Response:
        """Return the reply of an ended run."""
        about = {} if run.result is None else {"kairo": described(run.result)}
        headers = {"x-kairo-run": run.request.run_id, "cache-control": "no-store"}
        try:
            reply = reply_of(run, self._team)
        except Refused as refused:
            return refusal(refused, about, headers)
        return JSONResponse(self._form.write(asked, reply) | about, headers=headers)

    async def _stream(self, asked: Asked, run: AskedRun, send: Send) -> None:
        """Send what happens as reasoning, and the output when it is accepted."""
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-kairo-run": run.request.run_id,
        }
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})

        async def give(events: str, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": events.encode(), "more_body": more})

        stream = self._form.stream(replace(asked, shows_thoughts=True), self._team)
        told = 0
        while not run.ended or told < len(run.lines):
            if told < len(run.lines):
                told += 1
                await give(stream.piece("thinking", f"{run.lines[told - 1]}\n"))
                continue
            with anyio.move_on_after(PING_SECONDS) as silence:
                await run.news()
            if silence.cancelled_caught:
                await give(": still at work\n\n")
        try:
            reply = reply_of(run, self._team)
        except Refused as refused:
            await give(stream.broken(refused), more=False)
        else:
            await give(stream.end(reply), more=False)


async def _attended(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work of a request, and cancel it if its client leaves."""
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                continue
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        await work()
        tasks.cancel_scope.cancel()


def _has_reply(run: AskedRun) -> bool:
    return run.result is not None and run.result.artifact is not None


def _key_of(request: Request) -> str | None:
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    key = given[0].strip()
    if len(given) > 1 or not key or len(key) > _LONGEST_KEY:
        raise Refused(f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
    return key


def _check_for_team(request: ModelRequest) -> None:
    """Raise `Refused` for what a model has, and a team has not."""
    if request.tools:
        raise Refused("'tools' cannot be given to a team: its members have their own")
    if request.output_schema is not None:
        raise Refused("the form of a team's answer is in its plan: leave the schema of the reply out")
    if request.max_tokens is not None:
        raise Refused("the length of one reply limits a model; a run has the limit that its server gives: leave it out")
    settings: dict[str, Any] = dict(request.settings)
    rest: Json = settings.pop("extra_body", {})
    if names := [*settings, *rest]:
        raise Refused(f"{names[0]!r} is a setting of a model, and this is a team: leave it out")


def _goal_of(messages: Iterable[Message]) -> tuple[str, list[File], Json]:
    """Return the last message as the goal, the files of all, and what was said before as context."""
    *before, last = messages
    if last.role != "user" or not last.text.strip():
        raise Refused("the last message has to be the user's, with text: it is the goal of the team's run")
    files = [file for message in (*before, last) for file in message.files]
    said = [f"{message.role}: {message.text}" for message in before if message.text]
    return last.text, files, {"conversation": "\n\n".join(said)} if said else {}
