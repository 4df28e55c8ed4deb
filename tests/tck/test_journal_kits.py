"""The journal on disk keeps the contract, and so does the one in memory that tests use."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shutil import rmtree

import pytest

import kairo_team as kt
from kairo_team.contracts import Journal
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.tck import JournalTCK
from kairo_team.testing import MemoryJournal
from tests.cluster.server import die, server
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")


@pytest.mark.real_time
class TestSqliteJournal(JournalTCK):
    @classmethod
    def make_journal(cls) -> Journal:
        return kt.SqliteJournal(Path(tempfile.mkdtemp(prefix="kairo-journal-")) / "runs.db", sync="normal")

    @classmethod
    def make_another(cls, journal: Journal) -> Journal:
        assert isinstance(journal, kt.SqliteJournal)
        return kt.SqliteJournal(journal.path, sync="normal")

    @classmethod
    def crash(cls, journal: Journal) -> None:
        """Its threads write nothing more, and its lock is gone, as after SIGKILL."""
        assert isinstance(journal, kt.SqliteJournal)
        die(journal)

    @classmethod
    def fail(cls, journal: Journal) -> None:
        assert isinstance(journal, kt.SqliteJournal)
        journal.database.problem = "database or disk is full"

    @classmethod
    def place_of(cls, journal: Journal) -> str:
        assert isinstance(journal, kt.SqliteJournal)
        return str(journal.path)

    @classmethod
    def open_at(cls, place: str) -> Journal:
        return kt.SqliteJournal(place, sync="normal")

    @classmethod
    def close(cls, journal: Journal) -> None:
        assert isinstance(journal, kt.SqliteJournal)
        journal.close()
        rmtree(journal.path.parent, ignore_errors=True)


@variant("asyncio")
class TestSqliteJournalThatWaitsForTheDisk(TestSqliteJournal):
    @classmethod
    def make_journal(cls) -> Journal:
        return kt.SqliteJournal(Path(tempfile.mkdtemp(prefix="kairo-journal-")) / "runs.db")

    @classmethod
    def make_another(cls, journal: Journal) -> Journal:
        assert isinstance(journal, kt.SqliteJournal)
        return kt.SqliteJournal(journal.path)


@variant("trio")
class TestSqliteJournalWithoutEvents(TestSqliteJournal):
    keeps_events = False

    @classmethod
    def make_journal(cls) -> Journal:
        folder = tempfile.mkdtemp(prefix="kairo-journal-")
        return kt.SqliteJournal(Path(folder) / "runs.db", sync="normal", events=False)

    @classmethod
    def make_another(cls, journal: Journal) -> Journal:
        assert isinstance(journal, kt.SqliteJournal)
        return cls.open_at(str(journal.path))

    @classmethod
    def open_at(cls, place: str) -> Journal:
        return kt.SqliteJournal(place, sync="normal", events=False)


@pytest.mark.real_time
class TestMemoryJournal(JournalTCK):
    can_be_killed = False

    @classmethod
    def make_journal(cls) -> Journal:
        return MemoryJournal()

    @classmethod
    def make_another(cls, journal: Journal) -> Journal:
        assert isinstance(journal, MemoryJournal)
        return journal.elsewhere()

    @classmethod
    def crash(cls, journal: Journal) -> None:
        assert isinstance(journal, MemoryJournal)
        journal.crash()

    @classmethod
    def fail(cls, journal: Journal) -> None:
        assert isinstance(journal, MemoryJournal)
        journal.fail("the disk is full")


@pytest.mark.service
@pytest.mark.real_time
class TestPostgresJournal(JournalTCK):
    patience = 60.0

    @classmethod
    def mark(cls, name: str) -> str | None:
        """Return the mark of a test: the longest one opens hundreds of databases."""
        return "exhaustive" if name.startswith("test_c03_whatever_happens") else None

    @classmethod
    def make_journal(cls) -> Journal:
        return cls._journal_on(server().new_database())

    @classmethod
    def _journal_on(cls, url: str) -> PostgresJournal:
        return PostgresJournal(url, beat=0.2)

    @classmethod
    def make_another(cls, journal: Journal) -> Journal:
        assert isinstance(journal, PostgresJournal)
        return cls._journal_on(journal._url)

    @classmethod
    def crash(cls, journal: Journal) -> None:
        assert isinstance(journal, PostgresJournal)
        die(journal)

    @classmethod
    def fail(cls, journal: Journal) -> None:
        assert isinstance(journal, PostgresJournal)
        journal.database.problem = "no space is left on the server"

    @classmethod
    def place_of(cls, journal: Journal) -> str:
        assert isinstance(journal, PostgresJournal)
        return journal._url

    @classmethod
    def open_at(cls, place: str) -> Journal:
        return cls._journal_on(place)

    @classmethod
    def close(cls, journal: Journal) -> None:
        assert isinstance(journal, PostgresJournal)
        journal.close()


@variant("asyncio")
class TestPostgresJournalWithoutEvents(TestPostgresJournal):
    keeps_events = False

    @classmethod
    def _journal_on(cls, url: str) -> PostgresJournal:
        return PostgresJournal(url, beat=0.2, events=False)
