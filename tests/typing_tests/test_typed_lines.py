"""What type checkers see of typed results: a file of right and wrong lines, read by pyright and by mypy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).with_name("typed_results.txt").read_text(encoding="utf-8")
"""Lines that end in `# wrong` are errors, and no others."""


def pyright(path: Path) -> dict[int, str]:
    (path.parent / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)]}), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", path.name]
    done = subprocess.run(command, cwd=path.parent, check=False, capture_output=True, text=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1: one["message"] for one in found if one["severity"] == "error"}


def mypy(path: Path) -> dict[int, str]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    lines = [re.fullmatch(r"(.*):(\d+): error: (.*)", line) for line in done.stdout.splitlines()]
    assert done.stdout, done.stderr
    return {int(one[2]): one[3] for one in lines if one is not None and one[1].endswith(path.name)}


@pytest.mark.parametrize("checker", [pyright, pytest.param(mypy, marks=pytest.mark.long)])
def test_a_type_checker_finds_the_wrong_lines_and_no_others(
    checker: Callable[[Path], dict[int, str]], tmp_path: Path
) -> None:
    path = tmp_path / "typed_program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    found, lines = checker(path), PROGRAM.splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert {lines[number - 1]: said for number, said in found.items() if number not in wrong} == {}
    assert {lines[number - 1] for number in wrong if number not in found} == set()
