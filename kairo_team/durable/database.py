"""The journal's file: its tables, its one writer, and short reads."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Literal

import anyio

from kairo_team._util.threads import poster
from kairo_team.durable.value_classes import CorruptRecord
from kairo_team.errors import JournalError

Sync = Literal["full", "normal"]
Statement = tuple[str, Sequence[Any]]
"""SQL and its parameters."""

APPLICATION_ID: Final = 0x6B61_6972
"""`kair`: what `file` and other programs know a journal by."""
FORMAT: Final = 1
"""The version of the tables, in `user_version`."""
_MOST_AT_ONCE: Final = 2_000
"""Most statements of one transaction."""
_BUSY_SECONDS: Final = 30.0
"""How long a transaction waits for another process's."""

_TABLES: Final = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE owner (id TEXT PRIMARY KEY, pid INTEGER NOT NULL, host TEXT NOT NULL, started_at REAL NOT NULL)
    WITHOUT ROWID;
CREATE TABLE run (
    run_id TEXT PRIMARY KEY, parent TEXT, parent_step TEXT, parent_member TEXT, team TEXT NOT NULL, goal TEXT NOT NULL,
    state TEXT NOT NULL, request TEXT NOT NULL, digests TEXT NOT NULL, owner TEXT NOT NULL, epoch INTEGER NOT NULL,
    active REAL NOT NULL DEFAULT 0, seq INTEGER NOT NULL DEFAULT 0,
    started_at REAL NOT NULL, updated_at REAL NOT NULL, result TEXT
) WITHOUT ROWID;
CREATE INDEX run_by_parent ON run (parent);
CREATE TABLE step (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, epoch INTEGER NOT NULL,
    UNIQUE (run_id, key)
);
CREATE TABLE call (
    id INTEGER PRIMARY KEY, run_id TEXT NOT NULL, number INTEGER NOT NULL, epoch INTEGER NOT NULL, step TEXT NOT NULL,
    key TEXT NOT NULL, what TEXT NOT NULL, name TEXT NOT NULL, task_id TEXT, member TEXT, side_effect TEXT,
    loops INTEGER NOT NULL, held_tokens INTEGER NOT NULL, held_picos INTEGER NOT NULL, state TEXT NOT NULL,
    prompt INTEGER NOT NULL DEFAULT 0, completion INTEGER NOT NULL DEFAULT 0, picos INTEGER NOT NULL DEFAULT 0,
    sent_at REAL NOT NULL, ended_at REAL, UNIQUE (run_id, epoch, number)
);
CREATE TABLE question (
    id TEXT PRIMARY KEY, run_id TEXT NOT NULL, digest TEXT NOT NULL, body TEXT NOT NULL, decision TEXT,
    asked_at REAL NOT NULL, answered_by TEXT, answered_at REAL
) WITHOUT ROWID;
CREATE INDEX question_by_run ON question (run_id);
"""

_logger = logging.getLogger("kairo_team")


@dataclass(slots=True)
class Writing:
    """What one session of a run wants to have written, and whether it still may."""

    run_id: str
    epoch: int
    progress: tuple[float, int] = (0.0, 0)
    """The seconds the run has worked, and the number of its last event; written with whatever is written next."""
    lost: str | None = None
    """Why nothing more of this session is written; None while all is well."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """Something for the writer: statements of a session, or somebody to wake once all before it is on disk."""

    session: Writing | None
    statements: Sequence[Statement]
    sync: bool
    """It must be on the disk itself, not just handed to the operating system."""
    wake: Callable[[], object] | None


class Database:
    """One SQLite file in WAL mode, written by one thread that groups what comes into transactions.

    What is written is written in the order it was given in. A session that no longer owns its run writes nothing
    more: its epoch is compared inside every transaction.
    """

    def __init__(self, path: str | Path, sync: Sync, version: str) -> None:
        self.path = Path(path)
        self._sync = sync
        self._version = version
        self._entries: SimpleQueue[_Entry | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self.problem: str | None = None
        """Why nothing more can be written; None while all is well."""
        self._prepare()

    # ------------------------------------------------------------------ the file

    def _prepare(self) -> None:
        """Make the tables in a new file; `JournalError` for a file that is none of ours, or of a newer version."""
        try:
            with closing(self._connect()) as connection:
                self._check(connection)
        except sqlite3.Error as error:
            raise JournalError(self.path, f"it cannot be opened: {error}") from error

    def _check(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        written = self._number(connection, "application_id"), self._number(connection, "user_version")
        if written == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO about VALUES ('version', ?)", (self._version,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT}")
        elif written[0] != APPLICATION_ID:
            raise JournalError(self.path, "it is an SQLite file of another program: name another file")
        elif written[1] != FORMAT:
            by = connection.execute("SELECT value FROM about WHERE name = 'version'").fetchone()
            raise JournalError(self.path, f"it was written by kairo-team {by[0] if by else 'of another version'}")
        connection.execute("COMMIT")

    def _number(self, connection: sqlite3.Connection, pragma: str) -> int:
        return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])

    def _connect(self) -> sqlite3.Connection:
        if self._pid != os.getpid():
            raise JournalError(self.path, "a forked process needs a journal of its own: make kt.SqliteJournal there")
        if not self.path.parent.is_dir():
            raise JournalError(self.path, f"there is no directory {str(self.path.parent)!r}")
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    # ------------------------------------------------------------------ reads

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Read, for a short time, at one point in time; rows are `sqlite3.Row`."""
        try:
            with closing(self._connect()) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute("BEGIN")
                yield connection
        except (sqlite3.Error, CorruptRecord) as error:
            raise JournalError(self.path, f"it cannot be read: {error}") from error

    # ------------------------------------------------------------------ writes

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """Change the file at once, in one transaction that is on disk when the block is left."""
        try:
            with closing(self._connect()) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        except CorruptRecord as error:
            raise JournalError(self.path, f"it cannot be read: {error}") from error
        except sqlite3.Error as error:
            raise JournalError(self.path, f"it cannot be written: {error}") from error

    def put(self, session: Writing, statements: Sequence[Statement], *, sync: bool = False) -> None:
        """Have statements written soon, after all that was given before."""
        self._give(_Entry(session, statements, sync, None))

    async def written(self, session: Writing) -> None:
        """Wait until all that was given before is on disk; `JournalError` when it cannot be."""
        done, post = anyio.Event(), poster()

        def wake() -> None:
            try:
                post(done.set)
            except RuntimeError:  # whoever waited is gone, with the event loop
                _logger.debug("a journal's caller did not wait for its end")

        self._give(_Entry(None, (), False, wake))
        await done.wait()
        self.check(session)

    def check(self, session: Writing) -> None:
        """Raise `JournalError` when nothing more of the session can be written."""
        problem = session.lost or self.problem
        if problem is not None:
            raise JournalError(self.path, problem)

    def close(self) -> None:
        """Write what was given, and end the writer."""
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            self._entries.put(None)
            thread.join()

    def _give(self, entry: _Entry) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="kairo-journal", daemon=True)
            self._thread.start()
        self._entries.put(entry)

    def _serve(self) -> None:
        """Write what comes until the end is asked for; after an error nothing more is written."""
        connection: sqlite3.Connection | None = None
        ends = False
        while not ends:
            entries = self._take()
            ends = None in entries
            given = [entry for entry in entries if entry is not None]
            try:
                if self.problem is None and any(entry.statements for entry in given):
                    connection = connection or self._connect()
                    self._write(connection, given)
            except (sqlite3.Error, JournalError) as error:
                self.problem = f"it cannot be written: {error}"
                _logger.warning("journal %s: %s; nothing more is sent", self.path, self.problem)
                if connection is not None:
                    connection.close()
                    connection = None
            for entry in given:
                if entry.wake is not None:
                    entry.wake()
        if connection is not None:
            connection.close()

    def _take(self) -> list[_Entry | None]:
        """Wait for the next entry, and return it with those that came meanwhile."""
        entries = [self._entries.get()]
        while not self._entries.empty() and len(entries) < _MOST_AT_ONCE:
            entries.append(self._entries.get())
        return entries

    def _write(self, connection: sqlite3.Connection, entries: Iterable[_Entry]) -> None:
        """Write everything in one transaction, but for sessions that no longer own their run."""
        full = self._sync == "full" and any(entry.sync for entry in entries)
        connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            owned: dict[int, Writing] = {}
            for entry in entries:
                session = entry.session
                if session is None or (id(session) not in owned and not self._owns(connection, session)):
                    continue
                owned[id(session)] = session
                for sql, parameters in entry.statements:
                    connection.execute(sql, parameters)
            sql = "UPDATE run SET active = ?, seq = ?, updated_at = ? WHERE run_id = ?"
            connection.executemany(sql, [(*one.progress, time.time(), one.run_id) for one in owned.values()])
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _owns(self, connection: sqlite3.Connection, session: Writing) -> bool:
        if session.lost is not None:
            return False
        row = connection.execute("SELECT epoch FROM run WHERE run_id = ?", (session.run_id,)).fetchone()
        if row is not None and row[0] == session.epoch:
            return True
        session.lost = "the run was forgotten" if row is None else "another process has taken the run over"
        return False
