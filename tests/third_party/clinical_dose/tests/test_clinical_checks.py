"""The rules as checks: the contract kit on each, and in the rubric of somebody else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("clinical_dose", reason="tests/third_party/clinical_dose is not installed")

from clinical_dose.checks import daily_dose_by, form, single_dose_by

import kairo_team as kt
from kairo_team.evaluators import Check
from kairo_team.tck import CheckTCK

TABLE = Path(__file__).with_name("doses.csv")


class TestForm(CheckTCK):
    cannot_crash = True
    good_artifacts = ("tiralin: 5 mg, 2 a day [R1]", "tiralin: 5 mg, 2 a day [R1]\n\novaxin: 1 mg, 1 a day [R2]")
    bad_artifacts = ("", "tiralin: 5, 2 a day [R1]", "tiralin: 5 mg, 2 a day [R1]\nand rest")
    published = "clinical-form"

    @classmethod
    def make_check(cls) -> Check:
        return form()


class TestSingleDose(CheckTCK):
    cannot_crash = True
    good_artifacts: ClassVar[Sequence[str | kt.Artifact]] = (
        "tiralin: 5 mg, 2 a day [R1]",
        "tiralin: 20 mg, 1 a day [R1]",
    )
    bad_artifacts: ClassVar[Sequence[str | kt.Artifact]] = (
        "tiralin: 21 mg, 1 a day [R1]",
        "tiralin: 5 g, 1 a day [R1]",
        "ovaxin: 1 mg, 1 a day [R9]",
    )
    published = "clinical-dose"
    options: ClassVar[Mapping[str, Any]] = {"table": str(TABLE)}

    @classmethod
    def make_check(cls) -> Check:
        return single_dose_by(cls.options["table"])


class TestDailyDose(TestSingleDose):
    good_artifacts = ("tiralin: 20 mg, 2 a day [R1]",)
    bad_artifacts = ("tiralin: 20 mg, 3 a day [R1]", "tiralin: 20 mg, 2 a day [R1]\ntiralin: 5 mg, 1 a day [R1]")
    published = "clinical-day"

    @classmethod
    def make_check(cls) -> Check:
        return daily_dose_by(cls.options["table"])


@pytest.fixture
def rubric(tmp_path: Path) -> Path:
    """Write a rubric of somebody else, with the table beside it."""
    (tmp_path / "doses.csv").write_text(TABLE.read_text())
    criteria = [
        {"id": "form", "text": "every line can be read", "check": "clinical-form"},
        {"id": "dose", "text": "every dose is in the table", "check": {"clinical-dose": {"table": "doses.csv"}}},
        {"id": "day", "text": "no day has too much", "check": {"clinical-day": "doses.csv"}, "kind": "graded"},
        {"id": "short", "text": "at most 10 words", "check": {"max_words": 10}},
    ]
    (tmp_path / "rubric.json").write_text(json.dumps({"criteria": criteria}))
    return tmp_path / "rubric.json"


async def test_the_rules_mix_into_the_rubric_of_somebody_else(rubric: Path) -> None:
    loaded = kt.load_rubric(rubric)
    task = kt.Task("note", "Write the note.")
    for text, met in (
        ("tiralin: 5 mg, 2 a day [R1]", ["met", "met", "met", "met"]),
        ("tiralin: 20 mg, 3 a day [R1]", ["met", "met", "not met", "met"]),
        ("tiralin: 50 mg, 1 a day [R1]", ["met", "not met", "not met", "met"]),
    ):
        verdict = await loaded.evaluate(kt.EvaluationContext(task, kt.Artifact(text), 1))
        assert [one.level for one in verdict.criteria] == met, text
    assert loaded.to_data()["criteria"][1]["check"] == {"clinical-dose": {"table": "doses.csv"}}
    assert loaded.digest is not None


@pytest.mark.parametrize("path", ["../doses.csv", "/etc/passwd", "~/doses.csv", "file:///etc/passwd", "C:\\doses.csv"])
def test_a_rubric_that_is_not_trusted_reads_no_table_elsewhere(path: str, rubric: Path) -> None:
    data = json.loads(rubric.read_text())
    data["criteria"][1]["check"] = {"clinical-dose": {"table": path}}
    rubric.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"rubric\.json, line 1: .*leads out of the file's folder"):
        kt.load_rubric(rubric)
