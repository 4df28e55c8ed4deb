"""Try mutants: make an edit in a copy of the package and of its tests, and run the tests that it should fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from xml.etree import ElementTree as ET

import pytest

M = TypeVar("M")

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kairo_team", "coordinators", "evaluators", "examples", "tck")
FILES = ("pyproject.toml", "tests/conftest.py", "tests/browsing.py", "tests/constrained.py")
PATIENCE = 1_800
"""Seconds after which a killer that never ends counts as one that passes."""


class Edit(Protocol):
    """One edit of the source: `old`, found once in `file` below `kairo_team/`, becomes `new`."""

    @property
    def file(self) -> str: ...
    @property
    def old(self) -> str: ...
    @property
    def new(self) -> str: ...


def copy(there: Path, folders: Iterable[str], files: Iterable[str] = FILES) -> Path:
    """Copy the package, folders of its tests and files to a directory, which is returned: mutants start from here."""
    for name in (*PACKAGES, *folders):
        shutil.copytree(ROOT / name, there / name, symlinks=True)
    for name in files:
        shutil.copy2(ROOT / name, there / name)
    return there


def edited(edit: Edit, copied: Path, directory: Path) -> Path:
    """Make an edit in a copy of a copy, below a directory, and return where that is."""
    there = directory / "mutant"
    shutil.copytree(copied, there, symlinks=True)
    source = there / "kairo_team" / edit.file
    source.write_text(source.read_text(encoding="utf-8").replace(edit.old, edit.new), encoding="utf-8")
    return there


def misplaced(edits: Iterable[Edit]) -> list[Edit]:
    """Return the edits whose `old` is not found once in their file: they have to be written again."""
    return [one for one in edits if (ROOT / "kairo_team" / one.file).read_text(encoding="utf-8").count(one.old) != 1]


def chosen(request: pytest.FixtureRequest, mutants: Sequence[M]) -> list[M]:
    """Return the mutants that tests of this session are about, so that several can be tried at once."""
    specs: list[Any] = [vars(item).get("callspec") for item in request.session.items]
    asked = [spec.params.get("mutant") for spec in specs if spec is not None]
    return [one for one in mutants if one in asked]


def failing(there: Path, folder: str, tests: Collection[str], *options: str) -> set[str]:
    """Run tests of a folder below `tests/` on the package in a directory, and return those of which a case fails."""
    report = there / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"--rootdir={there}", f"--config-file={there}/pyproject.toml"]
    command += [f"--override-ini=pythonpath={there}", "-q", "--tb=no", "-pno:cacheprovider"]
    command += [f"--junit-xml={report}", "--timeout=0"]  # a test that is ended by its timeout leaves no report
    command += [*options, *(str(there / "tests" / folder / one) for one in tests)]
    environment = {**os.environ, "PYTHONPATH": str(there)}
    try:
        subprocess.run(command, cwd=there, env=environment, capture_output=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return set()
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it for us
    assert cases, "nothing was run"
    broken = [f"{case.get('name')}: {error.get('message')}" for case in cases for error in case.iter("error")]
    assert not broken, f"what the killers stand on broke: {broken}"
    failed = {name_of(case) for case in cases if case.find("failure") is not None}
    return {one for one in tests if one.rpartition("/")[2] in failed}


def name_of(case: ET.Element) -> str:
    """Return the test of a case as the tables name it: without parameters, and a state machine by its class."""
    module = next(part for part in case.get("classname", "").split(".") if part.startswith("test_"))
    _, _, machine = case.get("classname", "").partition(f"{module}.")
    return f"{module}.py::{machine or case.get('name', '').partition('[')[0]}"
