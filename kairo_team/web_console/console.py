"""`console`: the runs of a journal in a browser, and the questions that wait for a person."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kairo_team.durable.journal import SqliteJournal
from kairo_team.engine.runtime import Runtime
from kairo_team.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kairo_team.web_console.serving import ConsoleServer


def console(
    runtime: Runtime | SqliteJournal,
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
    """Make the console of a runtime with a journal, or of a journal alone; it serves from `with`, or `start`.

    It runs in a thread of its own. `console.link` is the address that lets a browser in. `port` 0 takes a free one.
    `token` replaces the random one in the link (at least 16 characters). `person` is recorded with what is done where
    a browser gave no name; None is the user of this process. It binds to this machine alone, unless it has TLS
    (`tls_cert`, `tls_key`) or is `behind_proxy`; `names` are then the names that browsers call it by. Raises
    `MissingExtra`, `Misuse` for an address that is not safe, and `ValueError` for a runtime without such a journal.

    >>> with kt.console(runtime) as console:
    ...     print(console.link)
    """
    journal = runtime.store if isinstance(runtime, Runtime) else runtime
    if not isinstance(journal, SqliteJournal):
        raise ValueError(
            "the console shows what a journal has: give it a runtime with one, such as "
            f"kt.Runtime(journal=kt.SqliteJournal('runs.db')), or the journal, not {runtime!r}"
        )
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise MissingExtra("the console", "console")
    from kairo_team.web_console.serving import ConsoleServer

    return ConsoleServer(
        journal,
        runtime=runtime if isinstance(runtime, Runtime) else None,
        host=host,
        port=port,
        token=token,
        person=person,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        names=names,
    )
