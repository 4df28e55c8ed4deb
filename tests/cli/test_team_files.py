"""`kairo run`, `check`, `graph` and `schema` with a team as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kairo_team.data.teams import team_schema

Kairo = Callable[..., Any]
WRITES = """
async def write(assignment):
    return f"About {assignment.goal}"
"""
TEAM = """
name: desk
members:
  - {role: writer, agent: "team_code_of_desk:write"}
request:
  plan: {tasks: [{id: draft, description: Write it.}, {id: check, description: Check it., depends_on: [draft]}]}
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    (tmp_path / "team_code_of_desk.py").write_text(WRITES)
    file = tmp_path / "team.yaml"
    file.write_text(TEAM)
    return file


def test_a_file_of_data_runs_on_its_plan_or_on_a_goal(kairo_json: Kairo, team: Path) -> None:
    said = kairo_json("run", team, "tides", "--json")
    assert (said.code, said.document["status"]) == (0, "completed")
    assert "About tides" in json.dumps(said.document)


def test_a_plan_needs_no_goal(kairo: Kairo, team: Path) -> None:
    said = kairo("run", team)
    assert said.code == 0
    assert "About Carry out the plan of desk." in said.out


def test_check_and_graph_take_it_too(kairo: Kairo, team: Path) -> None:
    assert kairo("check", team).code == 0
    picture = team.with_name("plan.svg")
    assert kairo("graph", team, "--svg", picture).code == 0
    assert "draft" in picture.read_text()
    assert kairo("graph", team, "--svg", team).code == 2


def test_each_mistake_is_a_line(kairo: Kairo, tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text("name: desk\nmembrs: []\nmembers:\n  - {role: a, agent: {mimi: {}}}\n")
    said = kairo("run", file, "tides")
    assert said.code == 2
    first, second = said.err.splitlines()
    assert first.startswith(f"kairo: {file}, line 2: takes no 'membrs'; did you mean 'members'?")
    assert second.startswith(f"kairo: {file}, line 4: members[0].agent is refused: there is no agent 'mimi'; did you")


def test_what_cannot_be_loaded_is_refused_in_one_sentence(
    kairo: Kairo, team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "holds one team: leave out ':desk'" in kairo("run", f"{team}:desk").err
    goalless = team.with_name("other.json")
    goalless.write_text('{"name": "desk", "members": [{"role": "a", "agent": {"mini": "m"}}]}')
    assert "team 'desk' has no goal: give one, or write request.goal or request.plan" in kairo("run", goalless).err
    assert "the goal must not be blank" in kairo("run", goalless, " ").err
    monkeypatch.setattr("kairo_team.data.files.find_spec", lambda _: None)
    assert "a file in YAML needs the extra 'yaml': pip install 'kairo-team[yaml]'" in kairo("run", team).err


def test_an_interrupted_run_goes_on_from_its_file(kairo: Kairo, team: Path, tmp_path: Path) -> None:
    """A run that waits for a person is resumed from the file that it was begun with."""
    data = {
        "name": "desk",
        "members": [{"role": "writer", "agent": "team_code_of_desk:write"}],
        "coordinator": {"expert": {"plan_approval": True}},
        "request": {"goal": "Explain tides."},
    }
    file = team.with_name("asking.json")
    file.write_text(json.dumps(data))
    journal = tmp_path / "runs.db"
    assert kairo("run", file, "--journal", journal, "--run-id", "letter").code == 7
    assert kairo("answer", "letter", "approve", "--journal", journal).code == 0
    said = kairo("resume", "letter", "--journal", journal)
    assert (said.code, "About Explain tides." in said.out) == (0, True), said.err


def test_the_schema_is_printed(kairo_json: Kairo) -> None:
    said = kairo_json("schema", "team")
    assert (said.code, said.document) == (0, team_schema())
