"""Journals that an earlier version wrote: opened, shown, resumed, and brought to the format of this version.

`tests/data/journals` has them as version 0.2.0 of 24 November 2026 wrote them with `tests/durable/kept_team.py`.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import kairo_team as kt
from kairo_team.durable import formats, journal, postgres_database
from kairo_team.durable.database import Database
from kairo_team.errors import JournalError, RunFinished
from kairo_team.testing.postgres_server import PostgresServer
from tests.cli.conftest import Kairo, SaidJson, kairo, kairo_json
from tests.durable import kept_team
from tests.durable.kept_team import MODEL, Provider, Station, journal_at, team

__all__ = ["kairo", "kairo_json"]  # fixtures

pytestmark = [pytest.mark.real_time, pytest.mark.anyio]

KEPT = Path(__file__).parent.parent / "data" / "journals"
STATES = {
    "cancelled": "cancelled",
    "killed-inside": "interrupted",
    "killed-early": "interrupted",
    "answered": "suspended",
    "waits": "suspended",
    "ended": "completed",
}
ASKED = {"answered": 0, "killed-early": 11, "killed-inside": 3}
"""How many calls of the model each run has still to make."""
MEASURED = (Station("answer 13", 1.5), {"name": "answer 11", "metres": 1.5})


@pytest.fixture(params=["file", "database"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A journal of the earlier version: the path of a file, or the URL of a database."""
    if request.param == "file":
        path = tmp_path / "runs.db"
        path.write_bytes(gzip.decompress((KEPT / "format-1.db.gz").read_bytes()))
        return str(path)
    url: str = request.getfixturevalue("database")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(gzip.decompress((KEPT / "format-1.sql.gz").read_bytes()))
    return url


@contextmanager
def about(place: str) -> Generator[Callable[..., Any]]:
    """Yield a function that executes a statement in the place, behind the journal's back."""
    if "://" in place:
        with psycopg.connect(place, autocommit=True, options="-c search_path=kairo") as connection:
            yield connection.execute
    else:
        with closing(sqlite3.connect(place, isolation_level=None)) as file:
            yield file.execute


def format_at(place: str) -> int:
    """Return the number of the format that a place has."""
    with about(place) as execute:
        if "://" not in place:
            return int(execute("PRAGMA user_version").fetchone()[0])
        return int(execute("SELECT value FROM about WHERE name = 'format'").fetchone()[0])


def set_format(place: str, number: int, least: int) -> None:
    """Let a place say that a newer version made its tables."""
    with about(place) as execute:
        mark = "%s" if "://" in place else "?"
        for name, value in (("format", str(number)), ("least", str(least)), ("version", "9.1.0")):
            execute(f"UPDATE about SET value = {mark} WHERE name = {mark}", (value, name))  # noqa: S608 - a mark
        if "://" not in place:
            execute(f"PRAGMA user_version = {number}")


async def resume(place: str, run_id: str) -> tuple[kt.TeamResult, Provider]:
    book, provider = journal_at(place), Provider()
    try:
        async with kt.Runtime(models={MODEL: provider.model}, journal=book, gate=kt.DeferGate()) as runtime:
            return await runtime.resume(run_id, team()), provider
    finally:
        book.close()


def test_every_run_is_shown_as_it_was(place: str) -> None:
    book = journal_at(place)
    runs = {run.run_id: run for run in book.runs()}
    assert {name: run.state for name, run in runs.items()} == STATES
    assert {run.problem for run in runs.values()} == {None}
    assert {name: run.usage.tokens for name, run in runs.items()} == {
        "cancelled": 4300, "killed-inside": 4327, "killed-early": 59, "answered": 4300, "waits": 4300, "ended": 4300,
    }  # fmt: skip
    result = book.result("ended")
    assert result.status is kt.TeamStatus.COMPLETED
    assert (result.data("station"), result.data("typed")) == MEASURED
    assert [len(book.in_doubt(name)) for name in STATES] == [0, 1, 1, 0, 0, 0]
    for name in STATES:
        events = book.events_after(name)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(events) > 15
    (question,) = book.pending("waits")
    assert "may 'answer 20' go out?" in question.text
    assert book.accounts() == ()
    book.close()


@pytest.mark.parametrize("run_id", ASKED)
async def test_an_open_run_is_resumed_and_no_finished_call_is_paid_again(place: str, run_id: str) -> None:
    result, provider = await resume(place, run_id)
    assert result.status is kt.TeamStatus.COMPLETED
    assert (result.data("station"), result.data("typed")) == MEASURED
    assert len(provider.asked) == ASKED[run_id]
    book = journal_at(place)
    assert book.show(run_id).usage.tokens == sum(call.usage.tokens for call in book.calls(run_id))
    assert len(book.in_doubt(run_id)) == (0 if run_id == "answered" else 1)
    numbers = [event.seq for event in book.events_after(run_id)]
    assert numbers == list(range(1, len(numbers) + 1))
    book.close()


async def test_a_run_that_waits_is_answered_by_this_version_and_goes_on(place: str) -> None:
    kept_team.answer(place, "waits")
    result, provider = await resume(place, "waits")
    assert (result.status, provider.asked) == (kt.TeamStatus.COMPLETED, [])


async def test_an_ended_run_stays_ended_and_may_be_forked_and_forgotten(place: str) -> None:
    for run_id in ("ended", "cancelled"):
        with pytest.raises(RunFinished):
            await resume(place, run_id)
    book = journal_at(place)
    made = book.fork("ended", before="last")
    book.close()
    result, provider = await resume(place, made)
    assert (result.status, len(provider.asked)) == (kt.TeamStatus.COMPLETED, 2)
    book = journal_at(place)
    assert book.forget("ended") == 1
    assert "ended" not in {run.run_id for run in book.runs()}
    book.close()


async def test_new_runs_accounts_and_files_come_beside_the_old_ones(place: str) -> None:
    book = journal_at(place)
    book.set_account("sea", kt.Budget(tokens=1000), every="day")
    book.charging("sea")
    paper = kt.File(data=b"an island", name="map.txt", media_type="text/plain")
    async with kt.Runtime(journal=book.charging("sea")) as runtime:
        plan = kt.TaskGraph([kt.Task("one", "Do one.", files=[paper])])
        budget = kt.Budget(tokens=100)
        alone = kt.Team("one", [kt.Member("hand", lambda assignment: assignment.files[0].name)])
        result = await kt.run(alone, "Do it.", plan=plan, budget=budget, run_id="new", runtime=runtime)
    assert result.status is kt.TeamStatus.COMPLETED
    assert {run.run_id for run in book.runs()} == {*STATES, "new"}
    book.close()


# ---------------------------------------------------------------- from one format to the next


def test_opening_brings_the_tables_to_this_versions_format_once(place: str) -> None:
    assert format_at(place) == 1
    journal_at(place).close()
    assert format_at(place) == formats.FORMAT
    journal_at(place).close()


def test_old_tables_become_what_new_ones_are(place: str, tmp_path: Path, postgres: PostgresServer) -> None:
    new = postgres.new_database() if "://" in place else str(tmp_path / "new.db")
    found: list[list[Any]] = []
    for one in (place, new):
        journal_at(one).close()
        with about(one) as execute:
            if "://" in one:
                sql = (
                    "SELECT table_name, column_name, data_type, is_nullable, column_default FROM"
                    " information_schema.columns WHERE table_schema = 'kairo' ORDER BY 1, 2"
                )
                indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'kairo' ORDER BY 1"
                found.append([*execute(sql).fetchall(), *execute(indexes).fetchall()])
            else:
                found.append(execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall())
    if "://" in new:
        postgres.drop(new)
    assert found[0] == found[1]


def test_a_step_that_fails_changes_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((journal, "FILE_STEPS"), (postgres_database, "POSTGRES_STEPS")):
        *earlier, last = getattr(module, name)
        monkeypatch.setattr(module, name, (*earlier, f"{last};\nCREATE TABLE run (again TEXT)"))
    with pytest.raises(JournalError, match="already exists"):
        journal_at(place)
    assert format_at(place) == 1
    with about(place) as execute, pytest.raises((sqlite3.Error, psycopg.Error)):
        execute("SELECT * FROM window_hold")
    monkeypatch.undo()
    test_every_run_is_shown_as_it_was(place)


def test_many_that_open_an_old_place_at_once_find_one_new_format(place: str) -> None:
    def look(_number: int) -> int:
        book = journal_at(place)
        try:
            return len(book.runs())
        finally:
            book.close()

    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(look, range(8))] == [len(STATES)] * 8
    assert format_at(place) == formats.FORMAT


async def test_a_newer_format_that_this_version_can_work_with_is_used_and_stays(place: str) -> None:
    """A roll-out: workers of the new version have migrated, those of this version are still at work, or start again."""
    journal_at(place).close()
    set_format(place, formats.FORMAT + 1, formats.FORMAT)
    with about(place) as execute:
        execute("ALTER TABLE run ADD COLUMN novelty TEXT")
        execute("CREATE TABLE novelty (name TEXT)")
    test_every_run_is_shown_as_it_was(place)
    result, _ = await resume(place, "killed-inside")
    assert result.status is kt.TeamStatus.COMPLETED
    assert format_at(place) == formats.FORMAT + 1


def test_a_newer_format_that_it_cannot_work_with_is_refused_and_not_changed(place: str) -> None:
    journal_at(place).close()
    set_format(place, 7, 5)
    with pytest.raises(JournalError, match=r"format 7, made by kairo-team 9\.1\.0, and this version knows formats up"):
        journal_at(place)
    assert format_at(place) == 7


def test_a_migration_waits_for_a_transaction_of_a_process_at_work(place: str) -> None:
    """Another process writes while the tables change: what it wrote stays."""
    with about(place) as execute:
        execute("BEGIN")
        execute("UPDATE run SET goal = 'Describe them.' WHERE run_id = 'ended'")
        with ThreadPoolExecutor(1) as pool:
            opened = pool.submit(lambda: journal_at(place).close())
            execute("UPDATE run SET goal = 'Describe them all.' WHERE run_id = 'ended'")
            execute("COMMIT")
            opened.result(60)
    book = journal_at(place)
    assert book.show("ended").goal == "Describe them all."
    book.close()


# ---------------------------------------------------------------- the command


def option(place: str) -> list[str]:
    return ["--database" if "://" in place else "--journal", place]


def test_migrate_says_what_it_did_and_check_changes_nothing(place: str, kairo: Kairo) -> None:
    said = kairo("migrate", "--check", *option(place))
    assert said.code == 8
    assert f"has format 1, and this version uses format {formats.FORMAT}" in said.out
    assert format_at(place) == 1
    said = kairo("migrate", *option(place))
    assert (said.code, f"now has format {formats.FORMAT} (it had 1)" in said.out) == (0, True)
    assert format_at(place) == formats.FORMAT
    for words in (["--check"], []):
        said = kairo("migrate", *words, *option(place))
        assert (said.code, f"has format {formats.FORMAT}, the one this version uses" in said.out) == (0, True)


def test_check_tells_of_a_newer_format(place: str, kairo: Kairo) -> None:
    journal_at(place).close()
    newer = formats.FORMAT + 1
    set_format(place, newer, formats.FORMAT)
    said = kairo("migrate", "--check", *option(place))
    assert (said.code, f"has format {newer}, of kairo-team 9.1.0, which this version can use" in said.out) == (0, True)
    set_format(place, newer, newer)
    said = kairo("migrate", "--check", *option(place))
    assert (said.code, f"its tables have format {newer}" in said.err) == (2, True)


@pytest.mark.parametrize(("words", "number", "code"), [(["--check"], 1, 8), ([], formats.FORMAT, 0)])
def test_migrate_as_json(
    place: str, kairo_json: Callable[..., SaidJson], words: list[str], number: int, code: int
) -> None:
    said = kairo_json("migrate", *words, "--json", *option(place))
    assert said.code == code
    assert said.document == {"format": number, "uses": formats.FORMAT, "is_old": number == 1, "exit_code": code}


def test_migrate_makes_the_tables_of_an_empty_database(database: str, kairo: Kairo) -> None:
    """So a job may make them before the first worker starts, as a user with more rights than a worker's."""
    said = kairo("migrate", "--check", *option(database))
    assert (said.code, f"has no tables, and this version uses format {formats.FORMAT}" in said.out) == (8, True)
    said = kairo("migrate", *option(database))
    assert (said.code, f"now has format {formats.FORMAT} (it had no tables)" in said.out) == (0, True)


def test_migrate_makes_no_file(tmp_path: Path, kairo: Kairo) -> None:
    for words in (["--check"], []):
        said = kairo("migrate", *words, "--journal", tmp_path / "none.db")
        assert (said.code, "there is no journal" in said.err) == (2, True)
    assert [*tmp_path.iterdir()] == []


def test_a_user_who_may_not_change_the_tables_is_told_who_has_to(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(gzip.decompress((KEPT / "format-1.sql.gz").read_bytes()))
        connection.execute("CREATE ROLE reader_of_old LOGIN")
        try:
            connection.execute("GRANT USAGE ON SCHEMA kairo TO reader_of_old")
            connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA kairo TO reader_of_old")
            url = database.replace("//kairo:", "//reader_of_old:")
            with pytest.raises(JournalError, match=r"this user may not change them .* run `kairo migrate` once"):
                kt.PostgresJournal(url)
        finally:
            connection.execute("DROP OWNED BY reader_of_old")
            connection.execute("DROP ROLE reader_of_old")


def test_both_kinds_of_journals_have_the_same_formats() -> None:
    assert len(formats.FILE_STEPS) == len(formats.POSTGRES_STEPS) == formats.FORMAT
    assert 1 <= formats.LEAST <= formats.FORMAT
    assert issubclass(postgres_database.PostgresDatabase, Database)
