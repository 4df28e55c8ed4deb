"""Every mutant of the cluster is killed by the tests that its row names, and by each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.server import need_postgres
from tests.mutants.cluster import MUTANTS, Mutant
from tests.mutants.cluster_table import table
from tests.mutants.killing import ROOT, chosen, copy, edited, failing, misplaced

AT_ONCE = 4
"""Mutants that are tried at once: a killer waits, most of the time, for what does not come."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, unchanged: every mutant starts from here."""
    need_postgres()
    return copy(tmp_path_factory.mktemp("cluster"), ("tests/cluster", "tests/durable", "tests/governance"))


def killers(mutants: Iterable[Mutant]) -> list[str]:
    return sorted({test for mutant in mutants for test in mutant.killed_by})


@pytest.mark.long
def test_without_an_edit_every_killer_passes(copied: Path) -> None:
    assert failing(copied, "", killers(MUTANTS)) == set()


@pytest.fixture(scope="module")
def killing(
    copied: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Mapping[str, Future[set[str]]]]:
    """The killers that fail with each chosen mutant, by its name."""

    def try_one(mutant: Mutant) -> set[str]:
        return failing(edited(mutant, copied, tmp_path_factory.mktemp("mutant")), "", mutant.killed_by)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {one.wrong: pool.submit(try_one, one) for one in chosen(request, MUTANTS)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.wrong, marks=() if one is MUTANTS[0] else pytest.mark.long) for one in MUTANTS],
)
def test_a_mutant_is_killed(mutant: Mutant, killing: Mapping[str, Future[set[str]]]) -> None:
    assert killing[mutant.wrong].result() == {*mutant.killed_by}


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.wrong for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_every_mutant_is_an_edit_of_the_source_as_it_stands() -> None:
    assert misplaced(MUTANTS) == []


def test_every_killer_is_a_test() -> None:
    for test in killers(MUTANTS):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


def test_the_table_is_up_to_date() -> None:
    """Write it anew with `python -m tests.mutants.cluster_table > tests/cluster_mutants.md`."""
    assert (ROOT / "tests/cluster_mutants.md").read_text(encoding="utf-8") == table(MUTANTS) + "\n"
