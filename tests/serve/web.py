"""A served team on a real server of the loopback, and clients with a key."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import uvicorn

import kairo_team as kt
from kairo_team.serve.asgi import ServedTeam
from tests.serve.stage import BUDGET, KEYS


def app_of(team: kt.Team, **options: Any) -> ServedTeam:
    given: dict[str, Any] = {"keys": KEYS, "budget": BUDGET, **options}
    return kt.asgi(team, **given)


def http_client(key: str | None, **options: Any) -> httpx2.AsyncClient:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(headers=headers, timeout=60, **options)


@asynccontextmanager
async def running(team: kt.Team, **options: Any) -> AsyncGenerator[str]:
    """Serve a team in a thread, as uvicorn does; yields its URL."""
    async with serving(app_of(team, **options)) as url:
        yield url


@asynccontextmanager
async def serving(app: Any, **options: Any) -> AsyncGenerator[str]:
    """Serve an app in a thread; yields its URL."""
    given: dict[str, Any] = {
        "ws": "none",
        "log_level": "warning",
        "lifespan": "on",
        "timeout_graceful_shutdown": 1,
        **options,
    }
    server = uvicorn.Server(uvicorn.Config(app, port=0, **given))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            await anyio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        with anyio.CancelScope(shield=True):
            while thread.is_alive():
                await anyio.sleep(0.01)
