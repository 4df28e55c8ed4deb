"""`HealthServer`: reports over HTTP whether a worker lives (`/healthz`) and takes work (`/readyz`).

`TextServer` is the small server under it, which answers GET with a text.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

from kairo_team.errors import Misuse

if TYPE_CHECKING:
    from kairo_team.cluster.service import WorkerService

_MOST_SECONDS: Final = 10.0
"""Seconds that one connection may stay open."""
_MAX_PORT: Final = 65_535


class Answer(NamedTuple):
    """What a `TextServer` answers."""

    status: HTTPStatus
    text: str
    content_type: str = "text/plain; charset=utf-8"


class TextServer:
    """Answers GET by a function of the path, in threads of its own, while the block runs."""

    def __init__(self, address: str, answer: Callable[[str], Answer]) -> None:
        """`address` is `PORT`, reachable from this machine only, or `HOST:PORT`; port 0 selects a free port.

        Raises `Misuse` for an address that is invalid or in use.
        """
        host, port = read_address(address)
        family = socket.AF_INET
        with suppress(ValueError):  # a name
            family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET  # noqa: PLR2004 - IPv6
        handler = type("Handler", (_Handler,), {"answer": staticmethod(answer)})
        made = type("Server", (_Server,), {"address_family": family})
        try:
            self._server = made((host, port), handler)
        except OSError as error:
            raise Misuse(f"cannot listen on {address!r}: {error.strerror or error}; take another port") from None

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="kairo-health", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class HealthServer(TextServer):
    """Answers probes about a worker; the answers name no run and no database.

    `/healthz` is 200 while the process sends its heartbeat, else 503. `/readyz` is 200 while the worker takes units,
    and 503 before that and while it drains.
    """

    def __init__(self, service: WorkerService, address: str) -> None:
        """Listen on an address; see `TextServer`."""
        super().__init__(address, partial(_answer, service))


def _answer(service: WorkerService, path: str) -> Answer:
    if path not in ("/healthz", "/readyz"):
        return Answer(HTTPStatus.NOT_FOUND, "there are /healthz and /readyz")
    text: str
    if path == "/readyz":
        good, text = service.phase == "ready", service.phase
    else:
        good, silence = service.sends_heartbeat, service.silence
        text = "beats" if good else "not connected yet" if silence is None else f"no beat for {silence:.0f} s"
    return Answer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, text)


def read_address(text: str) -> tuple[str, int]:
    """Read `PORT`, `HOST:PORT` or `[HOST]:PORT`; without a host, return the loopback address. Raises `Misuse`."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > _MAX_PORT:
        raise Misuse(f"the address to listen on is PORT or HOST:PORT, such as 8080 or 0.0.0.0:8080, not {text!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about a client that went away."""


class _Handler(BaseHTTPRequestHandler):
    answer: ClassVar[Callable[[str], Answer]]
    timeout = _MOST_SECONDS
    server_version, sys_version = "kairo", ""

    def do_GET(self) -> None:
        answer = type(self).answer(self.path.partition("?")[0])
        body = f"{answer.text.removesuffix(chr(10))}\n".encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log of probes."""
