"""`kairo eval` and `run_eval`: the team's own runtime, and datasets with mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

import kairo_team as kt
from kairo_team.evals import Case, Dataset, run_eval
from kairo_team.evaluators import Criterion, Rubric, checks
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
    assert "line 5: " in said.err
    assert "and 495 more problems" in said.err
