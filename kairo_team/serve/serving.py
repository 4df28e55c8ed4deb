"""The HTTP server of a served team: uvicorn, without patience for connections that begin no request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kairo_team.errors import Misuse

if TYPE_CHECKING:
    from kairo_team.serve.asgi import ServedTeam
    from kairo_team.web_console.address import Address

HEAD_SECONDS: Final = 20.0
"""Seconds in which a connection has to send the first line and the headers of a request."""
_MOST_CONNECTIONS: Final = 1_000
_GRACE: Final = 5
"""Seconds that requests get when the server ends."""


class _Prompt(H11Protocol):
    """Closes a connection whose request does not begin in time; uvicorn itself would wait for ever."""

    _timer: Any = None  # by class, because the base's constructor belongs to uvicorn

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _watch(self) -> None:
        """Begin to count when a request is awaited, and stop when there is one."""
        under_way: Any = self.cycle
        if under_way is not None and not under_way.response_complete:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        under_way: Any = self.cycle
        if under_way is None or under_way.response_complete:  # a request may have begun while this was due
            self.transport.close()


class _Server(uvicorn.Server):
    """Says when it is ready, and on which port."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        found = [one for server in self.servers for one in server.sockets]
        if self.started and found:
            self._ready(int(found[0].getsockname()[1]))


def serve_http(app: ServedTeam, address: Address, ready: Callable[[int], object]) -> None:
    """Serve until a signal ends it; calls `ready` with the port. Raises `Misuse` for an address that is taken."""
    config = uvicorn.Config(
        app,
        http=_Prompt,
        ws="none",
        lifespan="on",  # without it the served team would refuse everything
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE,
        **address.server_options(),
    )
    server = _Server(config, ready)
    try:
        server.run()
    except SystemExit:  # how uvicorn says that it could not start; it has logged why
        place = f"{address.host}, port {address.port}"
        raise Misuse(f"the team cannot be served on {place}: take another port, such as --port 0") from None
