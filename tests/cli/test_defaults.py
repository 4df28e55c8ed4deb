"""`[tool.kairo]` in pyproject.toml, completion, and the other names of the program."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kairo_team.cli.app import run_command
from kairo_team.cli.defaults import OPTIONS
from kairo_team.durable.journal import SqliteJournal

ROOT = Path(__file__).resolve().parents[2]
TEAM = """
import kairo_team as kt
team = kt.Team("desk", [kt.Member("writer", lambda assignment: "made")])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a team."""
    monkeypatch.chdir(tmp_path)
    for name in ("KAIRO_JOURNAL", "KAIRO_DATABASE", "KAIRO_CONTENT"):
        monkeypatch.delenv(name, raising=False)
    tmp_path.joinpath("team.py").write_text(TEAM)
    return tmp_path


def set_defaults(folder: Path, *lines: str) -> None:
    folder.joinpath("pyproject.toml").write_text("\n".join(["[project]", 'name = "x"', "[tool.kairo]", *lines]))


def runs(file: Path) -> int:
    journal = SqliteJournal(file)
    try:
        return len(list(journal.runs()))
    finally:
        journal.close()


def test_a_journal_of_the_table_is_used_and_the_command_line_wins(
    folder: Path, kairo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_defaults(folder, 'journal = "runs.db"')
    assert kairo("run", "team.py", "Write.").code == 0
    assert runs(folder / "runs.db") == 1
    assert kairo("run", "team.py", "Write.", "--journal", "others.db").code == 0
    monkeypatch.setenv("KAIRO_JOURNAL", "third.db")
    assert kairo("run", "team.py", "Write.").code == 0
    monkeypatch.delenv("KAIRO_JOURNAL")
    assert [runs(folder / name) for name in ("runs.db", "others.db", "third.db")] == [1, 1, 1]
    assert "desk" in kairo("runs").out


@pytest.mark.parametrize("instead", [["--database", "env:NOT_SET"], ["--database=env:NOT_SET"]])
def test_a_place_of_the_command_line_replaces_the_tables(folder: Path, kairo: Any, instead: list[str]) -> None:
    set_defaults(folder, 'journal = "runs.db"')
    said = kairo("runs", *instead)
    assert said.code == 2
    assert "no variable 'NOT_SET'" in said.err


def test_a_database_of_the_table_gives_way_to_a_journal(folder: Path, kairo: Any) -> None:
    set_defaults(folder, 'database = "env:NOT_SET"', 'engine = "dbos"')
    assert "no variable 'NOT_SET'" in kairo("run", "team.py", "Write.").err
    assert kairo("run", "team.py", "Write.", "--journal", "runs.db").code == 0


def test_a_budget_and_events_of_the_table_count_for_runs(folder: Path, kairo: Any) -> None:
    set_defaults(folder, 'budget = "tokens=777,loops=3"', 'events = "events.jsonl"')
    assert "777" in kairo("check", "team.py", "Write.").out
    assert "778" in kairo("check", "team.py", "Write.", "--budget", "tokens=778").out
    assert kairo("run", "team.py", "Write.").code == 0
    assert folder.joinpath("events.jsonl").read_text().count("\n") > 2


MISTAKES = [
    (
        'jurnal = "x"',
        "tool.kairo takes no 'jurnal'; did you mean 'journal'? it takes journal, database, engine, budget",
    ),
    ("journal = 3", "tool.kairo.journal must be a string as behind --journal, not 3"),
    ('budget = "token=3"', "tool.kairo.budget is not valid: --budget limits"),
    ('content = "all"', "tool.kairo.content must be one of 'none', 'events', 'journal', not 'all'"),
    ('engine = "x"\ndatabase = "env:DB"', "tool.kairo.engine must be one of 'dbos', 'procrastinate', not 'x'"),
    ('engine = "dbos"', "tool.kairo has an engine and no database: add database"),
    ('database = "postgresql://me:sesame@host/db"', "tool.kairo.database has a password: write env:NAME or file:PATH"),
    ('database = "env:DB"\njournal = "x"', "tool.kairo has a journal and a database: runs are recorded in one place"),
]


@pytest.mark.parametrize(("line", "sentence"), MISTAKES, ids=[sentence[11:40] for _, sentence in MISTAKES])
def test_a_mistake_in_the_table_is_said_with_its_line(folder: Path, kairo: Any, line: str, sentence: str) -> None:
    set_defaults(folder, line)
    said = kairo("check", "team.py", "Write.")
    assert said.code == 2
    assert f"pyproject.toml, line 4: {sentence}" in " ".join(said.err.split())
    assert "sesame" not in said.err
    assert kairo("check", "--help").code == 0


def test_a_broken_file_is_named(folder: Path, kairo: Any) -> None:
    set_defaults(folder, "journal = runs.db")
    assert "pyproject.toml, line 4: it is not valid TOML" in kairo("check", "team.py", "Write.").err


def test_a_project_without_the_table_changes_nothing(folder: Path, kairo: Any) -> None:
    folder.joinpath("pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["kairo-team"]\n')
    assert kairo("check", "team.py", "Write.").code == 0
    folder.joinpath("pyproject.toml").write_text("not TOML at all")
    assert kairo("check", "team.py", "Write.").code == 0


def test_the_page_on_the_command_line_names_every_option_of_the_table() -> None:
    page = ROOT.joinpath("docs/command-line.md").read_text(encoding="utf-8")
    section = page.partition("## Defaults for a project")[2].partition("\n## ")[0]
    assert [name for name in OPTIONS if f"`{name}`" not in section] == []


# -- the other names of the program, and completion --------------------------------------------------


def test_the_package_is_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "kairo_team", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("kairo ")


def test_a_script_has_the_packages_name() -> None:
    if not ROOT.joinpath("pyproject.toml").exists():
        pytest.skip("runs in the repository only")
    scripts = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == dict.fromkeys(["kairo", "kairo-team"], "kairo_team.cli:main")


@pytest.mark.parametrize(("words", "completed"), [("kairo ru", {"run", "runs"}), ("kairo run --jour", {"--journal"})])
def test_a_shell_gets_words_that_complete_a_line(words: str, completed: set[str]) -> None:
    asked = {"_KAIRO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "kairo_team"],
        env={**os.environ, **asked},
        check=False,
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)
    with pytest.raises(SystemExit) as ended:
        run_command(["--show-completion"])
    assert ended.value.code == 0
    assert "_KAIRO_COMPLETE" in capsys.readouterr().out
