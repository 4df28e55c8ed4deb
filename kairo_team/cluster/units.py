"""Units: attempts and runs that are delivered to workers, each with a fence that says which delivery is valid."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kairo_team.cluster.mailbox import channel_of
from kairo_team.durable.codec import encode
from kairo_team.durable.connection import NOW, Connection, Statement
from kairo_team.durable.kept_files import encode_for

if TYPE_CHECKING:
    from kairo_team.cluster.delivery import Delivery

Kind = Literal["run", "attempt"]

RUNS: Final = "@runs"
"""Used instead of a member's id in the queue of units that are whole runs."""
_ADDRESS: Final = "COALESCE(process, 'unit:' || id)"
"""Address of the unit's current worker; messages wait until the unit is claimed."""
COLUMNS: Final = "id, kind, run_id, queue, step, epoch, sender, fence, priority"
"""The columns of a unit's row that make a `Unit`, in their order."""
_PRIORITY_OF_ITS_RUN: Final = "COALESCE((SELECT priority FROM unit AS run WHERE run.id = 'run:' || ?), 0)"
"""SQL expression: the priority of a run; 0 if the run was not submitted."""
_SUSPECT: Final = 2
"""From this blame on, counted in `deaths`, a unit is worked on alone: the next death shows whether it is the cause."""
_IS_SUSPECT: Final = f"COALESCE((SELECT blame >= {_SUSPECT} FROM death WHERE death.unit = unit.id), FALSE)"
"""SQL expression on table `unit`."""


@dataclass(frozen=True)
class Unit:
    """A unit, with the fence of its current delivery."""

    id: str
    kind: Kind
    run_id: str
    queue: str
    step: str = ""
    """The key of the attempt; empty for a run."""
    epoch: int = 0
    """The session of the run that sent the attempt."""
    sender: str | None = None
    """The process that waits for the attempt."""
    fence: int = 1
    priority: int = 0
    """That of its run: of the units that wait for workers, a higher one is taken first."""

    def next(self) -> Unit:
        """Return the unit with the fence of the next delivery."""
        return replace(self, fence=self.fence + 1)

    def sending(self, delivery: Delivery, body: object) -> list[Statement]:
        """Return the statements that send the unit: they write its row and its delivery in one transaction."""
        written, files = encode_for(self.run_id, body)
        return [*files, partial(self._send_with_priority, delivery, written)]

    def _send_with_priority(self, delivery: Delivery, body: str, connection: Any) -> None:
        sql = (
            "INSERT INTO unit (id, kind, run_id, step, epoch, queue, fence, state, sender, body, sent_at, priority)"
            f" VALUES (?, ?, ?, ?, ?, ?, ?, 'sent', ?, ?, {NOW}, {_PRIORITY_OF_ITS_RUN})"
            " ON CONFLICT (id) DO UPDATE SET state = 'sent', process = NULL, body = excluded.body,"
            " sent_at = excluded.sent_at WHERE unit.state = 'lost' AND unit.fence = excluded.fence"
            " RETURNING priority"
        )
        row = (self.id, self.kind, self.run_id, self.step, self.epoch, self.queue, self.fence, self.sender, body)
        written = connection.execute(sql, (*row, self.run_id)).fetchone()
        if written is not None:  # else it was sent before, and the reply to that commit was lost
            replace(self, priority=written[0]).deliver(delivery, connection)

    def deliver(self, delivery: Delivery, connection: Any) -> None:
        """Send the delivery of the unit, whose row is written, in the connection's transaction."""
        delivery.send(connection.raw, self.queue, self.id, self.fence, priority=self.priority)

    def message_to_worker(self, kind: str, body: Any) -> list[Statement]:
        """Return the statements that send a message to the unit's current worker."""
        insert = (
            "INSERT INTO message (addressee, unit, fence, kind, body)"
            f" SELECT {_ADDRESS}, id, fence, ?, ? FROM unit WHERE id = ? AND fence = ?"
        )
        notify = "SELECT pg_notify(? || process, '') FROM unit WHERE id = ? AND fence = ? AND process IS NOT NULL"
        here = (self.id, self.fence)
        return [(insert, (kind, encode(body), *here)), (notify, (channel_of(""), *here))]

    def fencing(self) -> list[Statement]:
        """Return the statement that invalidates the current delivery; no other follows."""
        return [("UPDATE unit SET fence = fence + 1, state = 'lost' WHERE id = ? AND fence = ?", (self.id, self.fence))]

    def was_taken(self, connection: Connection) -> bool:
        """Return whether a process has claimed this delivery or an earlier one."""
        row = connection.execute("SELECT process FROM unit WHERE id = ?", (self.id,)).fetchone()
        return row is not None and row[0] is not None

    def finishing(self) -> list[Statement]:
        """Return the statement that marks the unit as done."""
        return [(f"UPDATE unit SET state = 'done', ended_at = {NOW} WHERE id = ?", (self.id,))]

    def removing(self) -> list[Statement]:
        """Return the statement that deletes the unit."""
        return [("DELETE FROM unit WHERE id = ?", (self.id,))]


at_work: Final[ContextVar[Unit | None]] = ContextVar("kairo_team_at_work", default=None)
"""The unit that is worked on here, for the log."""


class Claimed(NamedTuple):
    """A unit that this process has claimed, with its work."""

    unit: Unit
    body: str
    waited: float
    """Seconds from sending to claiming, by the clock of the database."""
    suspect: bool
    """Whether the unit must be worked on alone, because processes that had it died."""


def claim(connection: Connection, unit: str, fence: int, process: str) -> Claimed | None:
    """Claim a delivered unit; return None if the delivery is fenced off or another process has the unit.

    May be repeated if the reply to the commit was lost.
    """
    sql = (
        f"UPDATE unit SET state = 'taken', process = ?, taken_at = CASE state WHEN 'sent' THEN {NOW} ELSE taken_at END"
        " WHERE id = ? AND fence = ? AND (state = 'sent' OR state = 'taken' AND process = ?)"
        f" RETURNING {COLUMNS}, body, taken_at - sent_at, {_IS_SUSPECT}"
    )
    row = connection.execute(sql, (process, unit, fence, process)).fetchone()
    if row is None:
        return None
    connection.execute("UPDATE message SET addressee = ? WHERE addressee = ?", (process, f"unit:{unit}"))
    *unit_row, body, waited, suspect = row
    return Claimed(Unit(*unit_row), body, waited, suspect)


def queue_of(version: str, member: str) -> str:
    """Return the queue of a member's units; with `RUNS`, the queue of whole runs."""
    return f"{version}:{member}"


def kind_of(unit: str) -> Kind:
    """Return the kind of a unit by its id."""
    # A run's unit is `run:ID`, and ids of runs contain no colon.
    return "run" if unit.count(":") == 1 else "attempt"
