"""What a journal shows right now: its workers, its open runs, and what waits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kairo_team.durable import recovery
from kairo_team.durable.postgres import PostgresJournal
from kairo_team.durable.processes import has_connection
from kairo_team.recorded import ENDED
from kairo_team.views.journal_metrics import Value, read_metrics

if TYPE_CHECKING:
    from kairo_team.durable.connection import Connection
    from kairo_team.durable.sql_journal import SqlJournal
    from kairo_team.recorded import RecordedRun

_WORKERS: Final = """
SELECT process.id, host, pid, team, digest, members, concurrency, process.state, lock, started_at,
 count(unit.id) FILTER (WHERE unit.kind = 'attempt') AS attempts,
 count(unit.id) FILTER (WHERE unit.kind = 'run') AS runs
FROM process LEFT JOIN unit ON unit.process = process.id AND unit.state = 'taken'
WHERE process.kind = 'worker' GROUP BY process.id ORDER BY started_at, process.id
"""
_OPEN: Final = (
    f"{recovery.SHORT_ROWS} WHERE parent IS NULL AND state NOT IN ({', '.join('?' * len(ENDED))})"
    " ORDER BY started_at DESC, run_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingWorker:
    """A worker of a database."""

    id: str
    host: str
    pid: int
    team: str
    version: str
    members: Sequence[str] | None
    """The members whose attempts it makes; None: all, and it coordinates runs."""
    concurrency: int
    """The attempts that it can make at once."""
    state: str
    """`live`, `draining`, `silent` (its connection is gone, and it is not declared dead yet) or `dead`."""
    attempts: int
    """The attempts that it makes now."""
    runs: int
    """The runs that it coordinates now."""
    started_at: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStanding:
    """The workers, the open runs and the waiting work of a journal, at one moment."""

    states: Mapping[str, int]
    """How many runs are in each state."""
    waiting: Mapping[str, tuple[int, float]]
    """For each kind of unit, how many wait for a worker, and for how many seconds the oldest one has."""
    questions: int
    """Questions that wait for a person."""
    in_doubt: int
    """Calls of open runs that were sent and whose end is not recorded."""
    workers: Sequence[StandingWorker]
    """The workers, the oldest first; none for a file."""
    runs: Sequence[RecordedRun]
    """The open runs, the newest first."""


def read_standing(journal: SqlJournal) -> JournalStanding:
    """Return what a journal shows now; raises `JournalError` if it cannot be read."""
    values = read_metrics(journal)
    with journal.database.reading() as connection:
        rows = connection.execute(_OPEN, ENDED).fetchall()
        found = [(row, journal.state_of(connection, row)) for row in rows]
        runs = [journal.listed(connection, row, state) for row, state in found if state not in ENDED]
        workers = _workers(connection) if isinstance(journal, PostgresJournal) else []
    ages = {one.labels["kind"]: one.value for one in values if one.metric == "kairo.waiting_unit.age"}
    return JournalStanding(
        states=_sums(values, "kairo.runs", "state"),
        waiting={kind: (number, ages[kind]) for kind, number in _sums(values, "kairo.waiting_units", "kind").items()},
        questions=sum(_sums(values, "kairo.questions", "team").values()),
        in_doubt=sum(_sums(values, "kairo.calls_in_doubt", "team").values()),
        workers=workers,
        runs=runs,
    )


def _sums(values: Sequence[Value], metric: str, label: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for one in values:
        if one.metric == metric and one.value:
            sums[one.labels[label]] = sums.get(one.labels[label], 0) + int(one.value)
    return sums


def _workers(connection: Connection) -> list[StandingWorker]:
    return [
        StandingWorker(
            id=row["id"],
            host=row["host"],
            pid=row["pid"],
            team=row["team"] or "",
            version=row["digest"] or "",
            members=None if row["members"] is None else json.loads(row["members"]),
            concurrency=row["concurrency"] or 0,
            state=row["state"] if row["state"] == "dead" or has_connection(connection, row["lock"]) else "silent",
            attempts=row["attempts"],
            runs=row["runs"],
            started_at=row["started_at"],
        )
        for row in connection.execute(_WORKERS).fetchall()
    ]
