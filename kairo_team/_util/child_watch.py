"""Run a command that ends when the process PID ends: `child_watch.py PID COMMAND ...`.

This program is started by its path (see `kairo_team._util.child_processes`). It starts a watcher in a session of its
own and becomes the command. The watcher kills the command's process group once the process `PID` is gone; on Linux,
once the command has ended, it also kills the processes that the command left behind, in whichever session they are.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

EVERY = 0.2
"""Seconds between two checks."""
MARK = "KAIRO_TEAM_CHILD_OF"
"""The environment variable that marks all processes that a command starts."""


def is_alive(pid: int) -> bool:
    """Return whether a process runs; False for one that has ended and whose parent has not read its status."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would triple the time to start
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:  # not on Linux
        return True


def watch(parent: int, command: int, mark: bytes) -> None:
    """Kill the command's group when `parent` is gone; once the command has ended, kill all that it left behind."""
    os.setsid()  # killing the command's group must not end the watcher
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whoever reads the command's output waits until each process has closed it.
    os.closerange(0, 3)
    while is_alive(command):
        if not is_alive(parent):
            with suppress(ProcessLookupError):
                os.killpg(command, signal.SIGKILL)
        time.sleep(EVERY)
    while left := marked(mark):  # a process may have started another one before it was killed
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(EVERY)


def marked(mark: bytes) -> list[int]:
    """Return the processes with the mark in their environment: children inherit it, whatever their session or group."""
    found: list[int] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above
    except OSError:  # not on Linux
        return found
    for pid in pids:
        with suppress(OSError):
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
                has_it = mark in file.read()
            if has_it and is_alive(pid):
                found.append(pid)
    return found


def main() -> None:
    """Start the watcher and become the command."""
    parent, words = int(sys.argv[1]), sys.argv[2:]
    with suppress(PermissionError):  # it leads a group already
        os.setsid()
    command = os.getpid()
    mark = f"<{parent}-{command}-{time.time_ns()}>"
    # Added to the outer marks, so that a command inside another ends with both.
    os.environ[MARK] = os.environ.get(MARK, "") + mark
    between = os.fork()
    if between == 0:  # the watcher must not be the command's child: it may wait for all of its children
        if os.fork() == 0:
            watch(parent, command, mark.encode())
        os._exit(0)
    # The command would find an ended child that it never started.
    os.waitpid(between, 0)
    try:
        os.execvp(words[0], words)  # noqa: S606 - running the given command is the purpose
    except OSError as error:
        sys.exit(f"{words[0]} cannot be started: {error}")


if __name__ == "__main__":
    main()
