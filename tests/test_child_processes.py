"""Processes that end with the program that started them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kairo_team._util.child_processes import supervised
from kairo_team._util.child_watch import is_alive

pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups")

PATIENCE = 60.0
"""Seconds that nothing here needs, also on a busy machine."""

PARENT = """
import subprocess, sys, time
from kairo_team._util.child_processes import supervised
command = supervised([sys.executable, "-c", sys.argv[1]])
child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
print(child.stdout.readline(), end="", flush=True)
time.sleep(600)
"""
DEAF = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), below.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_audit_g27_a_child_and_all_below_it_end_with_this_process(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, DEAF],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - a test run may ignore it
    ) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        parent.send_signal(number)
        parent.wait(PATIENCE)
    give_up = time.monotonic() + PATIENCE
    while any(map(is_alive, pids)):
        assert time.monotonic() < give_up, "a child has outlived its parent"
        time.sleep(0.05)


@pytest.mark.parametrize(("code", "ends"), [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 15)", -15)])
def test_a_supervised_command_is_the_command(code: str, ends: int, tmp_path: Path) -> None:
    script = f"import sys; print(sys.stdin.read().upper()); sys.stdout.flush(); {code}"
    command = supervised([sys.executable, "-c", script])
    done = subprocess.run(command, check=False, input="words", capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("WORDS\n", ends)


def test_a_supervised_command_may_wait_for_all_its_children() -> None:
    script = "import os\ntry: os.wait()\nexcept ChildProcessError: print('none')"
    done = subprocess.run(supervised([sys.executable, "-c", script]), check=True, capture_output=True, text=True)
    assert done.stdout == "none\n"


def test_what_cannot_be_started_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program", encoding="utf-8")
    with pytest.raises(FileNotFoundError, match="there is no command 'no-such-command'"):
        supervised(["no-such-command"])
    with pytest.raises(PermissionError, match=r"'\./text' may not be executed"):
        supervised(["./text"], cwd=str(tmp_path))
