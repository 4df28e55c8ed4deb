"""How a new user's command line is typed: in this process, in an empty folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kairo_team.cli.app import run_command


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Kairo = Callable[..., Said]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    return tmp_path


@pytest.fixture
def kairo(folder: Path, capsys: pytest.CaptureFixture[str]) -> Kairo:
    """Type one command, in that folder."""

    def typed(*arguments: str) -> Said:
        code = run_command(list(arguments))
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return typed
