"""A run that a worker of version 0.2.0 of 24 November 2026 left in flight is finished by a worker of this version.

`tests/cluster/kept_worker_team.py` says how the databases were made. The worker that had the run was killed, so its row
says that it lives.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

import kairo_team as kt
from kairo_team.cluster import monitor
from kairo_team.cluster.cluster import Cluster, version_of
from kairo_team.cluster.delivery import ENGINES, EngineName, queue_key
from kairo_team.cluster.units import RUNS, queue_of
from kairo_team.cluster.worker import Worker
from kairo_team.engine.records.digests import digests_of
from kairo_team.recorded import ENDED
from tests.cluster import kept_worker_team
from tests.cluster.stage import BEAT, crew, execute, until

pytestmark = [pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

KEPT = Path(__file__).parent.parent / "data" / "journals"
STATE = "SELECT state FROM run WHERE run_id = 'r'"


def load(url: str, engine: EngineName) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(gzip.decompress((KEPT / f"worker-{engine}.sql.gz").read_bytes()))


def change(url: str, **digests: str | None) -> None:
    """Change the recorded parts of the run's team."""
    (found,) = execute(url, "SELECT digests FROM run")[0]
    changed = {**json.loads(found), **{name.replace("_", " "): digest for name, digest in digests.items()}}
    execute(url, "UPDATE run SET digests = %s", json.dumps({name: one for name, one in changed.items() if one}))


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_worker_finishes_what_an_earlier_version_left_and_pays_no_finished_call_again(
    database: str, engine: EngineName
) -> None:
    load(database, engine)
    kept_worker_team.asked.clear()
    async with crew(database, engine=engine) as made:
        made.add_worker(kept_worker_team.team)
        await until(lambda: execute(database, STATE)[0][0] in ENDED)
        result = made.here.journal.result("r")
        assert result is not None
        assert result.status is kt.TeamStatus.COMPLETED
        assert kept_worker_team.asked == ["one 2", "one 3", "two 0", "two 1", "two 2", "two 3"]
        states = [call.state for call in made.here.journal.calls("r")]
        assert (states.count("answered"), len(made.here.journal.in_doubt("r"))) == (8, 1)
        await until(lambda: execute(database, "SELECT 1 FROM unit WHERE kind = 'attempt'") == [])


async def test_a_program_resumes_it_and_workers_of_this_version_make_its_attempts(database: str) -> None:
    load(database, "procrastinate")
    team = kept_worker_team.team
    kept_worker_team.asked.clear()
    async with crew(database) as made:
        made.add_worker(team, members=["one", "two"])
        result = await kt.Runtime(engine=made.here).resume("r", replace(team, runtime=None))
    assert result.status is kt.TeamStatus.COMPLETED
    assert kept_worker_team.asked == ["one 2", "one 3", "two 0", "two 1", "two 2", "two 3"]


def waits(url: str, cluster: Cluster) -> bool:
    """Look for runs to take over as the worker does; return whether the run still waits in its old queue."""
    worker = Worker(cluster, kept_worker_team.team)
    worker._adopt()
    return bool(execute(url, "SELECT queue FROM unit WHERE kind = 'run'")[0][0] != queue_of(worker.version, RUNS))


@pytest.fixture
def waiting(database: str) -> str:
    """A database in which the death of the old worker was noticed."""
    load(database, "procrastinate")
    Cluster(database).close()  # the tables get this version's format
    execute(database, "DELETE FROM process")
    execute(database, "DELETE FROM unit WHERE kind = 'attempt'")
    execute(database, "UPDATE unit SET state = 'sent', fence = 2, process = NULL")
    return database


@pytest.mark.parametrize(
    ("why", "prepare"),
    [
        ("a part has changed", lambda url: change(url, **{"instructions of role 'two'": "another"})),
        ("it is of this version", lambda url: change(url, list_of_parts="3")),
        ("another team's", lambda url: execute(url, "UPDATE run SET team = 'other'")),
        ("somebody has it", lambda url: execute(url, "UPDATE unit SET state = 'taken', process = 'p'")),
        (
            "a worker serves it",
            lambda url: execute(
                url,
                "INSERT INTO process (id, kind, host, pid, lock, state, started_at, digest)"
                " SELECT 'p', 'worker', 'h', 1, 1, 'live', 0, split_part(queue, ':', 1) FROM unit",
            ),
        ),
    ],
)
def test_a_run_stays_where_it_is(waiting: str, why: str, prepare: Callable[[str], Any]) -> None:
    prepare(waiting)
    cluster = Cluster(waiting)
    cluster._install()
    assert waits(waiting, cluster), why
    cluster.close()


def test_a_run_is_taken_over_once_and_under_the_next_fence(waiting: str) -> None:
    cluster = Cluster(waiting)
    cluster._install()
    for _ in range(2):
        assert not waits(waiting, cluster)
        assert execute(waiting, "SELECT state, fence FROM unit") == [("sent", 3)]
        jobs = "SELECT queue_name, args->>'fence' FROM kairo_procrastinate.procrastinate_jobs"
        jobs += " WHERE args->>'unit' = 'run:r'"
        version = version_of(kept_worker_team.team, digests_of(kept_worker_team.team, {}))
        assert execute(waiting, jobs) == [(queue_key(queue_of(version, RUNS)), "3")]
    cluster.close()


async def test_a_run_that_comes_later_is_taken_over_too(waiting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "_ADOPTING", 3)
    execute(waiting, "UPDATE unit SET state = 'done', problem = 'not yet'")
    async with crew(waiting) as made:
        made.add_worker(kept_worker_team.team)
        await until(lambda: made.clusters[-1].journal.process.line.reached > 0)
        await anyio.sleep(2 * BEAT)
        execute(waiting, "UPDATE unit SET state = 'sent', problem = NULL")
        await until(lambda: execute(waiting, STATE)[0][0] in ENDED)
