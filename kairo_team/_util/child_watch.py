"""Run a command that ends when the process that started it ends: `child_watch.py PID COMMAND ...`.

A program started by path (see `kairo_team._util.child_processes`). It becomes the command; beside it, in a session of
its own, stays a watcher that kills the command's process group once the process `PID` is gone, and on Linux, once the
command has ended, all that it started and left, in whichever session that is.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

EVERY = 0.2
"""Seconds between two looks."""
MARK = "KAIRO_TEAM_CHILD_OF"
"""The variable of the environment by which all that a command starts is known."""


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


def watch(parent: int, command: int, mark: bytes) -> None:
    """Kill the command's group when `parent` has gone; once the command has ended, kill all that it left behind."""
    os.setsid()  # whoever kills the command's group does not end the watcher
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.closerange(0, 3)
    while is_alive(command):
        if not is_alive(parent):
            with suppress(ProcessLookupError):
                os.killpg(command, signal.SIGKILL)
        time.sleep(EVERY)
    while left := marked(mark):  # what is killed may have started another one meanwhile
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(EVERY)


def marked(mark: bytes) -> list[int]:
    """Return the processes whose environment has the mark: a child has it too, in whichever session or group it is."""
    found: list[int] = []
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as above
    except OSError:  # another system
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
    os.environ[MARK] = os.environ.get(MARK, "") + mark
    between = os.fork()
    if between == 0:  # the watcher must not be the command's child: it may wait for all of its children
        if os.fork() == 0:
            watch(parent, command, mark.encode())
        os._exit(0)
    os.waitpid(between, 0)
    try:
        os.execvp(words[0], words)  # noqa: S606 - it is what was asked for
    except OSError as error:
        sys.exit(f"{words[0]} cannot be started: {error}")


if __name__ == "__main__":
    main()
