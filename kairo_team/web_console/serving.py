"""The server of the console: beside a program's own work, or as a command."""

from __future__ import annotations

import ipaddress
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from kairo_team.errors import Misuse
from kairo_team.web_console.access import LOOPBACK_NAMES, Access
from kairo_team.web_console.app import make_app

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kairo_team.durable.journal import SqliteJournal
    from kairo_team.engine.runtime import Runtime


class ConsoleServer:
    """A console that runs in a thread of its own, from `start` to `close`."""

    def __init__(
        self,
        journal: SqliteJournal,
        *,
        runtime: Runtime | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        person: str | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
        behind_proxy: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        """Check how it is to be reached; `Misuse` for an address that is not safe.

        Runs of the `runtime` can be steered too. `port` 0 takes a free one.
        `names` are further names that a browser may know it by.
        """
        check_binding(host, tls_cert, tls_key, names, behind_proxy=behind_proxy)
        secure = tls_cert is not None or behind_proxy
        own = (f"[{host}]" if ":" in host else host,)
        self.access = Access({*own, *LOOPBACK_NAMES, *names}, token=token, secure=secure)
        app = make_app(journal, self.access, runtime=runtime, person=person)
        tls: dict[str, Any] = {"ssl_certfile": tls_cert, "ssl_keyfile": tls_key} if tls_cert else {}
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=behind_proxy,
                timeout_graceful_shutdown=1,
                lifespan="off",
                **tls,
            )
        )
        self._scheme = "https" if secure else "http"
        self._shown = names[0] if names else own[0]
        self._behind_proxy = behind_proxy
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """Where it listens, once it has started."""
        sockets = [one for server in self._server.servers for one in server.sockets]
        return int(sockets[0].getsockname()[1])

    @property
    def link(self) -> str:
        """The address that lets a browser in: whoever has it can answer questions and end runs."""
        port = "" if self._behind_proxy else f":{self.port}"
        return f"{self._scheme}://{self._shown}{port}/?token={self.access.token}"

    def start(self) -> Self:
        """Begin to serve; `Misuse` where the address is taken or cannot be used."""
        thread = threading.Thread(target=self._serve, name="kairo-console", daemon=True)
        thread.start()
        self._thread = thread
        while not self._server.started:
            thread.join(0.01)
            if not thread.is_alive():
                config = self._server.config
                raise Misuse(f"the console cannot listen on {config.host}, port {config.port}: take another port")
        return self

    def _serve(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # how uvicorn says that it could not start; it has logged why
            return

    def wait(self) -> None:
        """Wait for its end; a signal interrupts it."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.5)

    def close(self) -> None:
        """Stop it; pages that are open say so."""
        self._server.should_exit = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def check_binding(
    host: str,
    tls_cert: str | Path | None,
    tls_key: str | Path | None,
    names: Sequence[str],
    *,
    behind_proxy: bool,
) -> None:
    """Raise `Misuse` unless nobody on the way can read what is sent, and the names of the console are known."""
    if (tls_cert is None) != (tls_key is None):
        raise Misuse("TLS needs both files: --tls-cert and --tls-key")
    if behind_proxy and not names:
        raise Misuse("behind a proxy the console must know what browsers call it: --name runs.example.org")
    if is_loopback(host):
        return
    if tls_cert is None and not behind_proxy:
        raise Misuse(
            f"the console binds to this machine alone, not to {host!r}: elsewhere it needs --tls-cert and --tls-key, "
            "or --behind-proxy where a proxy in front of it does TLS"
        )
    if host in ("0.0.0.0", "::", "") and not names:  # noqa: S104 - it is refused
        raise Misuse(f"on {host!r} the console must know what browsers call it: --name runs.example.org")


def is_loopback(host: str) -> bool:
    """Return whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
