"""The place of recorded runs for a command: a journal's file or a PostgreSQL database, with clusters on the latter."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kairo_team._util.database_url import has_password, shown_url
from kairo_team.cli.named_journals import NamedPlace, read_place
from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.cli.secret_arguments import GIVEN
from kairo_team.errors import JournalError, MissingExtra, Misuse

if TYPE_CHECKING:
    from kairo_team.cluster.cluster import Cluster
    from kairo_team.cluster.delivery import EngineName

DATABASE: Final = "KAIRO_DATABASE"
_JOURNAL: Final = "KAIRO_JOURNAL"
PATIENCE: Final = 10.0
"""Seconds for which a command tries to reach a database."""
WORKER_PATIENCE: Final = 60.0
"""The same for a worker, which may start at the same time as its database."""
BEAT: Final = 2.0
"""Seconds between two heartbeats of a process, unless an option says otherwise."""
MAX_DELIVERIES: Final = 5


@dataclass(frozen=True)
class DatabaseUrl:
    """The URL of a database: a secret."""

    url: str = field(repr=False)


Place: TypeAlias = Path | DatabaseUrl | NamedPlace
"""Where runs are recorded."""


def place_of(journal: str | None, database: str | None) -> Path | DatabaseUrl | None:
    """Return where runs are recorded, from an option or else the environment; None if neither names a place.

    `Refusal` for a journal that is neither a file nor a database.
    """
    place = any_place_of(journal, database)
    if isinstance(place, NamedPlace):
        raise Refusal(f"--journal {place.text!r:.200}: this command records in a file or a database, such as runs.db")
    return place


def file_of(journal: str | None) -> Path | None:
    """Return the file that `--journal` names; `Refusal` for any other journal."""
    place = None if journal is None else read_place(journal)
    if isinstance(place, NamedPlace):
        raise Refusal(f"--journal {place.text!r:.200}: this command records in a file, such as runs.db")
    return place


def any_place_of(journal: str | None, database: str | None) -> Place | None:
    """Return the same, also for a journal that a package brings, or a team's own."""
    # typer fills the option from the environment too.
    by_option = journal is not None and journal != os.environ.get(_JOURNAL)
    if database is not None:
        if by_option:
            raise Refusal("--journal and --database exclude each other: runs are recorded in one place")
        return read_url(database, "--database")
    named = os.environ.get(DATABASE)
    if not named or by_option:
        return None if journal is None else read_place(journal)
    if journal is not None:
        raise Refusal(f"{_JOURNAL} and {DATABASE} are both set: say which one with --journal or --database")
    return read_url(named, DATABASE)


def database_of(database: str | None) -> DatabaseUrl:
    """Return the database that the option or the environment names; `Refusal` without one."""
    place = place_of(None, database)
    if not isinstance(place, DatabaseUrl):
        raise Refusal(f"this command needs a database: give --database URL, or set {DATABASE}")
    return place


def read_url(text: str, where: str) -> DatabaseUrl:
    """Read a URL, `env:NAME` or `file:PATH`; `where` names the option or variable in errors."""
    kind, colon, name = text.partition(":")
    if kind == "env" and colon:
        if not os.environ.get(name):
            raise Refusal(f"{where} {text}: the environment has no variable {name!r}")
        return _checked(os.environ[name], where if name == GIVEN else name)
    if kind == "file" and colon:
        with refusing(OSError, UnicodeDecodeError, about=f"{where} {text}: the file cannot be read: "):
            return _checked(Path(name).read_text(encoding="utf-8").strip(), f"file {name!r}")
    return _checked(text, where)


def _checked(url: str, where: str) -> DatabaseUrl:
    try:
        from kairo_team.cluster.delivery import check_database_url

        check_database_url(url)
    except ImportError:
        raise Refusal(str(MissingExtra(where, "cluster"))) from None
    except Misuse as error:
        raise Refusal(f"{where}: {explain(error)}") from None
    return DatabaseUrl(url)


def shown_option(option: str, value: str) -> list[str]:
    """Return the option that names where runs are recorded, for a command line to show.

    It is left out if the environment names the same database with its password.
    """
    named = os.environ.get(DATABASE)
    with suppress(Refusal):
        url = read_url(named, DATABASE).url if named else ""
        if has_password(url) and shown_url(url) == value:
            return []
    return [option, value]


@contextmanager
def away_from_children() -> Generator[None]:
    """Keep the URLs out of the environment of the programs that members start."""
    kept = {name: os.environ.pop(name) for name in (DATABASE, GIVEN) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def clustered(
    place: DatabaseUrl, engine: EngineName | None, source: Mapping[str, str] | None = None
) -> Generator[Cluster]:
    """Make a cluster for a block; a `Refusal` for a database that cannot be used, also inside the block."""
    with refusing(JournalError, Misuse), closing(connect(place, engine, source=source)) as cluster:
        yield cluster


def connect(
    place: DatabaseUrl,
    engine: EngineName | None,
    *,
    source: Mapping[str, str] | None = None,
    beat: float = BEAT,
    max_deliveries: int = MAX_DELIVERIES,
    patience: float = PATIENCE,
) -> Cluster:
    """Make a cluster with an engine, or with the database's own; `beat` is the heartbeat's interval in seconds."""
    from kairo_team.cluster.cluster import Cluster, used_engine
    from kairo_team.durable.postgres import PostgresJournal

    if engine is None:
        # A cluster finds its engine by itself, but would wait a minute for a database that is away.
        with closing(PostgresJournal(place.url, patience=patience)) as journal:
            engine = used_engine(journal)
    return Cluster(place.url, engine=engine, beat=beat, max_deliveries=max_deliveries, source=source)


def tell_if_away(place: DatabaseUrl, tell: Callable[[str], object]) -> None:
    """Tell that a worker waits for its database, if the database cannot be reached yet."""
    from psycopg import OperationalError

    from kairo_team.durable.postgres_database import connect_to, place_of_url

    try:
        connect_to(place.url, "worker").close()
    except OperationalError as error:
        why = " ".join(str(error).split())
        most = f"the worker waits at most {WORKER_PATIENCE:g} s"
        tell(f"{place_of_url(place.url)} cannot be reached yet, and {most}: {why}")
