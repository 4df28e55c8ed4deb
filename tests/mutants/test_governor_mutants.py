"""Every mutant of the governor is killed by the tests that its row names, and by each of them."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.mutants.governor import MUTANTS
from tests.mutants.kill_table import table
from tests.mutants.killing import ROOT, chosen, copy, edited, misplaced, name_of
from tests.mutants.mutant import Mutant

CPU_SECONDS = 20
"""A mutant whose killer never ends counts as alive. Processor time is limited, so that a busy machine misses none."""
ROUNDS = 20
"""How many times a state machine begins again, from another seed, until it has found what a mutant does wrong."""
PATIENCE = 3_600
"""Seconds until a killer that waits, and takes no processor time, counts as one that never ends."""

# Every run starts as a fork of a process that has imported all but the library: that saves half of its time.
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload(["pytest", "hypothesis", "hypothesis.stateful", "trio", "anyio.from_thread", "pydantic"])

# What a fork runs: a builtin takes it, because a module of ours would be imported from here and not from the copy.
LIMITED = """
import resource
import pytest

resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
pytest.main(options)
"""

WHERE = """
import kairo_team, tests.governance.law

def test_where():
    there = __file__.rpartition("/tests/")[0]
    assert kairo_team.__file__ == there + "/kairo_team/__init__.py"
    assert tests.governance.law.__file__ == there + "/tests/governance/law.py"
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, unchanged, with their bytecode: every mutant starts from here."""
    there = copy(tmp_path_factory.mktemp("governor"), ["tests/governance"])
    (there / "tests/governance/test_where.py").write_text(WHERE)
    return there


def passing(there: Path, tests: Iterable[str], *more: str, seconds: int = CPU_SECONDS) -> dict[str, bool]:
    """Run tests on the package in a directory, and return whether each passes; nothing where they do not end."""
    report = there / "report.xml"
    options = [f"--rootdir={there}", f"--config-file={there}/pyproject.toml", f"--override-ini=pythonpath={there}"]
    options += ["-Wignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    options += ["-q", "--tb=no", "-pno:cacheprovider", "--hypothesis-profile=mutants", f"--junit-xml={report}", *more]
    options += [f"{there}/tests/governance/{one}" for one in tests]
    run = forks.Process(target=exec, args=(LIMITED, {"options": options, "seconds": seconds}))
    run.start()
    run.join(PATIENCE)
    run.kill()
    run.join()
    if run.exitcode != 0:
        return {}
    cases = list(ET.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it for us
    assert cases, "nothing was run"
    assert not [case for case in cases if case.find("error") is not None], report.read_text(encoding="utf-8")
    failed = {name_of(case) for case in cases if case.find("failure") is not None}
    return {name: name not in failed for name in map(name_of, cases)}


@pytest.mark.exhaustive
def test_without_an_edit_every_killer_passes(copied: Path) -> None:
    tests = ["test_where.py::test_where", *sorted({test for mutant in MUTANTS for test in mutant.killed_by})]
    assert passing(copied, tests, seconds=20 * CPU_SECONDS) == dict.fromkeys(tests, True)


@pytest.mark.exhaustive
def test_a_killer_that_never_ends_kills_nothing(copied: Path) -> None:
    (copied / "tests/governance/test_spin.py").write_text("def test_spin():\n    while True:\n        pass\n")
    assert passing(copied, ["test_spin.py::test_spin"], seconds=2) == {}


@pytest.fixture(scope="module")
def survivors(
    copied: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Mapping[str, Future[set[str]]]]:
    """The killers that each chosen mutant survives, by its name.

    As many are tried at once as there are cores, and beside them first those that only wait.
    """
    mutants = sorted(chosen(request, MUTANTS), key=lambda one: not one.waits)
    waiting = sum(one.waits for one in mutants)
    with ThreadPoolExecutor((os.cpu_count() or 1) + waiting) as pool:
        yield {one.name: pool.submit(surviving, one, copied, tmp_path_factory.mktemp("mutant")) for one in mutants}
        pool.shutdown(cancel_futures=True)


def surviving(mutant: Mutant, copied: Path, directory: Path) -> set[str]:
    """Make the edit in a copy, and return the killers that pass all the same."""
    there = edited(mutant, copied, directory)
    alive = alive_after(passing(there, mutant.killed_by), mutant.killed_by)
    for seed in range(1, ROUNDS + 1):
        if not any(test.startswith("test_law.py") for test in alive):
            break
        alive = alive_after(passing(there, alive, "--hypothesis-profile=seeded", f"--hypothesis-seed={seed}"), alive)
    return alive


def alive_after(passed: Mapping[str, bool], killers: Iterable[str]) -> set[str]:
    """Return the killers that did not fail."""
    return {test for test in killers if passed.get(test, True)}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "mutant",  # two of three are left to `make long`
    [pytest.param(one, id=one.name, marks=pytest.mark.long if at % 3 else []) for at, one in enumerate(MUTANTS)],
)
def test_a_mutant_is_killed(mutant: Mutant, survivors: Mapping[str, Future[set[str]]]) -> None:
    assert survivors[mutant.name].result() == set()


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 24


def test_every_mutant_is_an_edit_of_the_source_as_it_stands() -> None:
    assert misplaced(MUTANTS) == []


def test_the_table_is_up_to_date() -> None:
    """Write it anew with `python -m tests.mutants.kill_table > tests/governor_mutants.md`."""
    assert (ROOT / "tests/governor_mutants.md").read_text(encoding="utf-8") == table(MUTANTS) + "\n"
