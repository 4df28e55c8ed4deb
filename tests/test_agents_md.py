"""AGENTS.md and the skill in the package: their code runs, and their names and commands exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import kairo_team as kt
from kairo_team.cli.app import app
from tests.test_docs import blocks, run

PACKAGE = Path(kt.__file__).parent
SKILL = PACKAGE / "skills/kairo-team/SKILL.md"
TEXTS = [PACKAGE / "AGENTS.md", SKILL]
NAME = re.compile(r"\b(?:kt|kairo_team)(?:\.[A-Za-z_]\w*)+")
COMMAND = re.compile(r"\bkairo ([a-z]+)([^\n`]*)")


def found(dotted: str) -> Any:
    """The object that a dotted name of the package names."""
    value: Any = kt
    path = "kairo_team"
    for name in dotted.split(".")[1:]:
        path = f"{path}.{name}"
        try:
            value = getattr(value, name)
        except AttributeError:
            value = importlib.import_module(path)
    return value


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.name)
def test_every_name_of_the_library_exists_and_is_public(text: Path) -> None:
    names = set(NAME.findall(text.read_text(encoding="utf-8")))
    assert len(names) > 8
    for name in names:
        assert found(name) is not None
        first = name.split(".")[1]
        assert not name.startswith("kt.") or first in kt.__all__, name


def test_every_command_and_option_exists() -> None:
    command: Any = typer.main.get_command(app)
    seen = [one for text in TEXTS for one in COMMAND.findall(text.read_text(encoding="utf-8"))]
    assert len(seen) > 5
    for name, rest in seen:
        options = {option for parameter in command.commands[name].params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= options, name


def test_the_examples_of_the_skill_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "skill"}
    for block in blocks(SKILL):
        assert run(block, names) == block.printed, block.line


def test_the_skill_is_one_that_the_library_reads() -> None:
    pytest.importorskip("yaml", reason="the extra `yaml` is not installed")
    from kairo_team.tools import SkillFolder

    assert [one.name for one in SkillFolder(PACKAGE / "skills").skills] == ["kairo-team"]


def test_attributes_that_the_texts_name_exist() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in TEXTS)
    result = kt.TeamResult("r", kt.TeamStatus.COMPLETED)
    for name in set(re.findall(r"`result\.(\w+)", text)):
        assert hasattr(result, name), name
    fields = kt.TaskOutcome.__dataclass_fields__
    assert {name for name in re.findall(r'`result\["write"\]\.(\w+)', text) if name not in fields} == set()
