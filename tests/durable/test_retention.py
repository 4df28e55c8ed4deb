"""`Runtime(retention=)`: runs that ended long ago are deleted when another one begins; open ones stay."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.engine.work.runtime import Retention
from kairo_team.errors import JournalError
from tests.cluster import stage

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]
DAY = 86_400.0
TEAM = kt.Team("desk", [kt.Member("clerk", lambda _: os.urandom(100_000).hex())])
PLAN = kt.TaskGraph([kt.Task("a", "Do it.")])


async def run(runtime: kt.Runtime, run_id: str) -> None:
    await kt.run(TEAM, "Go.", plan=PLAN, run_id=run_id, runtime=runtime)


def age(journal: Any, days: float, state: str = "completed") -> None:
    """Let all runs of a journal be as old."""
    with journal.database.writing() as connection:
        connection.execute("UPDATE run SET updated_at = ?, state = ?", (time.time() - days * DAY, state))


def names(journal: Any) -> list[str]:
    return sorted(run.run_id for run in journal.runs())


@pytest.mark.parametrize("kind", ["file", "database"])
async def test_runs_that_ended_long_ago_are_deleted_when_another_begins(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    journal = kt.SqliteJournal(path) if kind == "file" else kt.PostgresJournal(stage.new_database("procrastinate"))
    for number in range(5):
        await run(kt.Runtime(journal=journal), f"old-{number}")
    journal.close()
    long = path.stat().st_size if kind == "file" else 0
    age(journal, 31)
    await run(kt.Runtime(journal=journal), "young")
    runtime = kt.Runtime(journal=journal, retention=30 * DAY)
    await run(runtime, "new")
    assert names(journal) == ["new", "young"]
    age(journal, 31)
    await run(runtime, "at-once")
    assert names(journal) == ["at-once", "new", "young"], "at most once an hour"
    journal.close()
    assert kind == "database" or path.stat().st_size < long, "the file shrinks"


async def test_a_run_that_waits_is_kept_and_resuming_one_deletes_others_too(tmp_path: Path) -> None:
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    runtime = kt.Runtime(journal=journal)
    await run(runtime, "open")
    age(journal, 31, "suspended")
    with journal.database.writing() as connection:
        connection.execute("UPDATE run SET result = NULL")
    await run(runtime, "old")
    with journal.database.writing() as connection:
        connection.execute("UPDATE run SET updated_at = 0 WHERE run_id = 'old'")
    await kt.Runtime(journal=journal, retention=DAY).resume("open", TEAM)
    assert names(journal) == ["open"]
    journal.close()


async def test_a_worker_deletes_for_the_runtime_of_its_team() -> None:
    url = stage.new_database("procrastinate")
    team = kt.Team("desk", TEAM.members, runtime=kt.Runtime(retention=DAY))
    async with stage.working(url, team) as cluster:
        cluster.submit(team, kt.TeamExecutionRequest("Go.", plan=PLAN, run_id="old"))
        await stage.until(lambda: cluster.journal.show("old").state == "completed")
        age(cluster.journal, 2)
    async with stage.working(url, kt.Team("desk", TEAM.members, runtime=kt.Runtime(retention=DAY))) as cluster:
        cluster.submit(team, kt.TeamExecutionRequest("Go.", plan=PLAN, run_id="new"))
        await stage.until(lambda: names(cluster.journal) == ["new"])


async def test_a_journal_that_cannot_delete_is_logged_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        def forget(self, *, older_than: float) -> int:
            raise JournalError("runs.db", "the disk is full")

    clock = [0.0]
    retention = Retention(60)
    caplog.set_level(logging.INFO, "kairo_team")
    for now in (0.0, 59.0, 60.0):
        clock[0] = now
        await retention.apply(Full(), lambda: clock[0])
    assert [one.getMessage() for one in caplog.records] == [
        "Runtime(retention=) could not delete old runs: journal 'runs.db': the disk is full"
    ] * 2


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "30d", True])
def test_another_retention_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="how many seconds a run is kept after its end"):
        kt.Runtime(retention=wrong)


def test_a_journal_without_deletion_by_age_is_refused() -> None:
    class Journal:
        def begin(self) -> None: ...

    with pytest.raises(ValueError, match=r"needs a journal with forget\(older_than=\)"):
        kt.Runtime(journal=Journal(), retention=DAY)  # type: ignore[arg-type]  # it does less
