"""Looks on: how far the runs are, and which units are on nobody's way for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, Self

import psycopg

from benchmarks.chaos.account import TIDIED

LONGEST: Final = 20.0
"""Seconds that a unit may be on nobody's way: three beats, a reap and an audit are two; the machine may be busy."""
_UNITS: Final = """
SELECT unit.id, unit.fence, unit.state, process.state
FROM kairo.unit LEFT JOIN kairo.process ON process.id = unit.process
WHERE unit.state IN ('sent', 'taken', 'lost')
    AND (unit.kind = 'run' OR EXISTS (SELECT FROM kairo.process WHERE id = unit.sender AND state <> 'dead'))"""


class Observer:
    """A thread that looks every second beat, with a connection of its own that nothing befalls but the server's end."""

    def __init__(self, url: str, delivery: Any, beat: float) -> None:
        self._url, self._delivery, self._beat = url, delivery, beat
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ends = threading.Event()
        self._away = 0
        self._waiting: dict[tuple[str, int], float] = {}
        """Units without anybody, and for how many seconds in which the database was there."""
        self.states: dict[str, str] = {}
        """By run: its state."""
        self.stuck: set[str] = set()
        self.left = 0
        """Rows that a living process has to tidy up yet, at the last look."""
        self.looks = 0
        self.longest = 0.0
        """Most seconds that a unit was on nobody's way."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._ends.set()
        self._thread.join()

    @contextmanager
    def away(self) -> Generator[None]:
        """Count no time while something befalls the database."""
        self._away += 1
        try:
            yield
        finally:
            self._away -= 1

    def _serve(self) -> None:
        while not self._ends.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True) as connection:
                    looked = time.monotonic()
                    while not self._ends.wait(self._beat):
                        now = time.monotonic()
                        self._look(connection, 0.0 if self._away else min(now - looked, 2 * self._beat))
                        looked = now
            except psycopg.Error:
                self._ends.wait(self._beat)

    def _look(self, connection: psycopg.Connection, passed: float) -> None:
        self.states = dict(connection.execute("SELECT run_id, state FROM kairo.run WHERE parent IS NULL").fetchall())
        self.left = sum(len(connection.execute(rows.encode()).fetchall()) for rows in TIDIED)
        self.looks += 1
        rows = connection.execute(_UNITS.encode()).fetchall()
        sent = {(unit, fence) for unit, fence, state, _ in rows if state == "sent"}
        idle = sent - self._delivery.under_way(connection, sent) if sent else set[tuple[str, int]]()
        idle |= {(unit, fence) for unit, fence, state, _ in rows if state == "lost"}
        idle |= {(unit, fence) for unit, fence, state, owner in rows if state == "taken" and owner in (None, "dead")}
        self._waiting = {pair: self._waiting.get(pair, -passed) + passed for pair in idle}
        for (unit, fence), seconds in self._waiting.items():
            self.longest = max(self.longest, seconds)
            if seconds > LONGEST:
                self.stuck.add(f"{unit}, delivery {fence}")
