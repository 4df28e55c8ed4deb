"""No public name, signature or method changes unseen: the API is written down in `tests/api.txt`."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "api.py"

needs_repository = pytest.mark.skipif(not SCRIPT.exists(), reason="runs in the repository only")


@needs_repository
def test_the_public_api_is_the_one_written_down() -> None:
    written = (ROOT / "tests" / "api.txt").read_text("utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.api"], cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8"
    )
    changed = [
        line
        for line in difflib.unified_diff(written.splitlines(), done.stdout.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    if changed:
        pytest.fail(
            "the public API is not the one in tests/api.txt:\n"
            + "\n".join(changed[:40])
            + "\nIf it changes on purpose, run `.venv/bin/python -m scripts.api > tests/api.txt` and say it in "
            "CHANGELOG.md; where a caller must change something, also in docs/migration.md."
        )
