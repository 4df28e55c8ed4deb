"""`kairo judge` and `kairo eval` with a rubric in which a person has the last word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Kairo
from tests.evaluators.test_human_criteria import BAD, GOOD

JUDGES = """
from tests.evaluators.test_human_criteria import RUBRIC, desk, judging

rubric, judge, team = RUBRIC, judging()["test:judge"], desk()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "judges.py"
    made.write_text(JUDGES)
    return made


@pytest.mark.parametrize("command", ["calibrate", "score"])
def test_a_person_has_a_row_of_its_own(kairo: Kairo, tmp_path: Path, file: Path, command: str) -> None:
    labels = tmp_path / "labels.jsonl"
    lines = [{"artifact": one.artifact, "task": one.task, "passed": one.passed} for one in (*GOOD, *BAD)]
    labels.write_text("\n".join(map(json.dumps, lines)))
    said = kairo("judge", command, labels, "--judge", f"{file}:judge", "--rubric", f"{file}:rubric")
    assert said.code == 0, said.err
    [row] = [line for line in said.out.splitlines() if "awaits a person" in line]
    assert "40 of 40" in row


def test_an_eval_counts_what_awaits_a_person(kairo: Kairo, tmp_path: Path, file: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"id": "good", "input": "The moon pulls."}\n{"id": "bad", "input": "Lunar hermeneutics."}\n')
    words = ["eval", cases, "--team", f"{file}:team", "--rubric", f"{file}:rubric", "--judge", f"{file}:judge"]
    said = kairo(*words, "--require", "pass_rate>=0.5")
    assert said.code == 0, said.err
    assert "await a person  1 of the 1" in said.out
