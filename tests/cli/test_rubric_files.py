"""A rubric on the command line may be data: each mistake in it is a line, and the judge is asked by it."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/judge_calibration.py"
LABELLED = "examples/judge_calibration_data/labelled.jsonl"
Kairo = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def score(kairo: Kairo, rubric: object, *more: str, labelled: object = LABELLED) -> Any:
    return kairo("judge", "score", labelled, "--judge", f"{EXAMPLE}:judge", "--rubric", rubric, *more)


def test_a_rubric_of_data_scores_as_the_same_rubric_in_python(kairo: Kairo, tmp_path: Path) -> None:
    rubric = runpy.run_path(EXAMPLE)["rubric"]
    (tmp_path / "rubric.json").write_text(json.dumps(rubric.to_data()))
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(Path(LABELLED).read_text().splitlines()[:40]))
    said = score(kairo, tmp_path / "rubric.json", labelled=few)
    assert (said.code, said.err) == (0, "")
    assert said.out == score(kairo, EXAMPLE, labelled=few).out


def test_each_mistake_is_a_line_with_its_place(kairo: Kairo, tmp_path: Path) -> None:
    file = tmp_path / "rubric.yaml"
    file.write_text("criteria:\n  - id: a\n    text: ''\n    check: max_word\n")
    said = score(kairo, file)
    assert said.code == 2
    first, second = said.err.splitlines()
    assert first == f"kairo: {file}, line 3: criteria[0].text must not be blank, not ''"
    assert second.startswith(
        f"kairo: {file}, line 4: criteria[0].check names 'max_word', which is not a check; did you mean"
    )


def test_a_refusal_is_one_document_with_json(kairo_json: Kairo, tmp_path: Path) -> None:
    file = tmp_path / "rubric.json"
    file.write_text('{"criteria": [{}]}')
    said = score(kairo_json, file, "--json")
    assert (said.code, said.document["status"]) == (2, "refused")
    assert said.document["error"].count("; ") >= 1


def test_files_that_cannot_be_read_are_refused(kairo: Kairo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no file 'no.yaml': give the path of a rubric" in score(kairo, "no.yaml").err
    assert "give the path of a .py file that builds a Rubric, or of data in .json, .toml, .yaml, .yml" in (
        score(kairo, LABELLED).err
    )
    file = tmp_path / "rubric.yaml"
    file.write_text("criteria: []")
    monkeypatch.setattr("kairo_team.data.files.find_spec", lambda _: None)
    assert "a file in YAML needs the extra 'yaml': pip install 'kairo-team[yaml]'" in score(kairo, file).err
