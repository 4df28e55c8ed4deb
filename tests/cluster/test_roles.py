"""The roles of `deploy/`: each may do what it is for, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import kairo_team as kt
from kairo_team.errors import JournalError
from kairo_team.testing.postgres_server import PostgresServer
from tests.cli.conftest import Kairo, forget_team_files, kairo, team_file
from tests.cluster.server import own_server
from tests.cluster.test_commands import DESK

__all__ = ["forget_team_files", "kairo", "team_file"]  # fixtures

pytestmark = [pytest.mark.real_time, pytest.mark.skipif(os.name != "posix", reason="where a server is started")]
DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def do(url: str, file: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((DEPLOY / file).read_bytes())


def url_of(server: PostgresServer, role: str) -> str:
    return f"postgresql://{role}:x@127.0.0.1:{server.port}/postgres"


def asks_a_run(url: str) -> bool:
    """Return whether a role may do what `kairo cancel --task` and `kairo top-up` do, to a run that looks at work."""
    journal = kt.PostgresJournal(url, patience=1)
    try:
        with journal.database.writing() as connection:
            connection.execute("INSERT INTO request (id, run_id, epoch, body, asked_at) VALUES ('r', 'x', 1, '', 0)")
        return journal.withdraw_request("r") == (False, None)
    except JournalError as error:
        if "permission denied" in str(error):
            return False
        raise
    finally:
        journal.close()


@pytest.mark.parametrize("engine", ["procrastinate", pytest.param("dbos", marks=pytest.mark.exhaustive)])
def test_each_role_may_do_what_it_is_for(
    kairo: Kairo, team_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    with own_server() as server:
        do(server.url, "roles.sql")
        monkeypatch.delenv("KAIRO_JOURNAL", raising=False)

        def as_role(role: str, *arguments: object) -> tuple[int, str]:
            monkeypatch.setenv("KAIRO_DATABASE", url_of(server, role))
            said = kairo(*arguments)
            return said.code, said.out + said.err

        assert as_role("kairo_worker", "runs")[0] == 0
        do(url_of(server, "kairo_worker"), "grants.sql")
        for run_id in ("one", "two"):
            assert as_role("kairo_worker", "submit", team_file(DESK), "--run-id", run_id, "--engine", engine)[0] == 0
        for role in ("kairo_reader", "kairo_clerk"):
            assert as_role(role, "show", "one")[0] == 0
            assert as_role(role, "events", "one")[0] == 0
            code, said = as_role(role, "forget", "one")
            assert (code, "permission denied" in said) == (2, True)
        code, said = as_role("kairo_reader", "cancel", "one")
        assert (code, "permission denied" in said) == (2, True)
        assert as_role("kairo_clerk", "cancel", "one") == (0, "run one is cancelled\n")
        for role, may in (("kairo_clerk", True), ("kairo_reader", False)):
            assert asks_a_run(url_of(server, role)) is may
        code, said = as_role("kairo_reader", "pause", "desk")
        assert (code, "permission denied" in said) == (2, True)
        for words in (["pause", "desk"], ["queue", "desk", "--limit", "2"], ["unpause", "desk"], ["queue"]):
            assert as_role("kairo_clerk", *words)[0] == 0
        assert as_role("kairo_reader", "queue")[0] == as_role("kairo_reader", "top")[0] == 0
        code, said = as_role("kairo_clerk", "submit", team_file(DESK))
        assert code == 2, said
