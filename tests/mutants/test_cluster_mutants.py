"""Every mutant of the cluster is killed by the tests that its row names, and by each of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.cluster.server import server
from tests.mutants.cluster import MUTANTS, Mutant
from tests.mutants.cluster_table import table

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("kairo_team", "coordinators", "evaluators", "examples", "tck", "tests/cluster", "tests/durable")
FILES = ("pyproject.toml", "tests/conftest.py", "tests/browsing.py", "tests/constrained.py")
PATIENCE = 900
"""Seconds after which a killer that never ends counts as one that passes."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, unchanged: every mutant starts from here."""
    server()  # skips where there is no PostgreSQL
    there = tmp_path_factory.mktemp("cluster")
    for name in (*COPIED, "tests/governance"):
        shutil.copytree(ROOT / name, there / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy2(ROOT / name, there / name)
    return there


def failing(there: Path, tests: Collection[str]) -> set[str]:
    """Run tests on the package in a directory, and return those of which a case fails."""
    report = there / "report.xml"
    report.unlink(missing_ok=True)
    options = ["-q", "--tb=short", "-pno:cacheprovider", "-pno:randomly", f"--junit-xml={report}"]
    options += ["--rootdir", str(there), f"--override-ini=pythonpath={there}", *(f"tests/{one}" for one in tests)]
    command = [sys.executable, "-m", "pytest", *options]
    subprocess.run(command, cwd=there, capture_output=True, check=False, timeout=PATIENCE)
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it for us
    assert cases, "nothing was run"
    failed = {name_of(case) for case in cases if case.find("failure") is not None}
    return {one for one in tests if one.partition("::")[2] in failed}


def name_of(case: ET.Element) -> str:
    """Return the test of a case, without its parameters."""
    return case.get("name", "").partition("[")[0]


def killers(mutants: Iterable[Mutant]) -> list[str]:
    return sorted({test for mutant in mutants for test in mutant.killed_by})


@pytest.mark.long
def test_without_an_edit_every_killer_passes(copied: Path) -> None:
    assert failing(copied, killers(MUTANTS)) == set()


@pytest.mark.sampled
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.wrong) for mutant in MUTANTS])
def test_a_mutant_is_killed(mutant: Mutant, copied: Path, tmp_path: Path) -> None:
    there = tmp_path / "mutant"
    shutil.copytree(copied, there, symlinks=True)
    source = there / "kairo_team" / mutant.file
    source.write_text(source.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
    assert failing(there, mutant.killed_by) == {*mutant.killed_by}


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.wrong for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_every_mutant_is_an_edit_of_the_source_as_it_stands() -> None:
    for mutant in MUTANTS:
        text = (ROOT / "kairo_team" / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.old) == 1, f"write the mutant {mutant.wrong!r} again"


def test_every_killer_is_a_test() -> None:
    for test in killers(MUTANTS):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


def test_the_table_is_up_to_date() -> None:
    """Write it anew with `python -m tests.mutants.cluster_table > tests/cluster_mutants.md`."""
    assert (ROOT / "tests/cluster_mutants.md").read_text(encoding="utf-8") == table(MUTANTS) + "\n"
