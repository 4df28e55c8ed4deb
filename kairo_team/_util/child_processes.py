"""Child processes that must not outlive this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import Final

_WATCH: Final = str(Path(__file__).with_name("child_watch.py"))


def supervised(command: Sequence[str], *, cwd: str | None = None) -> list[str]:
    """Return a command that runs `command` and kills it, with all processes it started, when this process is gone.

    This works however this process ends, even by SIGKILL. On Linux, processes that the command started also end when
    the command does, in whichever session they are. The command becomes the leader of a new session, so Ctrl-C at the
    terminal does not reach it. `cwd` is the folder it will be started in; None is the current one. On Windows the
    command is returned unchanged. Raises `FileNotFoundError` or `PermissionError` for a command that cannot be started.
    """
    words = list(command)
    program, has_folder = words[0], bool(os.path.dirname(words[0]))  # noqa: PTH120 - "./x" has one
    place = str(Path(cwd or ".", program)) if has_folder else program
    if which(place) is None:  # the errors that starting it would raise
        if has_folder and Path(place).exists():
            raise PermissionError(f"{program!r} may not be executed")
        raise FileNotFoundError(f"there is no command {program!r}")
    if os.name != "posix" or not sys.executable or getattr(sys, "frozen", False):
        return words
    # Isolated: the user's environment and packages neither change nor slow the watcher.
    return [sys.executable, "-I", "-S", _WATCH, str(os.getpid()), *words]
