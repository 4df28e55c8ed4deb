"""What came of the runs: the database, compared with the provider's account, and the writes that came too late."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Final

import psycopg

import kairo_team as kt
from benchmarks.chaos import desk
from benchmarks.chaos.network import Asked
from kairo_team.recorded import ENDED

WATCH: Final = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.zombie (what text, run text, found text);
CREATE FUNCTION chaos.watch() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    now_epoch bigint; now_fence integer; now_state text;
BEGIN
    SELECT epoch INTO now_epoch FROM kairo.run WHERE run_id = NEW.run_id;
    IF now_epoch IS DISTINCT FROM NEW.epoch THEN
        INSERT INTO chaos.zombie VALUES (TG_TABLE_NAME, NEW.run_id, NEW.epoch || ' while it is ' || now_epoch);
    END IF;
    IF TG_TABLE_NAME = 'call' THEN
        IF NEW.unit <> '' THEN
            SELECT fence, state INTO now_fence, now_state FROM kairo.unit WHERE id = NEW.unit;
            IF now_fence IS DISTINCT FROM NEW.fence OR now_state NOT IN ('taken', 'done') THEN
                INSERT INTO chaos.zombie VALUES ('call', NEW.run_id, NEW.unit || ' ' || NEW.fence || ' while it is '
                    || coalesce(now_fence::text, 'gone') || coalesce(now_state, ''));
            END IF;
        END IF;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER watch AFTER INSERT OR UPDATE ON kairo.call DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION chaos.watch();
CREATE CONSTRAINT TRIGGER watch AFTER INSERT OR UPDATE ON kairo.step DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION chaos.watch();
"""
"""Has the database itself note, at each commit, what is written by a session or a delivery that counts no more."""


@dataclass
class Account:
    """What came of all runs; all after `in_doubt` must be 0."""

    faults: int = 0
    runs: int = 0
    completed: int = 0
    out_of_budget: int = 0
    """Runs that did not complete because of their budget."""
    calls: int = 0
    """Calls the provider knows of."""
    in_doubt: int = 0
    """Calls whose answer nobody saw: charged in full."""
    lost: int = 0
    """Runs that did not end, or ended otherwise without their budget as the reason."""
    paid_twice: int = 0
    """Calls that were made again although their answer was recorded."""
    unseen: int = 0
    """Calls the provider knows of and the database does not."""
    overspent: int = 0
    """Runs that used more than their budget."""
    mismatches: int = 0
    """Runs whose usage is not the sum of their calls, or whose calls are not those of the provider."""
    zombies: int = 0
    """Rows written by a session or a delivery that counted no more."""
    stuck: int = 0
    """Units that were not under way for too long while a worker and the database were there."""
    left_over: int = 0
    """Rows that stay behind in unit, message, process and batch."""
    problems: list[str] = field(default_factory=list[str])

    def __add__(self, other: Account) -> Account:
        return Account(*(one + two for one, two in zip(astuple(self), astuple(other), strict=True)))

    @property
    def wrong(self) -> int:
        """How much of what must be 0 is not."""
        return sum(astuple(self)[6:-1])


def compare(journal: Any, run_id: str, asked: Sequence[Asked]) -> Account:
    """Compare what the database has of a run with what the provider knows of it."""
    run, calls = journal.show(run_id), journal.calls(run_id)
    found = Account(runs=1, calls=len(asked), in_doubt=len(journal.in_doubt(run_id)))
    _judge_end(found, run, journal.result(run_id))
    charged = sum((call.usage for call in calls), kt.Usage())
    if (run.usage.tokens, run.usage.dollars) != (charged.tokens, charged.dollars):
        found.mismatches += 1
        found.problems.append(f"{run_id}: its usage is {run.usage}, that of its calls {charged}")
    most = desk.request(run_id).config.budget.tokens
    if most is not None and run.usage.tokens > most:
        found.overspent += 1
        found.problems.append(f"{run_id}: it has spent {run.usage.tokens} of {most} tokens")
    _compare_calls(found, run_id, [call for call in calls if call.what == "model"], asked)
    return found


def _judge_end(found: Account, run: Any, result: kt.TeamResult | None) -> None:
    if run.state == "completed":
        found.completed += 1
        return
    told = [] if result is None else [str(result.error), *result.warnings, *(str(one.error) for one in result.outcomes)]
    limited = desk.request(run.run_id).config.budget.tokens is not None
    if run.state in ENDED and limited and any("budget" in one or "token" in one for one in told):
        found.out_of_budget += 1
        return
    found.lost += 1
    found.problems.append(f"{run.run_id} is {run.state}: {told}")


def _compare_calls(found: Account, run_id: str, calls: Sequence[Any], asked: Sequence[Asked]) -> None:
    """Compare call by call: each has a key that the provider was told."""
    by_key: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        by_key[one.key].append(one)
    groups: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for call in calls:
        groups[call.run_id, call.key, call.name].append(call)
    for (run, key, name), rows in groups.items():
        states = Counter(row.state for row in rows)
        came = [one for tries in range(len(rows) + 1) for one in by_key.pop(_key(run, key, name, tries), [])]
        known = states["answered"] + states["failed"]
        most = known + states["sent"] + states["unknown"]
        where = f"{run_id}: {key} in {run}: {dict(states)}, {len(came)} came"
        if _again_after_answer(rows):
            found.paid_twice += 1
            found.problems.append(f"{where}: asked again after its answer")
        if len(came) > most:
            found.unseen += len(came) - most
            found.problems.append(f"{where}: unseen")
        answers = Counter(one.tokens for one in came if one.answered and not one.failed)
        recorded = Counter(row.usage.tokens for row in rows if row.state == "answered")
        if len(came) < known or recorded - answers:
            found.mismatches += 1
            found.problems.append(f"{where}: recorded {recorded}, answered {answers}")
    if by_key:
        found.unseen += sum(map(len, by_key.values()))
        found.problems.append(f"{run_id}: {len(by_key)} keys are in no row")


def _again_after_answer(rows: Sequence[Any]) -> bool:
    states = [row.state for row in rows if row.state not in ("unsent", "failed")]
    return "answered" in states[:-1]


def _key(run: str, key: str, name: str, failures: int) -> str:
    """Return the idempotency key of a call, of its try after so many failures."""
    return hashlib.sha256("\n".join((run, key, name, str(failures))).encode()).hexdigest()[:32]


def left_over(connection: psycopg.Connection, known: Mapping[str, str]) -> Account:
    """Count the rows that stay behind, and the writes that came too late, once all processes have ended."""
    found = Account()
    for what, sql in known.items():
        rows = connection.execute(sql.encode()).fetchall()
        if what == "zombies":
            found.zombies += len(rows)
        else:
            found.left_over += len(rows)
        found.problems += [f"{what}: {row}" for row in rows[:5]]
    return found


LEFT: Final = {
    "zombies": "SELECT * FROM chaos.zombie",
    "rows of unit": "SELECT id, kind, state, fence, process FROM kairo.unit WHERE kind = 'attempt' OR state <> 'done'",
    "rows of message": "SELECT id, addressee, unit, kind FROM kairo.message",
    "rows of process": "SELECT id, kind, state FROM kairo.process WHERE state <> 'dead'",
    "rows of batch": "SELECT * FROM kairo.batch WHERE NOT EXISTS (SELECT FROM kairo.process WHERE id = writer)",
}
"""What is there once all processes have ended: none of these."""
_GONE: Final = """
SELECT id FROM kairo.process WHERE state <> 'dead' AND NOT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = process.lock AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"""
"""Processes without a connection: a process that was killed, or cut off as it ended, leaves its row behind."""
TIDIED: Final = (*(LEFT[what] for what in ("rows of unit", "rows of message", "rows of batch")), _GONE)
"""What those who live delete, or declare dead."""
