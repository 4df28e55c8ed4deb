"""A pipeline of functions with a branch that fails: what is done, what is skipped and why, and the page about it."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from statistics import fmean

import pytest

import kairo_team as kt
from tests.examples.running import start

task_board = pytest.importorskip("kairo_team.examples.task_board", reason="this example is no part of the wheel")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/task_board.py"
FAILED_BRANCH = {"lighthouse": "failed", "compare": "skipped", "drift": "skipped"}

pytestmark = pytest.mark.skipif(not FILE.exists(), reason="runs in the repository only")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for the files, which is where the example now looks; it begins with the station's."""
    shutil.copy(task_board.DATA / "station.csv", tmp_path)
    monkeypatch.setattr(task_board, "DATA", tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def result() -> kt.TeamResult:
    return run()


def run() -> kt.TeamResult:
    return kt.run_sync(*task_board.build())


def rows() -> list[dict[str, str]]:
    with (task_board.DATA / "station.csv").open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_page_shows_what_it_prints() -> None:
    done = start(str(FILE))
    page = (ROOT / "docs/task-board.md").read_text(encoding="utf-8")
    shown = page.partition("```text\n")[2].partition("```")[0]
    assert done.stdout.splitlines() == shown.splitlines()
    assert done.returncode == 0
    assert done.stderr.startswith("member 'load' raised on task 'lighthouse' (task_board.py, line ")
    assert done.stderr.count("Traceback") == 1


def test_kairo_runs_it_and_says_that_it_is_degraded() -> None:
    done = start("-m", "kairo_team.cli", "run", str(FILE))
    assert done.returncode == 3, done.stderr
    assert "it needs 'lighthouse', which was not accepted" in done.stdout
    assert "STATISTICS" in done.stdout


def test_the_branch_fails_after_retries_and_the_rest_is_done(result: kt.TeamResult) -> None:
    assert result.status is kt.TeamStatus.DEGRADED
    statuses = {outcome.task_id: outcome.status.value for outcome in result.outcomes}
    assert statuses == dict.fromkeys(statuses, "completed") | FAILED_BRANCH
    assert result["lighthouse"].attempts == 3
    assert result["lighthouse"].error == "FileNotFoundError: lighthouse.csv has not come"


def test_what_is_skipped_names_what_it_lacked(result: kt.TeamResult) -> None:
    assert result["compare"].error == "it needs 'lighthouse', which was not accepted"
    assert result["drift"].error == "it needs 'compare', which was not accepted"
    assert (result["compare"].attempts, result["drift"].attempts) == (0, 0)


def test_the_report_says_what_is_missing(result: kt.TeamResult) -> None:
    assert (result.output or "").endswith("DRIFT\n(not there)")


def test_when_the_file_comes_the_run_is_completed(data: Path) -> None:
    warmer = [f"{row['day']},{float(row['high']) + 1.5}" for row in rows() if task_board.is_figure(row["high"])]
    (data / "lighthouse.csv").write_text("\n".join(["day,high", *warmer]), encoding="utf-8")
    result = run()
    assert result.status is kt.TeamStatus.COMPLETED
    assert (result.output or "").endswith("DRIFT\n+1.5 degrees on average")


def test_without_the_station_there_is_no_report(data: Path) -> None:
    (data / "station.csv").unlink()
    result = run()
    assert result.status is kt.TeamStatus.FAILED
    assert "no report: " in task_board.summary(result)
    assert result["report"].status is kt.TaskStatus.SKIPPED


def test_with_two_parts_of_four_there_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def months(assignment: kt.Assignment) -> str:
        raise ValueError("the calendar is lost")

    monkeypatch.setattr(task_board, "months", months)
    result = run()
    assert (result.status, result["months"].attempts) == (kt.TeamStatus.DEGRADED, 3)
    assert result["report"].status is kt.TaskStatus.SKIPPED


def test_the_file_has_300_rows_and_each_kind_of_fault() -> None:
    days = [row["day"] for row in rows()]
    assert len(days) == 300
    assert len(set(days)) == 298
    cells = {row[measure] for row in rows() for measure in task_board.MEASURES}
    assert {cell for cell in cells if not task_board.is_figure(cell)} == {"", "n/a", "--"}


def test_the_figures_are_those_of_the_file(result: kt.TeamResult) -> None:
    usable = {
        row["day"]: row for row in rows() if all(cell not in ("", "n/a", "--") for cell in list(row.values())[1:])
    }
    highs = [float(row["high"]) for row in usable.values()]
    high = next(line for line in (result.output or "").splitlines() if line.startswith("high "))
    assert high.split() == ["high", f"{min(highs):.1f}", f"{fmean(highs):.1f}", f"{max(highs):.1f}", "degrees"]
    artifact = result["clean"].artifact
    assert artifact is not None
    assert artifact.text.startswith(f"{len(usable)} days;")


@pytest.mark.parametrize(
    ("cell", "is_figure"),
    [("1.5", True), ("-3.6", True), ("0", True), ("", False), ("n/a", False), ("--", False), ("1.2.3", False)],
)
def test_a_figure_is_a_number(cell: str, is_figure: bool) -> None:
    assert task_board.is_figure(cell) is is_figure
