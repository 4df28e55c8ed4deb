"""A database behind PgBouncer, and several tenants in one database."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import anyio
import psycopg
import pytest

import kairo_team as kt
from kairo_team._util.database_url import shown_url, split_schema
from kairo_team.cluster.delivery import EngineName
from kairo_team.durable.postgres_database import check_sessions
from kairo_team.errors import JournalError, Misuse
from tests.cli.conftest import Kairo, forget_team_files, kairo, team_file
from tests.cluster.pooler import pooler
from tests.cluster.stage import new_database, until, working
from tests.cluster.test_commands import DESK
from tests.durable import kept_team
from tests.durable.kept_team import MODEL, Provider, team

__all__ = ["forget_team_files", "kairo", "team_file"]  # fixtures

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.anyio,
    pytest.mark.skipif(os.name != "posix", reason="where a server is started"),
]
ROOT = Path(__file__).parent.parent.parent
ENGINES: list[EngineName] = ["procrastinate", "dbos"]


def clerks() -> kt.Team:
    def work(assignment: kt.Assignment) -> str:
        return f"{assignment.task.id} is done"

    return kt.Team("clerks", [kt.Member("clerk", work)])


PLAN = kt.TaskGraph([kt.Task("one", "Do one."), kt.Task("two", "Do two.", depends_on=["one"])])


# ---------------------------------------------------------------- PgBouncer


async def test_a_journal_works_behind_a_pool_of_sessions(database: str) -> None:
    with pooler(database, "session") as url:
        result = await kept_team.begin(url, "r", Provider(), asks=True)
        assert result.status is kt.TeamStatus.SUSPENDED
        kept_team.answer(url, "r")
        journal = kt.PostgresJournal(url, beat=0.2)
        async with kt.Runtime(models={MODEL: Provider().model}, journal=journal, gate=kt.DeferGate()) as runtime:
            assert (await runtime.resume("r", team())).status is kt.TeamStatus.COMPLETED
        assert journal.show("r").state == "completed"
        journal.close()


async def test_a_process_that_was_killed_behind_a_pool_is_seen_to_be_dead(database: str) -> None:
    """The pooler gives the session back, and with it the lock that showed that the process lived."""
    with pooler(database, "session") as url:
        await anyio.run_process([sys.executable, "-m", "tests.durable.kept_team", url], cwd=ROOT)
        journal, provider = kt.PostgresJournal(url, beat=0.2), Provider()
        assert journal.show("killed-inside").state == "interrupted"
        async with kt.Runtime(models={MODEL: provider.model}, journal=journal, gate=kt.DeferGate()) as runtime:
            assert (await runtime.resume("killed-inside", team())).status is kt.TeamStatus.COMPLETED
        assert len(provider.asked) == 3
        journal.close()


@pytest.mark.parametrize("engine", ENGINES)
async def test_workers_and_coordinator_work_behind_a_pool_of_sessions(engine: EngineName) -> None:
    with pooler(new_database(engine), "session") as url:
        async with working(url, clerks(), engine=engine) as cluster:
            request = kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id="submitted")
            cluster.submit(clerks(), request)
            await until(lambda: cluster.journal.show("submitted").state == "completed")


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pool_of_transactions_is_refused_before_anything_is_made(database: str, mode: str) -> None:
    with pooler(database, mode) as url:
        for make in (lambda: kt.PostgresJournal(url), lambda: kt.Cluster(url)):
            with pytest.raises(JournalError, match=r"a pooler .* in session mode \(pool_mode=session\)"):
                make()
    with psycopg.connect(database, autocommit=True) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'kairo'").fetchone() is None


def test_a_pool_of_transactions_is_refused_while_others_use_it(database: str) -> None:
    with pooler(database, "transaction", default_pool_size=8) as url, ThreadPoolExecutor(4) as pool:
        stop = False

        def use() -> None:
            with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
                while not stop:
                    connection.execute("SELECT pg_sleep(0.01)")

        busy = [pool.submit(use) for _ in range(4)]
        try:
            with pytest.raises(JournalError, match="in session mode"):
                kt.PostgresJournal(url)
        finally:
            stop = True
        for one in busy:
            one.result()


def test_a_pool_of_one_session_is_told_from_a_pool_of_transactions(database: str) -> None:
    with pooler(database, "transaction", default_pool_size=1) as url, pytest.raises(JournalError, match="session mode"):
        check_sessions(url)


def test_the_command_line_says_it_in_a_sentence(database: str, kairo: Kairo) -> None:
    with pooler(database, "transaction") as url:
        said = kairo("runs", "--database", url)
    assert (said.code, said.out) == (2, "")
    assert "give kairo a pool in session mode" in said.err
    assert "Traceback" not in said.err


# ---------------------------------------------------------------- tenants


def have_ended(journal: kt.PostgresJournal) -> bool:
    return {run.state for run in journal.runs()} == {"completed"}


def of(url: str, schema: str) -> str:
    return f"{url}?schema={schema}"


@pytest.mark.parametrize("engine", ENGINES)
async def test_two_tenants_in_one_database_see_nothing_of_each_other(database: str, engine: EngineName) -> None:
    for schema in ("acme", "bolt"):  # one after the other: a process has one DBOS
        async with working(of(database, schema), clerks(), engine=engine) as cluster:
            assert cluster.journal.runs() == ()
            asked = kt.TeamExecutionRequest(f"Do it for {schema}.", plan=PLAN, run_id="the-same-id")
            cluster.submit(clerks(), asked)
            cluster.journal.set_account("all", kt.Budget(tokens=5))
            await until(partial(have_ended, cluster.journal))
    for schema in ("acme", "bolt"):
        journal = kt.PostgresJournal(of(database, schema))
        (run,) = journal.runs()
        assert run.goal == f"Do it for {schema}."
        assert f"schema '{schema}'" in journal.place
        journal.close()
    with psycopg.connect(database, autocommit=True) as connection:
        found = {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace").fetchall()}
    assert {"acme", "bolt", f"acme_{engine}", f"bolt_{engine}"} <= found
    assert not {name for name in found if name.startswith("kairo")}


async def test_two_tenants_work_at_the_same_time(database: str) -> None:
    async with (
        working(of(database, "acme"), clerks(), engine="procrastinate") as first,
        working(of(database, "bolt"), clerks(), engine="procrastinate") as second,
    ):
        for number in range(4):
            for cluster in (first, second):
                cluster.submit(clerks(), kt.TeamExecutionRequest("Do it.", plan=PLAN, run_id=f"r{number}"))
        for cluster in (first, second):
            await until(partial(have_ended, cluster.journal))
            assert len(cluster.journal.runs()) == 4


async def test_each_tenant_has_a_process_that_watches_the_others(database: str) -> None:
    """The locks of a database are common to its schemas, so that each schema needs its own."""
    clusters = [kt.Cluster(of(database, name), engine="procrastinate", beat=0.2) for name in ("acme", "bolt", "kairo")]
    for cluster in clusters:
        cluster.start()
    await until(lambda: all(cluster.monitor._looks > 1 for cluster in clusters))
    with clusters[0].journal.database.writing():
        assert clusters[1].journal.set_account("all").name == "all", "a tenant's transaction makes no other tenant wait"
    for cluster in clusters:
        cluster.close()


def test_the_url_names_the_tenant_for_every_command(
    database: str, kairo: Kairo, team_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    url = of(database, "acme")
    said = kairo("submit", team_file(DESK), "--run-id", "one", "--engine", "procrastinate", "--database", url)
    assert said.code == 0, said.err
    assert "one" in kairo("runs", "--database", url).out
    assert "one" not in kairo("runs", "--database", database).out
    assert kairo("migrate", "--check", "--database", of(database, "new")).code == 8


@pytest.mark.parametrize("name", ["Acme", "a-b", "a b", "", "1a", "pg_x", "a" * 41, "a;DROP", 'a"'])
def test_a_name_that_is_no_plain_one_is_refused_without_the_url(database: str, name: str) -> None:
    for make in (kt.PostgresJournal, kt.Cluster):
        with pytest.raises((ValueError, Misuse), match="a schema's name has up to 40 characters") as caught:
            make(of(database, name))
        assert "127.0.0.1" not in str(caught.value)


def test_the_schema_is_taken_out_of_the_url_and_shown() -> None:
    url = "postgresql://me:secret@host/db?sslmode=require&schema=acme&connect_timeout=3"
    assert split_schema(url) == ("postgresql://me:secret@host/db?sslmode=require&connect_timeout=3", "acme")
    assert split_schema("postgresql://host/db") == ("postgresql://host/db", "kairo")
    assert split_schema("host=here dbname=db") == ("host=here dbname=db", "kairo")
    assert "schema=acme" in shown_url(url)
    assert "secret" not in shown_url(url)
