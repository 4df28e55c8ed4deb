"""Files in a journal in PostgreSQL, and on the way to workers, who fetch them by their digest."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import anyio
import pytest

import kairo_team as kt
from kairo_team.durable.postgres_database import connect_to
from tests.cluster.stage import new_database, working
from tests.cluster.test_runs import elsewhere, request_of, team_of
from tests.durable.test_kept_files import Desk, request
from tests.models.test_files import PAPER, PHOTO

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]


ONE = kt.Task("a", "do", member="m0")


def count(url: str, table: str) -> int:
    with closing(connect_to(url, "test")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - names of the tests


async def test_a_journal_in_postgresql_keeps_each_content_once(database: str) -> None:
    with closing(kt.PostgresJournal(database)) as journal:
        async with kt.Runtime(journal=journal) as runtime:
            result = await kt.run(Desk().team, request(), runtime=runtime)
        assert result.status is kt.TeamStatus.COMPLETED
        kept = journal.result("run-1")
        assert kept == result
        assert kept is not None
        artifact = kept["draw"].artifact
        assert artifact is not None
        assert artifact.files[0].data == PHOTO.data
        assert count(database, "kairo.file") == 2
        fork = journal.fork("run-1", before="read", new_id="fork")
        journal.forget("run-1")
        desk = Desk()
        async with kt.Runtime(journal=journal) as runtime:
            await runtime.resume(fork, desk.team)
        assert desk.given == [[PAPER.data, None, PHOTO.data]]
        journal.forget("fork")
    assert count(database, "kairo.file") == count(database, "kairo.run_file") == 0


def test_a_database_without_the_tables_gets_them(database: str) -> None:
    kt.PostgresJournal(database).close()
    with closing(connect_to(database, "test")) as connection:
        connection.execute("DROP TABLE kairo.file; DROP TABLE kairo.run_file")
        connection.execute("UPDATE kairo.about SET value = '1' WHERE name = 'format'")
    kt.PostgresJournal(database).close()
    assert count(database, "kairo.file") == 0


async def test_a_worker_gets_the_files_of_its_work_and_sends_back_those_it_made() -> None:
    given: list[list[bytes | None]] = []

    async def work(assignment: kt.Assignment) -> kt.Artifact:
        given.append([file.data for file in assignment.all_files])
        return kt.Artifact("A chart.", files=[PHOTO])

    team = team_of(work)
    async with working(new_database("procrastinate"), team) as cluster:
        here, runtime = elsewhere(team, cluster)
        with anyio.fail_after(60):
            result = await kt.run(here, replace(request_of(ONE), files=[PAPER]), runtime=runtime)
        with cluster.journal.database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM kairo.file").fetchone()[0] == 2
    assert given == [[PAPER.data]]
    assert result.artifact is not None
    assert result.artifact.files[0].data == PHOTO.data
