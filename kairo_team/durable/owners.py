"""Owners of runs: a locked file for each open journal, so that a dead owner is detected at once."""

from __future__ import annotations

import atexit
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

TAKEN_OVER: Final = "another process has taken the run over"
"""Error message for a session that lost its run."""
HOST: Final = socket.gethostname()
_open_here: set[str] = set()
"""The ids of this process's owners. Their files must not be opened again: closing one would release its lock."""

if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's locks
    os.register_at_fork(after_in_child=_open_here.clear)


class Owner:
    """One open journal of this process."""

    def __init__(self, path: Path) -> None:
        """Lock a file next to the journal's; the lock ends with this process, however the process ends."""
        self.id = uuid4().hex
        self.pid = os.getpid()
        self._path = _file_of(path, self.id)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        _lock(self._file)
        _open_here.add(self.id)
        atexit.register(self.close)  # for a journal that is never closed

    def close(self) -> None:
        """Release the lock and delete its file."""
        if self.id in _open_here and self.pid == os.getpid():
            _open_here.discard(self.id)
            atexit.unregister(self.close)
            os.close(self._file)
            with suppress(OSError):
                self._path.unlink()


def is_alive(path: Path, owner: str) -> bool:
    """Return whether an owner's process lives, that is, whether its lock is held."""
    # The host name is not compared: a container may have a new one.
    if owner in _open_here:
        return True
    file_path = _file_of(path, owner)
    try:
        file = os.open(file_path, os.O_RDWR)
    except OSError:
        return False
    try:
        _lock(file, shared=True)
    except OSError:
        return True
    else:
        with suppress(OSError):
            file_path.unlink()
        return False
    finally:
        os.close(file)


def _file_of(path: Path, owner: str) -> Path:
    return path.with_name(f"{path.name}-owner-{owner}")


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int, *, shared: bool = False) -> None:  # noqa: ARG001 - Windows has no shared lock
        """Lock the file for this process; raise `OSError` if another process has the lock."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int, *, shared: bool = False) -> None:
        """Lock the file for this process; raise `OSError` if another process has the lock.

        A process that only looks for an owner takes a shared lock: two such processes do not exclude each other.
        """
        # Unlike `flock`, a forked child does not inherit this lock.
        fcntl.lockf(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
