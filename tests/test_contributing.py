"""CONTRIBUTING.md is true: the folders that it names exist, and the links are those of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "CONTRIBUTING.md").exists():
    pytest.skip("the page is no part of the wheel", allow_module_level=True)
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_folder_it_names_exists() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+)`", PAGE))
    assert {"coordinators/", "kairo_team/"} <= named
    assert [folder for folder in sorted(named) if not (ROOT / folder).is_dir()] == []


def test_the_package_has_the_four_links() -> None:
    links = sorted(path.name for path in (ROOT / "kairo_team").iterdir() if path.is_symlink())
    assert links == ["coordinators", "evaluators", "examples", "tck"]
    assert "four links" in PAGE
