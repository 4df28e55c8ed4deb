"""`kairo eval` and `run_eval`: the team's own runtime, and datasets with mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.evals import Case, Dataset, run_eval
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.evaluators.calibration.labelled import read_labelled
from kairo_team.testing import FunctionModel
from tests.cli.conftest import Kairo

TEAM = """
import kairo_team as kt
from kairo_team.evaluators import Criterion, Rubric, checks
from kairo_team.testing import FunctionModel

models = {"house:small": FunctionModel(lambda request: "the tide comes")}
team = kt.Team("desk", [kt.Member("clerk", kt.MiniAgent("house:small"))], runtime=kt.Runtime(models=models))
rubric = Rubric([Criterion("tide", "it must name the tide", checks.contains("tide"))])
"""


def test_third_o25_the_command_uses_the_runtime_of_the_team(kairo: Kairo, tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "cases.jsonl").write_text('{"input": "Explain tides."}\n')
    said = kairo(
        "eval", tmp_path / "cases.jsonl", "--team", tmp_path / "team.py", "--rubric", tmp_path / "team.py:rubric"
    )
    assert said.code == 0, said.err
    assert "1 of 1" in said.out or "100" in said.out, said.out


@pytest.mark.anyio
async def test_third_o25_another_runtime_takes_the_place_of_the_teams() -> None:
    rubric = Rubric([Criterion("tide", "it must name the tide", checks.contains("tide"))])
    models = FunctionModel(lambda _: "a tide"), FunctionModel(lambda _: "a hill")
    runtimes = [kt.Runtime(models={"m:x": model}) for model in models]
    team = kt.Team("desk", [kt.Member("clerk", kt.MiniAgent("m:x"))], runtime=runtimes[0])
    cases = Dataset([Case("one", "Explain.")], "cases")
    assert (await run_eval(team, cases, rubric)).metrics["pass_rate"] == 1.0
    assert (await run_eval(team, cases, rubric, runtime=runtimes[1])).metrics["pass_rate"] == 0.0


def test_third_o25_many_wrong_lines_are_a_short_message(kairo: Kairo, tmp_path: Path) -> None:
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "cases.jsonl").write_text('{"inputt": "Explain tides, and why there are two of them a day."}\n' * 500)
    said = kairo(
        "eval", tmp_path / "cases.jsonl", "--team", tmp_path / "team.py", "--rubric", tmp_path / "team.py:rubric"
    )
    assert said.code == 2
    assert len(said.err) < 1_000
    assert "line 1: it has 'inputt'" in said.err
    assert "line 3: " in said.err
    assert "and 497 more problems" in said.err


LONG = "x" * 100_000
ONE_CASE: dict[str, object] = {"input": "Explain tides."}
ONE_LABEL: dict[str, object] = {"artifact": "a", "task": "t", "passed": True}
BAD: dict[str, tuple[str, Any, str]] = {
    "a long key": ("a.jsonl", [ONE_CASE | {LONG: 1}], "line 1: it has 'xxx"),
    "many keys": ("a.jsonl", [ONE_CASE | {f"{n}{LONG}": 1 for n in range(40)}], "and 32 more"),
    "a long id": ("a.jsonl", [ONE_CASE | {"id": f" {LONG}"}], "line 1: Case.id: an id is made of"),
    "ids given twice": ("a.jsonl", [ONE_CASE | {"id": f"{'x' * 90}{n % 50}"} for n in range(100)], "given twice"),
    "a null": ("a.jsonl", [{"input": None}], "line 1: it has no 'input'"),
    "a blank": ("a.jsonl", [{"input": " "}], "line 1: Case.input must not be blank"),
    "half a character": ("a.jsonl", [{"input": "\ud800"}], "line 1: Case.input has half a character"),
    "a long key of a case": ("a.json", {"cases": [{"inputs": "a", LONG: 1}]}, "case 1 has 'xxx"),
    "a long name": ("a.json", {"cases": [{"inputs": "a", "name": LONG, "z": 1}]}, "has 'z'; it may have"),
    "a long evaluator": ("a.json", {"cases": [], "evaluators": [LONG]}, "has no criterion like it"),
    "a text": ("a.json", "cases", "is an object with a list"),
}


@pytest.mark.parametrize("name", BAD)
def test_third_o25_whatever_is_wrong_in_a_dataset_is_a_short_sentence_that_names_the_file(
    name: str, tmp_path: Path
) -> None:
    file, content, says = BAD[name]
    rows = content if file == "a.jsonl" else [content]
    (tmp_path / file).write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match=r".+") as refused:
        Dataset.load(tmp_path / file)
    said = str(refused.value)
    assert said.count(f"{tmp_path / file}") == 1
    assert says in said
    assert len(said) < 1_300 + len(str(tmp_path))


def test_third_o25_so_is_whatever_is_wrong_in_labelled_examples() -> None:
    rows = [ONE_LABEL | {LONG: 1}, {"artifact": None}, ONE_LABEL | {"upstream": {"a": 3}}, ONE_LABEL, ONE_LABEL]
    with pytest.raises(ValueError, match="line 1: it has 'xxx") as refused:
        read_labelled("\n".join(map(json.dumps, rows)))
    said = str(refused.value)
    assert "line 2: it has no 'artifact', 'passed', 'task'" in said
    assert "line 3: LabelledArtifact.upstream['a'] must be a string, not 3" in said
    assert "line 5: it is the same artifact as line 4" in said
    assert len(said) < 1_000


def test_third_o25_a_mark_that_windows_puts_before_a_text_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\ufeff" + json.dumps(ONE_CASE), encoding="utf-8")
    assert [one.input for one in Dataset.load(tmp_path / "a.jsonl").cases] == ["Explain tides."]
    assert [one.artifact for one in read_labelled("\ufeff" + json.dumps(ONE_LABEL))] == ["a"]


def test_third_o25_a_judge_that_is_unknown_is_said_before_any_trial(kairo: Kairo, tmp_path: Path) -> None:
    asks = 'asks = Rubric([Criterion("plain", "a child understands it", by="judge")])\n'
    (tmp_path / "team.py").write_text(TEAM + asks)
    (tmp_path / "cases.jsonl").write_text(f"{json.dumps(ONE_CASE)}\n" * 3)
    given = ("--team", tmp_path / "team.py", "--rubric", tmp_path / "team.py:asks", "--judge", "house:large")
    said = kairo("eval", tmp_path / "cases.jsonl", *given)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("kairo: nothing was started: the judge: model 'house:large' cannot be used")
    assert "Runtime.models has 'house:small'" in said.err
