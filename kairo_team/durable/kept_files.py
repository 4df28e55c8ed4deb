"""Values with their files and long texts, which a journal keeps apart: each content once, until no run needs it."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kairo_team.durable.codec import LongText, NotRecordable, encode_apart, texts_of
from kairo_team.durable.value_classes import Refusal, check_type
from kairo_team.errors import Misuse

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection, Statement
    from kairo_team.files import File
    from kairo_team.team import Team, TeamExecutionRequest


def encode_request(request: TeamExecutionRequest, team: Team) -> tuple[str, list[File | LongText]]:
    """Return a request as JSON without its long texts and files, and these; see `encode_apart`.

    Raises `Misuse` if the request, or a value of one of the team's output types, cannot be written.
    """
    for name, kind in team.output_types.items():
        try:
            check_type(kind)
        except Refusal as refusal:
            raise Misuse(f"output type {name!r} cannot be recorded: {refusal.problem}") from None
    try:
        return encode_apart(request)
    except NotRecordable as error:
        raise Misuse(f"the request cannot be recorded: {error}") from None


def encode_for(run_id: str, value: object, kept: set[str] | None = None) -> tuple[str, list[Statement]]:
    """Return a value as JSON without its long texts and files, and the statements that keep them for the run.

    The digests in `kept` are left out, and those that are kept now are added.
    """
    written, apart = encode_apart(value)
    if kept is not None:
        apart = [one for one in apart if one.digest not in kept]
        kept.update(one.digest for one in apart)
    return written, [partial(keep, run_id, apart)] if apart else []


def keep(run_id: str, apart: Iterable[File | LongText], connection: Connection) -> None:
    """Keep files and long texts for a run."""
    for one in apart:
        here = (run_id, one.digest)
        if connection.execute("SELECT 1 FROM run_file WHERE run_id = ? AND digest = ?", here).fetchone():
            continue
        # The mark keeps another process from deleting the content in the meantime: it deletes the row as it saw it.
        mark = (uuid.uuid4().hex, one.digest)
        is_new = isinstance(one, LongText)  # most are: they are not looked for first
        if is_new or not connection.execute("UPDATE file SET used = ? WHERE digest = ?", mark).rowcount:
            if (data := one.data) is None:  # forgotten before: the description is all there is
                continue
            insert = "INSERT INTO file (digest, used, data) VALUES (?, ?, ?)"
            again = "ON CONFLICT (digest) DO UPDATE SET used = excluded.used"
            connection.execute(f"{insert} {again}", (one.digest, mark[0], data))
        connection.execute("INSERT INTO run_file (run_id, digest) VALUES (?, ?) ON CONFLICT DO NOTHING", here)


@contextmanager
def its_texts(connection: Connection) -> Generator[Connection]:
    """Inside the block, read long texts through this connection."""
    with texts_of(partial(read_file, connection)):
        yield connection


def copy_files(connection: Connection, run_id: str, new_id: str) -> None:
    """Let a copy of a run refer to the same files and long texts."""
    sql = "INSERT INTO run_file (run_id, digest) SELECT CAST(? AS TEXT), digest FROM run_file WHERE run_id = ?"
    connection.execute(f"{sql} ON CONFLICT DO NOTHING", (new_id, run_id))


def forget_files(connection: Connection, run_id: str) -> None:
    """Delete the files and long texts of a run to which no other run refers."""
    sql = (
        "SELECT digest, used FROM file WHERE digest IN (SELECT digest FROM run_file WHERE run_id = ?)"
        " AND NOT EXISTS (SELECT 1 FROM run_file WHERE digest = file.digest AND run_id <> ?)"
    )
    found = connection.execute(sql, (run_id, run_id)).fetchall()
    connection.execute("DELETE FROM run_file WHERE run_id = ?", (run_id,))
    for row in found:
        connection.execute("DELETE FROM file WHERE digest = ? AND used = ?", (row["digest"], row["used"]))


def read_file(connection: Connection, digest: str) -> bytes | None:
    """Return the content of a file or a long text; None if no run refers to it any more."""
    row = connection.execute("SELECT data FROM file WHERE digest = ?", (digest,)).fetchone()
    return None if row is None else bytes(row[0])
