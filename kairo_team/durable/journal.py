"""`SqliteJournal`: records runs in a file, so that they can be resumed after their process has died."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kairo_team._util.frozen import known_arguments
from kairo_team.durable.owners import HOST, Owner, is_alive
from kairo_team.durable.sql_journal import SqlJournal
from kairo_team.durable.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection
    from kairo_team.durable.sqlite_file import Sync


@known_arguments
class SqliteJournal(SqlJournal):
    """Records runs in one SQLite file, so that they survive their process: `Runtime(journal=SqliteJournal("runs.db"))`.

    Every model and tool call is on disk before it is sent, and its answer is on disk before the run uses it. Before a
    call is sent, `sync="full"` waits for the disk itself, `"normal"` only for the operating system: then a power
    failure may lose the last calls, a crash of the process may not. Any number of processes of one machine may share
    the file; a run has one owner at a time. `events` also keeps the events of runs. `source` is stored with every run
    that begins here and says how to start the run again. Raises `JournalError` for a file that cannot be used.
    """

    def __init__(
        self, path: str | Path, *, sync: Sync = "full", events: bool = True, source: Mapping[str, str] | None = None
    ) -> None:
        if sync not in ("full", "normal"):
            raise ValueError(f"SqliteJournal(sync=) is 'full' or 'normal', not {sync!r}")
        if not isinstance(path, str | Path) or not str(path):
            raise ValueError(f"SqliteJournal takes the path of a file, such as 'runs.db', not {path!r}")
        from importlib.metadata import version  # slow to import

        super().__init__(events=events, source=source)
        self._file = self.database = SqliteFile(path, sync, version("kairo-team"))
        self._owner: Owner | None = None
        self._making = threading.Lock()
        """Held while the owner is created: there is one at a time."""

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

    def close(self) -> None:
        """Write the remaining records, and give up the ownership of runs; the journal may be used again."""
        self.database.close()
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.close()

    @contextmanager
    def _owned(self) -> Generator[tuple[Connection, str]]:
        """Change the file as the owner of runs."""
        with self._making:
            begins = self._owner is None
            owner = self._owner = self._owner or Owner(self.path)
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

    def _is_alive(self, connection: Connection, owner: str) -> bool:
        found = connection.execute("SELECT 1 FROM owner WHERE id = ?", (owner,)).fetchone()
        return found is not None and is_alive(self.path, owner)

    def _has_died(self, connection: Connection, owner: str) -> bool:
        return not self._is_alive(connection, owner)

    def _describe_owner(self, connection: Connection, owner: str) -> str:
        found = connection.execute("SELECT * FROM owner WHERE id = ?", (owner,)).fetchone()
        return f"process {found['pid']} on {found['host']}" if found else "another process"

    def __repr__(self) -> str:
        return f"SqliteJournal({str(self.path)!r})"
