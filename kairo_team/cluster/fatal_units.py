"""Find the unit that causes the deaths of workers: give up a unit that ends every process, but not its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kairo_team.cluster.units import Unit
    from kairo_team.durable.connection import Connection

_ALONE: Final = 4
"""The blame for a death that only this unit can have caused; a death next to other units counts 1."""


class Deaths(NamedTuple):
    """The deaths of processes that had a unit, since the unit's last progress."""

    number: int
    blame: int

    def exhaust(self, most: int) -> bool:
        """Return whether the blame is as high as for `most` deaths that only this unit can have caused."""
        return self.blame >= most * _ALONE


def note_death(connection: Connection, unit: Unit, had: Sequence[Unit]) -> Deaths:
    """Count the death of a process that had `unit`; return the unit's deaths since its last progress.

    `had` are all units of the process, including `unit`. Planned ends are not counted.
    """
    progress = _progress(connection, unit)
    found = connection.execute("SELECT deaths, blame, progress FROM death WHERE unit = ?", (unit.id,)).fetchone()
    before = Deaths(found[0], found[1]) if found is not None and found[2] == progress else Deaths(0, 0)
    # No other unit can have ended the process: it had only attempts of this run, or only the run of this attempt.
    if unit.kind == "run":
        alone = all(one.run_id == unit.run_id for one in had)
    else:
        alone = all(one.id == unit.id or (one.kind == "run" and one.run_id == unit.run_id) for one in had)
    deaths = Deaths(before.number + 1, before.blame + (_ALONE if alone else 1))
    connection.execute(
        "INSERT INTO death VALUES (?, ?, ?, ?) ON CONFLICT (unit) DO UPDATE"
        " SET deaths = excluded.deaths, blame = excluded.blame, progress = excluded.progress",
        (unit.id, *deaths, progress),
    )
    return deaths


def forget_deaths(connection: Connection, unit: str) -> None:
    """Count the deaths of a unit from 0 again."""
    connection.execute("DELETE FROM death WHERE unit = ?", (unit,))


def _progress(connection: Connection, unit: Unit) -> int:
    """Return a number that grows with a unit's records: a run's last step, or an attempt's last answered call."""
    if unit.kind == "run":
        found = connection.execute("SELECT max(id) FROM step WHERE run_id = ?", (unit.run_id,)).fetchone()
    else:
        sql = "SELECT max(id) FROM call WHERE run_id = ? AND step = ? AND state = 'answered'"
        found = connection.execute(sql, (unit.run_id, unit.step)).fetchone()
    return found[0] or 0
