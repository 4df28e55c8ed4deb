"""The server of the console, in a thread of a program or as a command."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Self

import uvicorn

from kairo_team.errors import Misuse
from kairo_team.web_console.access import Access
from kairo_team.web_console.app import make_app

if TYPE_CHECKING:
    from kairo_team.web_console.address import Address
    from kairo_team.web_console.sources import Source


class ConsoleServer:
    """A console that runs in a thread of its own, from `start` to `close`."""

    def __init__(
        self, source: Source, address: Address, *, token: str | None = None, person: str | None = None
    ) -> None:
        """Take the runs to show and the address; `token` and `person` are as in `kairo_team.console`."""
        self.access = Access(address.known_names, token=token, secure=address.secure)
        app = make_app(source, self.access, person=person, is_closing=lambda: self._server.should_exit)
        tls: dict[str, Any] = (
            {"ssl_certfile": address.tls_cert, "ssl_keyfile": address.tls_key} if address.tls_cert else {}
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                host=address.host,
                port=address.port,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=address.behind_proxy,
                timeout_graceful_shutdown=1,
                lifespan="off",
                **tls,
            )
        )
        self._source = source
        self._address = address
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that the console listens on, once it has started."""
        sockets = [one for server in self._server.servers for one in server.sockets]
        return int(sockets[0].getsockname()[1])

    @property
    def link(self) -> str:
        """The address that lets a browser in; a person who has it can answer questions and end runs."""
        return f"{self._address.shown(self.port)}/?token={self.access.token}"

    def start(self) -> Self:
        """Begin to serve; `Misuse` if the address is taken or cannot be used."""
        thread = threading.Thread(target=self._serve, name="kairo-console", daemon=True)
        thread.start()
        self._thread = thread
        while not self._server.started:
            thread.join(0.01)
            if not thread.is_alive():
                self._source.close()
                config = self._server.config
                raise Misuse(f"the console cannot listen on {config.host}, port {config.port}: take another port")
        return self

    def _serve(self) -> None:
        try:
            self._server.run()
        except SystemExit:  # how uvicorn says that it could not start; it has logged why
            return

    def wait(self) -> None:
        """Wait for the end of the console; a signal interrupts the wait."""
        while self._thread is not None and self._thread.is_alive():
            time.sleep(0.5)  # in Python 3.11 a thread whose `join` a signal interrupts counts as ended

    def close(self) -> None:
        """Stop the console; open pages show it. Kept runs without a journal are gone."""
        self._server.should_exit = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        self._source.close()

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
