"""docs/architecture.md is true: each behaviour is where it says, a test calls it, and the picture is the code's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("scripts.where", reason="the page is no part of the wheel")

from scripts import architecture_picture, where

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = where.rows()
LEAST = 65


def test_the_map_answers_many_different_questions() -> None:
    assert len({row.question for row in ROWS}) == len(ROWS) >= LEAST
    assert len(ROWS) == sum(line.startswith("| ") and "? |" in line for line in PAGE.splitlines())


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.file}-{row.name}") for row in ROWS])
def test_each_file_of_the_map_defines_the_name_beside_it(row: where.Row) -> None:
    assert (ROOT / row.file).is_file(), f"where {row.question} The page names {row.file}, which does not exist"
    assert where.line_of(row) is not None, f"where {row.question} {row.file} does not define {row.name}"
    file, _, test = row.test.partition("::")
    assert f"def {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), f"there is no test {row.test}"


@pytest.mark.exhaustive  # it runs the tests of all rows, with a hook on every call
def test_the_test_of_each_row_calls_what_the_row_names(tmp_path: Path) -> None:
    notes = tmp_path / "entered.json"
    notes.write_text(json.dumps([[row.file, row.name] for row in ROWS]), encoding="utf-8")
    tests = sorted({f"tests/{row.test}" for row in ROWS})
    options = ["-p", "tests.entered", "-p", "no:cacheprovider", "-m", "not exhaustive", "-rs"]
    command = [sys.executable, "-m", "pytest", "-q", *options, *tests]
    played = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "KAIRO_ENTERED": str(notes)}, capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stdout[-3000:]
    entered = {(test.partition("[")[0], file, name) for test, file, name in json.loads(notes.read_text("utf-8"))}
    # A file with a skipped test proves nothing: it needs what is missing here, such as PostgreSQL.
    skipped = {line.split()[2].partition(":")[0] for line in played.stdout.splitlines() if line.startswith("SKIPPED")}
    wanted = {(f"tests/{row.test}", row.file, row.name) for row in ROWS}
    missing = {one for one in wanted - entered if one[0].partition("::")[0] not in skipped}
    assert not missing, sorted(missing)


def test_the_picture_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8") == architecture_picture.draw(), (
        "python -m scripts.architecture_picture > docs/architecture.svg"
    )


def test_the_finder_prints_the_rows_with_all_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert where.main(["budget", "carved"]) == 0
    printed = capsys.readouterr().out
    assert "kairo_team/engine/tasks/task_budgets.py:" in printed
    assert "TaskBudgets.carve" in printed
    assert where.main(["no such behaviour"]) == 1


def test_every_folder_it_names_exists() -> None:
    named = {cell for line in PAGE.splitlines() for cell in line.split("`")[1::2] if cell.endswith("/")}
    assert {"kairo_team/engine/", "coordinators/"} <= named
    assert [
        one for one in sorted(named) if not any((base / one).is_dir() for base in (ROOT, ROOT / "kairo_team"))
    ] == []
