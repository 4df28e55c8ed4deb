"""Every example says what it made, or how it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kairo_team import examples

FOLDER = Path(str(examples.__file__)).resolve().parent
MODULES = [
    ".".join(file.relative_to(FOLDER).with_suffix("").parts)
    for file in sorted(FOLDER.rglob("*.py"))
    if file.name != "__init__.py" and "_data" not in str(file.relative_to(FOLDER))
]
AT_ONCE = [name for name in MODULES if name == "clean_csv_rules" or name.startswith("release_notes")]
"""They need no model."""
OWN = [
    file.stem.removeprefix("test_")
    for file in Path(__file__).parent.glob("test_*.py")
    if "pytest.mark.local_model" in file.read_text(encoding="utf-8") and file != Path(__file__)
]
"""Tests of their own start them on the embedded model, and look at what they print."""
FIRST_LINE = 300.0
"""Seconds until an example that asks the embedded model prints something, on a busy machine."""


def first_line(name: str, folder: Path) -> str:
    """Start an example as a program, and end it once it has printed a line."""
    command = [sys.executable, "-m", f"kairo_team.examples.{name}"]
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as program:
        assert program.stdout is not None
        try:
            return next((line for line in program.stdout if line.strip()), "")
        finally:
            program.kill()


@pytest.mark.parametrize("name", MODULES)
def test_third_o61_every_example_does_something_as_a_program(name: str) -> None:
    tree = ast.parse(FOLDER.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    last = tree.body[-1]
    assert isinstance(last, ast.If), f"{name} ends without `if __name__ == '__main__':`"
    assert ast.unparse(last.test) == "__name__ == '__main__'"


@pytest.mark.parametrize("name", AT_ONCE)
def test_third_o61_an_example_without_a_model_prints(name: str, tmp_path: Path) -> None:
    line = first_line(name, tmp_path)
    assert line
    assert not line.startswith("Traceback")


@pytest.mark.exhaustive
@pytest.mark.local_model
@pytest.mark.timeout(FIRST_LINE)
@pytest.mark.parametrize("name", [name for name in MODULES if name not in (*AT_ONCE, *OWN)])
def test_third_o61_every_other_example_prints_too(name: str, tmp_path: Path) -> None:
    assert first_line(name, tmp_path)
