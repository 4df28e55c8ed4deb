"""The monitor: finds dead processes and resends their units. One process of the cluster does this at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from kairo_team.cluster.facts import Report, UnitReaped, ignore_fact
from kairo_team.cluster.fatal_units import Deaths, forget_deaths, note_death
from kairo_team.cluster.mailbox import Message, message_to
from kairo_team.cluster.queues import let_begin
from kairo_team.cluster.units import COLUMNS, Unit
from kairo_team.durable.accounts import settle_cancelled
from kairo_team.durable.connection import NOW, execute
from kairo_team.durable.line import LEAST_IDLE
from kairo_team.durable.processes import Observer
from kairo_team.errors import Misuse
from kairo_team.recorded import ENDED, GIVEN_UP

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kairo_team.cluster.delivery import Delivery
    from kairo_team.durable.postgres import PostgresJournal
    from kairo_team.durable.postgres_database import PostgresConnection

_logger = logging.getLogger("kairo_team")

_LOCK: Final = 0x6B61_6972_0002
"""The advisory lock of the process that watches the others."""
_AT_ONCE: Final = 1000
"""Most units that one audit checks."""
_SWEEP: Final = 5
"""Checks between two deletions of leftover rows."""
_REMEMBERED: Final = 3600.0
"""Seconds to keep the row of a dead process, for people who look for the reason."""
_OVER: Final = f"""
SELECT unit.id FROM unit LEFT JOIN run USING (run_id) WHERE run.run_id IS NULL
 OR unit.kind = 'attempt' AND (run.epoch <> unit.epoch OR run.state IN ({", ".join("?" * len(ENDED))}))
FOR UPDATE OF unit SKIP LOCKED"""
_TO_NOBODY: Final = """
DELETE FROM message WHERE CASE WHEN addressee LIKE 'unit:%'
 THEN NOT EXISTS (SELECT FROM unit WHERE addressee = 'unit:' || unit.id)
 ELSE NOT EXISTS (SELECT FROM process WHERE process.id = addressee AND process.state <> 'dead') END"""
_ORPHANS: Final = (
    "FROM unit WHERE state = 'taken'"
    " AND NOT EXISTS (SELECT FROM process WHERE process.id = unit.process AND process.state <> 'dead')"
)
_ANSWERED: Final = (
    "kind = 'run' AND state = 'done' AND problem IS NULL AND run_id IN"
    " (SELECT run.run_id FROM run JOIN question ON question.run_id = run.run_id"
    "  OR question.run_id LIKE run.run_id || '.%'"
    "  WHERE run.state = 'suspended' AND question.decision IS NOT NULL)"
)
"""SQL condition on table `unit`: a suspended run, with a question that a person has answered."""
_ADOPTING: Final = 30
"""Checks between two searches for runs of an earlier version."""
_REST: Final = 10.0
"""Seconds that an unused connection of the journal is kept."""
_GONE: Final = "the worker that had it is gone"


class Monitor:
    """Checks, once per heartbeat interval, whether a process is dead, and whether every sent unit has a delivery."""

    def __init__(self, journal: PostgresJournal, delivery: Delivery, max_deliveries: int) -> None:
        self._journal = journal
        self._delivery = delivery
        self._max_deliveries = max_deliveries
        self._beat = journal.beat
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._missing: dict[tuple[str, int], int] = {}
        """Units without a delivery under way, and the number of audits in a row that found none."""
        self._audited = ""
        """The last unit of the last audit: the next audit begins after it."""
        self._looks = 0
        self._dead: dict[str, float] = {}
        """Dead processes, and the time since when this process knows that they are dead."""
        self._doing: Callable[[], Collection[tuple[str, int]]] | None = None
        self.report: Report = ignore_fact
        """Receives a fact for each unit that is taken from a dead process."""
        self.adopt: Callable[[], object] | None = None
        """Takes over runs that an earlier version of the library began; called now and then, and after deaths."""
        self._pauses = 0
        self._idle: set[tuple[str, int]] = set()
        """Units that this process had claimed but did not work on at the last check."""

    def start(self) -> None:
        """Start the thread."""
        self._journal.process.watch_lock = self._journal.lock(_LOCK)
        self._thread = threading.Thread(target=self._serve, name="kairo-monitor", daemon=True)
        self._thread.start()

    def watch(self, doing: Callable[[], Collection[tuple[str, int]]]) -> None:
        """Give back units that this process has claimed but does not work on; `doing` lists units with their fences."""
        self._doing = doing

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=4 * self._beat)

    def _serve(self) -> None:
        """Watch while this process has the lock; until then, wait for a heartbeat that finds a reason to look."""
        while self._pause():
            process = self._journal.process
            doing = () if self._doing is None else self._doing()
            if process.nobody_watches or process.units > len(doing):
                try:
                    self._watch()
                except Exception as error:  # noqa: BLE001 - whatever the error is, it checks again
                    _logger.debug("the monitor has no connection: %s", type(error).__name__)

    def _pause(self) -> bool:
        """Wait for the next check; return False at the end."""
        if self._ends.wait(self._beat):
            return False
        self._journal.close_unused(_REST)
        if self.adopt is not None and self._pauses % _ADOPTING == 0:
            try:
                self.adopt()
                self._journal.close_unused(0)
            except Exception as error:  # noqa: BLE001 - whatever the error is, it tries again later
                _logger.debug("runs of an earlier version cannot be looked for: %s", type(error).__name__)
        self._pauses += 1
        return True

    def _watch(self) -> None:
        with self._journal.connecting(own="monitor") as connection:
            # a process that is stopped, or has lost the network, loses the lock after this time
            connection.execute(f"SET idle_session_timeout = {max(LEAST_IDLE, int(3000 * self._beat))}")
            observer = Observer(self._beat)
            self._missing.clear()
            while self._look(connection, observer) and self._pause():
                pass

    def _look(self, connection: Any, observer: Observer) -> bool:
        """Look after all processes and units; return False if another process does."""
        with connection.transaction():  # if there is nothing to do, a look is one transaction
            self._give_back_idle(connection)
            locked = connection.execute("SELECT pg_try_advisory_lock(?)", (self._journal.lock(_LOCK),)).fetchone()
            # Another process watches then. When this one gets the lock, what it saw before is out of date.
            if not locked[0]:
                observer.forget()
                return False
            late = observer.late(connection)
            orphans = connection.execute(f"SELECT EXISTS (SELECT {_ORPHANS})").fetchone()[0]
            answered = connection.execute(f"SELECT id FROM unit WHERE {_ANSWERED}").fetchall()
            held = connection.execute("SELECT EXISTS (SELECT FROM unit WHERE state = 'held')").fetchone()[0]
            lost = self._audit(connection)
        for process in late:  # declared dead, it can record nothing more
            sql = "UPDATE process SET state = 'dead' WHERE id = ? AND state <> 'dead' RETURNING host, pid"
            if (found := connection.execute(sql, (process,)).fetchone()) is not None:
                _logger.warning("process %s on %s sends no heartbeat: its units are sent again", found[1], found[0])
        if late or orphans:
            self._take_from_the_dead(connection)
        for (unit,) in answered:
            self._take_up(connection, unit)
        if held or answered or late or orphans:  # each of them may put a run into its queues
            with self._journal.database.writing() as alone:  # no other process counts the same runs meanwhile
                let_begin(self._delivery, alone)
        for one in lost:
            self._send_again(connection, one)
        self._looks += 1
        if self._looks % _SWEEP == 0:
            with connection.transaction():
                sweep(connection, self._delivery)
                self._forget_the_dead(connection)
        return True

    # ------------------------------------------------------------------ the dead

    def _take_from_the_dead(self, connection: Any) -> None:
        """Resend the units of processes that were declared dead or have ended."""
        sql = f"SELECT process, {COLUMNS} {_ORPHANS} FOR UPDATE SKIP LOCKED"
        had: dict[str, list[Unit]] = defaultdict(list)
        with connection.transaction():
            for process, *row in connection.execute(sql).fetchall():
                had[process].append(Unit(*row))
            for units in had.values():
                for unit in units:
                    self._fence_off(connection, unit, _GONE, note_death(connection, unit, units))
            settle_cancelled(connection)
        if had:
            self._pauses = 0  # a run among them may be of an earlier version
        for unit in chain(*had.values()):
            self.report(UnitReaped(unit.kind))

    def _forget_the_dead(self, connection: Any) -> None:
        """Delete the rows of processes that this process has known to be dead for an hour, by its own clock."""
        now = time.monotonic()
        found = connection.execute("SELECT id FROM process WHERE state = 'dead'").fetchall()
        self._dead = {process: self._dead.get(process, now) for (process,) in found}
        old = [process for process, since in self._dead.items() if now - since > _REMEMBERED]
        if old:
            connection.execute("DELETE FROM process WHERE id = ANY(?)", (old,))

    def _give_back_idle(self, connection: Any) -> None:
        """Give back units that this process has claimed but does not work on, found in two checks in a row."""
        if self._doing is None:
            return
        # This happens when the reply to a claim was lost.
        sql = "SELECT id, fence FROM unit WHERE state = 'taken' AND process = ?"
        has = {(unit, fence) for unit, fence in connection.execute(sql, (self._journal.process.id,)).fetchall()}
        idle = has - {*self._doing()}
        for unit, fence in idle & self._idle:
            with connection.transaction():
                self._give_back(connection, unit, fence, "its worker lost it")
        self._idle = idle

    def give_back(self, unit: Unit, reason: str, *, failed: bool = False) -> None:
        """Give a claimed unit back, for another process; with `failed`, count it as a death that the unit caused."""
        self._journal.change(lambda connection: self._give_back(connection, unit.id, unit.fence, reason, failed=failed))

    def _give_back(self, connection: Any, unit: str, fence: int, reason: str, *, failed: bool = False) -> None:
        sql = f"SELECT {COLUMNS} FROM unit WHERE id = ? AND fence = ? AND state = 'taken' FOR UPDATE"
        row = connection.execute(sql, (unit, fence)).fetchone()
        if row is not None:
            had = Unit(*row)
            self._fence_off(connection, had, reason, note_death(connection, had, [had]) if failed else None)

    def _fence_off(self, connection: Any, unit: Unit, reason: str, deaths: Deaths | None) -> None:
        """Invalidate the delivery. Resend a run, or give it up; the coordinator does so with attempts.

        `deaths` includes the death that is the reason; None if no process died.
        """
        following = unit.next()
        if unit.kind == "attempt":
            sql = "UPDATE unit SET fence = ?, state = 'lost', process = NULL WHERE id = ?"
            connection.execute(sql, (following.fence, unit.id))
            if unit.sender is not None:
                lost = Message(unit.id, unit.fence, "lost", (reason, deaths))
                for statement in message_to(unit.sender, lost, unit.run_id):
                    execute(connection, statement)
        elif deaths is not None and deaths.exhaust(self._max_deliveries):
            self._give_up(connection, unit, deaths)
        else:
            sql = f"UPDATE unit SET fence = ?, state = 'sent', process = NULL, sent_at = {NOW} WHERE id = ?"
            connection.execute(sql, (following.fence, unit.id))
            following.deliver(self._delivery, connection)

    def _hold_run(self, connection: Any, unit: Unit) -> None:
        """Put a run that was not at work into its queues again."""
        sql = f"UPDATE unit SET fence = ?, state = 'held', process = NULL, problem = NULL, sent_at = {NOW} WHERE id = ?"
        connection.execute(sql, (unit.fence, unit.id))

    def _give_up(self, connection: Any, unit: Unit, deaths: Deaths) -> None:
        """Give up a run that ends every process that takes it; a person may look at it and resume it."""
        workers = "1 worker" if deaths.number == 1 else f"{deaths.number} workers"
        problem = (
            f"given up: {workers} died or failed while they coordinated it, and nothing was recorded in "
            "between. Look at the workers' logs, then send it to the workers again with "
            f"`kairo resume {unit.run_id} --by-workers --database ...`"
        )
        connection.execute("UPDATE unit SET state = 'done', problem = ? WHERE id = ?", (problem, unit.id))
        self._journal.give_up(connection, unit.run_id, deaths.number, problem)
        _logger.error("run %s is %s", unit.run_id, problem)

    def resend(self, run_id: str) -> None:
        """Send a run that was given up or refused to the workers again, with its deaths counted from 0.

        Raises `Misuse` for a run that waits for no one's decision.
        """
        sql = f"SELECT {COLUMNS} FROM unit WHERE run_id = ? AND kind = 'run' AND problem IS NOT NULL FOR UPDATE"

        is_sent = False

        def resend(connection: Any) -> None:
            nonlocal is_sent
            row = connection.execute(sql, (run_id,)).fetchone()
            if row is None:
                if is_sent:  # by the transaction before this one: only the word of its commit was lost
                    return
                raise Misuse(
                    f"run {run_id!r} was neither given up nor refused by workers: there is nothing to send again"
                )
            forget_deaths(connection, row[0])
            connection.execute(
                "UPDATE run SET state = 'interrupted' WHERE run_id = ? AND state = ?", (run_id, GIVEN_UP)
            )
            self._hold_run(connection, Unit(*row).next())
            is_sent = True

        self._journal.change(resend)

    # ------------------------------------------------------------------ the living

    def _take_up(self, connection: Any, unit: str) -> None:
        """Resend a suspended run after a person has answered one of its questions."""
        with connection.transaction():
            sql = f"SELECT {COLUMNS} FROM unit WHERE id = ? AND {_ANSWERED} FOR UPDATE"
            row = connection.execute(sql, (unit,)).fetchone()
            if row is not None:
                forget_deaths(connection, unit)
                self._hold_run(connection, Unit(*row).next())

    def _audit(self, connection: Any) -> list[Unit]:
        """Return the units that were sent and have no delivery under way, in two audits in a row.

        Each audit checks at most `_AT_ONCE` units; the next one continues after them.
        """
        # Audits are counted, and no times compared, because the clocks of machines differ.
        sql = f"SELECT {COLUMNS} FROM unit WHERE state = 'sent' AND id > ? ORDER BY id LIMIT {_AT_ONCE}"
        rows = connection.execute(sql, (self._audited,)).fetchall()
        if not self._audited and len(rows) < _AT_ONCE:
            self._missing = {key: audits for key, audits in self._missing.items() if key[0] in {row[0] for row in rows}}
        self._audited = rows[-1][0] if len(rows) == _AT_ONCE else ""
        units = {(unit.id, unit.fence): unit for unit in (Unit(*row) for row in rows)}
        there = self._delivery.under_way(connection.raw, list(units)) if units else set[tuple[str, int]]()
        lost: list[Unit] = []
        for key, unit in units.items():
            audits = 0 if key in there else self._missing.get(key, 0) + 1
            self._missing.pop(key, None)
            if audits > 1:
                lost.append(unit)
            elif audits:
                self._missing[key] = audits
        return lost

    def _send_again(self, connection: Any, unit: Unit) -> None:
        with connection.transaction():
            # A worker may have claimed the unit since the audit read it.
            sql = "SELECT 1 FROM unit WHERE id = ? AND fence = ? AND state = 'sent' FOR UPDATE"
            if connection.execute(sql, (unit.id, unit.fence)).fetchone() is None:
                return
            unit.deliver(self._delivery, connection)
        _logger.warning("unit %s has no delivery under way: it is sent again", unit.id)


def sweep(connection: PostgresConnection, delivery: Delivery) -> None:
    """Delete leftover rows: attempts of earlier sessions and of ended runs, and messages without a reader.

    Also deletes the counts of deaths of deleted units, and the transaction numbers of processes that ended.
    """
    with connection.transaction():
        found = connection.execute(_OVER, tuple(ENDED)).fetchall()
        units = [row[0] for row in found]
        if units:
            delivery.forget(connection.raw, units)
            connection.execute("DELETE FROM unit WHERE id = ANY(?)", (units,))
        connection.execute(_TO_NOBODY)
        connection.execute("DELETE FROM death WHERE NOT EXISTS (SELECT FROM unit WHERE unit.id = death.unit)")
        connection.execute("DELETE FROM batch WHERE NOT EXISTS (SELECT FROM process WHERE process.id = writer)")
