"""`console`: the runs of a journal in a browser, and the questions that wait for a person."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kairo_team._util.frozen import known_call
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.engine.work.runtime import Runtime
from kairo_team.errors import MissingExtra
from kairo_team.web_console.address import Address
from kairo_team.web_console.runtime_source import RuntimeSource
from kairo_team.web_console.sources import JournalSource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kairo_team.web_console.serving import ConsoleServer
    from kairo_team.web_console.sources import Source


@known_call
def console(
    runtime: Runtime | SqlJournal,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    person: str | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    behind_proxy: bool = False,
    names: Sequence[str] = (),
) -> ConsoleServer:
    """Make the console of a runtime, or of a journal alone; `with` or `start` begins to serve.

    For a runtime without a journal the console shows current and later runs, and keeps the last 100 ended ones until
    it is closed. It runs in its own thread. `console.link` is the address that lets a browser in. `port` 0 takes a
    free port.
    `token` replaces the random one in the link (at least 16 characters). `person` is recorded with actions from a
    browser that gave no name; None is the user of this process. The console binds to this machine alone, unless it
    has TLS (`tls_cert`, `tls_key`) or is `behind_proxy`; `names` are then its host names in browsers. Raises
    `MissingExtra`, and `Misuse` for an address that is not safe.

    >>> with kt.console(runtime) as console:
    ...     print(console.link)
    """
    address = Address(host, port, tls_cert, tls_key, behind_proxy, tuple(names))
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise MissingExtra("the console", "console")
    from kairo_team.web_console.serving import ConsoleServer

    return ConsoleServer(_source_of(runtime), address, token=token, person=person)


def _source_of(given: Any) -> Source:
    """Return the runs of a journal, or of a runtime and its journal."""
    if isinstance(given, SqlJournal):
        return JournalSource(given)
    if not isinstance(given, Runtime):
        raise ValueError(
            "the console shows the runs of a runtime or of a journal, such as kt.SqliteJournal('runs.db'), "
            f"not {given!r}"
        )
    return JournalSource(given.store, given) if isinstance(given.store, SqlJournal) else RuntimeSource(given)
