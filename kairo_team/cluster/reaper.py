"""The reaper: finds processes that died, and sends what they had anew. One process of all does it at a time."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kairo_team.cluster.mailbox import Letter, letter_to
from kairo_team.cluster.units import COLUMNS, Unit
from kairo_team.durable.database import execute
from kairo_team.durable.processes import Observer

if TYPE_CHECKING:
    from kairo_team.cluster.cluster import Cluster

_logger = logging.getLogger("kairo_team")

_LOCK: Final = 0x6B61_6972_0002
"""The advisory lock of whoever looks after the others."""
_GONE: Final = "the worker that had it is gone"


class Reaper:
    """Looks, once in a beat, whether a process is dead, and whether every unit that was sent is on its way."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._missing: dict[tuple[str, int], int] = {}
        """Units without a delivery under way, and in how many audits in a row."""

    def start(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._serve, name="kairo-reaper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=4 * self._cluster.beat)

    def _serve(self) -> None:
        while not self._ends.is_set():
            try:
                with self._cluster.journal.connecting("reaper", own=True) as connection:
                    observer = Observer(self._cluster.beat)
                    self._missing.clear()
                    while not self._ends.wait(self._cluster.beat):
                        self._look(connection, observer)
            except Exception as error:  # noqa: BLE001 - whatever it is, it looks again
                _logger.debug("the reaper has no connection: %s", type(error).__name__)
                self._ends.wait(self._cluster.beat)

    def _look(self, connection: Any, observer: Observer) -> None:
        locked = connection.execute("SELECT pg_try_advisory_lock(?)", (_LOCK,)).fetchone()
        if not locked[0]:
            observer.forget()
            return
        for process in observer.late(connection):
            self._bury(connection, process)
        self._take_up(connection)
        self._audit(connection)

    # ------------------------------------------------------------------ the dead

    def _bury(self, connection: Any, process: str) -> None:
        """Declare a process dead, and send what it had anew."""
        with connection.transaction():
            found = connection.execute(
                "UPDATE process SET state = 'dead' WHERE id = ? AND state <> 'dead' RETURNING host, pid", (process,)
            ).fetchone()
            if found is None:
                return
            _logger.warning("process %s on %s shows no sign of life: what it had is done anew", found[1], found[0])
            connection.execute("DELETE FROM message WHERE addressee = ?", (process,))
            sql = f"SELECT {COLUMNS} FROM unit WHERE process = ? AND state = 'taken' FOR UPDATE"
            for row in connection.execute(sql, (process,)).fetchall():
                self._fence_off(connection, Unit(*row), _GONE)

    def give_back(self, unit: Unit, reason: str) -> None:
        """Let another process do a unit that this one has."""
        with self._cluster.journal.connecting("give back") as connection, connection.transaction():
            sql = f"SELECT {COLUMNS} FROM unit WHERE id = ? AND fence = ? AND state = 'taken' FOR UPDATE"
            row = connection.execute(sql, (unit.id, unit.fence)).fetchone()
            if row is not None:
                self._fence_off(connection, Unit(*row), reason, died=False)

    def _fence_off(self, connection: Any, unit: Unit, reason: str, *, died: bool = True) -> None:
        """Let the delivery count no more; a run is sent anew here, an attempt by its coordinator."""
        following = unit.next()
        if unit.kind == "attempt":
            sql = "UPDATE unit SET fence = ?, state = 'lost', process = NULL WHERE id = ?"
            connection.execute(sql, (following.fence, unit.id))
            if unit.sender is not None:
                for statement in letter_to(unit.sender, Letter(unit.id, unit.fence, "lost", reason)):
                    execute(connection, statement)
        elif died and unit.fence >= self._cluster.max_deliveries:
            self._give_up(connection, unit)
        else:
            self._send_run(connection, following)

    def _send_run(self, connection: Any, unit: Unit) -> None:
        sql = "UPDATE unit SET fence = ?, state = 'sent', process = NULL, sent_at = ? WHERE id = ?"
        connection.execute(sql, (unit.fence, time.time(), unit.id))
        self._cluster.delivery.send(connection.raw, unit.queue, unit.id, unit.fence)

    def _give_up(self, connection: Any, unit: Unit) -> None:
        """Leave a run that ends every process that takes it: a person may look at it and resume it."""
        problem = (
            f"given up after {unit.fence} deliveries: every worker that coordinated it died. Look at the workers' "
            f"logs, then go on with `kairo resume {unit.run_id} --database ...`"
        )
        connection.execute("UPDATE unit SET state = 'done', problem = ? WHERE id = ?", (problem, unit.id))
        _logger.error("run %s is %s", unit.run_id, problem)

    # ------------------------------------------------------------------ the living

    def _take_up(self, connection: Any) -> None:
        """Send runs anew that wait for nothing more: a person has answered one of their questions."""
        sql = (
            f"SELECT {COLUMNS} FROM unit WHERE kind = 'run' AND state = 'done' AND problem IS NULL AND run_id IN"
            " (SELECT run.run_id FROM run JOIN question ON question.run_id = run.run_id"
            "  OR question.run_id LIKE run.run_id || '.%'"
            "  WHERE run.state = 'suspended' AND question.decision IS NOT NULL)"
        )
        for row in connection.execute(sql).fetchall():
            with connection.transaction():
                self._send_run(connection, Unit(*row).next())

    def _audit(self, connection: Any) -> None:
        """Send again what was sent and has no delivery under way, in two audits in a row."""
        sql = f"SELECT {COLUMNS} FROM unit WHERE state = 'sent' AND sent_at < ? ORDER BY sent_at LIMIT 1000"
        rows = connection.execute(sql, (time.time() - 2 * self._cluster.beat,)).fetchall()
        units = {(unit.id, unit.fence): unit for unit in (Unit(*row) for row in rows)}
        if not units:
            self._missing.clear()
            return
        there = self._cluster.delivery.under_way(connection.raw, list(units))
        self._missing = {key: self._missing.get(key, 0) + 1 for key in units if key not in there}
        for key, audits in list(self._missing.items()):
            if audits > 1:
                unit = units[key]
                with connection.transaction():
                    self._cluster.delivery.send(connection.raw, unit.queue, unit.id, unit.fence)
                self._missing.pop(key)
                _logger.warning("unit %s had no delivery under way: it is sent again", unit.id)
