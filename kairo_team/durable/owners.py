"""Which process has a run: a locked file for each journal that is open, so that a dead owner is known at once."""

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
"""What a session that lost its run is told."""
HOST: Final = socket.gethostname()
_open_here: set[str] = set()
"""The owners of this process. Their files must not be opened again: closing one would release its lock."""

if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's locks
    os.register_at_fork(after_in_child=_open_here.clear)


class Owner:
    """One open journal, while its process lives."""

    def __init__(self, path: Path) -> None:
        """Take a lock beside the journal's file that ends with this process, however it ends."""
        self.id = uuid4().hex
        self.pid = os.getpid()
        self._path = _file_of(path, self.id)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        _lock(self._file)
        _open_here.add(self.id)
        atexit.register(self.close)  # for a journal that nobody closes

    def close(self) -> None:
        """Give the lock back; the file goes too."""
        if self.id in _open_here and self.pid == os.getpid():
            _open_here.discard(self.id)
            atexit.unregister(self.close)
            os.close(self._file)
            with suppress(OSError):
                self._path.unlink()


def is_alive(path: Path, owner: str) -> bool:
    """Return whether the process of an owner lives: whether its lock is held, whatever its host was called then."""
    if owner in _open_here:
        return True
    file_path = _file_of(path, owner)
    try:
        file = os.open(file_path, os.O_RDWR)
    except OSError:
        return False
    try:
        _lock(file)
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

    def _lock(file: int) -> None:
        """Lock the file for this process, or raise `OSError` when another one has."""
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        """Lock the file for this process, or raise `OSError` when another one has. A forked child has no part of it."""
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
