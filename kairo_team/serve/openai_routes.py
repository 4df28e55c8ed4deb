"""OpenAI's chat completions and Responses: the model is the team, and its reasoning is what happens in the run."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kairo_team.models.address.chat import Chat
from kairo_team.models.address.parts import Refused, parsed
from kairo_team.models.address.responses import Responses
from kairo_team.serve.ends import described, reply_of
from kairo_team.serve.guard import refusal
from kairo_team.serve.posts import EventStream, Post, begun, caller_of, goal_of, json_reply, key_of

if TYPE_CHECKING:
    from starlette.types import Send

    from kairo_team.models.address.parts import Asked, Json
    from kairo_team.serve.asked import AskedRun, Served
    from kairo_team.serve.posts import Reply


def openai_routes(served: Served) -> list[Route]:
    """Return the routes below `/v1`."""
    team = served.rules.team.name
    model = {"id": team, "object": "model", "created": int(time.time()), "owned_by": "kairo-team"}

    async def models(_request: Request) -> Response:
        return json_reply({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        if request.path_params["name"] != team:
            return refusal(_no_model(request.path_params["name"], team))
        return json_reply(model)

    return [
        Route("/v1/chat/completions", Post(Completions(served, Chat()).begin)),
        Route("/v1/responses", Post(Completions(served, Responses()).begin)),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", one_model),
    ]


def _no_model(given: object, team: str) -> Refused:
    return Refused(f"there is no model {given!r:.80} here, only the team {team!r}", 404, "model_not_found")


class Completions:
    """The requests of one form: each is a run, and a client that leaves ends it."""

    def __init__(self, served: Served, form: Chat | Responses) -> None:
        self._served = served
        self._form = form
        self._team = served.rules.team.name

    async def begin(self, request: Request, body: bytes) -> Reply:
        """Begin the run of a request; raises `Refused`."""
        asked = self._read(body)
        goal, files, context = goal_of(asked.request.messages)
        caller = caller_of(self._served, request)
        run = await begun(caller.ask(goal, files=files, context=context, key=key_of(request)))

        async def reply(send: Send) -> None:
            """Wait for the run, and send its reply: as a stream from its first line on, or as a whole."""
            with run.listening():
                # A stream begins with its first line: until then a refusal can still have its own status.
                while not run.ended and not (asked.stream and run.lines):
                    await run.news()
                has_reply = run.result is not None and run.result.artifact is not None
                if run.ended and not (asked.stream and has_reply):
                    await self._whole(asked, run)(request.scope, request.receive, send)
                else:
                    await self._stream(asked, run, send)

        return reply

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
        # A team has no tools, schema or settings of its own.
        if asked.request.tools:
            raise Refused("'tools' cannot be given to a team: its members have their own")
        if asked.request.output_schema is not None:
            raise Refused("the form of a team's answer is in its plan: leave the schema of the reply out")
        if asked.request.max_tokens is not None:
            limited = "the length of one reply limits a model; a run has the limit that its server gives: leave it out"
            raise Refused(limited)
        settings: dict[str, Any] = dict(asked.request.settings)
        rest: Json = settings.pop("extra_body", {})
        if names := [*settings, *rest]:
            raise Refused(f"{names[0]!r} is a setting of a model, and this is a team: leave it out")
        return asked

    def _whole(self, asked: Asked, run: AskedRun) -> Response:
        """Return the reply of an ended run."""
        about = {} if run.result is None else {"kairo": described(run.result)}
        headers = {"x-kairo-run": run.request.run_id}
        try:
            reply = reply_of(run, self._team)
        except Refused as refused:
            return refusal(refused, about, headers)
        return json_reply(self._form.write(asked, reply) | about, headers)

    async def _stream(self, asked: Asked, run: AskedRun, send: Send) -> None:
        """Send what happens as reasoning, and the output when it is accepted."""
        events = EventStream(send, {"x-kairo-run": run.request.run_id})
        await events.begin()
        # Asked for or not: the lines are the only sign of life.
        stream = self._form.stream(replace(asked, shows_thoughts=True), self._team)
        told = 0
        while not run.ended or told < len(run.lines):
            if told < len(run.lines):
                told += 1
                await events.give(stream.piece("thinking", f"{run.lines[told - 1]}\n"))
            else:
                await events.news(run)
        try:
            reply = reply_of(run, self._team)
        except Refused as refused:
            await events.give(stream.broken(refused), more=False)
        else:
            await events.give(stream.end(reply), more=False)
