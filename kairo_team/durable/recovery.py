"""Queries that read the records of a run, and of the runs inside it, from a journal's database."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from kairo_team._util.narrowing import is_mapping
from kairo_team.budget import NO_USAGE, Usage, to_dollars
from kairo_team.durable.codec import CorruptRecord, outline
from kairo_team.durable.connection import key_of
from kairo_team.durable.kept_files import forget_files
from kairo_team.engine.records.questions import WITHDRAWN, Decided
from kairo_team.engine.records.recovery import RunAccount
from kairo_team.recorded import ENDED, Place, RecordedCall, RecordedQuestion, RecordedRun, RecoveredRun

if TYPE_CHECKING:
    from kairo_team.contracts import RunJournal
    from kairo_team.durable.connection import Connection, Statement
    from kairo_team.durable.database import Database
    from kairo_team.human import HumanDecision, HumanRequest
    from kairo_team.team import TeamExecutionRequest

SHORT_ROWS: Final = (
    "SELECT run_id, parent, parent_step, parent_member, team, state, owner, epoch, cancelled, active, seq, started_at,"
    " updated_at, forked_from, usage, goal, digests, source FROM run"
)
"""Selects the rows of runs without their requests and results, which can be long."""
_RUNS_INSIDE: Final = """
WITH RECURSIVE inside(run_id) AS
 (SELECT CAST(? AS TEXT) UNION SELECT run.run_id FROM run JOIN inside ON run.parent = inside.run_id)
SELECT run_id FROM inside
"""
_UNDER_WAY: Final = "CASE WHEN call.state = 'sent' AND NOT ({over}) THEN 1 ELSE 0 END AS under_way"
_CALLS_INSIDE: Final = f"""
SELECT call.*, {_UNDER_WAY}
FROM call JOIN run USING (run_id) WHERE run_id IN ({_RUNS_INSIDE}){{unended}} ORDER BY call.id
"""
_CALL_SUMS: Final = f"""
SELECT what, name, count(*) AS calls, sum(in_doubt) AS in_doubt, sum(under_way) AS under_way,
 sum(CASE WHEN under_way + in_doubt = 0 THEN prompt ELSE in_doubt * held_tokens END) AS prompt,
 sum(CASE WHEN under_way + in_doubt = 0 THEN completion ELSE 0 END) AS completion,
 sum(CASE WHEN under_way + in_doubt = 0 THEN picos ELSE in_doubt * held_picos END) AS picos,
 sum(CASE WHEN what = 'tool' AND state != 'unsent' AND under_way = 0 THEN 1 ELSE 0 END) AS tool_calls
FROM (
 SELECT call.*, CASE WHEN call.state = 'sent' AND ({{over}}) THEN 1 ELSE 0 END AS in_doubt,
  {_UNDER_WAY}
 FROM call JOIN run USING (run_id) WHERE run_id IN ({_RUNS_INSIDE})
) AS told GROUP BY what, name ORDER BY what, calls DESC, name
"""
ALL_OVER: Final = "1 = 1"
"""SQL to use instead of `Database.is_over` for a run without a living session."""


def over_in(database: Database, state: str) -> str:
    """Return the SQL condition for calls of ended sessions, for a run in this state and the runs inside it."""
    return database.is_over if state == "running" else ALL_OVER


def steps_of(
    connection: Connection,
    run_id: str,
    read: Callable[[str], object],
    *,
    prefix: str = "",
    of: str | None = None,
) -> dict[str, object]:
    """Return the values of a run's recorded steps by key, in their order.

    `prefix` selects the keys that begin with it; `of` selects the records made within that step. Raises
    `CorruptRecord`, which names the step, for a value that cannot be read.
    """
    steps: dict[str, object] = {}
    sql = "SELECT key, value FROM step WHERE run_id = ? AND substr(key, 1, ?) = ? ORDER BY id"
    values: Sequence[Any] = (run_id, len(prefix), prefix)
    if of is not None:
        # The step's calls, replies, prompts and people's decisions; each part can use the index of keys.
        begins = (f"call:{of}", f"said:{of}", f"human:{of.partition(':')[2]}")
        part = "SELECT id, key, value FROM step WHERE run_id = ? AND key > ? AND key < ?"
        sql = f"{' UNION ALL '.join([part] * len(begins))} ORDER BY id"
        values = [one for begin in begins for one in (run_id, f"{begin}:", f"{begin};")]  # a semicolon follows a colon
    for row in connection.execute(sql, values):
        try:
            steps[key_of(row["key"])] = read(row["value"])
        except CorruptRecord as error:
            raise CorruptRecord(f"step {row['key']!r} of run {run_id!r} cannot be read: {error}") from error
    return steps


def runs_inside_step(connection: Connection, run_id: str, step: str) -> list[str]:
    """Return the ids of the runs inside a step of a run, at any depth, outer runs first."""
    found = connection.execute("SELECT run_id FROM run WHERE parent = ? AND parent_step = ?", (run_id, step)).fetchall()
    outer = [row["run_id"] for row in found]
    return [*outer, *sorted(one for name in outer for one in runs_inside(connection, name))]


def calls_inside(connection: Connection, run_id: str, over: str, *, unended: bool = False) -> list[RecordedCall]:
    """Return the calls of a run and of the runs inside it in the order of sending; with `unended`, only open ones.

    `over` is the SQL condition for calls of ended sessions: see `over_in`.
    """
    sql = _CALLS_INSIDE.format(over=over, unended=" AND call.state = 'sent'" if unended else "")
    return list(map(call_of, connection.execute(sql, (run_id,)).fetchall()))


def call_sums(connection: Connection, run_id: str, over: str) -> list[Any]:
    """Return a row for each model, then for each tool, with its calls in a run and in the runs inside it.

    A call without an end is in doubt if its session has ended (`over`, see `calls_inside`), else under way.
    """
    return connection.execute(_CALL_SUMS.format(over=over), (run_id,)).fetchall()


def run_of(connection: Connection, row: Any, state: str, over: str) -> RecordedRun:
    """Return a run by its row and state; `over` as in `calls_inside`. Raises `CorruptRecord`, which names the run."""
    times = (row["active"], row["started_at"], row["updated_at"], row["forked_from"])
    try:
        source: Any = json.loads(row["source"])
        if not is_mapping(source) or not all(isinstance(one, str) for one in source.values()):
            raise CorruptRecord(f"its source is {source!r:.80}, not an object of strings")
        spent, held = usage_of(connection, row["run_id"], over), NO_USAGE
        if over != ALL_OVER:
            calls = calls_inside(connection, row["run_id"], over, unended=True)
            held = sum((one.held for one in calls), NO_USAGE)
        return RecordedRun(row["run_id"], row["team"], row["goal"], state, row["parent"], source, spent, *times, held)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CorruptRecord(f"run {row['run_id']!r}: {error}") from error


def unread_run(row: Any, state: str, problem: CorruptRecord) -> RecordedRun:
    """Return a run whose records cannot be read, with what its row shows and the problem."""
    times = (row["active"], row["started_at"], row["updated_at"], row["forked_from"])
    return RecordedRun(
        row["run_id"], row["team"], row["goal"], state, row["parent"], {}, NO_USAGE, *times, problem=str(problem)
    )


def call_of(row: Any) -> RecordedCall:
    """Return a call by its row."""
    under_way = row["under_way"]
    return RecordedCall(
        run_id=row["run_id"],
        what=row["what"],
        name=row["name"],
        task_id=row["task_id"],
        member=row["member"],
        state=row["state"],
        usage=NO_USAGE if under_way else _charge_of(row),
        held=_charge_of(row) if under_way else NO_USAGE,
        step=row["step"],
        key=row["key"],
        loops=row["loops"],
        sent_at=row["sent_at"],
        copied=bool(row["copied"]),
    )


def runs_inside(connection: Connection, run_id: str) -> set[str]:
    """Return the ids of the runs inside a run, at any depth, without the run's own id."""
    return {row["run_id"] for row in connection.execute(_RUNS_INSIDE, (run_id,))} - {run_id}


def tools_in_doubt(connection: Connection, run_id: str) -> frozenset[str]:
    """Return the keys of a run's tool calls that were sent and whose end is not recorded."""
    sql = "SELECT key FROM call WHERE run_id = ? AND what = 'tool' AND state = 'sent'"
    return frozenset(row["key"] for row in connection.execute(sql, (run_id,)))


def closing(run_id: str) -> Statement:
    """Return the statement that deletes the questions of a run and of the runs inside it."""
    return f"DELETE FROM question WHERE run_id IN ({_RUNS_INSIDE})", (run_id,)


def why_closed(connection: Connection, question_id: str) -> str | None:
    """Return why a question is no longer open; None for an unknown question."""
    sql = (
        "SELECT run_id, parent, state FROM run WHERE substr(?, 1, length(run_id) + 1) = run_id || ':'"
        " ORDER BY length(run_id) DESC"
    )
    row = connection.execute(sql, (question_id,)).fetchone()
    if row is not None:
        key = question_id.removeprefix(f"{row['run_id']}:")
        sql = "SELECT value FROM step WHERE run_id = ? AND key IN (?, ?) ORDER BY id DESC"
        step = connection.execute(sql, (row["run_id"], key, f"{WITHDRAWN}{key}")).fetchone()
        said = None if step is None else outline(step["value"])
        if isinstance(said, Decided):
            return "nobody answered" if said.decision is None else f"it was answered: {said.decision.action}"
        if isinstance(said, str):
            return said
    while row is not None and row["state"] not in ENDED:
        sql = f"{SHORT_ROWS} WHERE run_id = ?"
        row = None if row["parent"] is None else connection.execute(sql, (row["parent"],)).fetchone()
    return None if row is None else f"run {row['run_id']!r} has ended: {row['state']}"


def delete_run(connection: Connection, run_id: str) -> None:
    """Delete a run and the runs inside it."""
    for one in (run_id, *runs_inside(connection, run_id)):
        forget_files(connection, one)
        for table in ("step", "call", "question", "request", "event", "run"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (one,))


def _charge_of(row: Any) -> Usage:
    """Return the charge for a call: its usage, or its whole hold if its end is not recorded."""
    tool_calls = int(row["what"] == "tool" and row["state"] != "unsent")
    if row["state"] == "sent":
        return Usage(row["held_tokens"], 0, to_dollars(row["held_picos"]), 0, tool_calls)
    return Usage(row["prompt"], row["completion"], to_dollars(row["picos"]), 0, tool_calls)


def usage_of(connection: Connection, run_id: str, over: str = ALL_OVER) -> Usage:
    """Return the usage of a run, including the runs inside it; `over` as in `calls_inside`."""
    row = connection.execute("SELECT active, usage FROM run WHERE run_id = ?", (run_id,)).fetchone()
    if row["usage"] is not None:  # recorded by the end of its last session
        return replace(cast("Usage", outline(row["usage"])), seconds=row["active"])
    inside = connection.execute(f"{SHORT_ROWS} WHERE parent = ?", (run_id,)).fetchall()
    spent_inside = [(place_of_row(one), usage_of(connection, one["run_id"], over)) for one in inside]
    steps, calls = steps_of(connection, run_id, outline, prefix="attempt:"), calls_of(connection, run_id, over=over)
    account = RunAccount(steps, calls, spent_inside)
    return replace(account.total, seconds=row["active"])


def recovered(connection: Connection, row: Any, journal: RunJournal, read: Callable[[str], object]) -> RecoveredRun:
    """Return the records of a run, by its row."""
    sql = "SELECT * FROM question WHERE run_id = ? ORDER BY asked_at, id"
    questions = [
        RecordedQuestion(
            cast("HumanRequest", outline(one["body"])),
            None if one["decision"] is None else cast("HumanDecision", outline(one["decision"])),
        )
        for one in connection.execute(sql, (row["run_id"],))
    ]
    return RecoveredRun(
        request=cast("TeamExecutionRequest", read(row["request"])),
        place=None if row["parent"] is None else place_of_row(row),
        seconds=row["active"],
        seq=row["seq"],
        steps=dict(journal.records),
        calls=calls_of(connection, row["run_id"]),
        questions=questions,
        journal=journal,
        state=row["state"],
    )


def place_of_row(row: Any) -> Place:
    """Return the place of a run inside another run, by its row."""
    return Place(row["parent"], row["parent_step"], row["parent_member"])


def calls_of(
    connection: Connection, run_id: str, step: str | None = None, over: str = ALL_OVER
) -> tuple[RecordedCall, ...]:
    """Return a run's own calls, or only the calls of one step, in the order of sending; `over` as in `calls_inside`."""
    of_step, values = ("", (run_id,)) if step is None else (" AND step = ?", (run_id, step))
    sql = (
        f"SELECT call.*, {_UNDER_WAY.format(over=over)}"
        f" FROM call JOIN run USING (run_id) WHERE run_id = ?{of_step} ORDER BY call.id"
    )
    return tuple(map(call_of, connection.execute(sql, values)))
