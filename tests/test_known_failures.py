"""Every known failure has its tests, most have a mutant, and the table says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import known_failures

ENOUGH = 60


def test_every_known_failure_has_a_test_that_bears_its_id() -> None:
    bare = [row.id for row in known_failures.rows() if not row.tests]
    assert not bare, f"no test is named test_kf_<id>_... for {bare}"


def test_no_test_and_no_mutant_bears_the_id_of_a_row_that_is_not_there() -> None:
    known = {row.id for row in known_failures.rows()}
    assert {*known_failures.tests_by_row(), *known_failures.mutants_by_row()} <= known


def test_most_known_failures_have_a_mutant() -> None:
    mutated = [row.id for row in known_failures.rows() if row.mutants]
    assert len(mutated) >= ENOUGH, f"{len(mutated)} rows have a mutant"


def test_the_table_is_the_one_that_is_written_down() -> None:
    """Write it anew with `python -m tests.known_failures > tests/known_failures.md`."""
    written = Path(__file__).parent / "known_failures.md"
    if not written.exists():
        pytest.skip("runs in the repository only")
    assert written.read_text(encoding="utf-8") == known_failures.table() + "\n"
