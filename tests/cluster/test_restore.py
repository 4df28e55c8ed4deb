"""A database is dumped and restored by PostgreSQL's own programs, and its runs go on from the copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import kairo_team as kt
from kairo_team.testing.postgres_server import PostgresServer, find_programs
from tests.durable.kept_team import KEPT, MODEL, Provider, team

pytestmark = [pytest.mark.real_time, pytest.mark.anyio]

ROOT = Path(__file__).parent.parent.parent


def copied(url: str, postgres: PostgresServer) -> str:
    """Return the URL of a new database that `pg_dump` and `psql` made of another one."""
    programs, new = find_programs(), postgres.new_database()
    assert programs is not None
    dump = subprocess.run([programs / "pg_dump", url], check=True, capture_output=True).stdout
    psql: list[str | Path] = [programs / "psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", new]
    subprocess.run(psql, input=dump, check=True, capture_output=True)
    return new


async def test_a_restored_database_names_the_calls_in_doubt_and_pays_for_nothing_that_it_has(
    database: str, postgres: PostgresServer
) -> None:
    await anyio.run_process([sys.executable, "-m", "tests.durable.kept_team", database], cwd=ROOT)
    new = copied(database, postgres)
    first, second = kt.PostgresJournal(database), kt.PostgresJournal(new, beat=0.2)
    assert {run.run_id for run in second.runs()} == {*KEPT}
    for run_id in KEPT:
        assert first.calls(run_id) == second.calls(run_id)
        assert first.show(run_id).usage == second.show(run_id).usage
    (call,) = second.in_doubt("killed-inside")
    assert (call.task_id, call.name, call.usage.tokens > 0) == ("b", MODEL, True)
    provider = Provider()
    async with kt.Runtime(models={MODEL: provider.model}, journal=second, gate=kt.DeferGate()) as runtime:
        result = await runtime.resume("killed-inside", team())
    assert (result.status, len(provider.asked)) == (kt.TeamStatus.COMPLETED, 3)
    assert any(MODEL in warning and "nobody saw the answer" in warning for warning in result.warnings)
    assert first.show("killed-inside").state == "interrupted", "the copy is a database of its own"
    first.close()
    second.close()
    postgres.drop(new)
