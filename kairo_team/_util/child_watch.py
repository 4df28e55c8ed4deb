"""Run a command that ends when the process that started it ends: `child_watch.py PID COMMAND ...`.

A program started by path (see `kairo_team._util.child_processes`). It becomes the command; beside it, in the same
process group, stays a watcher that kills the group once the process `PID` is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

EVERY = 0.2
"""Seconds between two looks."""


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended may still wait for its parent to read its status."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would triple the time to start
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:  # another system
        return True


def watch(parent: int, command: int) -> None:
    """Kill the group when `parent` has gone; return when the command has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 3)
    while is_alive(command):
        if not is_alive(parent):
            os.killpg(0, signal.SIGKILL)
        time.sleep(EVERY)


def main() -> None:
    """Start the watcher and become the command."""
    parent, words = int(sys.argv[1]), sys.argv[2:]
    with suppress(PermissionError):  # it leads a group already
        os.setsid()
    command = os.getpid()
    between = os.fork()
    if between == 0:  # the watcher must not be the command's child: it may wait for all of its children
        if os.fork() == 0:
            watch(parent, command)
        os._exit(0)
    os.waitpid(between, 0)
    try:
        os.execvp(words[0], words)  # noqa: S606 - it is what was asked for
    except OSError as error:
        sys.exit(f"{words[0]} cannot be started: {error}")


if __name__ == "__main__":
    main()
