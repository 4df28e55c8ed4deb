"""How tests talk to the command line: in this process, or as a program."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
def anyio_backend() -> str:
    """The command line itself runs on asyncio."""
    return "asyncio"


@pytest.fixture
def kairo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kairo:
    """Run a command in this process."""
    monkeypatch.setattr(sys, "modules", sys.modules)

    def call(*arguments: object) -> Said:
        before = set(sys.modules)
        try:
            code = run_command([str(argument) for argument in arguments])
        finally:
            for name in set(sys.modules) - before:
                if Path(getattr(sys.modules[name], "__file__", None) or "/").parent.name.startswith("team"):
                    del sys.modules[name]
        return Said(code, *capsys.readouterr())

    return call


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


@pytest.fixture
def team_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a Python file, `import kairo_team as kt` on its first line."""

    def write(text: str, name: str = "team_file.py") -> Path:
        path = tmp_path / name
        path.write_text(f"import kairo_team as kt\n{text}", encoding="utf-8")
        return path

    return write
