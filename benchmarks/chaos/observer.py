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
"""Seconds without a process or a delivery for a unit, by heartbeats of workers: three, a reap and an audit take two."""
_UNITS: Final = """
SELECT unit.id, unit.fence, unit.state, process.state
FROM kairo.unit LEFT JOIN kairo.process ON process.id = unit.process
WHERE unit.state IN ('sent', 'taken', 'lost')
    AND (unit.kind = 'run' OR EXISTS (SELECT FROM kairo.process WHERE id = unit.sender AND state <> 'dead'))"""

_MOVED: Final = """
SELECT (SELECT count(*) FROM kairo.step), (SELECT max(id) FROM kairo.call),
    (SELECT count(*) FROM kairo.call WHERE state <> 'sent')"""
_BEATS: Final = "SELECT id, beats FROM kairo.process WHERE kind = 'worker' AND state <> 'dead'"


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
        self.changed = time.monotonic()
        """When a run last moved on, or a row was last tidied up."""
        self._moved: object = None
        self._beats: dict[str, int] = {}
        """Heartbeats so far, by worker."""
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
                        passed = min(now - looked, 2 * self._beat, self._beaten(connection))
                        self._look(connection, 0.0 if self._away else passed)
                        looked = now
            except psycopg.Error:
                self._ends.wait(self._beat)

    def _beaten(self, connection: psycopg.Connection) -> float:
        """Return the seconds since the last look, by the fastest worker's heartbeats, which a busy machine slows."""
        before, self._beats = self._beats, dict(connection.execute(_BEATS.encode()).fetchall())
        most = max((beats - before[one] for one, beats in self._beats.items() if one in before), default=0)
        return most * self._beat / 2

    def _look(self, connection: psycopg.Connection, passed: float) -> None:
        self.states = dict(connection.execute("SELECT run_id, state FROM kairo.run WHERE parent IS NULL").fetchall())
        self.left = sum(len(connection.execute(rows.encode()).fetchall()) for rows in TIDIED)
        self.looks += 1
        moved = (self.states, self.left, connection.execute(_MOVED.encode()).fetchone())
        if moved != self._moved:
            self._moved, self.changed = moved, time.monotonic()
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
