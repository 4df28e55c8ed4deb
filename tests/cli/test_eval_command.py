"""`kairo eval`: a table, a file, a page, a comparison, and exit codes that a CI job can gate on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Kairo = Callable[..., Any]
TEAM = """
import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric, checks

async def write(assignment):
    if "fail" in assignment.goal:
        raise ValueError("no ink")
    return "The moon pulls the sea." if "moon" in assignment.goal else "It rises."

team = kt.Team("desk", [kt.Member("writer", write)])
rubric = Rubric([Criterion("moon", "it names the moon", checks.contains("moon"))])
"""
CASES = ['{"id": "a", "input": "Name the moon."}', '{"id": "b", "input": "Name nothing."}']


@pytest.fixture
def team(team_file: Callable[..., Path]) -> Path:
    return team_file(TEAM)


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(CASES))
    return path


def test_it_prints_what_passed_and_what_did_not(kairo: Kairo, team: Path, cases: Path) -> None:
    said = kairo("eval", cases, "--team", team, "--rubric", team, "--repeat", 2)
    assert (said.code, said.err) == (0, "")
    assert "4 of 4 " in said.out
    assert "passed  2 of 4, 50.0%" in said.out
    assert "b  0 of 2  failed: the text lacks 'moon'" in said.out
    assert "writer" not in said.out  # the runs inside are not told


def test_a_ci_job_can_gate_on_metrics(kairo: Kairo, team: Path, cases: Path) -> None:
    given = ("eval", cases, "--team", team, "--rubric", team)
    assert kairo(*given, "--require", "pass_rate>=50%", "--require", "criterion.moon>0.4").code == 0
    said = kairo(*given, "--require", "pass_rate >= 0.9", "--require", "error_rate<=0")
    assert said.code == 8
    assert "not met: pass_rate >= 0.9" in said.out
    assert "error_rate" not in said.out


def test_a_ci_job_gets_a_test_for_each_trial_and_may_gate_on_tries(
    kairo: Kairo, team: Path, cases: Path, tmp_path: Path
) -> None:
    given = ("eval", cases, "--team", team, "--rubric", team, "--repeat", 2, "--junit", tmp_path / "eval.xml")
    said = kairo(*given, "--require", "pass_any_2>=0.5", "--require", "pass_all_2>=0.9")
    assert said.code == 8
    assert [line for line in said.out.splitlines() if "not met" in line] == ["not met: pass_all_2>=0.9"]
    drawn = (tmp_path / "eval.xml").read_text("utf-8")
    assert (drawn.count("<testcase"), drawn.count("<failure")) == (4, 2)
    assert "there is no metric 'pass_any_3'" in kairo(*given, "--require", "pass_any_3>=0.5").err
    assert "is a file that is read here" in kairo(*given[:-1], cases).err


def test_the_document_is_the_file_with_what_was_not_met(
    kairo_json: Kairo, team: Path, cases: Path, tmp_path: Path
) -> None:
    given = ("eval", cases, "--team", team, "--rubric", team, "--json")
    found = kairo_json(*given, "-o", tmp_path / "a.json", "--require", "score>=1").document
    assert (found["unmet"], found["exit_code"]) == (["score>=1"], 8)
    kept = json.loads((tmp_path / "a.json").read_text())
    assert {name: found[name] for name in kept} == kept
    assert [(one["case"], one["outcome"]) for one in kept["trials"]] == [("a", "pass"), ("b", "fail")]


def test_it_is_compared_with_an_earlier_one_and_shown_as_a_page(
    kairo: Kairo, team: Path, cases: Path, tmp_path: Path
) -> None:
    given = ("eval", cases, "--team", team, "--rubric", team)
    kairo(*given, "-o", tmp_path / "before.json")
    team.write_text(TEAM.replace("It rises.", "The moon."))
    said = kairo(*given, "--compare", tmp_path / "before.json", "--html", tmp_path / "a.html", "--require", "change>0")
    assert said.code == 0
    assert "passed          50.0% -> 100.0%, +50.0%" in said.out
    assert "better          1 case: b" in said.out
    page = (tmp_path / "a.html").read_text()
    assert "Compared with the earlier eval" in page
    assert "<script" not in page


def test_a_recorded_eval_that_has_ended_is_shown_again(kairo: Kairo, team: Path, cases: Path, tmp_path: Path) -> None:
    given = ("eval", cases, "--team", team, "--rubric", team, "--journal", tmp_path / "r.db", "--run-id", "night")
    first, again = kairo(*given), kairo(*given)
    assert first.out.endswith(again.out)
    assert "run night is recorded" in first.out
    said = kairo(*given, "--repeat", 2)
    assert said.code == 2
    assert "--run-id 'night' is another eval" in said.err


def test_a_dataset_brings_its_own_criteria(kairo: Kairo, team: Path, tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [{"name": "a", "inputs": "moon", "evaluators": [{"Contains": "moon"}]}]}))
    assert "passed  1 of 1" in kairo("eval", path, "--team", team).out


def test_trials_that_were_not_run_have_an_exit_code_of_their_own(
    kairo: Kairo, team_file: Callable[..., Path], tmp_path: Path
) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text("\n".join(f'{{"input": "Name {number}."}}' for number in range(30)))
    team = team_file(TEAM)
    said = kairo("eval", path, "--team", team, "--rubric", team, "--budget", "loops=5")
    assert said.code == 3
    assert "trials were not run" in said.out


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (("--require", "pass>=1"), "there is no metric 'pass'; there are"),
        (("--require", "change>=0"), "that one needs --compare"),
        (("--require", "pass_rate"), "write a metric and a bound"),
        (("--compare", "nothing.json"), "--compare 'nothing.json': "),
        (("--judge", "test:x"), "no criterion asks for one"),
        (("--repeat", "0"), "repeat"),
        (("--budget", "tokens=x"), "--budget tokens must be a whole number"),
    ],
)
def test_what_cannot_be_evaluated_is_a_sentence(
    kairo: Kairo, team: Path, cases: Path, more: tuple[str, ...], complaint: str
) -> None:
    said = kairo("eval", cases, "--team", team, "--rubric", team, *more)
    assert said.code == 2
    assert complaint in said.err
    assert "Traceback" not in said.err


CALLS = """
from kairo_team.agents import MiniAgent
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import FunctionModel

@kt.tool
async def look(word: str) -> str:
    "Look a word up."
    return "The moon."

def reply(request):
    if any(one.role == "tool" for one in request.messages):
        return "Found."
    return kt.ModelResponse("", [kt.ToolCall("1", "look", {"word": "tide"})])

team = kt.Team("desk", [kt.Member("writer", MiniAgent(FunctionModel(reply, name="test:model"), tools=[look]))])
rubric = Rubric([Criterion("looks", "it looks things up", checks.calls_with("look", {"word": "tide"}))])
"""


def test_what_members_did_is_judged_where_a_journal_records_it(
    kairo: Kairo, team_file: Callable[..., Path], cases: Path, tmp_path: Path
) -> None:
    file = team_file(CALLS)
    said = kairo("eval", cases, "--team", file, "--rubric", file)
    assert said.code == 2
    assert "need a record of what the members did" in said.err
    assert "kairo eval --journal runs.db" in said.err
    said = kairo("eval", cases, "--team", file, "--rubric", file, "--journal", tmp_path / "r.db")
    assert (said.code, said.err) == (0, "")
    assert "passed  2 of 2" in said.out


def test_the_inputs_are_not_overwritten(kairo: Kairo, team: Path, cases: Path) -> None:
    said = kairo("eval", cases, "--team", team, "--rubric", team, "-o", cases)
    assert said.code == 2
    assert "is a file that is read here" in said.err
    assert kairo("eval", cases.with_name("no.jsonl"), "--team", team).code == 2


KILLED = """
import os, pathlib, signal
import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric, checks

HERE = pathlib.Path(__file__).parent

async def write(assignment, context):
    async def pay():
        with open(HERE / "paid.txt", "a") as account:
            account.write(assignment.goal + "\\n")
        return "The moon."
    return await context.recorded("pay", pay)

async def check(artifact):
    if not (HERE / "killed").exists() and len((HERE / "paid.txt").read_text().splitlines()) > 3:
        (HERE / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return True

team = kt.Team("desk", [kt.Member("writer", write)])
rubric = Rubric([Criterion("moon", "it names the moon", check)])
"""


@pytest.mark.real_time
def test_an_eval_that_was_killed_goes_on_with_the_same_command(
    team_file: Callable[..., Path], cases: Path, tmp_path: Path
) -> None:
    file = team_file(KILLED)
    cases.write_text("\n".join(json.dumps({"input": f"Say {number}."}) for number in range(8)))
    given = [sys.executable, "-m", "kairo_team.cli", "eval", cases, "--team", file, "--rubric", file, "--parallel", "1"]
    given += ["--journal", tmp_path / "runs.db", "--run-id", "nightly", "--json"]
    killed = subprocess.run(list(map(str, given)), capture_output=True, check=False, timeout=100)
    assert killed.returncode == -9, killed.stderr
    again = subprocess.run(list(map(str, given)), capture_output=True, check=False, timeout=100)
    assert again.returncode == 0, again.stderr
    assert [one["outcome"] for one in json.loads(again.stdout)["trials"]] == ["pass"] * 8
    paid = (file.parent / "paid.txt").read_text().splitlines()
    assert sorted(set(paid)) == sorted(f"Say {number}." for number in range(8))
    assert len(paid) <= 9  # what was under way when it was killed is done again
