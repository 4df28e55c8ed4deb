"""CONTRIBUTING.md is true: its map names files and definitions that exist, and its links are those of the package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "CONTRIBUTING.md").exists():
    pytest.skip("the page is no part of the wheel", allow_module_level=True)
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| `(?P<file>[^`]+\.py)` \| `(?P<name>[\w.]+)` \|$", re.MULTILINE)
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def definitions(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """The classes and functions of a module, and those of its classes with a dot."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, DEFINITIONS):
            found.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            found |= definitions(node.body, f"{prefix}{node.name}.")
    return found


def rows() -> list[tuple[str, str, str]]:
    return [(match["question"], match["file"], match["name"]) for match in ROW.finditer(PAGE)]


def test_the_map_answers_at_least_twenty_different_questions() -> None:
    questions = [question for question, _, _ in rows()]
    assert len(set(questions)) == len(questions) >= 20
    assert len(questions) == sum(line.startswith("| ") and "? |" in line for line in PAGE.splitlines())


@pytest.mark.parametrize(("question", "file", "name"), [pytest.param(*row, id=f"{row[1]}-{row[2]}") for row in rows()])
def test_each_file_of_the_map_defines_the_name_beside_it(question: str, file: str, name: str) -> None:
    path = ROOT / file
    assert path.is_file(), f"where {question} CONTRIBUTING.md names {file}, which does not exist"
    known = definitions(ast.parse(path.read_text(encoding="utf-8")).body)
    assert name in known, f"where {question} CONTRIBUTING.md names {name}, which {file} does not define"


def test_every_folder_it_names_exists() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+)`", PAGE)) - {"records/"}
    assert {"kairo_team/engine/", "coordinators/"} <= named
    assert [folder for folder in sorted(named) if not (ROOT / folder).is_dir()] == []


def test_the_package_has_the_four_links() -> None:
    links = sorted(path.name for path in (ROOT / "kairo_team").iterdir() if path.is_symlink())
    assert links == ["coordinators", "evaluators", "examples", "tck"]
    assert "four links" in PAGE
