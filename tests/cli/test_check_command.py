"""`kairo check`: the split and the problems, for people and as JSON; `kairo run` checks first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NEWSROOM = Path(__file__).parent / "data" / "newsroom.py"
TeamFile = Callable[..., Path]

TEAM = """
def never(assignment): raise AssertionError("an agent was called")
team = kt.Team("duo", [kt.Member("a", never), kt.Member("b", never, budget=kt.Budget(tokens=300))])
"""


def test_it_shows_how_the_budget_would_be_split(kairo: Any, team_file: TeamFile) -> None:
    said = kairo("check", team_file(TEAM), "x", "--budget", "tokens=1000")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "can start; expect 0 of 2 tasks done"
    [root] = [line for line in lines if line.startswith("duo")]
    assert root.split() == ["duo", "0", "of", "1,000", "tokens", "0.0", "s"]
    assert any("b" in line and "0 of 300 tokens" in line for line in lines)
    assert any("reserve" in line and "100 guaranteed" in line for line in lines)


def test_a_hundred_equal_shares_are_one_line(kairo: Any, team_file: TeamFile) -> None:
    plan = (
        "plan = kt.TaskGraph([kt.Task(f't{n}', 'x', member='a') for n in range(100)] + [kt.Task('end', 'x', weight=9)])"
    )
    said = kairo("check", team_file(TEAM + plan), "x", "--budget", "tokens=100000")
    assert said.code == 0
    assert len(said.out.splitlines()) < 12
    assert "t0 to t99: 100 alike, each" in said.out


def test_what_cannot_start_is_exit_2_with_a_sentence_each(kairo: Any, team_file: TeamFile) -> None:
    said = kairo("check", team_file(TEAM), "x", "--budget", "tokens=100")
    assert (said.code, said.out) == (2, "")
    assert said.err == "kairo: cannot start: the members' budgets add up to 300 tokens, the team has 100\n"


def test_run_checks_first_and_starts_nothing(kairo: Any, team_file: TeamFile) -> None:
    said = kairo("run", team_file(TEAM), "x", "--budget", "tokens=100")
    assert (said.code, said.out) == (2, "")
    assert said.err == "kairo: nothing was started: the members' budgets add up to 300 tokens, the team has 100\n"


def test_a_planner_without_its_model_is_refused_like_a_member(kairo: Any, team_file: TeamFile) -> None:
    text = "from kairo_team.coordinators import AgentPlanner, ExpertTeamCoordinator\n" + TEAM
    text += "team = kt.Team('t', team.members, coordinator=ExpertTeamCoordinator(planner=AgentPlanner('local:nope')))"
    for command, found in (("check", "cannot start"), ("run", "nothing was started")):
        said = kairo(command, team_file(text), "x")
        assert said.code == 2
        assert said.err.startswith(f"kairo: {found}: the planner: model 'local:nope' cannot be used")
        assert said.err.count("\n") == 1


def test_as_json_it_is_one_document(kairo_json: Any, team_file: TeamFile) -> None:
    said = kairo_json("check", team_file(TEAM), "x", "--budget", "tokens=1000", "--json")
    assert (said.code, said.err) == (0, "")
    assert list(said.document) == ["ok", "problems", "split", "carries", "most_tasks", "notes", "exit_code"]
    assert said.document["split"]["children"][1]["guarantee"]["tokens"] == 300


def test_problems_as_json(kairo_json: Any, team_file: TeamFile) -> None:
    said = kairo_json("check", team_file(TEAM), "x", "--budget", "tokens=100", "--json")
    assert (said.code, said.document["ok"], said.document["exit_code"]) == (2, False, 2)
    assert said.document["split"] is None


def test_the_files_own_plan_is_checked(kairo: Any) -> None:
    said = kairo("check", NEWSROOM)
    assert said.code == 0
    assert "moon" in said.out


ASKS = """
rubric = kt.Rubric([kt.Criterion("editor", "an editor agrees", by="human")])
team = kt.Team("desk", [kt.Member("writer", lambda assignment: "Fine.")], kt.ExpertTeamCoordinator(evaluator=rubric))
"""


def test_questions_of_a_run_that_is_recorded_need_no_gate(
    kairo: Any, team_file: TeamFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, place = team_file(ASKS), tmp_path / "runs.db"
    said = kairo("check", file, "x")
    assert said.code == 2
    assert "a human decides it, and the run has no gate" in said.err
    assert kairo("check", file, "x", "--journal", place).code == 0
    monkeypatch.setenv("KAIRO_JOURNAL", str(place))
    assert kairo("check", file, "x").code == 0
    assert not place.exists()
    assert kairo("run", file, "x").code == 7
