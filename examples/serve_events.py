"""Serve runs over HTTP: their events as server-sent events, which continue where a watcher was cut off.

    TOKEN=sesame python examples/serve_events.py
    curl -s -X POST localhost:8000/runs -H 'Authorization: Bearer sesame' -d '{"goal": "Tell what the sea is like."}'
    curl -N localhost:8000/runs/RUN_ID/events?token=sesame

| request | what it does |
|---|---|
| `POST /runs` with `{"goal": ...}` | starts a run, and returns the addresses of its events and its result |
| `GET /runs/ID/events` | its events from the first, or after `Last-Event-ID`, then live |
| `POST /runs/ID/steer` with `{"directive": ...}` | sends it to all members, or only to the members of a `task_id` |
| `POST /runs/ID/cancel`, with or without `{"task_id": ...}` | ends the run, or one task of it |
| `GET /runs/ID/result` | waits for the end and returns the result |

`kairo console` shows recorded runs in a browser. This example is your own service: it begins runs on request, and its
clients read events as JSON and steer. It needs no journal.

The events' numbers are their ids, so a browser's `EventSource` that lost its connection asks for the events it has not
seen, and receives every event once. Members are plain functions that take some time; no model is used. Needs starlette
and uvicorn.

Every request needs the token, as a bearer or, for an `EventSource`, which sends no headers of its own, in the address.
Without TOKEN the server makes one and prints it. It listens on this machine only. It refuses requests for another host
name (such as a foreign page's name that was pointed here) or from another origin. Bodies have at most 64 kB, without
nesting.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import kairo_team as kt
from kairo_team import events
from kairo_team.errors import Misuse

SECONDS = float(os.environ.get("SECONDS", "1"))
"""Seconds that a member takes for each step of its work."""
PING = 15.0
"""Seconds without an event after which a comment is sent, because proxies close silent connections."""
TOKEN = os.environ.get("TOKEN") or secrets.token_urlsafe()
"""The secret of every request."""
NAMES = ("localhost", "127.0.0.1", "[::1]")
"""Host names of the server in an address."""
MAX_BODY = 64_000
"""Most bytes of a request's body."""
KEPT = 100
"""Ended runs whose events and results can still be read."""

# ---------------------------------------------------------------- the team

SEEN = {"waves": "waves of half a metre from the west", "wind": "a light breeze", "sky": "high clouds"}


async def watch(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    """Look at one thing after another, and report each."""
    for number, (what, found) in enumerate(SEEN.items(), 1):
        await anyio.sleep(SECONDS)
        context.emit(f"{assignment.task.id}: looked at the {what}", done=number, of=len(SEEN))
        context.keep(found)
    return "; ".join(SEEN.values())


async def write(assignment: kt.Assignment) -> str:
    """Write down the observations, with the directives for the run."""
    await anyio.sleep(SECONDS)
    wanted = "".join(f" ({directive})" for directive in assignment.directives)
    return f"At sea: {assignment.upstream['watch'].text}.{wanted}"


def build(goal: str) -> tuple[kt.Team, kt.TeamExecutionRequest]:
    """Make a team and its request; every run has its own."""
    team = kt.Team("coast-guard", [kt.Member("lookout", watch), kt.Member("clerk", write)])
    plan = kt.TaskGraph(
        [
            kt.Task("watch", "Look at the sea.", role="lookout"),
            kt.Task("write", "Write it down.", role="clerk", depends_on=["watch"]),
        ]
    )
    return team, kt.TeamExecutionRequest(goal, plan=plan)


# ---------------------------------------------------------------- the server


class Desk:
    """The runtime and the handles of its runs; the last ended runs are kept here, because the runtime drops them."""

    def __init__(self, runtime: kt.Runtime) -> None:
        self.runtime = runtime
        self._runs: OrderedDict[str, kt.Run] = OrderedDict()

    async def begin(self, goal: str) -> kt.Run:
        """Start a run, and drop the oldest of the ended runs."""
        team, request = build(goal)
        run = await self.runtime.start(team, request)
        self._runs[run.run_id] = run
        ended = [run_id for run_id, one in self._runs.items() if not one.live]
        for run_id in ended[:-KEPT]:
            del self._runs[run_id]
        return run

    def find(self, run_id: str) -> kt.Run:
        """Return a run's handle; `RunNotFound` or `RunFinished`."""
        return self._runs.get(run_id) or self.runtime.runs[run_id]

    def close(self) -> None:
        """Cancel the live runs when the server stops."""
        for run in self.runtime.runs.values():
            run.cancel("the server was shut down")


def desk(request: Request) -> Desk:
    """Return the desk, which all requests share."""
    found: Desk = request.state.desk
    return found


async def begin(request: Request) -> Response:
    """Begin a run."""
    goal = (await read(request)).get("goal")
    if not isinstance(goal, str) or not goal.strip():
        raise HTTPException(400, 'the body needs a goal, such as {"goal": "Tell what the sea is like."}')
    run = await desk(request).begin(goal)
    here = f"/runs/{run.run_id}"
    created = {"run_id": run.run_id, "events": f"{here}/events", "result": f"{here}/result"}
    return JSONResponse(created, 201, {"location": here})


async def follow(request: Request) -> Response:
    """Send the events a watcher has not seen; without further events, 204, after which a browser stops asking."""
    run = desk(request).find(request.path_params["run_id"])
    last = request.headers.get("last-event-id", "0")
    if not last.isdecimal():
        raise HTTPException(400, f"Last-Event-ID is the number of an event, not {last!r}")
    source = run.events(after=int(last))
    if not run.live and await anext(run.events(after=int(last)), None) is None:
        return Response(status_code=204)
    return StreamingResponse(stream(source), media_type="text/event-stream", headers={"cache-control": "no-cache"})


async def stream(source: AsyncIterator[events.Event]) -> AsyncIterator[str]:
    """Write events as server-sent events, and a comment after a long silence."""
    while True:
        event: events.Event | None = None
        with anyio.move_on_after(PING):
            event = await anext(source, None)
            if event is None:
                return
        yield (
            ": nothing new\n\n"
            if event is None
            else f"id: {event.seq}\nevent: {event.type}\ndata: {event.to_json()}\n\n"
        )


async def steer(request: Request) -> Response:
    """Send a directive."""
    body = await read(request)
    desk(request).find(request.path_params["run_id"]).steer(body.get("directive", ""), body.get("task_id"))
    return Response(status_code=204)


async def cancel(request: Request) -> Response:
    """End a run, or one of its tasks."""
    run, task_id = desk(request).find(request.path_params["run_id"]), (await read(request)).get("task_id")
    if task_id is None:
        run.cancel("cancelled over HTTP")
    else:
        run.cancel_task(task_id, "cancelled over HTTP")
    return Response(status_code=204)


async def result(request: Request) -> Response:
    """Wait for the end, and return the result."""
    ended = await desk(request).find(request.path_params["run_id"]).result()
    tasks = {outcome.task_id: outcome.status.value for outcome in ended.outcomes}
    return JSONResponse({"status": ended.status.value, "output": ended.output, "error": ended.error, "tasks": tasks})


async def read(request: Request) -> dict[str, str]:
    """Return the JSON object of strings in a request's body; without a body, an empty one."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"the body may have {MAX_BODY} bytes")
    try:
        found: Any = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(value, str) for value in cast("dict[str, Any]", found).values()
    ):
        raise HTTPException(400, "the body must be a JSON object of strings")
    return cast("dict[str, str]", found)


class Guarded:
    """Admits only requests with this server's name and origin, and the token."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        refusal = unwanted(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)


def unwanted(request: Request) -> Response | None:
    """Return the refusal of a request; None admits it."""
    hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
    if len(hosts) != 1 or hosts[0].lower().removesuffix(f":{(request.scope['server'] or ('', 0))[1]}") not in NAMES:
        return JSONResponse({"error": f"this server is called {', '.join(NAMES)}, not {hosts}"}, 421)
    if any(origin != f"http://{hosts[0]}" for origin in origins):
        return JSONResponse({"error": f"no page of {origins} may ask this server"}, 403)
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ") or request.query_params.get("token", "")
    # Constant time: `==` would show how many characters are right.
    if not hmac.compare_digest(bearer.encode(), TOKEN.encode()):
        return JSONResponse({"error": "the token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN"}, 401)
    return None


async def refuse(_request: Request, error: Exception) -> Response:
    """Return the error: 404 for an unknown run, 409 for one that has ended, 400 for anything else."""
    status = 404 if isinstance(error, kt.RunNotFound) else 409 if isinstance(error, kt.RunFinished) else 400
    return JSONResponse({"error": str(error)}, status)


@asynccontextmanager
async def lifespan(_app: Starlette) -> AsyncGenerator[dict[str, Desk]]:
    """Run the runtime while the server runs."""
    async with kt.Runtime() as runtime:
        shared = Desk(runtime)
        try:
            yield {"desk": shared}
        finally:
            shared.close()


app = Starlette(
    routes=[
        Route("/runs", begin, methods=["POST"]),
        Route("/runs/{run_id}/events", follow),
        Route("/runs/{run_id}/result", result),
        Route("/runs/{run_id}/steer", steer, methods=["POST"]),
        Route("/runs/{run_id}/cancel", cancel, methods=["POST"]),
    ],
    middleware=[Middleware(Guarded)],
    exception_handlers={Misuse: refuse, ValueError: refuse},
    lifespan=lifespan,
)


def main() -> None:
    """Serve until Ctrl-C, on port 8000 or PORT."""
    if "TOKEN" not in os.environ:
        print(f"The token is {TOKEN}", flush=True)
    port = int(os.environ.get("PORT", "8000"))
    print(f"How to use it: POST a goal to http://127.0.0.1:{port}/runs, as the head of this file shows", flush=True)
    uvicorn.run(app, port=port, log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
