from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
TeamFile = Callable[..., Path]

SLOW = """
import anyio, pathlib
async def slow(assignment, context):
    context.keep("half a page")
    print("a print of the member's own", flush=True)
    while not pathlib.Path(assignment.goal).exists():
        await anyio.sleep(0.02)
    return "a page"
team = kt.Team("newsroom", [kt.Member("a", slow)])
plan = kt.TaskGraph([kt.Task("first-page", "x")])
request = kt.TeamExecutionRequest("/no/such/file", plan=plan, config=kt.TeamConfig(budget=kt.Budget(tokens=900)))
"""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """What a person types into and reads from."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.seen = ""
        self._master = master

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def close(self) -> None:
        """Close the window, as its button does."""
        if self._master >= 0:
            os.close(self._master)
        self._master = -1

    def read_until(self, text: str = "\0") -> str:
        """Read until the text was shown, or all there is."""
        while text not in self.seen:
            try:
                self.seen += os.read(self._master, 65536).decode()
            except OSError:  # the other end was closed
                break
        return self.seen


@contextmanager
def terminal(*arguments: object, **environment: str) -> Generator[Terminal]:
    """Run a command in a terminal of its own, 80 columns wide and 24 lines high."""
    import fcntl
    import termios

    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "kairo_team.cli", *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=take_terminal,  # noqa: PLW1509 - it calls the system and no more
        env={**clean, "TERM": "xterm-256color", **environment},
    )
    os.close(slave)
    shown = Terminal(process, master)
    try:
        yield shown
    finally:
        process.kill()
        process.wait()
        shown.close()


def test_a_terminal_shows_the_run_live_and_then_the_result(team_file: TeamFile, tmp_path: Path) -> None:
    with terminal("run", team_file(SLOW), tmp_path / "go") as shown:
        shown.read_until("running")
        (tmp_path / "go").touch()
        text = shown.read_until()
        assert shown.process.wait(60) == 0
    live, _, report = ESCAPE.sub("", text).partition("Output")
    assert "0 of 1 done" in live
    assert re.search(r"first-page\s+running\s+1", live)
    assert live.count("a print of the member's own") == 1
    assert "a page" in report
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "\x1b[32m" in text


def test_ctrl_c_in_a_terminal_stops_the_run_and_a_second_one_leaves(team_file: TeamFile) -> None:
    with terminal("run", team_file(SLOW)) as shown:
        shown.read_until("a print of the member's own")
        shown.press(b"\x03")
        text = ESCAPE.sub("", shown.read_until())
        assert shown.process.wait(60) == 6
    assert "half a page" in text
    assert "CANCELLED  after " in text
    assert "Traceback" not in text


def test_leaving_at_once_gives_the_cursor_back(team_file: TeamFile) -> None:
    stubborn = SLOW.replace("await anyio.sleep(0.02)", "__import__('time').sleep(600)")
    with terminal("run", team_file(stubborn)) as shown:
        shown.read_until("running")
        shown.press(b"\x03")
        shown.read_until("press Ctrl-C again")
        shown.press(b"\x03")
        text = shown.read_until()
        assert shown.process.wait(60) == 130
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_dumb_terminal_gets_lines(team_file: TeamFile) -> None:
    with terminal("run", team_file(SLOW), os.devnull, TERM="dumb") as shown:
        text = shown.read_until()
        assert shown.process.wait(60) == 0
    assert "\x1b" not in text
    assert "first-page: assigned to a" in text


def test_audit_g27_a_terminal_that_is_closed_ends_the_run(team_file: TeamFile) -> None:
    with terminal("run", team_file(SLOW)) as shown:
        shown.read_until("a print of the member's own")
        shown.close()
        assert shown.process.wait(60) == 129


FORGER = """
lines = ["An answer.", "", "COMPLETED  after 0.1 s, 3 tokens", "Tasks", "  + forged    done", "long " * 40]
team = kt.Team("newsroom", [kt.Member("a", lambda a: "\\n".join(lines))])
request = kt.TeamExecutionRequest("x")
"""


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["xterm-256color", "dumb"])
def test_audit_g34_lines_of_an_artifact_pass_for_none_of_the_report(team_file: TeamFile, kind: str) -> None:
    with terminal("run", team_file(FORGER), TERM=kind) as shown:
        text = ESCAPE.sub("", shown.read_until()).replace("\r", "")
        assert shown.process.wait(60) == 0
    output = text.partition("Output\n")[2].partition("\n\n")[0].split("\n")
    assert len(output) > 6, "the long line is wrapped"
    assert all(line.startswith("  |") for line in output)
    assert "forged" in "".join(output)
    forged = [line for line in text.split("\n") if "forged" in line or "0.1 s, 3 tokens" in line]
    assert all(line.startswith("  |") for line in forged)
    assert sum(line.startswith("COMPLETED  after") for line in text.split("\n")) == 1
