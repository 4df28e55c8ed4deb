"""The pictures of the report and the console in the docs are taken by scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browsing import NEEDS

ROOT = Path(__file__).resolve().parent.parent

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (ROOT / "scripts").exists(), reason="runs in the repository only"),
]


def test_scripts_take_every_picture_of_the_report_and_the_console(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason=NEEDS)
    for script in ("report_pictures", "console_pictures"):
        command = [sys.executable, "-m", f"scripts.{script}", str(tmp_path)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    assert {place.name for place in tmp_path.iterdir()} == {place.name for place in (ROOT / "docs").glob("*.png")}
