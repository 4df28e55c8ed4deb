"""The journal's PostgreSQL database: its connections, its tables, and a writer that survives broken connections."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from kairo_team._util.database_url import SCHEMA, lock_in, split_schema
from kairo_team.durable.codec import decode_loaded
from kairo_team.durable.connection import NOW, readable
from kairo_team.durable.database import Database, Writing
from kairo_team.durable.formats import FORMAT, POSTGRES_STEPS, Format, format_of, migrate
from kairo_team.durable.kept_files import its_texts
from kairo_team.durable.value_classes import CorruptRecord
from kairo_team.errors import JournalError, MissingExtra

if TYPE_CHECKING:
    import psycopg

    from kairo_team.durable.connection import Connection

Result = TypeVar("Result")

_logger = logging.getLogger("kairo_team")

_KEPT: Final = 4
"""Most idle connections to keep."""
_TRIES: Final = 3
"""How often two connections are compared, since other programs may take a session in between."""
_LOCK: Final = 0x6B61_6972_0001
"""The advisory lock of `writing`, which lets one process change the database at a time."""

_MOST_IDLE: Final = 5000
"""Milliseconds after which the server ends the idle transaction of a stopped process: others wait for its locks."""

CLOSED: Final = "the journal was closed meanwhile"
"""The problem of a call that was under way when its journal was closed."""
_LIKE: Final = "postgresql://user:password@host:5432/database"


class Row(tuple[Any, ...]):
    """A row whose columns have numbers and names."""

    __slots__ = ()
    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        """Return a column by its number or name."""
        found: Any = super().__getitem__(self.names[key] if type(key) is str else key)
        return found

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.names)


@cache
def _row_class(names: tuple[bytes, ...]) -> type[Row]:
    # The names are the class's, so that a row holds no more than a tuple.
    return type("Row", (Row,), {"names": {name.decode(): number for number, name in enumerate(names)}, "__slots__": ()})


def _rows(cursor: Any) -> Callable[[Sequence[Any]], Row]:
    """Return a function that makes `Row`s; a row factory for psycopg."""
    found = cursor.pgresult
    names: list[bytes] = [] if found is None else [found.fname(number) for number in range(found.nfields)]
    return _row_class(tuple(names))


@cache
def _with_psycopg_marks(sql: str) -> bytes:
    """Return a statement with psycopg's parameter marks."""
    return sql.replace("%", "%%").replace("?", "%s").encode()  # psycopg's types accept no `str` but a literal


def _as_text(value: Any) -> Any:
    """Return a value that PostgreSQL accepts: text without NUL characters and lone surrogates."""
    if type(value) is not str:
        return value
    whole = value if value.isascii() else readable(value)
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in whole else whole


class PostgresConnection:
    """A psycopg connection in which `?` marks a parameter; each statement outside a transaction is committed."""

    now = NOW
    for_update = " FOR UPDATE"

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw = raw

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return not self.raw.closed and self.raw.info.transaction_status.name in ("INTRANS", "INERROR", "ACTIVE")

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        """Execute a statement; characters that PostgreSQL cannot store are replaced."""
        if not parameters:
            return self.raw.execute(sql.encode())
        return self.raw.execute(_with_psycopg_marks(sql), [_as_text(one) for one in parameters])

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """Execute a statement once for each item of `parameters`."""
        for one in parameters:
            self.execute(sql, one)

    def transaction(self) -> Any:
        """Return a block that is one transaction."""
        return self.raw.transaction()

    def close(self) -> None:
        """Close the connection."""
        self.raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


def connect_to(url: str, purpose: str) -> PostgresConnection:
    """Connect to a database; raises `psycopg.OperationalError`, which does not show the password."""
    raw = _plain_connection(url, purpose)
    try:
        # Not as options of the connection, which a pooler refuses.
        settings = f"SET search_path = {split_schema(url)[1]}; SET idle_in_transaction_session_timeout = {_MOST_IDLE}"
        raw.execute(settings.encode())
    except BaseException:
        raw.close()
        raise
    return PostgresConnection(raw)


def _plain_connection(url: str, purpose: str) -> psycopg.Connection[Any]:
    library = _psycopg()
    raw: psycopg.Connection[Any] = library.connect(
        split_schema(url)[0],
        autocommit=True,
        application_name=f"kairo-team {purpose}",
        connect_timeout=5,
        # A server or a network that is gone is noticed within about ten seconds.
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=2,
        tcp_user_timeout=10_000,
        row_factory=_rows,
        prepare_threshold=3,
    )
    raw.adapters.register_loader("numeric", library.types.numeric.IntLoader)  # PostgreSQL sums integers to NUMERIC
    return raw


def check_sessions(url: str) -> None:
    """Raise `JournalError` if a pooler gives a connection another session of the server for each transaction.

    Locks, settings and notifications belong to a session, and the journal would lose them unnoticed.
    """
    sql = "SELECT pg_backend_pid()"
    with _plain_connection(url, "journal") as first:
        if first.execute(sql).fetchone() == (first.info.backend_pid,):
            return  # no pooler is in between: a pooler gives connections numbers of its own
        with _plain_connection(url, "journal") as second:
            sessions: tuple[set[int], set[int]] = (set(), set())
            # A pooler gives the session that was free last: without others both connections get the same one, and among
            # others one connection gets several. What one session prepares, another does not know.
            for _ in range(_TRIES):
                for connection, seen in zip((first, second), sessions, strict=True):
                    seen.update(connection.execute(sql, prepare=False).fetchone() or ())
                if len(sessions[0]) > 1 or len(sessions[1]) > 1 or sessions[0] & sessions[1]:
                    raise JournalError(
                        place_of_url(url),
                        "a pooler in front of it works in transaction or statement mode, which loses locks and "
                        "notifications: give kairo a pool in session mode (pool_mode=session), or the database itself",
                    )


def format_of_database(url: str) -> Format:
    """Return the format of a database's tables, and change nothing; raises `JournalError` if it cannot be read."""
    place, psycopg = place_of_url(url), _psycopg()
    try:
        with connect_to(url, "format") as connection:
            return read_format(connection, split_schema(url)[1])
    except psycopg.Error as error:
        raise JournalError(place, f"it cannot be read: {str(error).strip()}") from None


def read_format(connection: PostgresConnection, schema: str) -> Format:
    """Return the format of the tables in a schema."""
    # `to_regclass` would not see a table that another process has made since this connection last looked.
    sql = "SELECT 1 FROM pg_tables WHERE schemaname = ? AND tablename = 'about'"
    if connection.execute(sql, (schema,)).fetchone() is None:
        return format_of(0, {})
    about = dict(connection.execute("SELECT name, value FROM about").fetchall())
    return format_of(int(about["format"]), about)


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra("A journal in PostgreSQL", "cluster") from error
    return psycopg


def place_of_url(url: str) -> str:
    """Name a database without its password: `database 'kairo' on db.example:5432`."""
    if not isinstance(url, str) or not url:
        raise ValueError(f"a database is given by its URL, such as {_LIKE!r}")
    _psycopg()
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    plain, schema = split_schema(url)
    try:
        parts = conninfo_to_dict(plain)
    except ProgrammingError:  # its message shows the URL
        raise ValueError(f"this is not a database URL: write {_LIKE!r}") from None
    host, port = parts.get("host") or "this machine", parts.get("port")
    inside = "" if schema == SCHEMA else f", schema {schema!r},"
    return f"database {parts.get('dbname') or 'postgres'!r}{inside} on {host}{f':{port}' if port else ''}"


class ConnectionBroke(JournalError):
    """The database cannot be reached, or a connection broke before its work changed anything."""


class PostgresDatabase(Database):
    """One PostgreSQL database, which other processes and machines use too."""

    is_over = (
        "(call.epoch != run.epoch OR call.unit != '' AND NOT EXISTS (SELECT FROM unit"
        " WHERE unit.id = call.unit AND unit.fence = call.fence AND unit.state = 'taken'))"
    )

    owners = "process"
    own_calls = " AND unit = ''"
    rest = 10.0

    def __init__(self, url: str, version: str, patience: float) -> None:
        place = place_of_url(url)
        self._url = url
        self._patience = patience
        self._version = version
        self.writer = uuid.uuid4().hex
        """The writer's key in the table `batch`: the id of its process."""
        self._batch = 0
        """The number of the writer's next transaction; `batch` shows whether it was committed already."""
        self._idle: deque[tuple[PostgresConnection, float]] = deque()
        """Connections for the next blocks, and the time each was last used; the last one first."""
        self._closes = 0
        """How often the database was closed. It may be used again, but no call is repeated across a close."""
        self._has_sessions = False
        """Whether it was seen that a connection keeps its session of the server."""
        self._schema = split_schema(url)[1]
        self._lock = lock_in(self._schema, _LOCK)
        super().__init__(place)
        library = _psycopg()
        self.connection_errors: tuple[type[Exception], ...] = (
            library.OperationalError,
            library.InterfaceError,
            library.InternalError,  # psycopg's word for a reply that comes after the last message of a server
            library.errors.IdleInTransactionSessionTimeout,
        )
        self.repeat(self._prepare)

    def _prepare(self) -> None:
        # `_connection_may_break` is inside `_named`, which would take its errors too.
        with self.connecting() as connection, self._named("it cannot be opened"), self._connection_may_break():
            found = read_format(connection, self._schema)
            found.check(self.place)
            if found.is_old:
                self._migrate(connection, found)

    def _migrate(self, connection: PostgresConnection, found: Format) -> None:
        from psycopg.errors import InsufficientPrivilege

        try:
            with connection.transaction():
                # One of the processes that open a database at once makes its tables; the others find them.
                connection.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
                now = read_format(connection, self._schema)
                if now.is_old:
                    if not now.number:
                        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
                    migrate(connection, now, POSTGRES_STEPS, self._version)
        except InsufficientPrivilege as error:
            if not found.number:
                raise
            raise JournalError(
                self.place,
                f"its tables have format {found.number}, this version needs format {FORMAT}, and this user may not "
                f"change them ({str(error).strip()}): run `kairo migrate` once as the user that owns them",
            ) from error

    @contextmanager
    def _named(self, what: str) -> Generator[None]:
        import psycopg

        try:
            yield
        except CorruptRecord as error:
            raise JournalError(self.place, f"it cannot be read: {error}") from error
        except psycopg.Error as error:
            raise JournalError(self.place, f"{what}: {str(error).strip()}") from error

    @contextmanager
    def _connection_may_break(self) -> Generator[None]:
        """Raise `ConnectionBroke` when the connection breaks: the block can be repeated from its beginning."""
        try:
            yield
        except self.connection_errors as error:
            raise ConnectionBroke(self.place, f"its connection broke: {str(error).strip()}") from error

    def insist(self, function: Callable[[], Result]) -> Result:
        """Call a function that connects by itself; repeat it when a connection breaks, for `patience` seconds."""

        def once() -> Result:
            with self._connection_may_break():
                return function()

        return self.repeat(once)

    def change(self, function: Callable[[Any], Result]) -> Result:
        """Call a function in a transaction of its own; repeat it when the connection breaks, so make it idempotent."""

        def once() -> Result:
            with self.connecting() as connection, self._connection_may_break(), connection.transaction():
                return function(connection)

        return self.repeat(once)

    def repeat(self, function: Callable[[], Result]) -> Result:
        """Call a function that reads or changes the database; repeat it on `ConnectionBroke`, for `patience` seconds.

        A connection that breaks during a commit raises another error, because the commit may have been done.
        """
        end, closes = time.monotonic() + self._patience, self._closes
        while True:
            self._check_open(closes)
            try:
                return function()
            except ConnectionBroke:
                if time.monotonic() >= end:
                    raise
            time.sleep(0.1)

    def _check_open(self, closes: int) -> None:
        # An abandoned thread would begin a process of its own, which nobody ends.
        if self._closes != closes:
            raise JournalError(self.place, CLOSED)

    @contextmanager
    def connecting(self, *, own: str | None = None) -> Generator[PostgresConnection]:
        """Connect for a block; while the database cannot be reached, retry for `patience` seconds.

        Connections are kept for later blocks, except `own` ones, which may hold locks; `own` names the purpose.
        """
        if self._pid != os.getpid():
            raise JournalError(self.place, "a forked process needs a journal of its own: make it there")
        connection = None if own else self._take_idle()
        connection = connection or self._reach(own or "journal")
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if own:
            connection.close()
        else:
            self._keep_idle(connection)

    def _take_idle(self) -> PostgresConnection | None:
        """Return an idle connection that still works, or None."""
        while self._idle:
            try:
                connection, _ = self._idle.pop()
            except IndexError:  # another thread was first
                break
            try:
                # Reads what the server has said since: its last message, then the end of the stream, which raises.
                for _ in range(2):
                    connection.raw.pgconn.consume_input()
                    connection.raw.pgconn.is_busy()
            except self.connection_errors:
                connection.close()
            else:
                return connection
        return None

    def _keep_idle(self, connection: PostgresConnection) -> None:
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except self.connection_errors:
            connection.close()
        else:
            if len(self._idle) < _KEPT and not connection.raw.closed:
                self._idle.append((connection, time.monotonic()))
                if self._closes:  # after the append: a `close` in another thread may have looked before it
                    self._close_idle()
            else:
                connection.close()

    def _reach(self, purpose: str) -> PostgresConnection:
        end, closes = time.monotonic() + self._patience, self._closes
        while True:
            self._check_open(closes)
            try:
                if not self._has_sessions:
                    check_sessions(self._url)
                    self._has_sessions = True
                return connect_to(self._url, purpose)
            except self.connection_errors as error:
                if time.monotonic() >= end:
                    raise ConnectionBroke(self.place, f"it cannot be reached: {str(error).strip()}") from None
            time.sleep(0.2)

    def _connect(self) -> Connection:
        if self._pid != os.getpid():
            raise JournalError(self.place, "a forked process needs a journal of its own: make it there")
        return connect_to(self._url, "writer")

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Read one snapshot, which includes all earlier entries. Keep the block short."""
        self._flush()
        with self.connecting() as connection, self._named("it cannot be read"), self._connection_may_break():
            # `_keep_idle` ends it.
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            with its_texts(connection):
                yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Change the database in one transaction, one process at a time, after all earlier entries."""
        self._flush()
        with self.changing() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(?)", (self._lock,))
            yield connection

    @contextmanager
    def changing(self) -> Generator[Connection]:
        """Change the database in one transaction, concurrently with others; lock the rows that decisions depend on."""
        with self.connecting() as connection, self._named("it cannot be written"):
            with self._connection_may_break(), its_texts(connection):
                connection.execute("BEGIN")
                yield connection
            # Outside that block: if the connection breaks now, the changes may be committed, and must not be repeated.
            connection.execute("COMMIT")

    # ------------------------------------------------------------------ the writer

    def _work(self, connection: Connection | None, given: Sequence[Any]) -> Connection:
        """Write the given entries exactly once; use a new connection when one breaks."""
        end = time.monotonic() + self._patience
        todo = given
        while True:
            try:
                connection = connection or self._connect()
                if todo:
                    self._write(connection, todo)
                    self._batch, todo = self._batch + 1, ()
                self._beat(connection)
            except self.connection_errors as error:
                if connection is not None:
                    with suppress(Exception):
                        connection.close()
                connection = None
                if time.monotonic() >= end:
                    raise
                _logger.debug("the journal's writer has no connection: %s", type(error).__name__)
                time.sleep(0.1)
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            else:
                return connection

    def _begin(self, connection: Connection, *, sync: bool) -> bool:
        connection.execute("BEGIN")
        sql = (
            "INSERT INTO batch VALUES (?, ?) ON CONFLICT (writer) DO UPDATE SET number = excluded.number"
            " WHERE batch.number < excluded.number"
        )
        if connection.execute(sql, (self.writer, self._batch)).rowcount:
            return True
        connection.execute("ROLLBACK")  # the transaction is committed already, only the reply was lost
        return False

    def epoch_row(self, connection: Connection, session: Writing) -> tuple[Any, ...] | None:
        """Return the epoch of a session's run and lock it; None for a unit whose delivery is fenced off."""
        row: tuple[Any, ...] | None
        if session.unit is None:
            sql = "SELECT epoch FROM run WHERE run_id = ? FOR KEY SHARE"
            row = connection.execute(sql, (session.run_id,)).fetchone()
        else:
            sql = (
                "SELECT run.epoch FROM run, unit WHERE run.run_id = ? AND unit.id = ? AND unit.fence = ?"
                " AND unit.state = 'taken' FOR KEY SHARE OF run FOR SHARE OF unit"
            )
            row = connection.execute(sql, (session.run_id, *session.unit)).fetchone()
        return row

    def decode(self, text: str) -> Any:
        """Return a recorded value, importing nothing, because other programs may write to the database."""
        with self.fetched():
            return decode_loaded(text)

    def file(self, digest: str) -> bytes | None:
        """Return the content of a file or a long text; repeat the reading when the connection breaks."""
        return self.repeat(partial(super().file, digest))

    def close(self) -> None:
        """Write the remaining entries, and end the writer."""
        self._closes += 1
        super().close()
        if self._batch and self._pid == os.getpid():  # else this writer has no row
            # Without patience, which the writer may have needed already: a row that stays does no harm.
            with suppress(Exception), self._take_idle() or connect_to(self._url, "journal") as connection:
                connection.execute("DELETE FROM batch WHERE writer = ?", (self.writer,))
        self._close_idle()

    def close_unused(self, seconds: float) -> None:
        """Close the kept connections that nothing has used for so long."""
        before = time.monotonic() - seconds
        with suppress(IndexError):  # another thread was first
            while self._idle and self._idle[0][1] < before:
                self._idle.popleft()[0].close()

    def _close_idle(self) -> None:
        with suppress(IndexError):  # another thread was first
            while self._idle:
                self._idle.pop()[0].close()
