from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.coordinators import TaskDispatchCoordinator

asked: list[dict[str, Any]] = []


def write(assignment: kt.Assignment) -> str:
    return f"- {assignment.goal}"


def fail(assignment: kt.Assignment) -> str:
    raise OSError("no")


def build(repo: Path | None, model: str) -> tuple[kt.Team, kt.TeamExecutionRequest, kt.TeamCoordinator, str]:
    """Stand in for the real demo."""
    asked.append({"repo": repo, "model": model})
    if model == "bad:one":
        raise ValueError("there is no history\nto be found")
    team = kt.Team("release-notes", [kt.Member("a", fail if model == "fails:always" else write)])
    return team, kt.TeamExecutionRequest("Fixed it."), TaskDispatchCoordinator(), "From the history in /somewhere."


@pytest.fixture(autouse=True)
def fake_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("release_notes")
    module.build = build  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kairo_team.examples.release_notes", module)
    asked.clear()


def test_the_demo_says_which_history_it_uses_then_runs(kairo: Any) -> None:
    said = kairo("demo")
    assert said.code == 0
    assert said.out.startswith("From the history in /somewhere.\n")
    assert "\nOutput\n  | - Fixed it.\n" in said.out
    assert asked == [{"repo": None, "model": "local:smollm2"}]


def test_the_demo_ends_with_what_to_look_at_next(kairo: Any) -> None:
    said = kairo("demo")
    assert said.err.startswith("kairo: see a run killed and resumed, and nothing paid twice: ")
    assert said.err.endswith(" -m kairo_team.examples.survives\n")


def test_a_demo_that_failed_does_not_name_another(kairo: Any) -> None:
    said = kairo("demo", "--model", "fails:always")
    assert said.code == 4
    assert "survives" not in said.err


def test_a_program_that_reads_the_demo_is_told_nothing_else(kairo_json: Any) -> None:
    assert "survives" not in kairo_json("demo", "--json").err


@pytest.mark.parametrize("on_path", [True, False])
def test_what_it_names_can_be_typed_as_it_stands(
    kairo: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, on_path: bool
) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(python.parent) if on_path else "")
    monkeypatch.chdir(tmp_path)
    command = kairo("demo").err.rpartition(": ")[2].split()
    assert command[0] == ("python" if on_path else str(Path("bin", "python")))


def test_repository_model_and_budget_are_handed_on(kairo: Any, tmp_path: Path) -> None:
    said = kairo("demo", "--repo", tmp_path, "--model", "openai:gpt-x", "--budget", "loops=7,seconds=50")
    assert asked == [{"repo": tmp_path, "model": "openai:gpt-x"}]
    assert "1 of 7" in said.out


def test_a_demo_that_cannot_be_set_up_is_one_sentence(kairo: Any) -> None:
    said = kairo("demo", "--model", "bad:one")
    assert said.code == 2
    assert said.err == "kairo: the demo cannot be set up: there is no history to be found\n"
