"""A connection to the database of a journal, and the statements that are executed on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

Statement = tuple[str, Sequence[Any]] | Callable[["Connection"], object]
"""SQL and its parameters, or a function to call in the transaction."""
NOW: Final = "EXTRACT(EPOCH FROM clock_timestamp())"
"""The clock of a PostgreSQL database, because the clocks of two machines differ."""
NOW_IN_FILE: Final = "(julianday('now') - 2440587.5) * 86400"
"""The same of an SQLite file: the clock of its machine."""
_UNWRITABLE: Final = re.compile("[\0\x1a\ud800-\udfff]")
"""Characters that a database refuses in a text, and the escape character."""
_WRITTEN: Final = re.compile("\x1a([0-9a-f]{4})")


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row; None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection to a database, as the journal uses it: `?` marks a parameter."""

    @property
    def now(self) -> str:
        """The expression of SQL for the database's clock, in seconds since 1970."""
        ...

    @property
    def for_update(self) -> str:
        """The end of a SELECT that locks its rows until the transaction ends; "" if transactions take turns."""
        ...

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        """Execute a statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement once for each item of `parameters`."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def column_of(key: str) -> str:
    """Return the key of a step as its column has it: any database takes it, and no two keys become one."""
    # The quick test, for most keys: none of these characters is printable.
    return key if key.isprintable() else _UNWRITABLE.sub(lambda found: f"\x1a{ord(found[0]):04x}", key)


def key_of(column: str) -> str:
    """Return the key of a step from its column."""
    return column if "\x1a" not in column else _WRITTEN.sub(lambda found: chr(int(found[1], 16)), column)


def readable(text: str) -> str:
    """Return a text that any database accepts: lone surrogates become `?`."""
    # Some models send halves of surrogate pairs.
    return text.encode("utf-8", "replace").decode()


def execute(connection: Connection, statement: Statement) -> None:
    """Execute SQL, or call the function, in the connection's transaction."""
    if callable(statement):
        statement(connection)
    else:
        connection.execute(*statement)


def insert(connection: Connection, table: str, values: Mapping[str, object]) -> None:
    """Insert a row; `values` are its columns."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))
