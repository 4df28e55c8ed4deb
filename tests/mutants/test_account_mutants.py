"""Every mutant of accounts is killed by the tests that its row names, and by each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.mutants.accounts import LAW, MUTANTS, table
from tests.mutants.governor import Mutant

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("kairo_team", "coordinators", "evaluators", "examples", "tck", "tests")
PATIENCE = 1_800
"""Seconds until a test that never ends counts as one that does not pass."""
ROUNDS = 10
"""How many times the state machine begins again until it has found what a mutant does wrong."""


def failing(there: Path, tests: tuple[str, ...]) -> set[str]:
    """Run tests on the package in a directory, and return those that fail."""
    report = there / "report.xml"
    options = [f"--rootdir={there}", f"--config-file={there}/pyproject.toml", f"--override-ini=pythonpath={there}"]
    options += [
        "-q",
        "--tb=no",
        "-pno:cacheprovider",
        "-mnot exhaustive",
        "--hypothesis-profile=unshrunk",
        f"--junit-xml={report}",
    ]
    command = [sys.executable, "-m", "pytest", *options, *(f"{there}/tests/cluster/{one}" for one in tests)]
    environment = {**os.environ, "PYTHONPATH": str(there), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(command, cwd=there, env=environment, timeout=PATIENCE, check=False, capture_output=True)
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it for us
    assert cases, "nothing was run"
    return {_name_of(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}


def _name_of(case: ET.Element) -> str:
    _, _, module, *machine = case.get("classname", "").split(".")
    return f"{module}.py::{machine[0] if machine else case.get('name', '').partition('[')[0]}"


@pytest.mark.long
@pytest.mark.parametrize("mutant", [pytest.param(one, id=one.name) for one in MUTANTS])
def test_a_mutant_is_killed(mutant: Mutant, tmp_path: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    source = tmp_path / "kairo_team" / mutant.file
    source.write_text(source.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
    alive = {*mutant.killed_by} - failing(tmp_path, mutant.killed_by)
    for _ in range(ROUNDS):
        if LAW in alive and LAW in failing(tmp_path, (LAW,)):
            alive.remove(LAW)
    assert alive == set()


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


def test_every_mutant_is_an_edit_of_the_source_as_it_stands() -> None:
    for mutant in MUTANTS:
        source = ROOT / "kairo_team" / mutant.file
        assert source.read_text(encoding="utf-8").count(mutant.old) == 1, f"write the mutant {mutant.name!r} again"


def test_the_table_is_up_to_date() -> None:
    """Write it anew with `python -m tests.mutants.accounts > tests/account_mutants.md`."""
    assert (ROOT / "tests/account_mutants.md").read_text(encoding="utf-8") == table() + "\n"
