"""The MCP server over streamable HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from kairo_team.errors import Misuse
from kairo_team.serve.asked import NOT_OPEN
from kairo_team.serve.guard import CALLER, MOST_BYTES
from kairo_team.serve.mcp_server import make_server

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from kairo_team.serve.asked import Served
    from kairo_team.serve.mcp_server import Context

_MOST_SESSIONS: Final = 1_000


class McpOverHttp:
    """The MCP server as an ASGI app behind the guard: a session belongs to the key that began it."""

    def __init__(self, served: Served, description: str) -> None:
        self._server = make_server(served, _caller_of, description)
        self._manager: StreamableHTTPSessionManager | None = None  # made in `run`: the SDK's can run only once

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Take requests while the block runs."""
        # The guard has checked names, origins and the body.
        manager = StreamableHTTPSessionManager(
            self._server, max_request_body_size=MOST_BYTES, max_sessions=_MOST_SESSIONS
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; `Misuse` outside `run`."""
        if self._manager is None:
            raise Misuse(NOT_OPEN)
        name = scope[CALLER]
        # The SDK binds a session to this user.
        scope["user"] = AuthenticatedUser(AccessToken(token=name, client_id=name, scopes=[]))
        await self._manager.handle_request(scope, receive, send)


def _caller_of(context: Context) -> str:
    request = context.request
    assert request is not None, "every message came in a request"
    name: str = request.scope[CALLER]
    return name
