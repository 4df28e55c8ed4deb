"""The address of a console; it is refused if the traffic could be read on the way."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kairo_team.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Address:
    """The address that a server listens on, and its names in browsers; `Misuse` for an address that is not safe."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port."""
    tls_cert: str | Path | None = None
    tls_key: str | Path | None = None
    behind_proxy: bool = False
    """Whether a proxy in front of the server does TLS."""
    names: Sequence[str] = ()
    """Further host names that browsers may use; the first one is in the link."""
    what: str = "the console"
    """The server's name in errors."""

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Misuse("TLS needs both files: --tls-cert and --tls-key")
        if self.behind_proxy and not self.names:
            raise Misuse(f"behind a proxy {self.what} must know what browsers call it: --name runs.example.org")
        if is_loopback(self.host):
            return
        if self.tls_cert is None and not self.behind_proxy:
            raise Misuse(
                f"{self.what} binds to this machine alone, not to {self.host!r}: elsewhere it needs --tls-cert and "
                "--tls-key, or --behind-proxy where a proxy in front of it does TLS"
            )
        if self.host in ("0.0.0.0", "::", "") and not self.names:  # noqa: S104 - it is refused
            raise Misuse(f"on {self.host!r} {self.what} must know what browsers call it: --name runs.example.org")

    @property
    def secure(self) -> bool:
        """Whether browsers reach the console over HTTPS."""
        return self.tls_cert is not None or self.behind_proxy

    @property
    def known_names(self) -> frozenset[str]:
        """The host names that a request may have."""
        return frozenset({self._own, *LOOPBACK_NAMES, *self.names})

    def shown(self, port: int) -> str:
        """Return the beginning of the link; `port` is the port that the console listens on."""
        end = "" if self.behind_proxy else f":{port}"
        return f"{'https' if self.secure else 'http'}://{self.names[0] if self.names else self._own}{end}"

    def server_options(self) -> dict[str, Any]:
        """Return what uvicorn takes for this address, and how it stays silent about itself."""
        tls: dict[str, Any] = {"ssl_certfile": self.tls_cert, "ssl_keyfile": self.tls_key} if self.tls_cert else {}
        quiet: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False}
        return {"host": self.host, "port": self.port, "proxy_headers": self.behind_proxy, **quiet, **tls}

    @property
    def _own(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def is_loopback(host: str) -> bool:
    """Return whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
