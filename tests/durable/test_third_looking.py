"""Who looks at a journal imports nothing for it, and a row of the wrong kind hides no other."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.cli.app import run_command
from kairo_team.cli.run_table import runs_document
from kairo_team.errors import JournalError
from kairo_team.gates import DeferGate
from kairo_team.testing import FunctionModel
from kairo_team.views.run_record import read_record
from tests.cli.conftest import run_in_turn

TRAP = """
import pathlib
pathlib.Path(__file__).with_name("trapped").touch()
import dataclasses

@dataclasses.dataclass
class Bait:
    number: int = 0
"""
WRITE = """
import sys
import kairo_team as kt
from kairo_team.coordinators import ExpertTeamCoordinator
from trap import Bait

class Doubt:
    async def evaluate(self, context):
        return kt.EvaluationVerdict.escalate(kt.Cause.HUMAN_REQUIRED, "a person decides")

def work(assignment):
    return kt.Artifact("a draft", Bait(7))

team = kt.Team("desk", [kt.Member("clerk", work)], evaluators={"doubt": Doubt()})
last = kt.Task("last", "Do it.", evaluator="doubt", depends_on=["first"])
plan = kt.TaskGraph([kt.Task("first", "Do it."), last])
runtime = kt.Runtime(journal=kt.SqliteJournal(sys.argv[1]), gate=kt.DeferGate())
result = kt.run_sync(team, "Go.", plan=plan, runtime=runtime, run_id="baited")
assert result.status == "suspended", result
"""


@pytest.fixture
def baited(tmp_path: Path) -> Path:
    """Return a journal whose values name a module, which must not be imported, and put that on the path."""
    (tmp_path / "trap.py").write_text(TRAP)
    done = subprocess.run(
        [sys.executable, "-c", WRITE, str(tmp_path / "runs.db")],
        cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "PATH": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (tmp_path / "trapped").unlink()
    return tmp_path


def test_third_o22_looking_imports_nothing(baited: Path) -> None:
    path = str(baited / "runs.db")
    looks = [
        ["runs", "--journal", path],
        ["runs", "--journal", path, "--json"],
        ["show", "baited", "--journal", path],
        ["show", "baited", "--journal", path, "--json"],
        ["events", "baited", "--journal", path],
        ["report", "baited", "--journal", path, "-o", str(baited / "report.html")],
        ["answer", "baited", "approve", "--journal", path],
    ]
    said = run_in_turn(looks, cwd=baited, env={"PYTHONPATH": str(baited), "PATH": ""})
    assert "Traceback" not in said.err, said.err
    assert said.code == 0, said
    assert not (baited / "trapped").exists(), "one of them imported what the journal names"


def test_third_o22_the_library_imports_nothing_either(baited: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(baited), *sys.path])
    with closing(kt.SqliteJournal(baited / "runs.db")) as journal:
        [question] = journal.pending()
        journal.answer(question.id, kt.HumanDecision.approve())
        with pytest.raises(JournalError, match=r"result of run 'baited'.*class 'trap:Bait' is not known here"):
            journal.result("baited")
    assert "trap" not in sys.modules


def broken(tmp_path: Path, value: str, *changes: str) -> Path:
    """Return a journal of two runs, one of which waits, after it was changed by hand."""
    team = kt.Team("desk", [kt.Member("clerk", lambda assignment: "a draft")])
    journal = kt.SqliteJournal(tmp_path / "runs.db")
    runtime = kt.Runtime(journal=journal, gate=DeferGate(), models={"m:x": FunctionModel(lambda _: "x")})
    from kairo_team.coordinators import ExpertTeamCoordinator

    kt.run_sync(team, "Go.", runtime=runtime, run_id="good")
    coordinator = ExpertTeamCoordinator(plan_approval=True)
    kt.run_sync(team, "Go.", runtime=runtime, run_id="bad", coordinator=coordinator)
    journal.close()
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection, connection:
        for change in changes:
            assert connection.execute(change, (value,)).rowcount == 1
    return tmp_path / "runs.db"


WRONG = ["7", "[1]", "{", '"text"', '{"~": "Usage", "v": {"nothing": 1}}', '{"~": "os:environ", "v": {}}']
COLUMNS = {
    "usage": "UPDATE run SET usage = ? WHERE run_id = 'bad'",
    "source": "UPDATE run SET source = ? WHERE run_id = 'bad'",
}


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("column", COLUMNS)
def test_third_o22_runs_lists_the_others_of_a_run_that_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str, value: str
) -> None:
    path = broken(tmp_path, value, COLUMNS[column])
    with closing(kt.SqliteJournal(path)) as journal:
        found = {one.run_id: one.problem for one in journal.runs()}
        assert found["good"] is None
        assert str(found["bad"]).startswith("run 'bad': ")
        with pytest.raises(JournalError, match=r"cannot be read: run 'bad': "):
            journal.show("bad")
        assert journal.show("good").state == "completed"
    assert run_command(["runs", "--journal", str(path)]) == 0
    said = capsys.readouterr().out
    assert "good" in said
    assert "run 'bad': " in said
    with closing(kt.SqliteJournal(path)) as journal:
        listed = runs_document(journal.runs(), {})
    assert sorted(bool(one["problem"]) for one in listed["runs"]) == [False, True]


@pytest.mark.parametrize("value", WRONG)
def test_third_o22_a_question_or_result_of_the_wrong_kind_is_named(tmp_path: Path, value: str) -> None:
    path = broken(tmp_path, value, "UPDATE question SET body = ?", "UPDATE run SET result = ? WHERE run_id = 'good'")
    with closing(kt.SqliteJournal(path)) as journal:
        with pytest.raises(JournalError, match=r"question 'bad:human:1:plan'"):
            journal.pending()
        with pytest.raises(JournalError, match=r"the result of run 'good'"):
            journal.result("good")


VIEWED = {
    "result": "UPDATE run SET result = ? WHERE run_id = 'bad'",
    "request": "UPDATE run SET request = ? WHERE run_id = 'bad'",
    "step": "UPDATE step SET value = ? WHERE run_id = 'bad' AND key LIKE 'plan:%'",
}


@pytest.mark.parametrize("value", ["7", "[1]", "{", '"text"'])
@pytest.mark.parametrize("column", VIEWED)
def test_third_o22_a_view_names_the_row_that_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str, value: str
) -> None:
    path = broken(tmp_path, value, VIEWED[column])
    if column == "step" and value != "{":
        pytest.skip("a step may be any value")
    assert run_command(["show", "bad", "--journal", str(path)]) != 0
    assert "of run 'bad'" in capsys.readouterr().err
    with closing(kt.SqliteJournal(path)) as journal, pytest.raises(JournalError, match="of run 'bad'"):
        read_record(journal, journal.show("bad"))
