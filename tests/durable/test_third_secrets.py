"""Secrets in a journal: what is only shown later has none, and nobody else may read its files."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import kairo_team as kt
from kairo_team.artifacts import Finding
from tests.cli.conftest import run_in_turn
from tests.human import DEFER, Gate, LeavesOpen, Office
from tests.test_report import unpacked

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.sampled("anyio_backend")]

SECRET: Final = "hunter2-and-more"
STRICT: Final = kt.EvaluationVerdict.escalate(
    kt.Cause.HUMAN_REQUIRED,
    f"leave {SECRET} out",
    findings=[Finding("f1", observed=f"it names {SECRET}", expected=f"no {SECRET}")],
)
VIEWS: Final = """
import sys
from dataclasses import fields
import kairo_team as kt
from kairo_team.views.run_record import read_record, recorded_attempts, recorded_error
journal = kt.SqliteJournal(sys.argv[1])
run = journal.show("r")
for one in (journal.runs(), run, journal.result("r"), journal.calls("r"), journal.in_doubt("r"), journal.pending()):
    print(repr(one))
print(journal.events_after("r"), read_record(journal, run), recorded_error(journal, "r"))
print(list(recorded_attempts(journal, "r")))
"""


def refuses(assignment: kt.Assignment) -> str:
    raise ConnectionError(f"401 for {SECRET}")


def plain(assignment: kt.Assignment, context: kt.MemberContext) -> str:
    context.emit(f"at {SECRET}")
    return "a plain text"


def says_it(assignment: kt.Assignment) -> str:
    return f"the key is {SECRET}"


async def leave_traces(path: Path, what: str, *answers: kt.HumanDecision, **members: object) -> kt.TeamResult:
    """Record a run of which tasks were done, were refused and wait for a person, who then answers."""
    journal = kt.SqliteJournal(path)
    everybody = {"a": plain, "b": refuses, **members}
    plan = [kt.Task(f"of-{name}", what, inputs={"what": what}, member=name) for name in everybody]
    gate = Gate(*[DEFER] * len(everybody))
    reviews = LeavesOpen("of-a", "of-c", verdict=STRICT)
    office = Office(everybody, gate=gate, runtime={"secrets": [SECRET], "journal": journal}, evaluator=reviews)
    result = await office.run(plan, what, risk_profile=kt.RiskProfile.HIGH)
    assert result.status is kt.TeamStatus.SUSPENDED
    asked = len(gate.asked)
    if answers:
        office.answer(*answers)
        result = await office.resume()
        assert len(gate.asked) == asked, "the answers hold for the questions"
    journal.close()
    return result


def cells(path: Path) -> Iterator[tuple[str, str, object]]:
    """Yield every column of every row of every table."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row["name"] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert {"run", "step", "call", "question", "event", "owner"} <= set(tables)
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - the names are the journal's own
                yield from ((table, column, row[column]) for column in row.keys())  # noqa: SIM118 - a row is no dict


def shown_elsewhere(path: Path, folder: Path) -> str:
    """Return all that another process, which knows no secrets, shows of the run."""
    done = subprocess.run(
        [sys.executable, "-c", VIEWS, str(path)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = run_in_turn([[*words, "--journal", str(path)] for words in COMMANDS], cwd=folder)
    assert said.code == 0, said.err
    page = (folder / "report.html").read_text()
    return done.stdout + done.stderr + said.out + said.err + page + json.dumps(unpacked(page))


COMMANDS: Final = (
    ("runs",),
    ("runs", "--json"),
    ("show", "r"),
    ("events", "r"),
    ("report", "r", "--output", "report.html"),
)


async def test_third_o21_what_is_only_shown_later_is_recorded_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await leave_traces(path, "Do it.")
    assert [(table, column) for table, column, value in cells(path) if SECRET in str(value)] == []
    assert {table for table, _, value in cells(path) if "[secret]" in str(value)} >= {"step", "question", "event"}
    answered = tmp_path / "answered.db"
    result = await leave_traces(answered, "Do it.", kt.HumanDecision.approve())
    assert result["of-a"].status is kt.TaskStatus.COMPLETED
    assert [(table, column) for table, column, value in cells(answered) if SECRET in str(value)] == []


async def test_third_o21_no_view_of_another_process_shows_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await leave_traces(path, f"Use {SECRET}.", c=says_it)
    found = {(table, column) for table, column, value in cells(path) if SECRET in str(value)}
    assert found == {("step", "value"), ("run", "request")}, "the plan, its inputs and the artifact, as tasks need them"
    shown = shown_elsewhere(path, tmp_path)
    assert SECRET not in shown
    assert "the key is [secret]" in shown


async def test_third_o21_no_view_shows_a_secret_of_a_draft(tmp_path: Path) -> None:
    """What was sent back is in no result: the journal has a masked copy of each artifact with a secret."""

    def draft(assignment: kt.Assignment) -> str:
        return f"draft {assignment.attempt} has {SECRET}"

    def is_second(artifact: kt.Artifact) -> bool:
        return "draft 2" in artifact.text

    path = tmp_path / "runs.db"
    journal = kt.SqliteJournal(path)
    second = kt.Rubric([kt.Criterion("second", "it is the second draft", check=is_second)])
    team = kt.Team("t", [kt.Member("m", draft)], coordinator=kt.ExpertTeamCoordinator(evaluator=second))
    plan = kt.TaskGraph([kt.Task("a", "Write.")])
    async with kt.Runtime(journal=journal, secrets=[SECRET]) as runtime:
        result = await kt.run(team, "Go.", plan=plan, run_id="r", runtime=runtime)
    journal.close()
    assert result.output == "draft 2 has [secret]"
    shown = shown_elsewhere(path, tmp_path)
    assert SECRET not in shown
    assert shown.count("draft 1 has [secret]") >= 2, "as the record of the attempt, and in the report"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
async def test_third_o21_the_files_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal = kt.SqliteJournal(tmp_path / "runs.db")
        seen: dict[str, int] = {}

        def look(assignment: kt.Assignment) -> str:
            with journal.database.reading():
                seen.update({one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()})
            return "done"

        await Office({"a": look}, runtime={"journal": journal}).run([kt.Task("t", "Do it.")])
        journal.close()
    finally:
        os.umask(before)
    assert {name.partition("-")[2].partition("-")[0] for name in seen} >= {"", "wal", "shm", "owner"}
    assert set(seen.values()) == {0o600}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_third_o21_a_file_that_is_there_keeps_the_mode_that_its_owner_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    kt.SqliteJournal(path).close()
    path.chmod(0o640)
    kt.SqliteJournal(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
