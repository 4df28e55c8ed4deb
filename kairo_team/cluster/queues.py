"""Queues of submitted runs: which are paused, how many runs of each are at work at once, and which run begins next.

A run is in the queues of its team, of its account and of the accounts above it, and in the queue `all`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kairo_team._util.mistakes import did_you_mean
from kairo_team.cluster.units import COLUMNS, Unit
from kairo_team.durable.connection import NOW, Connection, Statement
from kairo_team.errors import Misuse
from kairo_team.recorded import ENDED

if TYPE_CHECKING:
    from kairo_team.cluster.delivery import Delivery

ALL: Final = "all"
"""The queue of every submitted run."""
MOST_PRIORITY: Final = 1000
"""The highest priority; the lowest is its negative."""
_TEAM: Final = "team:"
_ACCOUNT: Final = "account:"
_AT_ONCE: Final = 1000
"""Most runs that one call lets begin."""
_RUNS: Final = (
    "SELECT unit.state = 'held' AS held, run.team, charge.account, count(*) AS number FROM unit JOIN run USING (run_id)"
    " LEFT JOIN charge USING (run_id) WHERE unit.kind = 'run' AND unit.state IN ('held', 'sent', 'taken')"
    " GROUP BY 1, 2, 3"
)
_HELD: Final = (
    f"SELECT {', '.join(f'unit.{name}' for name in COLUMNS.split(', '))}, run.team, charge.account"
    " FROM unit JOIN run USING (run_id) LEFT JOIN charge USING (run_id) WHERE unit.state = 'held'"
    " AND run.team <> ALL(?) AND (charge.account IS NULL OR charge.account <> ALL(?))"
    f" ORDER BY unit.priority DESC, unit.sent_at, unit.id LIMIT {_AT_ONCE} FOR UPDATE OF unit"
)
_OVER: Final = (
    "UPDATE unit SET state = 'done' WHERE state = 'held' AND run_id IN"
    f" (SELECT run_id FROM run WHERE state IN ({', '.join('?' * len(ENDED))}))"
)


@dataclass(frozen=True, slots=True)
class RunQueue:
    """A queue of submitted runs."""

    name: str
    """`team:NAME`, `account:NAME` or `all`."""
    paused: bool
    """Whether no run of it begins."""
    limit: int | None
    """How many of its runs are at work at once; None: as many as there are."""
    at_work: int
    """Runs that workers coordinate, or are about to; without runs that wait for a person."""
    held: int
    """Runs that wait to begin, because a queue of theirs is paused or full."""

    def lets_begin(self, begun: int = 0) -> bool:
        """Whether another run of it may begin, after `begun` more than `at_work`."""
        return not self.paused and (self.limit is None or self.at_work + begun < self.limit)


class _Rule(NamedTuple):
    paused: bool
    limit: int | None


def queue_name(text: str) -> str:
    """Return the whole name of a queue: a plain name is a team's. Raises `Misuse` for an empty one."""
    name = text if text == ALL or text.startswith((_TEAM, _ACCOUNT)) else f"{_TEAM}{text}"
    if name in (_TEAM, _ACCOUNT):
        raise Misuse(f"a queue is the name of a team, team:NAME, account:NAME or all, not {text!r}")
    return name


def set_queue(
    connection: Connection, name: str, *, paused: bool | None = None, limit: int | Literal["none"] | None = None
) -> None:
    """Pause a queue or let it begin runs again, or set how many runs are at work at once; None keeps what it has.

    Raises `Misuse` for a limit below 1, and for an account that does not exist.
    """
    name = queue_name(name)
    if isinstance(limit, int) and limit < 1:
        raise Misuse(f"a queue lets at least 1 run at once, not {limit}: `kairo pause` stops it")
    if name.startswith(_ACCOUNT):
        found = connection.execute("SELECT 1 FROM account WHERE name = ?", (name.removeprefix(_ACCOUNT),)).fetchone()
        if found is None:
            raise Misuse(f"there is no account {name.removeprefix(_ACCOUNT)!r}: `kairo budget` lists them")
    connection.execute("INSERT INTO queue (name) VALUES (?) ON CONFLICT (name) DO NOTHING", (name,))
    if paused is not None:
        connection.execute("UPDATE queue SET paused = ? WHERE name = ?", (paused, name))
    if limit is not None:
        connection.execute("UPDATE queue SET runs = ? WHERE name = ?", (None if limit == "none" else limit, name))
    # A queue without a rule needs no row.
    connection.execute("DELETE FROM queue WHERE NOT paused AND runs IS NULL")


def without_runs(connection: Connection, name: str) -> str:
    """Return a sentence, with a similar name, if a queue's team has no recorded run; else ""."""
    name = queue_name(name)
    team = name.removeprefix(_TEAM)
    if not name.startswith(_TEAM):
        return ""
    if connection.execute("SELECT 1 FROM run WHERE team = ? LIMIT 1", (team,)).fetchone() is not None:
        return ""
    teams = [row["team"] for row in connection.execute("SELECT DISTINCT team FROM run").fetchall()]
    hint = did_you_mean(team, teams).rstrip()
    return f"no run of team {team!r} is recorded in this database{hint and f'; {hint}'}"


def read_queues(connection: Connection) -> list[RunQueue]:
    """Return the queues that have a rule or a run, by name."""
    rules, parents = _rules(connection), _parents(connection)
    at_work, held = Counter[str](), Counter[str]()
    for row in connection.execute(_RUNS).fetchall():
        for name in _queues_of(row["team"], row["account"], parents):
            (held if row["held"] else at_work)[name] += row["number"]
    names = sorted({*rules, *at_work, *held})
    return [
        RunQueue(name, *rules.get(name, _Rule(paused=False, limit=None)), at_work[name], held[name]) for name in names
    ]


def holding(unit: Unit, priority: int, delivery: Delivery) -> list[Statement]:
    """Return the statements that put the unit of a new run into its queues, and send it if it may begin."""
    sql = (
        "INSERT INTO unit (id, kind, run_id, step, epoch, queue, fence, state, body, priority, sent_at)"
        f" VALUES (?, 'run', ?, '', 0, ?, ?, 'held', 'null', ?, {NOW})"
    )
    values = (unit.id, unit.run_id, unit.queue, unit.fence, priority)
    return [(sql, values), partial(let_begin, delivery)]


def let_begin(delivery: Delivery, connection: Any) -> None:
    """Send the held runs that may begin: a higher priority first, and among equal ones the longest wait."""
    # Runs that were cancelled while they were held.
    connection.execute(_OVER, ENDED)
    ruled = _rules(connection)
    # Without a rule nothing needs to be counted.
    queues = {one.name: one for one in read_queues(connection) if one.name in ruled} if ruled else {}
    full = {one.name for one in queues.values() if not one.lets_begin()}
    if ALL in full:
        return
    parents = _parents(connection)
    begun = Counter[str]()
    closed = [name for name in parents if not full.isdisjoint(_accounts_of(name, parents))]
    teams = [name.removeprefix(_TEAM) for name in full if name.startswith(_TEAM)]
    for *row, team, account in connection.execute(_HELD, (teams, closed)).fetchall():
        names = _queues_of(team, account, parents)
        if all(queues[name].lets_begin(begun[name]) for name in names if name in queues):
            begun.update(names)
            unit = Unit(*row)
            sql = f"UPDATE unit SET state = 'sent', process = NULL, sent_at = {NOW} WHERE id = ?"
            connection.execute(sql, (unit.id,))
            unit.deliver(delivery, connection)


def why_held(connection: Connection, run_id: str) -> str | None:
    """Return why a run waits to begin; None if it does not wait in a queue."""
    sql = (
        "SELECT run.team, charge.account FROM unit JOIN run USING (run_id) LEFT JOIN charge USING (run_id)"
        " WHERE unit.state = 'held' AND run_id = ?"
    )
    row = connection.execute(sql, (run_id,)).fetchone()
    if row is None:
        return None
    names = _queues_of(row["team"], row["account"], _parents(connection))
    for one in read_queues(connection):
        if one.name in names and one.paused:
            return f"queue {one.name!r} is paused: `kairo unpause {shlex.quote(one.name)}` lets its runs begin"
        if one.name in names and not one.lets_begin():
            return f"queue {one.name!r} has as many runs at work as its limit allows: {one.limit}"
    return "it begins soon"


def _rules(connection: Connection) -> dict[str, _Rule]:
    rows = connection.execute("SELECT name, paused, runs FROM queue").fetchall()
    return {row["name"]: _Rule(bool(row["paused"]), row["runs"]) for row in rows}


def _parents(connection: Connection) -> dict[str, str | None]:
    return {row["name"]: row["parent"] for row in connection.execute("SELECT name, parent FROM account").fetchall()}


def _accounts_of(account: str | None, parents: Mapping[str, str | None]) -> list[str]:
    """Return the queues of an account and of the accounts above it."""
    names: list[str] = []
    while account is not None:
        names.append(f"{_ACCOUNT}{account}")
        account = parents.get(account)
    return names


def _queues_of(team: str, account: str | None, parents: Mapping[str, str | None]) -> Sequence[str]:
    return [f"{_TEAM}{team}", *_accounts_of(account, parents), ALL]
