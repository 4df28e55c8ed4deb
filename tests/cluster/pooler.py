"""PgBouncer, the real one, in front of the server of the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

PROGRAM = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"


@contextmanager
def pooler(url: str, mode: str, **settings: object) -> Generator[str]:
    """Run PgBouncer in a mode; yield the URL of the same database behind it."""
    if not Path(PROGRAM).exists():
        pytest.skip("PgBouncer is not here: apt-get install pgbouncer")
    parts = conninfo_to_dict(url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    written = {
        "listen_addr": "127.0.0.1", "listen_port": port, "unix_socket_dir": "", "auth_type": "any", "pool_mode": mode,
        "max_client_conn": 200, "default_pool_size": 100, **settings,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="kairo-pooler-") as name:
        folder = Path(name)
        file = folder / "pgbouncer.ini"
        where = f"host={parts['host']} port={parts['port']} user=kairo"
        lines = [f"* = {where}", "[pgbouncer]", *(f"{key} = {value}" for key, value in written.items())]
        file.write_text("\n".join(["[databases]", *lines, ""]))
        user = "nobody" if os.getuid() == 0 else None  # PgBouncer refuses to run as root
        folder.chmod(0o755)
        process = subprocess.Popen([PROGRAM, "--quiet", file], user=user, stderr=subprocess.DEVNULL)
        behind = url.replace(f":{parts['port']}/", f":{port}/")
        try:
            _wait_for(behind)
            yield behind
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _wait_for(url: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)
        else:
            return
