"""How tests talk to the command line: in this process, or as a program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kairo_team.cli.app import run_command

DATA = Path(__file__).parent / "data"
NEWSROOM = DATA / "newsroom.py"


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Kairo = Callable[..., Said]


@pytest.fixture
def kairo(capsys: pytest.CaptureFixture[str]) -> Kairo:
    """Run a command in this process."""

    def call(*arguments: object) -> Said:
        code = run_command([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


class SaidJson(NamedTuple):
    """What a command with --json left behind."""

    code: int
    document: dict[str, Any]
    err: str


@pytest.fixture
def kairo_json(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., SaidJson]:
    """Run one command with --json in this process; stdout is given back when the test ends."""
    monkeypatch.setattr(sys, "stdout", sys.stdout)

    def call(*arguments: object) -> SaidJson:
        code = run_command([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return SaidJson(code, json.loads(out), err)

    return call


@pytest.fixture
def quietly(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Begin a run, and discard what it prints."""

    def call(*arguments: object) -> None:
        run_command([str(argument) for argument in arguments])
        capfd.readouterr()

    return call


@pytest.fixture(autouse=True)
def forget_team_files() -> Iterator[None]:
    """Let every test import its files anew."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("team_", "_kairo_file_", "newsroom")):
            del sys.modules[name]


@pytest.fixture
def program() -> Kairo:
    """Run a command as a program of its own."""

    def call(*arguments: object, **environment: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "kairo_team.cli", *map(str, arguments)],
            capture_output=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONWARNINGS": "error", **environment},
        )
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


IN_TURN = """
import json, os, sys
from kairo_team.cli.app import run_command

stdout, own = sys.stdout, os.dup(1)
for arguments in json.loads(sys.argv[1]):
    code, sys.stdout = run_command(arguments), stdout
    stdout.flush()
    os.dup2(own, 1)  # a command with --json keeps it
    if code != 0:
        sys.exit(f"kairo {' '.join(arguments)} returned {code}")
"""


def run_in_turn(commands: Sequence[Sequence[str]], **options: Any) -> Said:
    """Run commands one after the other in one process that knows nothing; each has to succeed."""
    program = [sys.executable, "-c", IN_TURN, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60, **options)
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def team_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a Python file, `import kairo_team as kt` on its first line."""

    def write(text: str, name: str = "team_file.py") -> Path:
        path = tmp_path / name
        path.write_text(f"import kairo_team as kt\n{text}", encoding="utf-8")
        return path

    return write
