"""Why a run on a cluster waits, and whether a live worker could continue it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kairo_team.cluster.queues import why_held
from kairo_team.cluster.units import RUNS
from kairo_team.durable.processes import has_connection
from kairo_team.errors import known

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection
    from kairo_team.durable.postgres import PostgresJournal
    from kairo_team.recorded import RecordedRun

_WAITING: Final = "SELECT DISTINCT queue FROM unit WHERE run_id = ? AND state = 'sent'"
_WORKERS: Final = "SELECT team, digest, members, lock FROM process WHERE kind = 'worker' AND state = 'live'"


class _Worker(NamedTuple):
    team: str
    version: str
    members: Sequence[str] | None

    def serves(self, version: str, member: str) -> bool:
        return self.version == version and (self.members is None or member in self.members)


class Coverage(NamedTuple):
    """The situation of a run on its cluster."""

    by_workers: bool = False
    """Whether workers coordinate the run, so that it needs no `kairo resume`."""
    problem: str | None = None
    """Why no worker does the run's waiting units; None if a worker does, or no unit waits."""
    needs_worker: bool = False
    """Whether a worker of the run's version must be started."""


def coverage_of(journal: PostgresJournal, runs: Iterable[RecordedRun]) -> list[Coverage]:
    """Return the `Coverage` of each run: whether workers coordinate it, and whether they serve its waiting units."""
    with journal.database.reading() as connection:
        workers = [
            _Worker(row["team"] or "", row["digest"] or "", json.loads(row["members"] or "null"))
            for row in connection.execute(_WORKERS).fetchall()
            if has_connection(connection, row["lock"])
        ]
        return [_coverage(connection, run, workers) for run in runs]


def _coverage(connection: Connection, run: RecordedRun, workers: Sequence[_Worker]) -> Coverage:
    sql = "SELECT problem FROM unit WHERE run_id = ? AND kind = 'run'"
    unit = connection.execute(sql, (run.run_id,)).fetchone()
    if unit is not None and unit["problem"] is not None and run.state != "running":
        return Coverage(problem=unit["problem"])
    if (held := why_held(connection, run.run_id)) is not None:
        return Coverage(by_workers=True, problem=held)
    queues = [row["queue"] for row in connection.execute(_WAITING, (run.run_id,)).fetchall()]
    problem = _unserved(run.team, queues, workers)
    return Coverage(unit is not None, problem, problem is not None)


def _unserved(team: str, queues: Sequence[str], workers: Sequence[_Worker]) -> str | None:
    """Return a sentence that names the queues without a live worker; None if each queue has one."""
    pairs = [queue.split(":", 1) for queue in queues]
    lacking = [
        (version, member) for version, member in pairs if not any(one.serves(version, member) for one in workers)
    ]
    if not lacking:
        return None
    version = lacking[0][0]
    if any(one.version == version for one in workers):
        members = sorted(member for _, member in lacking)
        if RUNS in members:
            return "every worker of its version serves only some members: start one without --members for whole runs"
        return f"no live worker serves {known(members)}"
    others = sorted({one.version for one in workers if one.team == team})
    more = f"; {known(others)} of team {team!r} {'is' if len(others) == 1 else 'are'} served" if others else ""
    return f"no live worker serves version {version!r} of team {team!r}{more}"
