"""Files in the database of a journal: each content once, until no run needs it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from kairo_team.durable.codec import encode_apart

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection, Statement
    from kairo_team.files import File

TABLES: Final = (
    "CREATE TABLE file (digest TEXT PRIMARY KEY, used TEXT NOT NULL, data {blob} NOT NULL)",
    "CREATE TABLE run_file (run_id TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, digest))",
    "CREATE INDEX run_file_by_digest ON run_file (digest)",
)
"""Statements that create the tables, also in a database that was made before there were any."""


def encode_for(run_id: str, value: object) -> tuple[str, list[Statement]]:
    """Return a value as JSON without the contents of its files, and the statements that keep them for the run."""
    written, files = encode_apart(value)
    return written, [keeping(run_id, files)] if files else []


def keeping(run_id: str, files: Iterable[File]) -> Statement:
    """Return the statement that keeps the contents of files for a run."""
    return partial(_keep, run_id, tuple(files))


def _keep(run_id: str, files: Iterable[File], connection: Connection) -> None:
    for file in files:
        here = (run_id, file.digest)
        if connection.execute("SELECT 1 FROM run_file WHERE run_id = ? AND digest = ?", here).fetchone():
            continue
        # The mark keeps another process from deleting the file in the meantime: it deletes the row as it saw it.
        mark = (uuid.uuid4().hex, file.digest)
        if not connection.execute("UPDATE file SET used = ? WHERE digest = ?", mark).rowcount:
            if (data := file.data) is None:  # forgotten before: the description is all there is
                continue
            sql = "INSERT INTO file (digest, used, data) VALUES (?, ?, ?) ON CONFLICT (digest) DO NOTHING"
            connection.execute(sql, (file.digest, mark[0], data))
        connection.execute("INSERT INTO run_file (run_id, digest) VALUES (?, ?) ON CONFLICT DO NOTHING", here)


def copy_files(connection: Connection, run_id: str, new_id: str) -> None:
    """Let a copy of a run refer to the same files."""
    sql = "INSERT INTO run_file (run_id, digest) SELECT CAST(? AS TEXT), digest FROM run_file WHERE run_id = ?"
    connection.execute(f"{sql} ON CONFLICT DO NOTHING", (new_id, run_id))


def forget_files(connection: Connection, run_id: str) -> None:
    """Delete the files of a run to which no other run refers."""
    sql = (
        "SELECT digest, used FROM file WHERE digest IN (SELECT digest FROM run_file WHERE run_id = ?)"
        " AND digest NOT IN (SELECT digest FROM run_file WHERE run_id <> ?)"
    )
    found = connection.execute(sql, (run_id, run_id)).fetchall()
    connection.execute("DELETE FROM run_file WHERE run_id = ?", (run_id,))
    for row in found:
        connection.execute("DELETE FROM file WHERE digest = ? AND used = ?", (row["digest"], row["used"]))


def read_file(connection: Connection, digest: str) -> bytes | None:
    """Return the content of a file; None if no run refers to it any more."""
    row = connection.execute("SELECT data FROM file WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else bytes(row[0])
