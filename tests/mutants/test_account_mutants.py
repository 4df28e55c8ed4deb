"""Every mutant of accounts is killed by the tests that its row names, and by each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.server import need_postgres
from tests.mutants.accounts import LAW, MUTANTS, table
from tests.mutants.killing import ROOT, copy, edited, failing, misplaced
from tests.mutants.mutant import Mutant

ROUNDS = 10
"""How many times the state machine begins again until it has found what a mutant does wrong."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests, unchanged: every mutant starts from here."""
    need_postgres()
    return copy(tmp_path_factory.mktemp("accounts"), ("tests/cluster", "tests/durable"))


@pytest.mark.long
@pytest.mark.parametrize("mutant", [pytest.param(one, id=one.name) for one in MUTANTS])
def test_a_mutant_is_killed(mutant: Mutant, copied: Path, tmp_path: Path) -> None:
    there = edited(mutant, copied, tmp_path)
    alive = {*mutant.killed_by}
    for _ in range(ROUNDS):
        alive -= failing(there, "cluster", alive, "-mnot exhaustive", "--hypothesis-profile=unshrunk")
        if alive != {LAW}:
            break
    assert alive == set()


def test_there_are_enough_mutants_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


def test_every_mutant_is_an_edit_of_the_source_as_it_stands() -> None:
    assert misplaced(MUTANTS) == []


def test_the_table_is_up_to_date() -> None:
    """Write it anew with `python -m tests.mutants.accounts > tests/account_mutants.md`."""
    assert (ROOT / "tests/account_mutants.md").read_text(encoding="utf-8") == table() + "\n"
