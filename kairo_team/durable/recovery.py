"""What a run goes on from, rebuilt from its journal: a crash is a suspension that nobody was asked about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kairo_team.budget import Budget, Usage, to_dollars
from kairo_team.durable.codec import CorruptRecord, decode
from kairo_team.engine.budget_split import root_budget
from kairo_team.engine.questions import Inbox
from kairo_team.engine.records.replay import RAISED_BUDGET, CutShort
from kairo_team.engine.suspension import Suspension
from kairo_team.results import Attempt, TaskOutcome

if TYPE_CHECKING:
    import sqlite3

    from kairo_team.durable.journal import SqliteRunJournal
    from kairo_team.tasks import TaskGraph
    from kairo_team.team import TeamExecutionRequest

_NOTHING: Final = Usage()

_RUNS_INSIDE: Final = """
WITH RECURSIVE inside(run_id) AS (SELECT ? UNION SELECT run.run_id FROM run JOIN inside ON run.parent = inside.run_id)
SELECT run_id FROM inside
"""
_CALLS_INSIDE: Final = f"SELECT * FROM call WHERE run_id IN ({_RUNS_INSIDE}) ORDER BY id"  # noqa: S608 - all of it ours


class _Step(NamedTuple):
    """An attempt's place in a plan, read from its key."""

    plan: str
    task_id: str
    number: int


def steps_of(connection: sqlite3.Connection, run_id: str) -> dict[str, object]:
    """Return the values of a run's recorded steps by key, in their order; `CorruptRecord` names one without sense."""
    steps: dict[str, object] = {}
    for row in connection.execute("SELECT key, value FROM step WHERE run_id = ? ORDER BY id", (run_id,)):
        try:
            steps[row["key"]] = decode(row["value"])
        except CorruptRecord as error:
            raise CorruptRecord(f"step {row['key']!r} of run {run_id!r} cannot be read: {error}") from error
    return steps


def calls_of(connection: sqlite3.Connection, run_id: str) -> list[Any]:
    """Return the rows of all calls of a run and of the runs inside it, in the order they were sent."""
    return connection.execute(_CALLS_INSIDE, (run_id,)).fetchall()


def runs_inside(connection: sqlite3.Connection, run_id: str) -> set[str]:
    """Return the ids of the runs inside a run, at any depth, without its own."""
    return {row["run_id"] for row in connection.execute(_RUNS_INSIDE, (run_id,))} - {run_id}


def tools_in_doubt(connection: sqlite3.Connection, run_id: str) -> frozenset[str]:
    """Return the keys of a run's tool calls that were sent, and of which nobody saw the end."""
    sql = "SELECT key FROM call WHERE run_id = ? AND what = 'tool' AND state = 'sent'"
    return frozenset(row["key"] for row in connection.execute(sql, (run_id,)))


def delete_run(connection: sqlite3.Connection, run_id: str) -> None:
    """Delete a run with all that is inside it."""
    for one in (run_id, *runs_inside(connection, run_id)):
        for table in ("step", "call", "question", "run"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (one,))  # noqa: S608 - names from above


def charge_of(row: Any) -> Usage:
    """Return what is charged for a call: what it used, and all that was held for one whose end nobody knows."""
    tool_calls = int(row["what"] == "tool" and row["state"] != "unsent")
    if row["state"] == "sent":
        return Usage(row["held_tokens"], 0, to_dollars(row["held_picos"]), 0, tool_calls)
    return Usage(row["prompt"], row["completion"], to_dollars(row["picos"]), 0, tool_calls)


def usage_of(connection: sqlite3.Connection, run_id: str) -> Usage:
    """Return what a run has spent, with the runs inside it."""
    steps = steps_of(connection, run_id)
    row = connection.execute("SELECT active FROM run WHERE run_id = ?", (run_id,)).fetchone()
    return replace(_Account(connection, run_id, steps).total, seconds=row["active"])


def suspension_of(connection: sqlite3.Connection, row: Any, journal: SqliteRunJournal) -> Suspension:
    """Return what a run goes on from; its open attempts are recorded as cut short, with what they have spent."""
    steps = dict(journal.records)
    request = cast("TeamExecutionRequest", decode(row["request"]))
    account = _Account(connection, row["run_id"], steps)
    for key, cut in account.cut_attempts():
        journal.put(key, cut)
    outcomes = {key.partition(":")[2]: one for key, one in steps.items() if isinstance(one, TaskOutcome)}
    return Suspension(
        request=request,
        begun_with={},
        journal=journal,
        usage=replace(account.total, seconds=row["active"]),
        budget=cast("Budget", steps.get(RAISED_BUDGET, root_budget(request.config))),
        seq=row["seq"],
        inbox=_inbox(connection, row["run_id"]),
        outcomes=outcomes,
        plan=cast("TaskGraph | None", steps.get("graph")),
        spent_by=account.by_member,
    )


class _Account:
    """What a run has spent, by the steps in which it was spent."""

    def __init__(self, connection: sqlite3.Connection, run_id: str, steps: Mapping[str, object]) -> None:
        self._steps = steps
        self._spent: dict[str, Usage] = defaultdict(Usage)
        """By step: what its calls, and the runs inside it, were charged."""
        self._member: dict[str, str | None] = {}
        for row in connection.execute("SELECT * FROM call WHERE run_id = ? ORDER BY id", (run_id,)):
            step = row["step"]
            before = self._spent[step]
            self._spent[step] = replace(before + charge_of(row), loops=max(before.loops, row["loops"]))
            self._member[step] = row["member"]
        for row in connection.execute("SELECT * FROM run WHERE parent = ?", (run_id,)):
            self._spent[row["parent_step"]] += replace(usage_of(connection, row["run_id"]), seconds=0.0)
            self._member[row["parent_step"]] = row["parent_member"]
        self.by_member: dict[str, Usage] = defaultdict(Usage)
        self.total = self._sum()

    def _sum(self) -> Usage:
        """Add up the tasks: as recorded for attempts that ended, by their calls for all else."""
        total = _NOTHING
        for member, spent in (*self._of_attempts(), *self._of_the_rest()):
            total += spent
            if member is not None:
                self.by_member[member] += spent
        return total

    def _of_attempts(self) -> Iterator[tuple[str | None, Usage]]:
        for key in self._last_attempts().values():
            recorded = self._steps[key]
            assert isinstance(recorded, Attempt)
            yield recorded.member, replace(recorded.usage, seconds=0.0)

    def _of_the_rest(self) -> Iterator[tuple[str | None, Usage]]:
        for step, spent in self._spent.items():
            if not isinstance(self._steps.get(step), Attempt):
                yield self._member[step], spent

    def _last_attempts(self) -> dict[str, str]:
        """Return the key of the last attempt that ended, by task: its usage is all the task had spent by then."""
        last: dict[str, tuple[int, str]] = {}
        for key, value in self._steps.items():
            if isinstance(value, Attempt):
                place = _place(key)
                last[place.task_id] = max(last.get(place.task_id, (0, "")), (place.number, key))
        return {task_id: key for task_id, (_, key) in last.items()}

    def cut_attempts(self) -> Iterable[tuple[str, CutShort]]:
        """Yield a record of each attempt in which calls were made and that has not ended."""
        last = self._last_attempts()
        for step, spent in self._spent.items():
            recorded, member = self._steps.get(step), self._member[step]
            if not step.startswith("attempt:") or isinstance(recorded, Attempt) or member is None:
                continue
            before = self._steps.get(last.get(_place(step).task_id, ""))
            usage = spent + before.usage if isinstance(before, Attempt) else spent
            kept = recorded.artifact if isinstance(recorded, CutShort) else None
            yield step, CutShort(member, usage, kept)


def _place(key: str) -> _Step:
    """Read the key of an attempt: `attempt:<plan>:<task>:<number>`; a task's id may have colons in it."""
    _, plan, rest = key.split(":", 2)
    task_id, _, number = rest.rpartition(":")
    return _Step(plan, task_id, int(number))


def _inbox(connection: sqlite3.Connection, run_id: str) -> Inbox:
    """Return the questions of a run that were put off, with the answers that came since."""
    inbox = Inbox()
    for row in connection.execute("SELECT * FROM question WHERE run_id = ? ORDER BY asked_at, id", (run_id,)):
        question: Any = decode(row["body"])
        inbox.keep_open(question)
        if row["decision"] is not None:
            inbox.answer(question.id, decode(row["decision"]))
    return inbox
