"""How a new user's command line is typed: in this process, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Kairo, Said, kairo

__all__ = ["Kairo", "Said", "folder", "kairo"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KAIRO_JOURNAL", raising=False)
    return tmp_path
