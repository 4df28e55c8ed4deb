"""`SqliteJournal`: records runs in a file, so that they can be resumed after their process has died."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from kairo_team._util.frozen import known_arguments
from kairo_team._util.version import version_of_library
from kairo_team.durable.accounts import end_cancelled
from kairo_team.durable.connection import NOW_IN_FILE
from kairo_team.durable.database import Database
from kairo_team.durable.formats import FILE_STEPS, FORMAT, Format, format_of, migrate
from kairo_team.durable.kept_files import its_texts
from kairo_team.durable.owners import HOST, Owner, is_alive
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.durable.value_classes import CorruptRecord
from kairo_team.errors import JournalError

if TYPE_CHECKING:
    from kairo_team.durable.accounts import AccountTerms
    from kairo_team.durable.connection import Connection

Sync = Literal["full", "normal"]
_logger = logging.getLogger("kairo_team")

APPLICATION_ID: Final = 0x6B61_6972
"""`kair`: identifies a journal to `file` and other programs."""
_IN_LOG: Final = "SELECT 1 FROM about WHERE name = 'in_log' AND value <> ?"
_LOG_BYTES: Final = 4_000_000
"""A longer log is moved into the file."""
_MOST_KEPT: Final = 2
"""More connections are closed after their use."""
_PAGES_AT_ONCE: Final = 500
"""Pages that one transaction gives back to the disk."""
_BUSY_SECONDS: Final = 30.0
"""Seconds that a transaction waits for another process's transaction."""


class SqliteConnection(sqlite3.Connection):
    """A connection to the file; `BEGIN IMMEDIATE` lets one transaction change the file at a time."""

    now = NOW_IN_FILE
    for_update = ""


def format_of_file(path: Path) -> Format:
    """Return the format of a file's tables, and change nothing; raises `JournalError` for a file of another program."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=_BUSY_SECONDS, uri=True)) as file:
            return read_format(file, path)
    except sqlite3.Error as error:
        raise JournalError(path, f"it cannot be read: {error}") from error


def read_format(connection: sqlite3.Connection, path: Path) -> Format:
    """Return the format of a file's tables; raises `JournalError` for a file of another program."""
    application, number = (
        int(connection.execute(f"PRAGMA {pragma}").fetchone()[0]) for pragma in ("application_id", "user_version")
    )
    if (application, number) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        return format_of(0, {})
    if application != APPLICATION_ID:
        raise JournalError(path, "it is an SQLite file of another program: name another file")
    about = connection.execute("SELECT name, value FROM about").fetchall()
    return format_of(number, dict(about))


def copy_file(path: Path, copy: Path) -> int:
    """Copy a journal with its log at one moment, in the same format; return the number of runs.

    Raises `JournalError`.
    """
    if copy.exists():
        raise JournalError(copy, "it exists already: name a new file for the copy")
    if not copy.parent.is_dir():
        raise JournalError(copy, f"there is no directory {str(copy.parent)!r}: make it first")
    part = copy.with_name(f"{copy.name}-part-{uuid4().hex[:8]}")
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
            found = read_format(connection, path)
            found.check(path)
            _check_log(connection, found, path)
            os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of the copy: `shrink` gives its pages back
            connection.execute("VACUUM INTO ?", (str(part),))
        with closing(sqlite3.connect(part, isolation_level=None)) as connection:
            runs = 0
            if found.number:
                # `_fold_log` of a process at work may have set its mark at this very moment.
                connection.execute("DELETE FROM about WHERE name = 'in_log'")
                runs = int(connection.execute("SELECT count(*) FROM run WHERE parent IS NULL").fetchone()[0])
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(copy)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(path, f"it cannot be copied to {str(copy)!r}: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return runs


def _check_log(connection: sqlite3.Connection, found: Format, path: Path) -> None:
    """Raise `JournalError` for a copy, without its log, of a file in use; a copy has another inode number."""
    if found.number and connection.execute(_IN_LOG, (str(path.stat().st_ino),)).fetchone():
        raise JournalError(
            path,
            f"it is a copy of a journal in use, and its last records are missing: copy '{path.name}-wal' "
            f"too, or copy both with `kairo backup`",
        )


class SqliteFile(Database):
    """One SQLite file in WAL mode."""

    def __init__(self, path: str | Path, sync: Sync, version: str) -> None:
        self.path = Path(path)
        self._sync = sync
        self._version = version
        self._kept: list[tuple[SqliteConnection, str]] = []
        """Connections for the next blocks, and the number of the file of each."""
        # For an object that is never closed. By its list: a reference to the object would keep it alive.
        weakref.finalize(self, _close_all, self._kept)
        self._writer: Connection | None = None
        """The connection that last moved the log into the file."""
        super().__init__(self.path)
        self._prepare()

    # ------------------------------------------------------------------ the file

    def _prepare(self) -> None:
        """Create the tables in a new file; `JournalError` for a file of another program or another format."""
        with suppress(OSError):  # SQLite's own error is clearer
            # Only a new file: to close an existing one drops all locks of this process on it. Another process then
            # takes itself for the last one and deletes the log, into which this process still writes.
            # The file contains prompts and answers: only its owner may read it. SQLite gives its log the same mode.
            if self.path.parent.is_dir():
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                found = read_format(connection, self.path)
                found.check(self.path)
                _check_log(connection, found, self.path)
                if found.is_old:
                    migrate(connection, found, FILE_STEPS, self._version)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {FORMAT}")
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise JournalError(self.path, f"it cannot be opened: {error}") from error

    @property
    def _number_of_file(self) -> str:
        """The file's inode number; a copy has another one."""
        return str(self.path.stat().st_ino)

    def _fold_log(self, connection: Connection) -> None:
        """Move the log into the file, with a mark that the next statement in the log deletes."""
        # A reader of the file and its log never sees the mark. A file that was copied without its log, or before the
        # log was moved into it, contains the mark.
        connection.execute("INSERT OR REPLACE INTO about VALUES ('in_log', ?)", (self._number_of_file,))
        connection.execute("PRAGMA busy_timeout = 0")  # while a process reads, a part of the log stays
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000:.0f}")
        connection.execute("DELETE FROM about WHERE name = 'in_log'")

    def _number(self, connection: SqliteConnection, pragma: str) -> int:
        return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _connect(self) -> SqliteConnection:
        if self._pid != os.getpid():
            raise JournalError(self.path, "a forked process needs a journal of its own: make kt.SqliteJournal there")
        if not self.path.parent.is_dir():
            raise JournalError(self.path, f"there is no directory {str(self.path.parent)!r}: make it first")
        if self.path.is_dir():
            raise JournalError(self.path, "it is a directory: name a file in it, such as 'runs.db'")
        connection = sqlite3.connect(
            self.path,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            factory=SqliteConnection,
        )
        connection.row_factory = sqlite3.Row
        try:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file: `shrink` gives its pages back
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")  # `_fold_log` does it, with its mark
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _connected(self) -> Generator[SqliteConnection]:
        """Lend a connection, and keep it if the block succeeds: to open one takes as long as its transaction."""
        # The number is the one from before the block: the file may be replaced or gone at its end.
        connection, number = self._take_kept() or (self._connect(), self._number_of_file)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._kept.append((connection, number))
        if len(self._kept) > _MOST_KEPT:
            _close_all(self._kept)

    def _take_kept(self) -> tuple[SqliteConnection, str] | None:
        """Return a kept connection to the file that is there now; close connections to a file that was replaced."""
        while self._pid == os.getpid():
            try:
                connection, number = self._kept.pop()
            except IndexError:
                break
            with suppress(OSError):
                if number == self._number_of_file:
                    return connection, number
            connection.close()
        return None

    def close(self) -> None:
        """Write the remaining entries, and end the writer and its connections; the file may be used again."""
        super().close()
        if self._pid == os.getpid():
            _close_all(self._kept)

    # ------------------------------------------------------------------ upkeep

    def copy_to(self, copy: Path) -> None:
        """Copy the file and its log as they are at one moment to a new file; raises `JournalError`."""
        self._flush()
        copy_file(self.path, copy)

    def shrink(self) -> None:
        """Give the pages of deleted records back to the disk, in short transactions, so that others write too."""
        try:
            with closing(self._connect()) as connection:
                if not self._number(connection, "auto_vacuum"):  # a file of format 1, or one that such a version made
                    return
                # So many and no more: another process may free pages all the time.
                for _ in range(0, self._number(connection, "freelist_count"), _PAGES_AT_ONCE):
                    # `execute` would end after the first page.
                    connection.executescript(f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({_PAGES_AT_ONCE}); COMMIT")
                self._fold_log(connection)
        except sqlite3.Error as error:
            _logger.info("journal %s: its file stays as long as it was: %s", self.path, error)

    # ------------------------------------------------------------------ reads

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Read one snapshot, which includes all earlier entries. Keep the block short."""
        self._flush()
        try:
            with self._connected() as connection:
                connection.execute("BEGIN")
                with its_texts(connection):
                    yield connection
                connection.execute("ROLLBACK")
        except (sqlite3.Error, CorruptRecord) as error:
            raise JournalError(self.path, f"it cannot be read: {error}") from error

    # ------------------------------------------------------------------ writes

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Change the file in one transaction, after all earlier entries; it is on disk when the block ends."""
        self._flush()
        try:
            with self._connected() as connection:
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                with its_texts(connection):
                    yield connection
                connection.execute("COMMIT")
        except CorruptRecord as error:
            raise JournalError(self.path, f"it cannot be read: {error}") from error
        except (sqlite3.Error, OverflowError) as error:
            raise JournalError(self.path, f"it cannot be written: {error}") from error

    def _begin(self, connection: Connection, *, sync: bool) -> bool:
        if connection is not self._writer or Path(f"{self.path}-wal").stat().st_size > _LOG_BYTES:
            self._writer = connection
            self._fold_log(connection)
        if self._sync == "full":
            connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        return True


def _close_all(kept: list[tuple[SqliteConnection, str]]) -> None:
    with suppress(IndexError):  # another thread may take one
        while True:
            kept.pop()[0].close()


@known_arguments
class SqliteJournal(SqlJournal):
    """Records runs in one SQLite file, so that they survive their process: `Runtime(journal=SqliteJournal("runs.db"))`.

    Every model and tool call is on disk before it is sent, and its answer is on disk before the run uses it. Before a
    call is sent, `sync="full"` waits for the disk itself, `"normal"` only for the operating system: then a power
    failure may lose the last calls, a crash of the process may not. Any number of processes of one machine may share
    the file; a run has one owner at a time. `events` also keeps the events of runs. `source` is stored with every run
    that begins here and says how to start the run again. The budget of such a run is first set aside in `account`,
    which `set_account` has created, or which `kt.account` describes. Raises `JournalError` for a file that cannot be
    used.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        sync: Sync = "full",
        events: bool = True,
        source: Mapping[str, str] | None = None,
        account: str | AccountTerms | None = None,
    ) -> None:
        if sync not in ("full", "normal"):
            raise ValueError(f"SqliteJournal(sync=) is 'full' or 'normal', not {sync!r}")
        if not isinstance(path, str | Path) or not str(path):
            raise ValueError(f"SqliteJournal takes the path of a file, such as 'runs.db', not {path!r}")
        super().__init__(events=events, source=source, account=account)
        self._file = self.database = SqliteFile(path, sync, version_of_library())
        self._owners: list[Owner] = []
        """This process as the owner of runs, once it has begun one: at most one, also for `charging`'s copies."""
        self._making = threading.Lock()
        """Held while the owner is created."""

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    @property
    def place(self) -> str:
        """The journal's name in errors."""
        return f"journal {str(self.path)!r}"

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def option(self) -> tuple[str, str]:
        """The option of the `kairo` commands that names the file, and its value."""
        return "--journal", str(self.path)

    def backup(self, path: str | Path) -> Path:
        """Copy the journal, which may be in use, with all records so far to a new file; return the file's path.

        A run that was running then is interrupted in the copy. Raises `JournalError` if the file exists or cannot be
        written; a failure leaves nothing behind.
        """
        copy = Path(path)
        self._file.copy_to(copy)
        return copy

    def close(self) -> None:
        """Write the remaining records, and give up the ownership of runs; the journal may be used again."""
        self.database.close()
        while self._owners:
            self._owners.pop().close()

    @contextmanager
    def _owned(self) -> Generator[tuple[Connection, str]]:
        """Change the file as the owner of runs."""
        with self._making:
            begins = not self._owners
            if begins:
                self._owners.append(Owner(self.path))
            owner = self._owners[0]
        with self.database.writing() as connection:
            if begins:
                self._delete_owners(connection)
            values = (owner.id, owner.pid, HOST, time.time())
            connection.execute("INSERT OR IGNORE INTO owner VALUES (?, ?, ?, ?)", values)
            yield connection, owner.id

    def _delete_owners(self, connection: Connection) -> None:
        """Delete the owners without running runs whose process is gone, with their lock files."""
        sql = "SELECT id FROM owner WHERE id NOT IN (SELECT owner FROM run WHERE state = 'running')"
        for row in connection.execute(sql).fetchall():
            if not is_alive(self.path, row["id"]):
                connection.execute("DELETE FROM owner WHERE id = ?", (row["id"],))

    def _settle_the_dead(self, connection: Connection) -> None:
        sql = (
            "SELECT run_id, owner FROM charge JOIN run USING (run_id) WHERE charge.epoch IS NOT NULL"
            " AND run.state = 'running' AND run.cancelled IS NOT NULL"
        )
        for row in connection.execute(sql).fetchall():
            if not self._is_alive(connection, row["owner"]):
                end_cancelled(connection, row["run_id"])

    def _is_alive(self, connection: Connection, owner: str) -> bool:
        found = connection.execute("SELECT 1 FROM owner WHERE id = ?", (owner,)).fetchone()
        return found is not None and is_alive(self.path, owner)

    def __repr__(self) -> str:
        return f"SqliteJournal({str(self.path)!r})"
